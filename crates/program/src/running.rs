//! One run of a program: start, feed, read, end.

use crate::context::{FunctionContext, Programs, cancelled_failure};
use crate::find::find_program;
use crate::intake::write_piece;
use crate::killed::memory_bytes;
use crate::launch::{Started, launch};
use crate::reports::Reports;
use crate::sandbox::Sandbox;
use crate::standard_error;
use api::{Blame, TaskFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Size asked for the pipes of a program; the kernel may refuse, which costs only speed.
const PIPE_BYTES: usize = 256 << 10;

/// How long a program is tried to be started that something still writes.
const BUSY_TRIES_MAX: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How often it is looked how much memory a program has.
const LOOK_AT_MEMORY_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// What to run and where.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Program and arguments; never empty.
    pub words: Vec<String>,
    /// Current directory of the program.
    pub work_dir: PathBuf,
    /// Directory in which the user typed the command; the second place to look for the program.
    pub start_dir: PathBuf,
    /// Set on top of PATH, HOME, LANG and LC_*.
    pub env: Vec<(String, String)>,
    /// File to which standard error is copied, up to 1 MiB.
    pub stderr_log: Option<PathBuf>,
    /// What it may reach; None: whatever the engine may.
    pub sandbox: Option<Arc<Sandbox>>,
}

impl ProgramSpec {
    /// A command line run under an attempt's context.
    pub fn new(words: &[String], context: &FunctionContext) -> Self {
        Self {
            words: words.to_vec(),
            work_dir: context.work_dir.clone(),
            start_dir: context.start_dir.clone(),
            env: context.env.clone(),
            stderr_log: context.stderr_log.clone(),
            sandbox: context.sandbox.clone(),
        }
    }
}

/// The standard input of a running program. Never blocks for ever: when the program goes, writing ends.
#[derive(Debug)]
pub struct Feed {
    stdin: Option<Arc<ChildStdin>>,
    /// Where it counts what the program takes.
    counts: Option<Arc<Reports>>,
    /// Set when the run is lost, so that the rest of the input need not be read.
    abandoned: Arc<AtomicBool>,
    unread_bytes: u64,
}

impl Feed {
    /// Hands bytes to the program. A program that has closed its input is no error: the bytes are counted
    /// as unread, and so is all that follows.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        let Some(stdin) = &mut self.stdin else {
            self.leave(bytes.len());
            return Ok(());
        };
        // Not `write_all`: what the pipe took before the program closed it counts as taken.
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

    /// The program does not want these.
    fn leave(&mut self, bytes: usize) {
        self.unread_bytes += bytes as u64;
        if let Some(counts) = &self.counts {
            counts.intake.fed(bytes);
        }
    }

    /// Whether the run has failed already, so that reading more input for it is a waste.
    pub fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Bytes that the program did not take because it had closed its input. What it left in the pipe when
    /// it closed cannot be told apart from what it read.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }
}

/// The parts of a run that its threads share.
struct Run<'a> {
    programs: &'a Programs,
    group: i32,
    abandoned: Arc<AtomicBool>,
    any_exit_code: bool,
    /// How much memory the program had when it was looked at last.
    memory_bytes: AtomicU64,
}

impl Run<'_> {
    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.programs.kill(self.group);
    }

    /// Runs one side. When it fails, or panics, the program goes: the other side would wait for it for ever.
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

    /// Looks how much memory the program has until it ends.
    fn watch_memory(&self, pid: Pid) {
        let Ok(end) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        loop {
            let mut watched = [PollFd::new(&end, PollFlags::IN)];
            match poll(&mut watched, Some(&LOOK_AT_MEMORY_EVERY)) {
                Ok(0) => {
                    if let Some(bytes) = memory_bytes(pid) {
                        self.memory_bytes.store(bytes, Ordering::Relaxed);
                    }
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Waits for the leader to end without reaping it, then ends what it left behind: a grandchild that
    /// holds the pipes would keep the reader waiting.
    fn wait_and_kill_group(&self) {
        if let Some(pid) = Pid::from_raw(self.group) {
            self.watch_memory(pid);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let status = loop {
                match rustix::process::waitid(WaitId::Pid(pid), options) {
                    Err(rustix::io::Errno::INTR) => continue,
                    other => break other.ok().flatten(),
                }
            };
            let failed = |code: Option<i32>| code.is_none_or(|code| code != 0 && !self.any_exit_code);
            if status.is_some_and(|status| failed(status.exit_status())) {
                self.abandoned.store(true, Ordering::Relaxed);
            }
        }
        self.programs.kill_and_forget(self.group);
    }
}

/// Runs a program: `on_thread` and `on_caller` run at the same time, one of them feeds and the other reads,
/// whichever suits the caller (`roles` builds both from the program's ends). Returns what both gave back.
///
/// The feeding closure must drop its [`Feed`] when done, which is the program's end of input; the reading
/// one must read to the end or fail. Errors: what either closure returned; [`Blame::UserData`] when the
/// program cannot be started; [`Blame::UserProgram`] with code or signal and the tail of standard error when
/// it ended badly; [`Blame::Cancelled`] for any failure once the context's flag is set.
pub fn run<T: Send, C, OnThread, OnCaller>(
    context: &FunctionContext,
    spec: &ProgramSpec,
    roles: impl FnOnce(Feed, ChildStdout) -> (OnThread, OnCaller),
) -> Result<(T, C), TaskFailure>
where
    OnThread: FnOnce() -> Result<T, TaskFailure> + Send,
    OnCaller: FnOnce() -> Result<C, TaskFailure>,
{
    as_cancelled(context, run_inner(context, spec, roles))
}

/// Whatever fails once an attempt has been told to stop fails because of that.
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
    roles: impl FnOnce(Feed, ChildStdout) -> (OnThread, OnCaller),
) -> Result<(T, C), TaskFailure>
where
    OnThread: FnOnce() -> Result<T, TaskFailure> + Send,
    OnCaller: FnOnce() -> Result<C, TaskFailure>,
{
    let starting = context.programs.starting()?;
    let Started { pid, stdin, stdout, stderr } = start(spec)?;
    let group = pid.as_raw_pid();
    context.programs.register(group, &context.cancelled);
    drop(starting);
    let run = Run {
        programs: &context.programs,
        group,
        abandoned: Arc::default(),
        any_exit_code: context.any_exit_code,
        memory_bytes: AtomicU64::new(0),
    };
    for pipe in [stdin.as_fd(), stdout.as_fd()] {
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let log = spec.stderr_log.as_deref();
    let stdin = Arc::new(stdin);
    let counts = context.reports.intake.begin(&stdin).then(|| Arc::clone(&context.reports));
    let feed = Feed { stdin: Some(stdin), counts, abandoned: run.abandoned.clone(), unread_bytes: 0 };
    let (on_thread, on_caller) = roles(feed, stdout);
    let (thread_outcome, caller_outcome, tail) = std::thread::scope(|scope| {
        let drainer = scope.spawn(move || standard_error::drain(stderr, log, &context.reports));
        let waiter = scope.spawn(|| run.wait_and_kill_group());
        let worker = scope.spawn(|| run.abandon_unless_done(on_thread));
        let caller_outcome = run.abandon_unless_done(on_caller);
        let thread_outcome = join(worker);
        join(waiter);
        (thread_outcome, caller_outcome, join(drainer))
    });
    let status = reap(spec, pid)?;
    // A side that failed has killed the program, so its reason comes before the signal.
    let on_thread = thread_outcome?;
    let on_caller = caller_outcome?;
    judge(context, spec, (status, run.memory_bytes.into_inner()), tail)?;
    Ok((on_thread, on_caller))
}

pub(crate) fn reap(spec: &ProgramSpec, pid: Pid) -> Result<ExitStatus, TaskFailure> {
    Started::wait(pid).map_err(|error| {
        TaskFailure::new(Blame::Environment, format!("waiting for {:?}: {error}", spec.words[0]))
    })
}

fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(crate) fn start(spec: &ProgramSpec) -> Result<Started, TaskFailure> {
    let executable = find_program(&spec.words, &spec.work_dir, &spec.start_dir, &spec.env)
        .map_err(|error| TaskFailure::new(Blame::UserData, error.to_string()))?;
    let prepared = spec.sandbox.as_ref().map(|sandbox| sandbox.prepare(&executable, &spec.work_dir));
    let prepared = prepared.transpose()?;
    let environment = environment(spec);
    let start_once = || launch(&executable, &spec.words, &environment, &spec.work_dir, prepared.as_ref());
    unless_busy(start_once).map_err(|error| {
        let program = &spec.words[0];
        // The file was found above, so what is missing is the interpreter that its first line names.
        let (blame, what) = match error.kind() {
            ErrorKind::NotFound => (Blame::UserData, "its interpreter or the work directory is not there"),
            ErrorKind::InvalidInput => (Blame::UserData, "a zero byte in a word"),
            ErrorKind::ExecutableFileBusy => (Blame::Environment, "something has it open for writing"),
            ErrorKind::PermissionDenied => (Blame::UserData, "it is not executable"),
            _ => (Blame::Environment, "it cannot be started"),
        };
        let path = executable.display();
        TaskFailure::new(blame, format!("program {program:?} ({path}): {what}: {error}"))
    })
}

/// A file that was written a moment ago may still be open for writing in a child that another thread is starting, until
/// that child is its program. The kernel refuses to run such a file.
fn unless_busy(start: impl Fn() -> std::io::Result<Started>) -> std::io::Result<Started> {
    let mut tries = 0;
    loop {
        tries += 1;
        match start() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES_MAX => {
                std::thread::sleep(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

/// What the program finds in its environment.
fn environment(spec: &ProgramSpec) -> BTreeMap<OsString, OsString> {
    let kept = std::env::vars_os().filter(|(name, _)| passes_through(name.as_encoded_bytes()));
    kept.chain(spec.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

fn passes_through(name: &[u8]) -> bool {
    matches!(name, b"PATH" | b"HOME" | b"LANG") || name.starts_with(b"LC_")
}

/// What the program said last of how far it was.
fn with_status(mut failure: TaskFailure, reports: &Reports) -> TaskFailure {
    if let Some(status) = reports.status() {
        failure.message.push_str(&format!("; the last status it reported: {status}"));
    }
    failure
}

/// Whether a program that has ended did what it should. `memory_bytes`: how much it had when it was looked at last, or 0.
pub(crate) fn judge(
    context: &FunctionContext,
    spec: &ProgramSpec,
    (status, memory_bytes): (ExitStatus, u64),
    tail: Vec<String>,
) -> Result<(), TaskFailure> {
    if status.success() || (context.any_exit_code && status.code().is_some()) {
        return context.reports.check();
    }
    let program = &spec.words[0];
    let message = match (status.code(), status.signal()) {
        (Some(code), _) => format!("program {program:?} ended with exit code {code}"),
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => {
            let why = context.programs.out_of_memory.why_killed(memory_bytes);
            format!("program {program:?} was ended by signal {signal}{why}")
        }
        (None, Some(signal)) => format!("program {program:?} was ended by signal {signal}"),
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
