//! A program without input: the thread that starts it reads its output and waits for its end. There is no extra thread,
//! because such programs may be numerous and short.

use crate::context::FunctionContext;
use crate::process::ending::{Ending, OpenPipes, Outcome, Rest};
use crate::process::limit_watch::LimitWatch;
use crate::process::standard_error::Drain;
use crate::process::{Lives, PipeSize, Process};
use crate::running::{Exit, as_cancelled, judge};
use crate::slots::environment;
use crate::spec::ProgramSpec;
use api::{Blame, TaskFailure};
use containment::ContainmentError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::Instant;

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
    on_output: impl FnMut(&[u8]),
) -> Result<(), TaskFailure> {
    let starting = context.programs.starting()?;
    let mut process = Process::start(context, spec, PipeSize::Usual)?;
    process.stdin = None;
    drop(starting);
    let mut lives = Lives { programs: &context.programs, number: process.number, ended: false };
    let drain = Drain::new(spec.stderr_log.as_deref(), &context.reports);
    let is_open = IsOpen { stdout: true, stderr: true };
    let limits = LimitWatch::begin(context);
    let mut reading = Reading { context, process: &process, drain, is_open, ended: None, limits, on_output };
    while reading.goes_on() {
        reading.step()?;
    }
    let Reading { ended, drain, limits, .. } = reading;
    let tail = drain.finish();
    if let Some(passed) = limits.passed() {
        return Err(context.limits.failure(&passed, tail));
    }
    lives.ended = true;
    let Some(Ended { status, ending, .. }) = ended else {
        return Err(TaskFailure::new(Blame::Engine, "a program was not waited for"));
    };
    let status = status.map_err(|error| environment(&error))?;
    ending.check(&spec.words[0])?;
    judge(context, spec, Exit { status, memory_bytes: 0 }, tail)
}

struct Reading<'a, OnOutput> {
    context: &'a FunctionContext,
    process: &'a Process,
    drain: Drain<'a>,
    is_open: IsOpen,
    ended: Option<Ended>,
    limits: LimitWatch,
    on_output: OnOutput,
}

/// Pipes that are still to be read.
struct IsOpen {
    stdout: bool,
    stderr: bool,
}

/// A program that has ended.
struct Ended {
    status: Result<ExitStatus, ContainmentError>,
    ending: Ending,
    rest: Rest,
}

impl<OnOutput: FnMut(&[u8])> Reading<'_, OnOutput> {
    /// Returns whether something is still to come.
    fn goes_on(&self) -> bool {
        match self.ended.as_ref().map(|ended| ended.rest) {
            None | Some(Rest::Awaited(_)) => true,
            Some(Rest::Closed) => self.is_open.stdout || self.is_open.stderr,
            Some(Rest::GivenUp) => false,
        }
    }

    /// Waits for news and takes it in.
    fn step(&mut self) -> Result<(), TaskFailure> {
        let failure = |error: Errno| {
            TaskFailure::new(Blame::Environment, format!("reading the output of the program: {error}"))
        };
        let stdout = self.process.stdout.as_deref().filter(|_| self.is_open.stdout);
        let stderr = Some(&self.process.stderr).filter(|_| self.is_open.stderr);
        let end = Some(&self.process.end).filter(|_| self.ended.is_none());
        let [has_output, has_error, has_end] =
            self.wait([stdout.map(AsFd::as_fd), stderr.map(AsFd::as_fd), end.map(AsFd::as_fd)])?;
        let mut buffer = [0; READ_BYTES];
        if let Some(stdout) = stdout.filter(|_| has_output) {
            match rustix::io::read(stdout, &mut buffer) {
                Ok(0) => self.is_open.stdout = false,
                Ok(count) => (self.on_output)(&buffer[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        if let Some(stderr) = stderr.filter(|_| has_error) {
            match rustix::io::read(stderr, &mut buffer) {
                Ok(0) => self.is_open.stderr = false,
                Ok(count) => self.drain.add(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        if has_end {
            let status = self.process.end.wait();
            let outcome = match status.as_ref().is_ok_and(ExitStatus::success) {
                true => Outcome::Succeeded,
                false => Outcome::Failed,
            };
            self.limits.look_at_ended(self.process, outcome);
            let ending = Ending::begin(outcome);
            self.ended = Some(Ended { status, ending, rest: Rest::Awaited(Instant::now()) });
        }
        if self.ended.is_none() {
            self.limits.look(self.process);
        }
        self.look_at_pipes();
        Ok(())
    }

    /// Returns which of these have news.
    fn wait(&self, wanted: [Option<std::os::fd::BorrowedFd<'_>>; 3]) -> Result<[bool; 3], TaskFailure> {
        let open = wanted.iter().flatten();
        let mut watched: Vec<PollFd<'_>> =
            open.map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
        let until = match self.ended.as_ref().map(|ended| ended.rest) {
            Some(Rest::Awaited(until)) => Some(until),
            Some(_) => None,
            None => self.limits.next(),
        };
        let patience = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut watched, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                return Err(TaskFailure::new(Blame::Environment, format!("watching a program: {error}")));
            }
        }
        let mut looked_at = watched.into_iter();
        let mut has_news = |wanted: Option<_>| {
            wanted.is_some() && looked_at.next().is_some_and(|watched| !watched.revents().is_empty())
        };
        let [stdout, stderr, end] = wanted;
        Ok([has_news(stdout), has_news(stderr), has_news(end)])
    }

    /// Ends the processes that hold the pipes of the ended program too long.
    fn look_at_pipes(&mut self) {
        let Some(ended) = self.ended.as_mut().filter(|ended| matches!(ended.rest, Rest::Awaited(_))) else {
            return;
        };
        let open = OpenPipes {
            stdin: None,
            stdout: self.process.stdout.as_deref().filter(|_| self.is_open.stdout),
            stderr: Some(&self.process.stderr).filter(|_| self.is_open.stderr),
        };
        ended.rest = ended.ending.look(&self.context.programs, self.process, open, &mut self.drain);
    }
}
