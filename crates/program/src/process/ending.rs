//! The pipes of a program that has ended, while its descendants still hold them.
//!
//! Output that arrives within a second belongs to the program. A descendant that holds its standard output longer makes
//! the attempt fail, because output may be missing. One that holds only standard error is ended.

use crate::process::Process;
use crate::process::standard_error::Drain;
use crate::programs::Programs;
use api::{Blame, TaskFailure};
use containment::HoldersThen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

/// Time for descendants of an ended program to end their output.
const OUTPUT_MAX: Duration = Duration::from_secs(1);
/// Time for killed processes to leave the pipes.
const KILLED_MAX: Duration = Duration::from_millis(200);

/// The end of a program, from its own end to that of its pipes.
#[derive(Debug)]
pub(crate) struct Ending {
    has_failed: bool,
    phase: Phase,
    /// Time at which the next phase begins.
    until: Instant,
    /// Processes that held an output too long, and this output.
    holders: Option<(String, String)>,
}

/// Outcome of a program, as its exit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    /// Also: its output is not wanted any more.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Descendants may end their output.
    Output,
    /// The rest of the program's process group has been killed.
    GroupKilled,
    /// All processes of the slot that hold a pipe have been killed.
    HoldersKilled,
}

/// The engine's ends of the pipes of an ended program; None: closed, or read and written to the end.
#[derive(Clone, Copy, Default)]
pub(crate) struct OpenPipes<'a> {
    pub stdin: Option<&'a ChildStdin>,
    pub stdout: Option<&'a ChildStdout>,
    pub stderr: Option<&'a ChildStderr>,
}

/// Result of a look at the pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// A pipe is held: look again when it is closed, at the latest at this time.
    Awaited(Instant),
    /// No process holds a pipe.
    Closed,
    /// A process beyond our reach holds a pipe, which must be left alone.
    GivenUp,
}

impl Ending {
    /// Begins when a program has ended. The output of a failed one is not waited for.
    pub fn begin(outcome: Outcome) -> Self {
        let has_failed = outcome == Outcome::Failed;
        let patience = if has_failed { Duration::ZERO } else { OUTPUT_MAX };
        Self { has_failed, phase: Phase::Output, until: Instant::now() + patience, holders: None }
    }

    /// Looks at the pipes, and ends the processes that hold them too long.
    pub fn look(
        &mut self,
        programs: &Programs,
        process: &Process,
        open: OpenPipes<'_>,
        drain: &mut Drain<'_>,
    ) -> Rest {
        let held = open.held();
        let now = Instant::now();
        let is_waiting = match self.phase {
            Phase::Output => held.stdout.is_some(),
            Phase::GroupKilled | Phase::HoldersKilled if held.is_empty() => return Rest::Closed,
            Phase::GroupKilled | Phase::HoldersKilled => true,
        };
        if is_waiting && now < self.until {
            return Rest::Awaited(self.until);
        }
        match self.phase {
            Phase::Output => {
                self.name_holders(process, held, drain);
                programs.kill_and_forget(process.number);
                if held.is_empty() {
                    return Rest::Closed;
                }
                self.phase = Phase::GroupKilled;
            }
            Phase::GroupKilled => {
                held.all().for_each(|pipe| drop(process.member.init.holders(pipe, HoldersThen::End)));
                self.phase = Phase::HoldersKilled;
            }
            Phase::HoldersKilled => return Rest::GivenUp,
        }
        self.until = now + KILLED_MAX;
        Rest::Awaited(self.until)
    }

    /// Finds the names of the processes that will be killed.
    fn name_holders(&mut self, process: &Process, held: OpenPipes<'_>, drain: &mut Drain<'_>) {
        let names = |pipe: BorrowedFd<'_>| {
            let holders = process.member.init.holders(pipe, HoldersThen::Live).unwrap_or_default();
            let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
            if names.is_empty() { "a process outside its attempt".to_string() } else { names.join(", ") }
        };
        match (held.stdout, held.stderr) {
            _ if self.has_failed => {}
            (Some(stdout), _) => self.held_by(names(stdout.as_fd()), "its standard output".to_string()),
            (None, Some(stderr)) => {
                let names = names(stderr.as_fd());
                let line = format!("sailfish: ended {names}, left behind with standard error open\n");
                drain.add(line.as_bytes());
            }
            (None, None) => {}
        }
    }

    /// Records processes that held an output too long.
    pub fn held_by(&mut self, names: String, output: String) {
        self.holders = Some((names, output));
    }

    /// Returns the failure of a program whose descendants held its output too long.
    pub fn check(&self, program: &str) -> Result<(), TaskFailure> {
        let Some((holders, output)) = &self.holders else { return Ok(()) };
        let message = format!(
            "program {program:?} ended, but {holders} still had {output} open {} s later, so output may be \
             missing: let the program wait for its children, or close their output",
            OUTPUT_MAX.as_secs()
        );
        Err(TaskFailure::new(Blame::UserProgram, message))
    }
}

impl<'a> OpenPipes<'a> {
    /// Returns those that a process has open at the other end.
    fn held(self) -> Self {
        Self {
            stdin: self.stdin.filter(|pipe| is_held(pipe.as_fd())),
            stdout: self.stdout.filter(|pipe| is_held(pipe.as_fd())),
            stderr: self.stderr.filter(|pipe| is_held(pipe.as_fd())),
        }
    }

    fn all(self) -> impl Iterator<Item = BorrowedFd<'a>> {
        let [stdin, stdout] = [self.stdin.map(AsFd::as_fd), self.stdout.map(AsFd::as_fd)];
        stdin.into_iter().chain(stdout).chain(self.stderr.map(AsFd::as_fd))
    }

    fn is_empty(self) -> bool {
        self.all().next().is_none()
    }

    /// Adds the pipes that are held to a list for `poll`, which wakes up when one is closed at the other end.
    pub fn watch(self, watched: &mut Vec<PollFd<'a>>) {
        watched.extend(self.held().all().map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::empty())));
    }
}

/// Returns whether a pipe is open at its other end, whatever is in it.
fn is_held(pipe: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(pipe, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)) == Ok(0)
}
