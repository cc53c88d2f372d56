//! A slot: pulls an attempt, runs it, reports it, and pulls again.

use crate::attempt::{Assignment, Finished};
use crate::clock::now_ns;
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::replicate::replicate;
use crate::slots::state::SlotState;
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::{commit, map, merge, program, reduce, seal};
use api::{Blame, Task, TaskFailure, TaskResult};
use iappender::WorkerSlabs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs attempts until the server stops the slot, or is unreachable.
pub(crate) fn slot_loop(shared: &Arc<Shared>, slot: u32) {
    let mut state = SlotState::default();
    let mut finished = None;
    while let Some(assignment) = shared.control.pull(slot, finished.take()) {
        shared.options.programs.begin_attempt(assignment.attempt.task.job);
        finished = Some(run(shared, &mut state, &assignment));
        shared.options.programs.end_attempt();
    }
    shared.options.programs.leave_slot();
}

fn run(shared: &Arc<Shared>, state: &mut SlotState, assignment: &Assignment) -> Finished {
    let started_ns = now_ns();
    if let Task::Run(task) = &assignment.task {
        let outcome = program::run(shared, assignment, task).map(TaskResult::Run);
        return Finished { attempt: assignment.attempt, outcome, started_ns, ended_ns: now_ns() };
    }
    let job = shared.job_data(assignment.attempt.task.job, &assignment.job);
    replicate(shared, &job);
    let (run, cancelled) = (Arc::clone(&assignment.job), Arc::clone(&assignment.cancelled));
    let job = AttemptData::new(job, assignment.attempt, run, cancelled);
    if !matches!(assignment.task, Task::Map(_)) || state.slabs_of != Some(job.job) {
        state.slabs.clear();
        state.slabs_of = Some(job.job);
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| run_with_files(shared, state, job, assignment)));
    let outcome = outcome.unwrap_or_else(|panic| {
        // Half-filled slabs may be in any state.
        state.slabs = WorkerSlabs::default();
        Err(TaskFailure::new(Blame::Engine, format!("the engine panicked: {}", panic_text(&*panic))))
    });
    Finished { attempt: assignment.attempt, outcome, started_ns, ended_ns: now_ns() }
}

/// Runs a task whose programs find copies of stored files. Its result counts only if none of them was changed.
fn run_with_files(
    shared: &Arc<Shared>,
    state: &mut SlotState,
    job: AttemptData,
    assignment: &Assignment,
) -> Result<TaskResult, TaskFailure> {
    let files = AttemptFiles::bring(shared, &job, &assignment.task)?;
    let job = job.with_files(files);
    let result = run_task(shared, state, &job, assignment);
    let result = result.map_err(|failure| job.files.named_in(failure))?;
    job.files.check_unchanged()?;
    Ok(result)
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
    match &assignment.task {
        Task::Map(task) => map::run(shared, state, job, task).map(TaskResult::Map),
        Task::Adopt(task) => seal::adopt(job, task).map(TaskResult::Adopt),
        Task::Seal(task) => seal::seal(shared, job, task).map(TaskResult::Seal),
        Task::Merge(task) => merge::merge(shared, job, task).map(TaskResult::Merge),
        Task::Reduce(task) => reduce::run(shared, job, task).map(TaskResult::Reduce),
        Task::Run(task) => program::run(shared, assignment, task).map(TaskResult::Run),
        Task::Commit(task) => commit::run(job, assignment, task).map(TaskResult::Commit),
    }
}
