//! A process with the engine's ends of its pipes, from its start until it has ended or is kept for another task.

pub(crate) mod disk_usage;
pub(crate) mod ending;
pub(crate) mod idle;
pub(crate) mod intake;
pub(crate) mod killed;
pub(crate) mod limit_watch;
pub(crate) mod pipe_state;
pub(crate) mod standard_error;
pub(crate) mod supervise;

use crate::context::FunctionContext;
use crate::programs::{Member, ProgramNumber, Programs};
use crate::spec::ProgramSpec;
use crate::start::start;
use api::TaskFailure;
use containment::ProgramEnd;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsFd;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Duration;

/// Requested size of the pipes of a program; a refusal of the kernel costs only speed.
const PIPE_BYTES: usize = 256 << 10;

/// A registered program.
#[derive(Debug)]
pub(crate) struct Process {
    pub number: ProgramNumber,
    pub member: Member,
    /// None once its input must end.
    pub stdin: Option<Arc<ChildStdin>>,
    /// None while it is being read.
    pub stdout: Option<Arc<ChildStdout>>,
    pub stderr: ChildStderr,
    /// Readable when it ends.
    pub end: ProgramEnd,
}

/// Size of the pipes between a program and the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeSize {
    /// For records.
    Large,
    /// As the kernel makes them.
    Usual,
}

impl Process {
    /// Starts a program and registers it for the attempt of this context.
    pub fn start(context: &FunctionContext, spec: &ProgramSpec, size: PipeSize) -> Result<Self, TaskFailure> {
        let (its_stdin, stdin) = pipe()?;
        let (stdout, its_stdout) = pipe()?;
        let (stderr, its_stderr) = pipe()?;
        if size == PipeSize::Large {
            for pipe in [&stdin, &stdout] {
                let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
            }
        }
        let streams = [its_stdin.as_fd(), its_stdout.as_fd(), its_stderr.as_fd()];
        let (member, end) = start(&context.programs, &context.named, spec, streams)?;
        let number = context.programs.register(member.clone(), &context.cancelled);
        let (stdin, stdout) = (Some(Arc::new(stdin.into())), Some(Arc::new(stdout.into())));
        Ok(Self { number, member, stdin, stdout, stderr: stderr.into(), end })
    }

    /// Returns whether it lives, and its pipes have no unread data.
    pub fn is_quiet(&self) -> bool {
        let is_empty =
            |pipe: &dyn AsFd| rustix::io::ioctl_fionread(pipe.as_fd()).is_ok_and(|bytes| bytes == 0);
        let is_empty_input = self.stdin.as_ref().is_some_and(|stdin| is_empty(&**stdin));
        let is_empty_output = self.stdout.as_ref().is_some_and(|stdout| is_empty(&**stdout));
        is_empty_input && is_empty_output && is_empty(&self.stderr) && !self.end.has_ended(Duration::ZERO)
    }

    /// Returns whether it has no children, and is alone in its process group. If that is unknown, the answer is no.
    pub fn is_alone(&self) -> bool {
        self.member.init.is_alone(self.member.pid)
    }

    /// Returns its memory in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.member.init.memory_of(self.member.pid)
    }
}

fn pipe() -> Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd), TaskFailure> {
    pipe_with(PipeFlags::CLOEXEC).map_err(pipe_failure)
}

fn pipe_failure(error: rustix::io::Errno) -> TaskFailure {
    TaskFailure::new(api::Blame::Environment, format!("making a pipe for a program: {error}"))
}

/// A program that is ended if its run is abandoned.
pub(crate) struct Lives<'a> {
    pub programs: &'a Programs,
    pub number: ProgramNumber,
    /// True if another owner ends it, or it has ended.
    pub ended: bool,
}

impl Drop for Lives<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.programs.kill_and_forget(self.number);
        }
    }
}
