//! A slot: pull, run, hand in, pull.

use crate::Shared;
use crate::control::{Assignment, Finished};
use crate::job_data::AttemptData;
use crate::{commit_task, map_task, reduce_task, run_task, shuffle_tasks};
use api::{Blame, Task, TaskFailure, TaskResult};
use iappender::WorkerSlabs;
use ids::JobId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// State of the slot thread that outlives its attempts.
#[derive(Default)]
pub(crate) struct SlotState {
    /// Slabs being filled for the job whose map task ran last.
    pub slabs: WorkerSlabs,
    slabs_of: Option<JobId>,
}

/// Runs attempts until the server says stop, or cannot be reached.
pub(crate) fn slot_loop(shared: &Arc<Shared>, slot: u32) {
    let mut state = SlotState::default();
    let mut finished = None;
    while let Some(assignment) = shared.control.pull(slot, finished.take()) {
        // A program that waits for a task of another job would wait in vain, most often.
        shared.options.programs.end_idle_here(Some(assignment.attempt.task.job));
        finished = Some(run(shared, &mut state, &assignment));
    }
    shared.options.programs.end_idle_here(None);
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn run(shared: &Arc<Shared>, state: &mut SlotState, assignment: &Assignment) -> Finished {
    let started_ns = now_ns();
    if let Task::Run(task) = &assignment.task {
        let outcome = run_task::run(shared, assignment, task).map(TaskResult::Run);
        return Finished { attempt: assignment.attempt, outcome, started_ns, ended_ns: now_ns() };
    }
    let job = shared.job_data(assignment.attempt.task.job, &assignment.job);
    let (run, cancelled) = (Arc::clone(&assignment.job), Arc::clone(&assignment.cancelled));
    let job = AttemptData::new(job, assignment.attempt, run, cancelled);
    if !matches!(assignment.task, Task::Map(_)) || state.slabs_of != Some(job.job) {
        state.slabs.clear();
        state.slabs_of = Some(job.job);
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| run_task(shared, state, &job, assignment)));
    let outcome = outcome.unwrap_or_else(|panic| {
        // Half-filled slabs may be in any state.
        state.slabs = WorkerSlabs::default();
        Err(TaskFailure::new(Blame::Engine, format!("the engine panicked: {}", panic_text(&*panic))))
    });
    Finished { attempt: assignment.attempt, outcome, started_ns, ended_ns: now_ns() }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn run_task(
    shared: &Arc<Shared>,
    state: &mut SlotState,
    job: &AttemptData,
    assignment: &Assignment,
) -> Result<TaskResult, TaskFailure> {
    let attempt = assignment.attempt;
    match &assignment.task {
        Task::Map(task) => map_task::run(shared, state, job, attempt, task).map(TaskResult::Map),
        Task::Adopt(task) => shuffle_tasks::adopt(job, task).map(TaskResult::Adopt),
        Task::Seal(task) => shuffle_tasks::seal(shared, job, task).map(TaskResult::Seal),
        Task::Merge(task) => shuffle_tasks::merge(shared, job, task).map(TaskResult::Merge),
        Task::Reduce(task) => reduce_task::run(shared, job, attempt, task).map(TaskResult::Reduce),
        Task::Run(task) => run_task::run(shared, assignment, task).map(TaskResult::Run),
        Task::Commit(task) => commit_task::run(assignment, task).map(TaskResult::Commit),
    }
}
