//! `sailfish node --supervise`: a process that starts the node as another one, and restarts it after a crash.

use super::{NodeArgs, default_name};
use crate::exit::{FAILED, Failure, REFUSED, SIGNAL_BASE};
use crate::show::terminal::tell;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// First pause before a restart after a crash; it doubles with each crash.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Run time after which a crash counts as unrelated to the previous one.
const WORKED_LONG: Duration = Duration::from_secs(60);
/// The option of the supervising process, and its replacement in later starts.
const OPTION: &str = "--supervise";
const AGAIN_OPTION: &str = "--again";

/// Runs the node until it ends permanently. Returns its exit code.
pub fn run(args: &NodeArgs) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).filter(|word| word != OPTION).collect();
    if args.name.is_none() {
        // All starts use one name: the next process replaces the previous one at once.
        words.extend(["--name".into(), default_name().into()]);
    }
    let mut pause = PAUSE_MIN;
    let mut crashes = 0_u64;
    loop {
        let started = Instant::now();
        let mut child = start(&words, crashes > 0).context("starting the node")?;
        let Some(status) = wait(&mut child, &mut signals)? else {
            return told_to_end(&mut child, &mut signals);
        };
        if is_for_good(status) {
            return ended(status);
        }
        if started.elapsed() >= WORKED_LONG {
            pause = PAUSE_MIN;
        }
        crashes += 1;
        let shown = pause.as_secs_f64();
        tell(&format!("sailfish: the node crashed ({status}); it restarts in {shown} s, crash {crashes}"));
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if signals.pending().next().is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Returns whether a restart would only repeat the end: the node was stopped, drained, or refused.
fn is_for_good(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0)) || status.code() == Some(i32::from(REFUSED))
}

fn ended(status: ExitStatus) -> Result<(), Failure> {
    let signal = status.signal().map(|signal| SIGNAL_BASE + signal);
    match status.code().or(signal).unwrap_or(i32::from(FAILED)) {
        0 => Ok(()),
        // The node has printed the reason.
        code => Err(Failure::said(u8::try_from(code).unwrap_or(FAILED))),
    }
}

/// Starts the node as a process that the kernel kills with this one. Must be called from a thread that lives as long as
/// the process.
fn start(words: &[OsString], again: bool) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).args(again.then_some(AGAIN_OPTION));
    let parent = rustix::process::getpid();
    // SAFETY: the closure makes only system calls, all safe to make between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            match rustix::process::getppid() {
                Some(now) if now == parent => Ok(()),
                // The parent died before the call.
                _ => Err(std::io::Error::from(ErrorKind::Interrupted)),
            }
        });
    }
    command.spawn()
}

/// Waits for the end of the node; None if this process is told to end first.
fn wait(child: &mut Child, signals: &mut Signals) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context("waiting for the node")? {
            return Ok(Some(status));
        }
        if signals.pending().next().is_some() {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Forwards each request to end, and waits until the node has ended.
fn told_to_end(child: &mut Child, signals: &mut Signals) -> Result<(), Failure> {
    loop {
        // A node that ended by itself is not reaped yet, so its process id is still valid.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        if let Some(status) = wait(child, signals)? {
            return ended(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_for_good;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn only_crashes_are_mended() {
        let code = |code: i32| ExitStatus::from_raw(code << 8);
        assert!(is_for_good(code(0)) && is_for_good(code(2)));
        assert!(!is_for_good(code(1)) && !is_for_good(code(101)) && !is_for_good(ExitStatus::from_raw(9)));
    }
}
