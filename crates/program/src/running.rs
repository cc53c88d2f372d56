//! One run of a program: start, feed, read, end.

use crate::context::FunctionContext;
use crate::process::idle::Purpose;
use crate::process::intake::write_piece;
use crate::process::limit_watch::LimitWatch;
use crate::process::pipe_state::{InputPipe, PipeState};
use crate::process::standard_error::Drain;
use crate::process::supervise::{ProcessEnd, Supervised, supervise};
use crate::process::{Lives, Process};
use crate::programs::{ProgramNumber, Programs, cancelled_failure};
use crate::reports::Reports;
use crate::slots::environment;
use crate::spec::ProgramSpec;
use crate::spec::advice;
use api::{Blame, TaskFailure};
use rustix::process::Signal;
use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ScopedJoinHandle;

/// The standard input of a running program. Never blocks forever: when the program ends, writing ends.
#[derive(Debug)]
pub struct Feed {
    stdin: Option<Arc<ChildStdin>>,
    /// Reports that count the bytes read by the program; None if this program is not counted.
    counts: Option<Arc<Reports>>,
    /// Set when the run has failed, so that the rest of the input need not be read.
    abandoned: Arc<AtomicBool>,
    unread_bytes: u64,
    pipes: Arc<PipeState>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.pipes.end_feed(match self.stdin {
            Some(_) => InputPipe::Open,
            None => InputPipe::Closed,
        });
    }
}

impl Feed {
    /// Writes bytes to the program. A program that has closed its input is no error: the bytes are counted as unread,
    /// and so are all later ones.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        let Some(stdin) = &mut self.stdin else {
            self.leave(bytes.len());
            return Ok(());
        };
        // Not `write_all`: bytes in the pipe before the program closed it count as read.
        let mut rest = bytes;
        while !rest.is_empty() {
            match write_piece(stdin, rest) {
                Ok(taken) => {
                    rest = &rest[taken..];
                    if let Some(counts) = &self.counts {
                        counts.intake.fed(taken);
                    }
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    self.stdin = None;
                    self.leave(rest.len());
                    return Ok(());
                }
                Err(error) => {
                    let message = format!("writing to the user program: {error}");
                    return Err(TaskFailure::new(Blame::Environment, message));
                }
            }
        }
        Ok(())
    }

    /// Counts bytes that the program does not want.
    fn leave(&mut self, bytes: usize) {
        self.unread_bytes += bytes as u64;
        if let Some(counts) = &self.counts {
            counts.intake.fed(bytes);
        }
    }

    /// Returns whether the run has failed already, so that reading more input for it is a waste.
    pub fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the program did not read because it had closed its input. Bytes left in the pipe at the
    /// close cannot be distinguished from read ones.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }
}

/// Behaviour of a program after it reports the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTask {
    Exits,
    /// It waits for another task.
    Waits,
}

/// Standard output of a running program.
#[derive(Debug)]
pub struct ProgramOutput {
    /// None after it was returned.
    stdout: Option<Arc<ChildStdout>>,
    pipes: Arc<PipeState>,
}

impl Read for ProgramOutput {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some(stdout) = &self.stdout else { return Ok(0) };
        if self.pipes.is_given_up() {
            return Ok(0);
        }
        let read = rustix::io::read(&**stdout, buffer);
        match self.pipes.is_given_up() {
            // The run fails: another process holds the pipe.
            true => Ok(0),
            false => Ok(read?),
        }
    }
}

impl ProgramOutput {
    /// Records that the program has reported the end of its task, and its next step. The output of a program that does
    /// not wait, or that cannot stay, is read to its end. Error: [`Blame::UserProgram`] if there is more output.
    pub fn end(mut self, then: AfterTask) -> Result<(), TaskFailure> {
        if then == AfterTask::Waits {
            self.stdout = self.stdout.take().and_then(|stdout| self.pipes.hand_back(stdout));
        }
        if self.stdout.is_none() {
            return Ok(());
        }
        self.pipes.let_go();
        loop {
            match self.read(&mut [0]) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(more_put_out()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let message = format!("reading from the user program: {error}");
                    return Err(TaskFailure::new(Blame::Environment, message));
                }
            }
        }
    }
}

impl Drop for ProgramOutput {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            // Nobody reads: the program must not wait for more tasks.
            self.pipes.let_go();
        }
    }
}

fn more_put_out() -> TaskFailure {
    let message = "the program wrote more output after it had reported the end of the task";
    TaskFailure::new(Blame::UserProgram, message)
}

/// The parts of a run that its threads share.
pub(crate) struct Run<'a> {
    pub programs: &'a Programs,
    program: ProgramNumber,
    stdin: Weak<ChildStdin>,
    stdout: Weak<ChildStdout>,
    pub abandoned: Arc<AtomicBool>,
    pub any_exit_code: bool,
    /// Memory of the program at the last check.
    pub memory_bytes: AtomicU64,
    pub pipes: Arc<PipeState>,
    /// It reported the end of its task before it had read all of its input.
    left_input: AtomicBool,
}

impl Run<'_> {
    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.programs.kill(self.program);
    }

    /// Returns the pipes that are still fed and read.
    pub fn open_pipes(&self) -> (Option<Arc<ChildStdin>>, Option<Arc<ChildStdout>>) {
        (self.stdin.upgrade(), self.stdout.upgrade())
    }

    /// Runs one side. If it fails, or panics, the program is killed: the other side would otherwise wait forever.
    fn abandon_unless_done<T>(
        &self,
        side: impl FnOnce() -> Result<T, TaskFailure>,
    ) -> Result<T, TaskFailure> {
        struct AbandonWhenPanicking<'a>(&'a Run<'a>);
        impl Drop for AbandonWhenPanicking<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.abandon();
                }
            }
        }
        let _guard = AbandonWhenPanicking(self);
        side().inspect_err(|_| self.abandon())
    }

    /// Ends a program that does not read its input, although it reported the end of the task.
    pub fn refuse_to_wait(&self) {
        self.left_input.store(true, Ordering::Relaxed);
        self.abandon();
    }
}

/// Runs a program: `on_thread` and `on_caller` run at the same time, one of them feeds and the other reads, as the
/// caller chooses (`roles` builds both from the program's ends). Returns both results.
///
/// The feeding closure must drop its [`Feed`] at the end, which ends the program's input; the reading one must read to
/// the end or fail. Errors: those of either closure; [`Blame::UserData`] if the program cannot be started;
/// [`Blame::UserProgram`] with code or signal and the tail of standard error if it failed; [`Blame::Cancelled`] for any
/// failure once the context's flag is set.
pub fn run<T: Send, C, OnThread, OnCaller>(
    context: &FunctionContext,
    spec: &ProgramSpec,
    roles: impl FnOnce(Feed, ProgramOutput) -> (OnThread, OnCaller),
) -> Result<(T, C), TaskFailure>
where
    OnThread: FnOnce() -> Result<T, TaskFailure> + Send,
    OnCaller: FnOnce() -> Result<C, TaskFailure>,
{
    as_cancelled(context, run_inner(context, spec, None, roles))
}

/// Runs a program for the task of an attempt: a program that requests it ([`ProgramOutput::end`]) stays, if the context
/// allows it, and serves the next task of the job on this thread. Its input ends with its last task, and not with the
/// [`Feed`].
pub fn run_task<T: Send, C, OnThread, OnCaller>(
    context: &FunctionContext,
    spec: &ProgramSpec,
    roles: impl FnOnce(Feed, ProgramOutput) -> (OnThread, OnCaller),
) -> Result<(T, C), TaskFailure>
where
    OnThread: FnOnce() -> Result<T, TaskFailure> + Send,
    OnCaller: FnOnce() -> Result<C, TaskFailure>,
{
    as_cancelled(context, run_inner(context, spec, Purpose::of(context, spec), roles))
}

/// Converts a failure of a cancelled attempt: after the cancellation, every failure is a consequence of it.
pub(crate) fn as_cancelled<T>(
    context: &FunctionContext,
    outcome: Result<T, TaskFailure>,
) -> Result<T, TaskFailure> {
    match outcome {
        Err(failure) if context.cancelled.load(Ordering::Relaxed) && failure.blame != Blame::Engine => {
            Err(cancelled_failure())
        }
        other => other,
    }
}

fn run_inner<T: Send, C, OnThread, OnCaller>(
    context: &FunctionContext,
    spec: &ProgramSpec,
    purpose: Option<Purpose>,
    roles: impl FnOnce(Feed, ProgramOutput) -> (OnThread, OnCaller),
) -> Result<(T, C), TaskFailure>
where
    OnThread: FnOnce() -> Result<T, TaskFailure> + Send,
    OnCaller: FnOnce() -> Result<C, TaskFailure>,
{
    let mut process = take_or_start(context, spec, purpose.as_ref())?;
    if let Err(cancelled) = context.check_cancelled() {
        // Its end has been ordered, but a short task could be done before.
        context.programs.end_gently(vec![process]);
        return Err(cancelled);
    }
    let mut lives = Lives { programs: &context.programs, number: process.number, ended: false };
    let (run, feed, output) = begin(context, &mut process, purpose.is_some())?;
    let drain = Drain::new(spec.stderr_log.as_deref(), &context.reports);
    let limits = LimitWatch::begin(context);
    let (on_thread, on_caller) = roles(feed, output);
    let (thread_outcome, caller_outcome, supervised) = std::thread::scope(|scope| {
        let supervisor = scope.spawn(|| supervise(&run, &process, drain, limits));
        let worker = scope.spawn(|| run.abandon_unless_done(on_thread));
        let caller_outcome = run.abandon_unless_done(on_caller);
        (join(worker), caller_outcome, join(supervisor))
    });
    context.reports.intake.end();
    let Supervised { end, tail, passed } = supervised;
    if let Some(passed) = passed {
        return Err(context.limits.failure(&passed, tail));
    }
    let status = match end {
        ProcessEnd::Ended(status, ending) => {
            lives.ended = true;
            ending.check(&spec.words[0])?;
            Some(status.map_err(|error| environment(&error))?)
        }
        ProcessEnd::Waiting => None,
    };
    // A failed side has killed the program, so its reason comes before the signal.
    let both = thread_outcome.and_then(|on_thread| Ok((on_thread, caller_outcome?)));
    let (on_thread, on_caller) = both.map_err(|failure| after_what_was_said(failure, &tail))?;
    if run.left_input.into_inner() {
        let message = "the program reported the end of the task without reading the rest of its input";
        return Err(TaskFailure::new(Blame::UserProgram, message));
    }
    let (stdin, stdout) = run.pipes.take_pipes();
    if stdout.as_ref().is_some_and(|stdout| rustix::io::ioctl_fionread(stdout).is_ok_and(|bytes| bytes > 0)) {
        return Err(more_put_out());
    }
    match status {
        Some(status) => {
            let exit = Exit { status, memory_bytes: run.memory_bytes.into_inner() };
            judge(context, spec, exit, tail.clone())?
        }
        None => context.reports.check()?,
    }
    context.reports.says(tail);
    if let (None, Some(purpose)) = (status, purpose) {
        lives.ended = true;
        keep_or_end(context, purpose, Process { stdin, stdout, ..process });
    }
    Ok((on_thread, on_caller))
}

/// Makes a failure with the last lines of the program before its own.
fn after_what_was_said(mut failure: TaskFailure, tail: &[String]) -> TaskFailure {
    let said = tail.iter().filter(|line| !line.is_empty());
    failure.stderr_tail.splice(0..0, said.cloned());
    failure
}

/// Takes a program that waits for such a task, or starts a new one.
fn take_or_start(
    context: &FunctionContext,
    spec: &ProgramSpec,
    purpose: Option<&Purpose>,
) -> Result<Process, TaskFailure> {
    let _starting = context.programs.starting()?;
    match purpose.and_then(|purpose| context.programs.take_idle(purpose)) {
        Some(process) => Ok(context.programs.register_again(process, &context.cancelled)),
        None => Process::start(context, spec),
    }
}

/// Passes the ends of its pipes to the two sides.
fn begin<'a>(
    context: &'a FunctionContext,
    process: &mut Process,
    stays: bool,
) -> Result<(Run<'a>, Feed, ProgramOutput), TaskFailure> {
    let (Some(stdin), stdout @ Some(_)) = (process.stdin.take(), process.stdout.take()) else {
        return Err(TaskFailure::new(Blame::Engine, "a program without pipes"));
    };
    let run = Run {
        programs: &context.programs,
        program: process.number,
        stdin: Arc::downgrade(&stdin),
        stdout: stdout.as_ref().map(Arc::downgrade).unwrap_or_default(),
        abandoned: Arc::default(),
        any_exit_code: context.any_exit_code,
        memory_bytes: AtomicU64::new(0),
        pipes: Arc::new(PipeState::new(stays.then(|| Arc::clone(&stdin)))?),
        left_input: AtomicBool::new(false),
    };
    let counts = context.reports.intake.begin(&stdin).then(|| Arc::clone(&context.reports));
    let (abandoned, pipes) = (Arc::clone(&run.abandoned), Arc::clone(&run.pipes));
    let feed = Feed { stdin: Some(stdin), counts, abandoned, unread_bytes: 0, pipes };
    let output = ProgramOutput { stdout, pipes: Arc::clone(&run.pipes) };
    Ok((run, feed, output))
}

/// Keeps a program for the next task, unless it has left data that would be taken for a part of that.
fn keep_or_end(context: &FunctionContext, purpose: Purpose, process: Process) {
    let is_wanted = !context.cancelled.load(Ordering::Relaxed);
    match is_wanted && process.is_quiet() && process.is_alone() {
        true => context.programs.keep_idle(purpose, process),
        false => context.programs.end_gently(vec![process]),
    }
}

fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Adds the last status that the program reported to the message of its failure.
fn with_status(mut failure: TaskFailure, reports: &Reports) -> TaskFailure {
    if let Some(status) = reports.status() {
        failure.message.push_str(&format!("; the last status it reported: {status}"));
    }
    failure
}

/// The exit of a program.
pub(crate) struct Exit {
    pub status: ExitStatus,
    /// Its memory at the last check, or 0.
    pub memory_bytes: u64,
}

/// Returns an error if an ended program failed.
pub(crate) fn judge(
    context: &FunctionContext,
    spec: &ProgramSpec,
    exit: Exit,
    tail: Vec<String>,
) -> Result<(), TaskFailure> {
    let Exit { status, memory_bytes } = exit;
    if status.success() || (context.any_exit_code && status.code().is_some()) {
        return context.reports.check();
    }
    if let Some(passed) = context.limits.refused(status, &tail) {
        return Err(context.limits.failure(&passed, tail));
    }
    let (program, advice) = (&spec.words[0], advice::after_failure(spec, &tail));
    let message = match (status.code(), status.signal()) {
        (Some(code), _) => format!("program {program:?} ended with exit code {code}{advice}"),
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => {
            let why = context.programs.out_of_memory.why_killed(memory_bytes);
            format!("program {program:?} was ended by signal {signal}{why}")
        }
        (None, Some(signal)) => format!("program {program:?} was ended by signal {signal}{advice}"),
        (None, None) => format!("program {program:?} ended as {status}"),
    };
    let failure = TaskFailure {
        exit_code: status.code(),
        signal: status.signal(),
        stderr_tail: tail,
        ..TaskFailure::new(Blame::UserProgram, message)
    };
    Err(with_status(failure, &context.reports))
}
