//! The event handlers.

use crate::dispatch::dispatch;
use crate::elastic::{lend_to_tails, on_task_added};
use crate::losses::{on_node_lost, on_results_lost, on_tasks_moved, on_tasks_placed};
use crate::memory::Room;
use crate::ready::Queue;
use crate::recovery::{Recovered, on_job_recovered};
use crate::slots::held::on_held;
use crate::speculative_attempts::{Left, SLOW_NODE_NS, Watch, on_progress, speculate};
use crate::state::{Job, Phase, Stage, State};
use crate::{Action, Claim, Event, FailureCause, Outbox, Slot, UnixNanos};
use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, StageKind, TaskKey};

/// Handles an event and emits the resulting actions. Events about jobs or attempts that are gone are late, not wrong: a
/// success is discarded, others are ignored.
pub fn handle(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, event: Event) {
    let mut judges = false;
    match event {
        Event::JobSubmitted { job, claim, stages, failures_max } => {
            on_job_submitted(state, outbox, job, claim, &stages, failures_max);
        }
        Event::JobRecovered { job, claim, stages, failures_max, tasks, running, attempts_used, standing } => {
            on_job_recovered(
                state,
                outbox,
                now,
                Recovered { job, claim, stages, failures_max, tasks, running, attempts_used, standing },
            );
        }
        Event::StageExpanded { job, stage, tasks } => {
            on_stage_expanded(state, outbox, now, job, stage, tasks);
        }
        Event::JobRests { job } => on_job_rests(state, job),
        Event::StageRefused { job, stage } => on_stage_refused(state, outbox, job, stage),
        Event::StageSentBack { job, stage, to, tasks, retained } => {
            on_stage_sent_back(state, job, stage);
            on_results_lost(state, outbox, now, job, to, &tasks, retained.as_ref());
            state.claim(job, now);
        }
        Event::NodeCame { node, memory_bytes, architecture, slots, resources } => {
            state.add_room(node, Room::new(memory_bytes, architecture, slots, resources));
        }
        Event::SlotFree { slot } => state.slot_asks(slot),
        Event::PlacesFree { node, places } => on_places_free(state, node, places),
        Event::SlotGone { slot } => on_slot_gone(state, slot),
        Event::SlotsGone { node } => on_slots_gone(state, node),
        Event::MayCopy { job, stages } => with_watch(state, job, |watch| watch.allow(stages)),
        Event::MaySplit { job, stage } => with_watch(state, job, |watch| watch.allow_splits(stage)),
        Event::TaskAdded { of, placement } => on_task_added(state, outbox, now, of, placement),
        Event::Progress { attempt, done, total, waits } => {
            return on_progress(state, now, attempt, done, total, waits);
        }
        Event::AttemptSucceeded { attempt } => on_attempt_succeeded(state, outbox, now, attempt),
        Event::AttemptFailed { attempt, retryable, of_node } => {
            on_attempt_failed(state, outbox, now, attempt, retryable, of_node);
            state.claim(attempt.task.job, now);
        }
        Event::AttemptLost { attempt } => {
            on_attempt_lost(state, outbox, now, attempt);
            state.claim(attempt.task.job, now);
        }
        Event::NodeDraining { node } => on_node_draining(state, now, node),
        Event::NodeResumes { node } => on_node_resumes(state, node),
        Event::NodeLost { node } => on_node_lost(state, outbox, now, node),
        Event::TasksMoved { job, stage, tasks } => return on_tasks_moved(state, job, stage, tasks),
        Event::TasksPlaced { job, stage, tasks } => on_tasks_placed(state, now, job, stage, tasks),
        Event::ResultsLost { job, stage, tasks, retained } => {
            on_results_lost(state, outbox, now, job, stage, &tasks, retained.as_ref());
            state.claim(job, now);
        }
        Event::Tick => {
            judges = true;
            on_tick(state, now);
        }
        held @ (Event::JobHeld { .. } | Event::AttemptsStopped { .. } | Event::JobReleased { .. }) => {
            on_held(state, outbox, now, &held);
        }
        Event::JobCancelled { job } => on_job_cancelled(state, outbox, job),
    }
    state.admit(now);
    dispatch(state, outbox, now);
    if judges {
        lend_idle_slots(state, outbox, now);
    }
}

fn on_tick(state: &mut State, now: UnixNanos) {
    state.keep_a_node(now);
    // A waiting job may be the first in line now, or may have waited too long to be passed.
    (state.room_changed, state.look_everywhere) = (true, true);
}

fn lend_idle_slots(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos) {
    let heard = state.has_progress.clone();
    // Copies come first: of two attempts, one would go on to the old end of a range.
    speculate(state, outbox, now);
    lend_to_tails(state, outbox, now, heard);
}

fn with_watch(state: &mut State, job: JobId, change: impl FnOnce(&mut Watch)) {
    if let Some(job) = state.jobs.get_mut(&job) {
        change(&mut job.watch);
    }
}

fn on_job_submitted(
    state: &mut State,
    outbox: &mut impl Outbox,
    id: JobId,
    claim: Claim,
    kinds: &[StageKind],
    failures_max: u32,
) {
    let stages: Vec<Stage> = kinds.iter().map(|kind| Stage { kind: *kind, ..Stage::default() }).collect();
    let job = Job::new(claim, stages, failures_max, Phase::Expanding);
    let empty = job.stages.is_empty();
    state.add_job(id, job);
    if empty {
        end_job(state, outbox, id, Action::JobSucceeded { job: id });
    } else {
        outbox.push(Action::ExpandStage { job: id, stage: StageIndex(0) });
    }
}

fn on_stage_expanded(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    id: JobId,
    stage: StageIndex,
    tasks: Vec<Placement>,
) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase != Phase::Expanding || job.current != stage {
        return;
    }
    job.phase = Phase::Running;
    let expanded = job.stage(stage);
    expanded.expanded = true;
    expanded.fill(tasks);
    advance(state, outbox, id);
    state.claim(id, now);
}

fn on_stage_refused(state: &mut State, outbox: &mut impl Outbox, id: JobId, stage: StageIndex) {
    let Some(job) = state.jobs.get(&id) else { return };
    if matches!(job.phase, Phase::Expanding | Phase::Running) && job.current == stage {
        end_job(state, outbox, id, Action::JobFailed { job: id, because: FailureCause::Stage(stage) });
    }
}

fn on_stage_sent_back(state: &mut State, id: JobId, stage: StageIndex) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase == Phase::Expanding && job.current == stage {
        job.phase = Phase::Running;
        if std::mem::take(&mut job.waits_for_readers) {
            state.take_memory(id);
        }
    }
}

fn on_job_rests(state: &mut State, id: JobId) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase == Phase::Expanding {
        job.waits_for_readers = true;
        state.give_memory_back(id);
    }
}

fn on_slot_gone(state: &mut State, slot: Slot) {
    state.free_slots.remove(slot);
    state.draining_slots.remove(slot);
    state.occupied.slot_gone(slot);
}

pub(crate) fn on_slots_gone(state: &mut State, node: NodeId) {
    state.places.remove_node(node);
    state.free_slots.remove_node(node);
    state.draining_slots.remove_node(node);
    state.occupied.slots_gone(node);
}

fn on_places_free(state: &mut State, node: NodeId, places: Vec<u32>) {
    state.places.remove_node(node);
    // The node sends its places again with its next poll.
    if !state.draining.contains(&node) && !state.occupied.has_any_of(node) {
        places.into_iter().for_each(|slot| state.places.insert(Slot { node, slot }));
    }
}

fn on_node_draining(state: &mut State, now: UnixNanos, node: NodeId) {
    if !state.draining.insert(node) {
        return;
    }
    state.places.remove_node(node);
    state.keep_for_nobody(|_, kept| kept == node);
    state.room_changed = true;
    while let Some(slot) = state.free_slots.first_of(node) {
        state.free_slots.remove(slot);
        state.draining_slots.insert(slot);
    }
    state.woken.insert(node);
    state.free_those_kept_away(now);
}

fn on_node_resumes(state: &mut State, node: NodeId) {
    if !state.draining.remove(&node) {
        return;
    }
    state.room_changed = true;
    while let Some(slot) = state.draining_slots.first_of(node) {
        state.draining_slots.remove(slot);
        state.free_slots.insert(slot);
    }
    // Tasks near it may have left its queue in the meantime.
    let State { jobs, line, .. } = state;
    let mut refilled: Vec<JobId> = Vec::new();
    for (id, job) in jobs.iter_mut().filter(|(id, job)| job.phase == Phase::Running && !line.contains(id)) {
        let current = job.current;
        if job.stage(current).refill(node) {
            refilled.push(*id);
        }
    }
    for id in refilled {
        let job = &state.jobs[&id];
        let (level, user, needs, order) = (job.level, job.claim.user, job.claim.needs, job.order(id));
        state.claims_mut(Queue::Of(node).for_needs(needs)).insert(level, user, order);
    }
    state.woken.insert(node);
}

/// Removes an ended attempt; None for an unknown one, or one that was told to stop: its end has no effect.
pub(crate) fn take_off(state: &mut State, attempt: AttemptKey, now: UnixNanos) -> Option<Left> {
    let job = state.jobs.get_mut(&attempt.task.job)?;
    if job.lost.remove(&attempt) {
        return Some(Left::default());
    }
    let running = job.running.remove(&attempt)?;
    let left = job.watch.leave(attempt, &running, now);
    let task = job.task(attempt.task).expect("a running attempt has its task");
    task.running -= u32::from(!running.is_told_to_stop);
    let (user, slots) = (job.claim.user, job.claim.needs.slots());
    let user = state.users.get_mut(&user).expect("a user with a running attempt is counted");
    user.served.running -= slots;
    state.give_attempt_memory_back(attempt.task.job, running.slot.node);
    state.give_slots_beside_back(attempt, running.slot.node);
    (!running.is_told_to_stop).then_some(left)
}

fn on_attempt_succeeded(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, attempt: AttemptKey) {
    let id = attempt.task.job;
    let left = take_off(state, attempt, now);
    let Some(job) = state.jobs.get_mut(&id) else {
        outbox.push(Action::AttemptDiscarded { attempt });
        return;
    };
    // A cancelled job only counts results of its last stage, which are final.
    let counts = match job.phase {
        Phase::Running => true,
        Phase::Cancelling => job.in_last_stage(),
        Phase::Expanding | Phase::Over => false,
    };
    // An attempt of a task that was recreated since has worked on lost data.
    let base = job.stages.get(usize::from(attempt.task.stage.0)).map_or(0, |stage| stage.attempts_base);
    let counts = counts && attempt.attempt.0 >= base;
    let left = left.filter(|_| counts);
    match (job.task(attempt.task), left) {
        (Some(task), Some(left)) if task.winner.is_none() => {
            task.winner = Some(attempt.attempt);
            job.stage(attempt.task.stage).done += 1;
            outbox.push(Action::TaskDone { attempt });
            job.stop_others(outbox, attempt.task, None);
            if let Some(slow) = job.watch.won(attempt, left, now) {
                state.slow_nodes.insert(slow, UnixNanos(now.0.saturating_add(SLOW_NODE_NS)));
            }
            advance(state, outbox, id);
        }
        _ => outbox.push(Action::AttemptDiscarded { attempt }),
    }
    drain(state, outbox, id);
}

fn on_attempt_failed(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    attempt: AttemptKey,
    retryable: bool,
    of_node: bool,
) {
    let id = attempt.task.job;
    let Some(job) = state.jobs.get(&id) else { return };
    let node = job.running.get(&attempt).map(|running| running.slot.node).filter(|_| of_node);
    let was_lost = job.lost.contains(&attempt);
    let is_copy = job.watch.is_copy(attempt);
    let counts = take_off(state, attempt, now).is_some() && !was_lost;
    let Some(job) = state.jobs.get_mut(&id) else { return };
    // The task of a lost attempt already runs again; its failure adds nothing.
    if counts && job.phase == Phase::Running {
        let failures_max = job.failures_max;
        let goes_on = job.live(attempt.task).next().is_some();
        let task = job.task(attempt.task).expect("the attempt was on the books");
        if task.winner.is_none() {
            // A failure of a copy does not count while the original runs.
            task.failures += u32::from(!(is_copy && goes_on));
            if !retryable || task.failures >= failures_max {
                let because = FailureCause::Attempt(attempt);
                end_job(state, outbox, id, Action::JobFailed { job: id, because });
                return;
            }
            node.into_iter().for_each(|node| state.keep_away(attempt.task, node));
            let job = state.jobs.get_mut(&id).expect("the job was looked at a moment ago");
            go_again_where_idle(job, outbox, attempt.task);
        }
    }
    drain(state, outbox, id);
}

/// Queues a task again, unless an attempt of it runs, or it waits already.
pub(crate) fn go_again_where_idle(job: &mut Job, outbox: &mut impl Outbox, key: TaskKey) {
    let waits = job.task(key).is_some_and(|task| task.queued);
    if !waits && job.live(key).next().is_none() {
        job.stage(key.stage).go_again(key.task);
        outbox.push(Action::TaskRetried { task: key });
    }
}

pub(crate) fn on_attempt_lost(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    attempt: AttemptKey,
) {
    let id = attempt.task.job;
    let running = state.jobs.get(&id).is_some_and(|job| job.running.contains_key(&attempt));
    if !running {
        return;
    }
    let counts = take_off(state, attempt, now).is_some();
    let job = state.jobs.get_mut(&id).expect("the job was looked at a moment ago");
    // An attempt that was told to stop is discarded whenever it ends.
    if counts {
        job.lost.insert(attempt);
    }
    if counts && job.phase == Phase::Running {
        let task = job.task(attempt.task).expect("a running attempt has its task");
        if task.winner.is_none() {
            go_again_where_idle(job, outbox, attempt.task);
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

/// Goes to the next stage, or to the end, if the current stage is complete.
pub(crate) fn advance(state: &mut State, outbox: &mut impl Outbox, id: JobId) {
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

/// Removes a finished job once its last attempt has ended.
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
        if let Some(due) = job.far_due {
            state.far_due.remove(&(due, id));
        }
        let user = job.claim.user;
        state.leave_waiting(id);
        state.give_memory_back(id);
        state.jobs.remove(&id);
        if let Some(counted) = state.users.get_mut(&user) {
            counted.jobs -= 1;
            if counted.jobs == 0 {
                state.users.remove(&user);
            }
        }
        outbox.push(Action::JobDrained { job: id });
    }
}
