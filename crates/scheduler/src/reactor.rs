//! One function per event.

use crate::dispatch::dispatch;
use crate::state::{Job, Phase, Stage, State, Task};
use crate::{ATTEMPTS_MAX, Action, Event, FailureCause, Outbox, Slot, UnixNanos};
use ids::{AttemptKey, JobId, StageIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Takes one event and orders what follows from it. Events about jobs or attempts that are gone are late, not
/// wrong: a success is discarded, the rest is ignored.
pub fn handle(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, event: Event) {
    match event {
        Event::JobSubmitted { job, stages } => on_job_submitted(state, outbox, job, &stages),
        Event::StageExpanded { job, stage, task_count } => {
            on_stage_expanded(state, outbox, job, stage, task_count);
        }
        Event::StageRefused { job, stage } => on_stage_refused(state, outbox, job, stage),
        Event::SlotFree { slot } => on_slot_free(state, slot),
        Event::SlotGone { slot } => state.free_slots.retain(|each| *each != slot),
        Event::AttemptSucceeded { attempt } => on_attempt_succeeded(state, outbox, attempt),
        Event::AttemptFailed { attempt, retryable } => {
            on_attempt_failed(state, outbox, attempt, retryable);
        }
        Event::AttemptLost { attempt } => on_attempt_lost(state, outbox, attempt),
        Event::JobCancelled { job } => on_job_cancelled(state, outbox, job),
    }
    dispatch(state, outbox, now);
}

fn on_job_submitted(state: &mut State, outbox: &mut impl Outbox, id: JobId, names: &[&'static str]) {
    let stages: Vec<Stage> = names.iter().map(|name| Stage { name, ..Stage::default() }).collect();
    let job = Job {
        stages,
        current: StageIndex(0),
        phase: Phase::Expanding,
        running: BTreeMap::new(),
        lost: BTreeSet::new(),
    };
    let empty = job.stages.is_empty();
    let before = state.jobs.insert(id, job);
    assert!(before.is_none(), "job {id} was submitted twice");
    if empty {
        end_job(state, outbox, id, Action::JobSucceeded { job: id });
    } else {
        outbox.push(Action::ExpandStage { job: id, stage: StageIndex(0) });
    }
}

fn on_stage_expanded(state: &mut State, outbox: &mut impl Outbox, id: JobId, stage: StageIndex, count: u32) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase != Phase::Expanding || job.current != stage {
        return;
    }
    job.phase = Phase::Running;
    let expanded = job.stage(stage);
    expanded.expanded = true;
    expanded.tasks = vec![Task::default(); count as usize];
    advance(state, outbox, id);
}

fn on_stage_refused(state: &mut State, outbox: &mut impl Outbox, id: JobId, stage: StageIndex) {
    let Some(job) = state.jobs.get(&id) else { return };
    if job.phase == Phase::Expanding && job.current == stage {
        end_job(state, outbox, id, Action::JobFailed { job: id, because: FailureCause::Stage(stage) });
    }
}

fn on_slot_free(state: &mut State, slot: Slot) {
    if !state.free_slots.contains(&slot) {
        state.free_slots.push_back(slot);
    }
}

/// Takes an attempt off the books; false for one that is not on them.
fn take_off(job: &mut Job, attempt: AttemptKey) -> bool {
    if job.lost.remove(&attempt) {
        return true;
    }
    if job.running.remove(&attempt).is_none() {
        return false;
    }
    let task = job.task(attempt.task).expect("a running attempt has its task");
    task.running -= 1;
    true
}

fn on_attempt_succeeded(state: &mut State, outbox: &mut impl Outbox, attempt: AttemptKey) {
    let id = attempt.task.job;
    let Some(job) = state.jobs.get_mut(&id) else {
        outbox.push(Action::AttemptDiscarded { attempt });
        return;
    };
    let known = take_off(job, attempt);
    // A cancelled job is only interested in what its last stage has done for good.
    let counts = match job.phase {
        Phase::Running => true,
        Phase::Cancelling => job.in_last_stage(),
        Phase::Expanding | Phase::Over => false,
    };
    let task = job.task(attempt.task);
    match task {
        Some(task) if known && counts && task.winner.is_none() => {
            task.winner = Some(attempt.attempt);
            job.stage(attempt.task.stage).done += 1;
            outbox.push(Action::TaskDone { attempt });
            advance(state, outbox, id);
        }
        _ => outbox.push(Action::AttemptDiscarded { attempt }),
    }
    drain(state, outbox, id);
}

fn on_attempt_failed(state: &mut State, outbox: &mut impl Outbox, attempt: AttemptKey, retryable: bool) {
    let id = attempt.task.job;
    let Some(job) = state.jobs.get_mut(&id) else { return };
    let was_lost = job.lost.contains(&attempt);
    if !take_off(job, attempt) {
        return;
    }
    // A lost attempt's task already went again; its failure says nothing new.
    if !was_lost && job.phase == Phase::Running {
        let task = job.task(attempt.task).expect("the attempt was on the books");
        if task.winner.is_none() {
            task.failures += 1;
            if !retryable || task.failures >= ATTEMPTS_MAX {
                let because = FailureCause::Attempt(attempt);
                end_job(state, outbox, id, Action::JobFailed { job: id, because });
                return;
            }
            job.stage(attempt.task.stage).again.push_front(attempt.task.task);
            outbox.push(Action::TaskRetried { task: attempt.task });
        }
    }
    drain(state, outbox, id);
}

fn on_attempt_lost(state: &mut State, outbox: &mut impl Outbox, attempt: AttemptKey) {
    let id = attempt.task.job;
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if !job.running.contains_key(&attempt) {
        return;
    }
    take_off(job, attempt);
    job.lost.insert(attempt);
    if job.phase == Phase::Running {
        let task = job.task(attempt.task).expect("a running attempt has its task");
        if task.winner.is_none() {
            job.stage(attempt.task.stage).again.push_front(attempt.task.task);
            outbox.push(Action::TaskRetried { task: attempt.task });
        }
    }
    drain(state, outbox, id);
}

fn on_job_cancelled(state: &mut State, outbox: &mut impl Outbox, id: JobId) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    match job.phase {
        Phase::Running if !job.running.is_empty() => job.phase = Phase::Cancelling,
        Phase::Running | Phase::Expanding => end_job(state, outbox, id, Action::JobCancelled { job: id }),
        Phase::Cancelling | Phase::Over => {}
    }
}

/// Goes to the next stage, or to the end, where the current one is complete.
fn advance(state: &mut State, outbox: &mut impl Outbox, id: JobId) {
    let job = state.jobs.get_mut(&id).expect("the caller has just looked at the job");
    let current = job.current;
    if !job.stage(current).complete() {
        return;
    }
    if job.in_last_stage() {
        end_job(state, outbox, id, Action::JobSucceeded { job: id });
        return;
    }
    job.current = StageIndex(current.0 + 1);
    job.phase = Phase::Expanding;
    outbox.push(Action::ExpandStage { job: id, stage: StageIndex(current.0 + 1) });
}

fn end_job(state: &mut State, outbox: &mut impl Outbox, id: JobId, announcement: Action) {
    let job = state.jobs.get_mut(&id).expect("the caller has just looked at the job");
    job.phase = Phase::Over;
    outbox.push(announcement);
    drain(state, outbox, id);
}

/// Lets go of a job that is over once its last attempt has ended.
fn drain(state: &mut State, outbox: &mut impl Outbox, id: JobId) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if !job.running.is_empty() {
        return;
    }
    if job.phase == Phase::Cancelling {
        job.phase = Phase::Over;
        outbox.push(Action::JobCancelled { job: id });
    }
    if job.phase == Phase::Over {
        state.jobs.remove(&id);
        outbox.push(Action::JobDrained { job: id });
    }
}
