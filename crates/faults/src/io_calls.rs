//! Faults of input and output: before each call that changes its files, the engine asks whether the call proceeds,
//! waits or fails.

use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The call and its fault: `write:eio:17`, `sync:enospc:1+`.
const FAULT_VARIABLE: &str = "SAILFISH_IO_FAULT";
/// File that gets a line for each call: `write 17 PATH`.
const LOG_VARIABLE: &str = "SAILFISH_IO_LOG";
/// Duration of a slow call: longer than the polling interval of its waiters, shorter than any timeout.
const SLOW: Duration = Duration::from_millis(250);

named! {
    /// The kinds of calls, each with its own count.
    IoCall {
        /// A file or directory is created, or a file is opened to be rewritten.
        Create = "create",
        Write = "write",
        /// A sync of a file or a directory.
        Sync = "sync",
        Rename = "rename",
    }
}

named! {
    /// Kinds of faults of a call.
    IoFault {
        /// `Input/output error`.
        Failed = "eio",
        /// `No space left on device`.
        Full = "enospc",
        /// The call is slow, and succeeds.
        Slow = "slow",
    }
}

/// The fault in the environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    call: IoCall,
    fault: IoFault,
    /// Number of the first affected call, counting from 1.
    first: u64,
    /// True if all later calls of that kind are affected too.
    goes_on: bool,
}

impl Plan {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(':');
        let (call, fault, number) = (words.next()?, words.next()?, words.next()?);
        let digits = number.strip_suffix('+').unwrap_or(number);
        let plan = Self {
            call: IoCall::parse(call)?,
            fault: IoFault::parse(fault)?,
            first: digits.parse().ok().filter(|first| *first > 0)?,
            goes_on: digits.len() < number.len(),
        };
        words.next().is_none().then_some(plan)
    }

    fn strikes(&self, call: IoCall, number: u64) -> bool {
        self.call == call && (number == self.first || self.goes_on && number > self.first)
    }
}

/// Layer between the engine and its files; it exists only if the environment names a fault or a log.
struct Layer {
    plan: Option<Plan>,
    log: Option<File>,
    passed: [AtomicU64; IoCall::ALL.len()],
}

impl Layer {
    fn from_environment() -> Result<Option<Self>, String> {
        let plan = match std::env::var(FAULT_VARIABLE) {
            Ok(text) => {
                let wrong = || format!("{FAULT_VARIABLE}={text}: give CALL:FAULT:N, as in write:eio:17");
                Some(Plan::parse(&text).ok_or_else(wrong)?)
            }
            Err(_) => None,
        };
        let log = match std::env::var_os(LOG_VARIABLE) {
            Some(path) => {
                let opened = File::options().create(true).append(true).open(&path);
                Some(opened.map_err(|error| format!("{LOG_VARIABLE}={}: {error}", path.display()))?)
            }
            None => None,
        };
        let is_asked = plan.is_some() || log.is_some();
        Ok(is_asked.then(|| Self { plan, log, passed: Default::default() }))
    }

    fn pass(&self, call: IoCall, path: &Path) -> std::io::Result<()> {
        let number = self.passed[call as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(mut log) = self.log.as_ref() {
            let line = format!("{} {number} {}\n", call.name(), path.display());
            // In one write, so that lines of threads stay whole. A test that misses a line reports it.
            let _ = log.write_all(line.as_bytes());
        }
        let Some(plan) = self.plan.filter(|plan| plan.strikes(call, number)) else { return Ok(()) };
        if number == plan.first {
            // The message omits the error text and the path, which the engine must report by itself.
            eprintln!("sailfish: {} {number} gets the planted fault", call.name());
        }
        match plan.fault {
            IoFault::Failed => Err(Errno::IO.into()),
            IoFault::Full => Err(Errno::NOSPC.into()),
            IoFault::Slow => {
                std::thread::sleep(SLOW);
                Ok(())
            }
        }
    }
}

fn layer() -> &'static Result<Option<Layer>, String> {
    static LAYER: OnceLock<Result<Option<Layer>, String>> = OnceLock::new();
    LAYER.get_or_init(Layer::from_environment)
}

pub(crate) fn check_environment() -> Result<(), String> {
    layer().as_ref().map(drop).map_err(String::clone)
}

/// Asks whether a call may proceed; comes right before it. `path` is the file of the call, for the log. An error stands
/// for the error of the call, which must not be made.
#[inline]
pub fn io_call(call: IoCall, path: &Path) -> std::io::Result<()> {
    match layer() {
        Ok(Some(layer)) => layer.pass(call, path),
        // An error in the environment was reported at the start.
        Ok(None) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{IoCall, IoFault, Layer, Plan};
    use std::path::Path;

    #[test]
    fn settings_of_the_environment_are_parsed() {
        let plan = |call, fault, first, goes_on| Some(Plan { call, fault, first, goes_on });
        let check = |text: &str, expected| assert_eq!(Plan::parse(text), expected, "{text}");
        check("write:eio:17", plan(IoCall::Write, IoFault::Failed, 17, false));
        check("sync:enospc:1+", plan(IoCall::Sync, IoFault::Full, 1, true));
        check("rename:slow:2", plan(IoCall::Rename, IoFault::Slow, 2, false));
        for text in ["", "write", "write:eio", "write:eio:0", "write:eio:+", "write:eio:1:2", "read:eio:1"] {
            check(text, None);
        }
    }

    #[test]
    fn only_the_chosen_call_fails() {
        let check = |text: &str, expected: [bool; 4]| {
            let layer = Layer { plan: Plan::parse(text), log: None, passed: Default::default() };
            let path = Path::new("file");
            // Another kind has its own count.
            layer.pass(IoCall::Create, path).unwrap();
            let found = expected.map(|_| layer.pass(IoCall::Write, path).is_err());
            assert_eq!(found, expected, "{text}");
        };
        check("write:eio:2", [false, true, false, false]);
        check("write:enospc:3+", [false, false, true, true]);
        check("sync:eio:1+", [false; 4]);
        let layer = Layer { plan: Plan::parse("sync:enospc:1"), log: None, passed: Default::default() };
        let error = layer.pass(IoCall::Sync, Path::new("file")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}
