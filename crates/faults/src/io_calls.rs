//! Faults of input and output: the engine asks before each call by which it changes its files, and is told to go on, to
//! wait, or that the call has failed.

use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Which call is meant, and what happens to it: `write:eio:17`, `sync:enospc:1+`.
const FAULT_VARIABLE: &str = "SAILFISH_IO_FAULT";
/// A file to which each call is added, as a line: `write 17 PATH`.
const LOG_VARIABLE: &str = "SAILFISH_IO_LOG";
/// How long a slow call takes: longer than what waits for it looks again, shorter than any time-out.
const SLOW: Duration = Duration::from_millis(250);

named! {
    /// The kinds of calls, counted apart from each other.
    IoCall {
        /// A file or directory comes into being, or is opened to be written anew.
        Create = "create",
        Write = "write",
        /// Sync of a file or a directory.
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
        /// It takes long, and then happens.
        Slow = "slow",
    }
}

/// Fault that the environment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    call: IoCall,
    fault: IoFault,
    /// The first call that it strikes, counting from 1.
    first: u64,
    /// All calls of that kind from there on.
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

/// Layer between the engine and its files; only exists where the environment asks for it.
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
            // In one piece, so that lines of threads stay whole. A test that misses one will say so.
            let _ = log.write_all(line.as_bytes());
        }
        let Some(plan) = self.plan.filter(|plan| plan.strikes(call, number)) else { return Ok(()) };
        if number == plan.first {
            // Without the words and the path that the engine has to find by itself.
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

/// Asks whether a call may go on; comes right before it. `path` is what it is about, for the log. The error is the one that
/// the call would have given, and the call must not be made then.
#[inline]
pub fn io_call(call: IoCall, path: &Path) -> std::io::Result<()> {
    match layer() {
        Ok(Some(layer)) => layer.pass(call, path),
        // What is wrong with the environment was said at the start.
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
            // Another kind has a count of its own.
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
