//! Idle slots and long ranges: what a running attempt has not read yet can become a task of its own (Sailfish section 4 has the reduce
//! tasks cut from the data, here they are cut once more while they run; `docs/internals/elastic.md`).
//!
//! Asked is only where a slot is free that nothing else waits for, and for the attempt that needs longest to its end.

use crate::dispatch::choose;
use crate::state::{Job, Phase, State};
use crate::{Action, Outbox, Placement, UnixNanos};
use ids::{AttemptKey, JobId, NodeId, TaskKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// An attempt that has run for less is not asked: nobody knows yet how fast it is.
pub const SPLIT_AFTER_NS: u64 = 1_000_000_000;
/// Nor one that ends sooner than this: a new task costs about a tenth of it.
pub const SPLIT_LEFT_NS_MIN: u64 = 2_000_000_000;
/// At a time.
const ASKED_AT_ONCE_MAX: usize = 8;
/// An attempt is asked again after so long.
pub const ASKED_AGAIN_AFTER_NS: u64 = 2_000_000_000;

/// Asks for tasks where slots are idle, of the jobs that were heard of.
pub(crate) fn lend_to_tails(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    heard: BTreeSet<JobId>,
) {
    // Tasks that wait for a slot near their data would soon take any.
    if heard.is_empty() || !state.far_due.is_empty() || state.free_slots.is_empty() {
        return;
    }
    let mut idle = idle_nodes(state, now).min(ASKED_AT_ONCE_MAX);
    for id in heard {
        let Some(job) = state.jobs.get_mut(&id).filter(|job| job.phase == Phase::Running) else { continue };
        // Their memory is that of the job.
        let needs_nothing_more = job.claim.needs.everywhere || job.claim.needs.is_nothing();
        if job.watch.splits != Some(job.current) || !needs_nothing_more {
            continue;
        }
        let is_recent = |asked: &UnixNanos| now.0.saturating_sub(asked.0) < ASKED_AGAIN_AFTER_NS;
        job.watch.asked.retain(|_, asked| is_recent(asked));
        // Those that were asked a moment ago may be on their way to filling a slot.
        idle = idle.saturating_sub(job.watch.asked.len());
        for (attempt, done) in longest(job).into_iter().take(idle) {
            idle -= 1;
            let slot = job.running[&attempt].slot;
            job.watch.asked.insert(attempt, now);
            outbox.push(Action::SplitTask { attempt, slot, done });
        }
    }
}

/// Nodes with a slot that nothing waits for.
fn idle_nodes(state: &mut State, now: UnixNanos) -> usize {
    let nodes: Vec<NodeId> = state.free_slots.nodes().filter(|node| state.shares(*node)).collect();
    nodes.into_iter().filter(|node| choose(state, *node, now).is_none()).count()
}

/// Attempts of the stage that runs which are worth being cut, those that need longest first, with what each has done. Of two attempts
/// of a task it is the one that would end first: the other is stopped when this one gives up its end, so a copy keeps no task whole.
fn longest(job: &Job) -> Vec<(AttemptKey, u64)> {
    let mut found: BTreeMap<TaskKey, (u64, AttemptKey, u64)> = BTreeMap::new();
    let mut undecided: BTreeSet<TaskKey> = BTreeSet::new();
    let mut heard: BTreeMap<TaskKey, usize> = BTreeMap::new();
    for pace in job.watch.paces(job.current) {
        let (attempt, task) = (pace.attempt, pace.attempt.task);
        let Some(running) = job.running.get(&attempt).filter(|running| !running.is_told_to_stop) else {
            continue;
        };
        *heard.entry(task).or_default() += 1;
        let was_asked = job.watch.asked.contains_key(&attempt);
        if was_asked || running.is_taken_over || pace.took_ns < SPLIT_AFTER_NS || pace.did == 0 {
            undecided.insert(task);
            continue;
        }
        let cost_ns = pace.took_ns as f64 / pace.did as f64;
        let this = ((pace.left as f64 * cost_ns) as u64, attempt, pace.done);
        found.entry(task).and_modify(|first| *first = this.min(*first)).or_insert(this);
    }
    let is_whole = |task: &TaskKey| {
        let state = &job.stages[usize::from(job.current.0)].tasks[task.task.0 as usize];
        let all_heard = heard.get(task) == Some(&job.live(*task).count()) && !undecided.contains(task);
        let is_lost = job.lost.iter().any(|lost| lost.task == *task);
        all_heard && !state.queued && state.winner.is_none() && !is_lost
    };
    let mut worth: Vec<_> = found
        .into_iter()
        .filter(|(task, (left_ns, ..))| *left_ns >= SPLIT_LEFT_NS_MIN && is_whole(task))
        .map(|(_, of_task)| of_task)
        .collect();
    worth.sort_by_key(|(left_ns, attempt, _)| (Reverse(*left_ns), *attempt));
    worth.into_iter().map(|(_, attempt, done)| (attempt, done)).collect()
}

/// An attempt gave up the end of its range: its stage has one more task, behind all others, if it still runs. Other attempts of the task
/// would go on to the old end.
pub(crate) fn on_task_added(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    of: AttemptKey,
    placement: Placement,
) {
    let AttemptKey { task: TaskKey { job: id, stage, .. }, .. } = of;
    let Some(job) = state.jobs.get_mut(&id) else { return };
    if job.phase == Phase::Running && job.current == stage && job.stage(stage).expanded {
        job.stop_others(outbox, of.task, Some(of));
        job.stage(stage).add(placement);
        state.claim(id, now);
    }
}
