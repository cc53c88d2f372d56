//! Consequences of the loss of a node, and of the loss of data with it.

use crate::reactor::{advance, on_attempt_lost, on_slots_gone, take_off};
use crate::state::{Phase, State};
use crate::{Action, Outbox, RetainedStage, UnixNanos};
use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, TaskIndex, TaskKey};

pub(crate) fn on_node_lost(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, node: NodeId) {
    state.remove_room(node);
    on_slots_gone(state, node);
    state.slow_nodes.remove(&node);
    let on_it = |job: &crate::state::Job| -> Vec<AttemptKey> {
        let running = job.running.iter().filter(|(_, running)| running.slot.node == node);
        running.map(|(attempt, _)| *attempt).collect()
    };
    let lost: Vec<AttemptKey> = state.jobs.values().flat_map(on_it).collect();
    for attempt in lost {
        on_attempt_lost(state, outbox, now, attempt);
        state.claim(attempt.task.job, now);
    }
    state.free_those_kept_away(now);
}

pub(crate) fn on_tasks_moved(
    state: &mut State,
    job: JobId,
    stage: StageIndex,
    tasks: Vec<(TaskIndex, Placement)>,
) {
    let stage = state.jobs.get_mut(&job).and_then(|job| job.stages.get_mut(usize::from(stage.0)));
    let Some(stage) = stage else { return };
    for (index, placement) in tasks {
        // A waiting task is in the queues of its previous placement.
        if let Some(task) = stage.tasks.get_mut(index.0 as usize).filter(|task| !task.queued) {
            task.placement = placement;
        }
    }
}

pub(crate) fn on_tasks_placed(
    state: &mut State,
    now: UnixNanos,
    id: JobId,
    stage: StageIndex,
    tasks: Vec<(TaskIndex, Placement)>,
) {
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase == Phase::Running && job.current == stage {
        job.stage(stage).place_again(tasks);
        state.claim(id, now);
    }
}

pub(crate) fn on_results_lost(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    id: JobId,
    stage: StageIndex,
    tasks: &[TaskIndex],
    retained: Option<&RetainedStage>,
) {
    let Some(job) = state.jobs.get(&id) else { return };
    // A cancelled job needs no data, and a job between two stages is asked again when it runs.
    if job.phase != Phase::Running || job.current < stage {
        return;
    }
    let goes_on = |task: TaskKey| {
        retained.is_some_and(|retained| retained.stage == task.stage && !retained.stops.contains(&task.task))
    };
    let late = job.running.keys().filter(|attempt| attempt.task.stage > stage && !goes_on(attempt.task));
    let late: Vec<AttemptKey> = late.copied().collect();
    for attempt in late {
        // An attempt that was told to stop is discarded whenever it ends.
        if take_off(state, attempt, now).is_some()
            && let Some(job) = state.jobs.get_mut(&id)
        {
            job.lost.insert(attempt);
        }
    }
    let job = state.jobs.get_mut(&id).expect("the job was looked at a moment ago");
    let after = usize::from(stage.0) + 1;
    for (index, later) in job.stages.iter_mut().enumerate().skip(after) {
        if retained.is_some_and(|retained| usize::from(retained.stage.0) == index) {
            later.let_stand();
            retained.into_iter().flat_map(|retained| &retained.redo).for_each(|task| later.undo(*task));
            continue;
        }
        let started = later.tasks.iter().map(|task| task.attempts_started).max();
        later.attempts_base = later.attempts_base.max(started.unwrap_or(0)).max(later.attempts_used);
        (later.expanded, later.retains_tasks) = (false, false);
        later.fill(Vec::new());
    }
    job.current = stage;
    let redone = job.stage(stage);
    for index in tasks.iter().rev() {
        let Some(task) = redone.tasks.get_mut(index.0 as usize) else { continue };
        if task.winner.take().is_some() {
            redone.done -= 1;
            redone.go_again(*index);
            outbox.push(Action::TaskRetried { task: TaskKey { job: id, stage, task: *index } });
        }
    }
    advance(state, outbox, id);
}
