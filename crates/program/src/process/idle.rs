//! Programs that wait for another task.
//!
//! A program lives below the init of a thread, so each thread keeps its own: at most one, for the job of its last task.

use crate::context::FunctionContext;
use crate::process::Process;
use crate::programs::Programs;
use crate::spec::ProgramSpec;
use ids::JobId;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Time for a program to end by itself after its input ends: long enough to remove its temporary files.
const END_WAIT_MAX: Duration = Duration::from_millis(500);

/// Purpose of a program. It gets only tasks of the same purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    job: JobId,
    words: Vec<String>,
    start_dir: PathBuf,
    /// Environment without the variables that the program gets with each task.
    env: Vec<(String, String)>,
}

impl Purpose {
    /// Returns the purpose of a program; None if no program of this attempt may stay.
    pub fn of(context: &FunctionContext, spec: &ProgramSpec) -> Option<Self> {
        // The rules of a sandbox permanently name the work directory of the attempt.
        let job = context.kept_for.filter(|_| spec.sandbox.is_none() && spec.declared_reads.is_none())?;
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
    /// Takes a program of this thread that waits for such a task. A program for other tasks is ended, and so is one
    /// whose state has changed since.
    pub(crate) fn take_idle(&self, purpose: &Purpose) -> Option<Process> {
        let here = std::thread::current().id();
        let Idle { purpose: its, process, .. } = self.remove_idle(|idle| idle.thread == here).pop()?;
        // Its init has seen by now whether it has ended.
        if its == *purpose && process.memory_bytes().is_some() && process.is_quiet() {
            return Some(process);
        }
        self.end_gently(vec![process]);
        None
    }

    /// Keeps a program of this thread until its next task. It is killed with all others, but no attempt's cancellation
    /// affects it.
    pub(crate) fn keep_idle(&self, purpose: Purpose, process: Process) {
        let process = self.register_again(process, &Arc::default());
        self.end_idle_here();
        self.idle().push(Idle { thread: std::thread::current().id(), purpose, process });
    }

    /// Ends the programs that wait for tasks of a finished job, and removes its temporary files.
    pub fn end_idle_of(&self, job: JobId) {
        self.end_each(|idle| idle.purpose.job == job);
        self.slots.forget(job);
    }

    /// Ends the waiting program of this thread, unless it is for a task of `job`.
    pub(crate) fn end_idle_except(&self, job: JobId) {
        let here = std::thread::current().id();
        self.end_each(|idle| idle.thread == here && idle.purpose.job != job);
    }

    /// Ends the waiting program of this thread.
    pub(crate) fn end_idle_here(&self) {
        let here = std::thread::current().id();
        self.end_each(|idle| idle.thread == here);
    }

    /// Ends all waiting programs.
    pub(crate) fn end_idle(&self) {
        self.end_each(|_| true);
    }

    /// Returns the process id of this thread's waiting program.
    pub(crate) fn idle_here(&self) -> Option<i32> {
        let here = std::thread::current().id();
        self.idle().iter().find(|idle| idle.thread == here).map(|idle| idle.process.member.pid)
    }

    /// Returns the number of programs that wait for a task.
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

    /// Gives programs a moment to end by themselves, then ends and reaps them.
    pub(crate) fn end_gently(&self, mut processes: Vec<Process>) {
        for process in &mut processes {
            process.stdin = None;
        }
        let until = Instant::now() + END_WAIT_MAX;
        for process in processes {
            let left = until.saturating_duration_since(Instant::now());
            process.end.has_ended(left);
            self.kill_and_forget(process.number);
            // It was killed, so it ends at once; no caller needs its status.
            let _ = process.end.wait();
        }
    }

    /// Registers a program for another attempt.
    pub(crate) fn register_again(&self, process: Process, cancelled: &Arc<AtomicBool>) -> Process {
        self.forget(process.number);
        let number = self.register(process.member.clone(), cancelled);
        Process { number, ..process }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.end_idle();
    }
}
