//! A process with the engine's ends of its pipes, from its start until it is reaped or kept for another task.

use crate::context::{FunctionContext, Programs};
use crate::launch::Started;
use crate::running::{ProgramSpec, start};
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;

/// Requested size of the pipes of a program; a refusal of the kernel costs only speed.
const PIPE_BYTES: usize = 256 << 10;

/// A program that is registered and not reaped.
#[derive(Debug)]
pub(crate) struct Process {
    pub pid: Pid,
    /// None once its input must end.
    pub stdin: Option<Arc<ChildStdin>>,
    /// None while it is being read.
    pub stdout: Option<ChildStdout>,
    pub stderr: ChildStderr,
    /// Becomes readable when it ends.
    pub end: OwnedFd,
}

impl Process {
    /// Starts a program and registers it for the attempt of this context.
    pub fn start(context: &FunctionContext, spec: &ProgramSpec) -> Result<Self, TaskFailure> {
        let Started { pid, stdin, stdout, stderr } = start(spec)?;
        context.programs.register(pid.as_raw_pid(), &context.cancelled);
        for pipe in [stdin.as_fd(), stdout.as_fd()] {
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        let mut lives = Lives { programs: &context.programs, pid, ended: false };
        let end = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
            let message = format!("watching {:?}: {error}", spec.words[0]);
            TaskFailure::new(Blame::Environment, message)
        })?;
        lives.ended = true;
        Ok(Self { pid, stdin: Some(Arc::new(stdin)), stdout: Some(stdout), stderr, end })
    }

    pub fn group(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Waits at most this long for its end; returns whether it has ended.
    pub fn has_ended(&self, patience: &Timespec) -> bool {
        let mut watched = [PollFd::new(&self.end, PollFlags::IN)];
        loop {
            match poll(&mut watched, Some(patience)) {
                Err(Errno::INTR) => {}
                Ok(0) => return false,
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// Returns whether it lives, and its pipes have no unread data.
    pub fn is_quiet(&self) -> bool {
        let is_empty =
            |pipe: &dyn AsFd| rustix::io::ioctl_fionread(pipe.as_fd()).is_ok_and(|bytes| bytes == 0);
        let is_empty_input = self.stdin.as_ref().is_some_and(|stdin| is_empty(&**stdin));
        let is_empty_output = self.stdout.as_ref().is_some_and(|stdout| is_empty(stdout));
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        is_empty_input && is_empty_output && is_empty(&self.stderr) && !self.has_ended(&at_once)
    }

    /// Returns whether it is alone in its process group. If that is unknown, the answer is no.
    pub fn is_alone(&self) -> bool {
        let Ok(all) = std::fs::read_dir("/proc") else { return false };
        let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != self.group()).all(|pid| group_of(pid) != Some(self.group()))
    }
}

/// Returns the process group of a process; 0 for one outside this namespace.
fn group_of(pid: i32) -> Option<i32> {
    // `rustix::process::getpgid` treats the 0 as an error.
    // SAFETY: takes a number and returns one.
    let group = unsafe { libc::getpgid(pid) };
    (group >= 0).then_some(group)
}

/// A program that is ended and reaped if its run is abandoned.
pub(crate) struct Lives<'a> {
    pub programs: &'a Programs,
    pub pid: Pid,
    /// True if another owner ends it, or it has been reaped.
    pub ended: bool,
}

impl Drop for Lives<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.programs.kill_and_forget(self.pid.as_raw_pid());
            // It was killed, so it ends at once; no caller needs the error.
            let _ = Started::wait(self.pid);
        }
    }
}
