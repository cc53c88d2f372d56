//! A process with the engine's ends of its pipes, from its start until it has ended or is kept for another task.

pub(crate) mod disk_usage;
pub(crate) mod ending;
pub(crate) mod file_memory;
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
use std::os::fd::{AsFd, OwnedFd};
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

impl Process {
    /// Starts a program whose input the engine feeds and whose output it reads, and registers it for the attempt of this
    /// context.
    pub fn start(context: &FunctionContext, spec: &ProgramSpec) -> Result<Self, TaskFailure> {
        let (its_stdin, stdin) = pipe()?;
        let (stdout, its_stdout) = pipe()?;
        for pipe in [&stdin, &stdout] {
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
        }
        let (stdin, stdout) = (Some(Arc::new(stdin.into())), Some(Arc::new(stdout.into())));
        Ok(Self { stdin, ..Self::start_with(context, spec, its_stdin, its_stdout, stdout)? })
    }

    /// Starts a program with these streams, and registers it for the attempt of this context. The engine reads `stdout`,
    /// or watches it.
    pub fn start_with(
        context: &FunctionContext,
        spec: &ProgramSpec,
        its_stdin: OwnedFd,
        its_stdout: OwnedFd,
        stdout: Option<Arc<ChildStdout>>,
    ) -> Result<Self, TaskFailure> {
        let (stderr, its_stderr) = pipe()?;
        let streams = [its_stdin.as_fd(), its_stdout.as_fd(), its_stderr.as_fd()];
        let (member, end) = start(&context.programs, &context.named, spec, streams)?;
        let number = context.programs.register(member.clone(), &context.cancelled);
        Ok(Self { number, member, stdin: None, stdout, stderr: stderr.into(), end })
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

/// Makes a pipe: the end to read, and the end to write.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), TaskFailure> {
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
