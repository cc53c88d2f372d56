//! Orders of the scheduler that need nothing more from it.

use crate::membership::Fleet;
use crate::scheduling::seen_inputs::bound;
use crate::work::Work;
use api::Task;
use api::control::{END_KEYS_MAX, NodeOrder};
use api::task::MapTask;
use ids::{AttemptKey, StageIndex, TaskIndex};
use mapreduce::placement;
use scheduler::{Event, Slot};
use std::collections::BTreeMap;

/// Asks an attempt to give up half of its unread data, because slots are idle.
pub(crate) fn ask_to_split(work: &mut Work, attempt: AttemptKey, slot: Slot, done_bytes: u64) {
    let Some(job) = work.jobs.get(&attempt.task.job).filter(|job| job.runs_reduces().is_some()) else {
        return;
    };
    let keys = job.results().split_keys(attempt.task.task, done_bytes, END_KEYS_MAX);
    if let Some(node) = work.fleet.get_mut(slot.node).filter(|_| !keys.is_empty()) {
        node.order(NodeOrder::EndBefore { attempt, keys });
    }
}

/// Returns the event that must precede one that lets tasks run again: it moves tasks that send their data again
/// to the node that has the data, and those that only some nodes can run to these.
pub(crate) fn moved_before(work: &Work, event: &Event) -> Option<Event> {
    let (id, stage, tasks) = match event {
        Event::ResultsLost { job, stage, tasks, .. } => (*job, *stage, tasks),
        Event::StageSentBack { job, to, tasks, .. } => (*job, *to, tasks),
        _ => return None,
    };
    let job = work.jobs.get(&id)?;
    let payloads = job.tasks().get(usize::from(stage.0))?;
    let moved = |index: &TaskIndex| match payloads.get(index.0 as usize)? {
        task @ Task::Map(MapTask { again: Some(again), .. }) if again.resend.is_some() => {
            Some((*index, placement(task)))
        }
        _ => None,
    };
    let mut moves: BTreeMap<_, _> = tasks.iter().filter_map(moved).collect();
    if stage == StageIndex(0) {
        let bound = bound(&work.fleet, job);
        moves.extend(tasks.iter().filter_map(|index| Some((*index, bound.get(index)?.clone()))));
    }
    let tasks: Vec<_> = moves.into_iter().collect();
    (!tasks.is_empty()).then_some(Event::TasksMoved { job: id, stage, tasks })
}

/// Stops an attempt that still holds a slot although its task has a winner. Its result is discarded in any case.
pub(crate) fn stop_attempt(fleet: &mut Fleet, attempt: AttemptKey, slot: Slot) {
    if let Some(node) = fleet.get_mut(slot.node) {
        node.order(NodeOrder::StopAttempt { attempt });
    }
}
