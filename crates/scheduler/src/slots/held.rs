//! Held jobs: they start only when their owner says so. A program that reads the output of a running one holds no slot that
//! another job waits for; control decides when it starts, and stops it if others wait.

use crate::reactor::go_again_where_idle;
use crate::ready::Queue;
use crate::state::{Phase, State};
use crate::{Event, Needs, Outbox, UnixNanos};
use ids::{AttemptKey, JobId, NodeId, TaskKey};
use std::collections::BTreeSet;

/// Handles an event about a held job.
pub(crate) fn on_held(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, event: &Event) {
    match event {
        Event::JobHeld { job } => on_job_held(state, *job),
        Event::AttemptsStopped { job } => on_attempts_stopped(state, outbox, *job),
        Event::JobReleased { job } => on_job_released(state, now, *job),
        _ => {}
    }
}

/// Keeps a job from starting attempts; those that run go on.
fn on_job_held(state: &mut State, id: JobId) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    job.is_held = true;
    let (level, user, needs, order) = (job.level, job.claim.user, job.claim.needs, job.order(id));
    let current = job.current;
    let tasks = &job.stage(current).tasks;
    let nodes = tasks.iter().flat_map(|task| task.placement.near().iter().chain(task.only.iter().flatten()));
    let of_nodes: BTreeSet<NodeId> = nodes.copied().collect();
    // A claim that stays would hide those behind it.
    let queues = [Queue::Anywhere, Queue::Far].into_iter().chain(of_nodes.into_iter().map(Queue::Of));
    for queue in queues.map(|queue| queue.for_needs(needs)) {
        if state.claims_of(queue).is_some() {
            state.claims_mut(queue).remove(level, user, order);
            state.forget_if_empty(queue);
        }
    }
    state.keep_for_nobody(|kept, _| kept == id);
}

/// Lets a held job start attempts.
fn on_job_released(state: &mut State, now: UnixNanos, id: JobId) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if !std::mem::take(&mut job.is_held) || job.phase != Phase::Running {
        return;
    }
    let current = job.current;
    let queues = job.stage(current).queues_with_waiting();
    job.stage(current).ready.opened.extend(queues);
    state.claim(id, now);
}

/// Stops the attempts of a held job. Their tasks wait again, and their results are discarded.
fn on_attempts_stopped(state: &mut State, outbox: &mut impl Outbox, id: JobId) {
    let held = state.jobs.get_mut(&id).filter(|job| job.is_held && job.phase == Phase::Running);
    let Some(job) = held else { return };
    let running = job.running.keys().map(|attempt| attempt.task);
    let tasks: BTreeSet<TaskKey> = running.filter(|task| task.stage == job.current).collect();
    for task in tasks {
        if job.task(task).is_some_and(|task| task.winner.is_none()) {
            job.stop_others(outbox, task, None);
            go_again_where_idle(job, outbox, task);
        }
    }
}

/// Returns whether a task waits for a slot, or for memory, that no held job has. The answer costs time for each job that
/// runs or waits.
pub fn wants_slots(state: &mut State) -> bool {
    if !state.line.is_empty() {
        return true;
    }
    let State { jobs, waits_since, .. } = state;
    waits_since.iter().any(|(_, id)| {
        let running = jobs.get_mut(id).filter(|job| job.phase == Phase::Running && !job.is_held);
        running.is_some_and(|job| {
            let current = job.current;
            job.stage(current).has_waiting()
        })
    })
}

/// Returns whether an attempt with these needs could start at once, on a slot that nothing else wants.
pub fn has_idle_room(state: &mut State, needs: Needs) -> bool {
    let reserved = state.node_kept_for_wide();
    let is_free = |node: NodeId| Some(node) != reserved && state.fits(needs, node);
    state.free_slots.nodes().any(is_free) && !wants_slots(state)
}

/// Returns the attempt of a job's only task that runs and was not told to stop, with its node.
pub fn live_attempt(state: &State, id: JobId) -> Option<(AttemptKey, NodeId)> {
    let job = state.jobs.get(&id)?;
    let mut live = job.running.iter().filter(|(_, running)| !running.is_told_to_stop);
    live.next().map(|(attempt, running)| (*attempt, running.slot.node))
}
