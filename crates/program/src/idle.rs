//! Programs that wait for another task.
//!
//! A program dies with the thread that started it, so each thread has its own: at most one, for the job whose task it ran last.

use crate::context::{FunctionContext, Programs};
use crate::launch::Started;
use crate::process::Process;
use crate::running::ProgramSpec;
use ids::JobId;
use rustix::event::Timespec;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long a program has to end by itself when its input has ended: long enough to remove what it keeps in files.
const END_WAIT_MAX: Duration = Duration::from_millis(500);

/// Purpose for which a program was started. A program is given only tasks of the same purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    job: JobId,
    words: Vec<String>,
    start_dir: PathBuf,
    /// Environment without the variables that the program is told with each task.
    env: Vec<(String, String)>,
}

impl Purpose {
    /// Returns the purpose of a program; None if no program of this attempt may stay.
    pub fn of(context: &FunctionContext, spec: &ProgramSpec) -> Option<Self> {
        // The rules of a sandbox name the work directory of the attempt, for good.
        let job = context.kept_for.filter(|_| spec.sandbox.is_none())?;
        let is_of_job =
            |(name, _): &&(String, String)| context.task_env.iter().all(|(of_task, _)| of_task != name);
        let env = spec.env.iter().filter(is_of_job).cloned().collect();
        Some(Self { job, words: spec.words.clone(), start_dir: spec.start_dir.clone(), env })
    }
}

/// A program without a task.
#[derive(Debug)]
pub(crate) struct Idle {
    thread: ThreadId,
    purpose: Purpose,
    process: Process,
}

impl Programs {
    /// A program of this thread that waits for such a task. One that waits for others is ended, and so is one that is not as
    /// it was left.
    pub(crate) fn take_idle(&self, purpose: &Purpose) -> Option<Process> {
        let here = std::thread::current().id();
        let Idle { purpose: its, process, .. } = self.remove_idle(|idle| idle.thread == here).pop()?;
        if its == *purpose && process.is_quiet() {
            return Some(process);
        }
        self.end_gently(vec![process]);
        None
    }

    /// Keeps a program of this thread until its next task. It is killed with all others, but no attempt's cancellation reaches it.
    pub(crate) fn keep_idle(&self, purpose: Purpose, process: Process) {
        self.register(process.group(), &Arc::default());
        self.end_idle_here(None);
        self.idle().push(Idle { thread: std::thread::current().id(), purpose, process });
    }

    /// Ends the programs that wait for tasks of a job which is over.
    pub fn end_idle_of(&self, job: JobId) {
        self.end_each(|idle| idle.purpose.job == job);
    }

    /// Ends the program of this thread that waits for a task, unless it is for one of `job`.
    pub fn end_idle_here(&self, job: Option<JobId>) {
        let here = std::thread::current().id();
        self.end_each(|idle| idle.thread == here && Some(idle.purpose.job) != job);
    }

    /// Number of programs that wait for a task.
    pub fn idle_count(&self) -> usize {
        self.idle().len()
    }

    fn end_each(&self, is_meant: impl Fn(&Idle) -> bool) {
        let removed = self.remove_idle(is_meant);
        self.end_gently(removed.into_iter().map(|idle| idle.process).collect());
    }

    fn remove_idle(&self, is_meant: impl Fn(&Idle) -> bool) -> Vec<Idle> {
        self.idle().extract_if(.., |idle| is_meant(idle)).collect()
    }

    /// Lets programs end by themselves, for a moment, and ends and reaps them.
    pub(crate) fn end_gently(&self, mut processes: Vec<Process>) {
        for process in &mut processes {
            process.stdin = None;
        }
        let until = Instant::now() + END_WAIT_MAX;
        for process in processes {
            let left = until.saturating_duration_since(Instant::now());
            process.has_ended(&Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) });
            self.end_now(process);
        }
    }

    /// Ends and reaps a program, with its group.
    pub(crate) fn end_now(&self, process: Process) {
        self.kill_and_forget(process.group());
        // Killed, so it ends at once; nobody is left to hear of an error.
        let _ = Started::wait(process.pid);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.end_each(|_| true);
    }
}
