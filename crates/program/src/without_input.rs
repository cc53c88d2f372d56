//! A program without input: the thread that starts it reads its output and waits for its end. There is no extra thread,
//! because such programs may be numerous and short.

use crate::context::FunctionContext;
use crate::launch::Started;
use crate::process::Lives;
use crate::running::{Exit, ProgramSpec, as_cancelled, judge, reap, start};
use crate::standard_error::Drain;
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};

/// Bytes read from a program at once.
const READ_BYTES: usize = 16 << 10;

/// Runs a program whose input is empty; `on_output` gets its standard output piece by piece. Errors are those of
/// [`crate::run`].
pub fn run_without_input(
    context: &FunctionContext,
    spec: &ProgramSpec,
    on_output: impl FnMut(&[u8]),
) -> Result<(), TaskFailure> {
    as_cancelled(context, run_inner(context, spec, on_output))
}

fn run_inner(
    context: &FunctionContext,
    spec: &ProgramSpec,
    mut on_output: impl FnMut(&[u8]),
) -> Result<(), TaskFailure> {
    let starting = context.programs.starting()?;
    let Started { pid, stdin, stdout, stderr } = start(spec)?;
    drop(stdin);
    context.programs.register(pid.as_raw_pid(), &context.cancelled);
    drop(starting);
    let mut lives = Lives { programs: &context.programs, pid, ended: false };
    let mut drain = Drain::new(spec.stderr_log.as_deref(), &context.reports);
    let watched = |error: Errno| {
        let message = format!("watching {:?}: {error}", spec.words[0]);
        TaskFailure::new(Blame::Environment, message)
    };
    let end = pidfd_open(pid, PidfdFlags::empty()).map_err(watched)?;
    let mut open = Open { stdout: Some(stdout), stderr: Some(stderr), end: Some(end) };
    let mut buffer = vec![0; READ_BYTES];
    while let Some(ready) = open.wait().map_err(watched)? {
        if ready.stdout {
            read_once(&mut open.stdout, &mut buffer, &mut on_output)?;
        }
        if ready.stderr {
            read_once(&mut open.stderr, &mut buffer, |bytes| drain.add(bytes))?;
        }
        if ready.end {
            // A grandchild that holds the pipes would keep this thread reading.
            context.programs.kill_and_forget(pid.as_raw_pid());
            open.end = None;
        }
    }
    lives.ended = true;
    let status = reap(spec, pid)?;
    judge(context, spec, Exit { status, memory_bytes: 0 }, drain.finish())
}

/// Pipes and end of the program that are still awaited.
struct Open {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Becomes readable when the program ends.
    end: Option<OwnedFd>,
}

/// Parts of [`Open`] that have news.
#[derive(Clone, Copy, Default)]
struct Ready {
    stdout: bool,
    stderr: bool,
    end: bool,
}

impl Open {
    /// Waits for news. None: nothing is awaited any more.
    fn wait(&self) -> Result<Option<Ready>, Errno> {
        let mut ready = Ready::default();
        let mut watched = Vec::with_capacity(3);
        let mut news = Vec::with_capacity(3);
        if let Some(stdout) = &self.stdout {
            watched.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN));
            news.push(&mut ready.stdout);
        }
        if let Some(stderr) = &self.stderr {
            watched.push(PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN));
            news.push(&mut ready.stderr);
        }
        if let Some(end) = &self.end {
            watched.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
            news.push(&mut ready.end);
        }
        if watched.is_empty() {
            return Ok(None);
        }
        match poll(&mut watched, None) {
            Ok(_) => {
                for (watched, news) in watched.iter().zip(news) {
                    *news = !watched.revents().is_empty();
                }
                Ok(Some(ready))
            }
            Err(Errno::INTR) => Ok(Some(Ready::default())),
            Err(error) => Err(error),
        }
    }
}

/// Reads available bytes; the source is removed at its end.
fn read_once<R: Read>(
    source: &mut Option<R>,
    buffer: &mut [u8],
    take: impl FnOnce(&[u8]),
) -> Result<(), TaskFailure> {
    let Some(open) = source else { return Ok(()) };
    match open.read(buffer) {
        Ok(0) => *source = None,
        Ok(count) => take(&buffer[..count]),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => {
            let message = format!("reading the output of the program: {error}");
            return Err(TaskFailure::new(Blame::Environment, message));
        }
    }
    Ok(())
}
