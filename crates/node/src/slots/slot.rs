//! A slot: pulls an attempt, runs it, reports it, and pulls again.

use crate::attempt::{Assignment, Finished, never_began};
use crate::clock::now_ns;
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::replicate::replicate;
use crate::slots::state::SlotState;
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::{commit, map, merge, program, reduce, seal};
use api::task::AttemptUsage;
use api::{Blame, Task, TaskFailure, TaskResult};
use iappender::WorkerSlabs;
use ids::{AttemptKey, JobId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs attempts until the server stops the slot, or is unreachable.
pub(crate) fn slot_loop(shared: &Arc<Shared>, slot: u32) {
    let _life = shared.run_gate.slot();
    attempts(shared, slot, || true);
}

/// Runs attempts of one task in turns of slots, as long as programs are short.
pub(crate) fn place_loop(shared: &Arc<Shared>, place: u32) {
    attempts(shared, place, || shared.run_gate.wait_for_short_programs());
}

/// Runs attempts until there are no more, or `asks` says that it is over. The end of one is reported with the request for the
/// next.
fn attempts(shared: &Arc<Shared>, number: u32, asks: impl Fn() -> bool) {
    let mut state = SlotState::default();
    let mut finished = None;
    // An end is reported at once, also if no further attempt is wanted.
    while finished.is_some() || asks() {
        let Some(assignment) = shared.control.pull(number, finished.take()) else { break };
        shared.options.programs.begin_attempt(space_of(&assignment));
        let cpu_us = thread_cpu_us();
        let ended = run(shared, &mut state, &assignment);
        shared.options.programs.end_attempt();
        finished = Some(measured(shared, ended, thread_cpu_us().saturating_sub(cpu_us)));
    }
    shared.options.programs.leave_slot();
}

/// Returns the job for which the namespaces of an attempt's programs are made. Attempts of a job share them, except those of
/// a job of one task: each has directories of its own, which are not visible in the namespaces of an earlier one. No job
/// has a number below zero.
fn space_of(assignment: &Assignment) -> JobId {
    let AttemptKey { task, attempt } = assignment.attempt;
    match &assignment.task {
        Task::Run(_) if attempt.0 > 0 => {
            let of_attempt = task.job.0.saturating_mul(1 << 16).saturating_add(i64::from(attempt.0));
            JobId(-of_attempt)
        }
        _ => task.job,
    }
}

/// Returns the slots whose turns an attempt takes; 0 if it takes none, because as many attempts begin as there are slots.
fn slots_of(shared: &Shared, assignment: &Assignment) -> u32 {
    match &assignment.task {
        _ if shared.options.places == 0 => 0,
        Task::Run(task) => task.slots(),
        _ => 1,
    }
}

/// Returns the processor time of this thread in microseconds.
fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// Adds the resources that an attempt used. Its programs have ended, or wait for the next attempt.
fn measured(shared: &Shared, ended: Finished, own_cpu_us: u64) -> Finished {
    let mut usage = shared.meters.take_used(ended.attempt);
    usage.cpu_us = own_cpu_us.saturating_add(shared.options.programs.take_cpu_us());
    usage.stored_bytes += match &ended.outcome {
        Ok(TaskResult::Map(map)) => map.part.as_ref().map_or(0, |part| part.bytes),
        Ok(TaskResult::Reduce(reduce)) => reduce.part.bytes,
        _ => 0,
    };
    Finished { usage, ..ended }
}

fn run(shared: &Arc<Shared>, state: &mut SlotState, assignment: &Assignment) -> Finished {
    let Some(turn) = shared.run_gate.enter(slots_of(shared, assignment), &assignment.cancelled) else {
        return never_began(assignment.attempt, TaskFailure::new(Blame::Cancelled, "the job was stopped"));
    };
    let started_ns = now_ns();
    if let Task::Run(task) = &assignment.task {
        let outcome = program::run(shared, assignment, task, turn).map(TaskResult::Run);
        return Finished {
            attempt: assignment.attempt,
            outcome,
            started_ns,
            ended_ns: now_ns(),
            usage: AttemptUsage::default(),
        };
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
    Finished {
        attempt: assignment.attempt,
        outcome,
        started_ns,
        ended_ns: now_ns(),
        usage: AttemptUsage::default(),
    }
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
    let (_, moved_bytes) = job.files.reads().bytes();
    shared.meters.add_used(job.attempt, AttemptUsage { moved_bytes, ..AttemptUsage::default() });
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
        Task::Run(_) => unreachable!("it has no data of a job"),
        Task::Commit(task) => commit::run(shared, job, assignment, task).map(TaskResult::Commit),
    }
}
