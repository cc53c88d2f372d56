//! Splitting of long ranges for idle slots: the unread rest of a running attempt can become a separate task (Sailfish
//! section 4 cuts reduce tasks from the data before they run; here they are cut again while they run;
//! `docs/internals/elastic.md`).
//!
//! A request is sent only if a slot is idle, and to the attempt with the longest remaining time.

use crate::dispatch::choose;
use crate::state::{Job, Phase, State};
use crate::{Action, Outbox, UnixNanos};
use ids::{AttemptKey, JobId, NodeId, Placement, TaskKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Least run time of an attempt before a request: until then its speed is unknown.
pub const SPLIT_AFTER_NS: u64 = 1_000_000_000;
/// Least remaining time of an attempt for a request: a new task costs about a tenth of it.
pub const SPLIT_LEFT_NS_MIN: u64 = 2_000_000_000;
/// Maximum number of requests at the same time.
const ASKED_AT_ONCE_MAX: usize = 8;
/// Time until an attempt is asked again.
pub const ASKED_AGAIN_AFTER_NS: u64 = 2_000_000_000;

/// Sends requests for idle slots to attempts of the jobs with news.
pub(crate) fn lend_to_tails(
    state: &mut State,
    outbox: &mut impl Outbox,
    now: UnixNanos,
    heard: BTreeSet<JobId>,
) {
    // Tasks that wait for a slot near their data would soon take any slot.
    if heard.is_empty() || !state.far_due.is_empty() || state.free_slots.is_empty() {
        return;
    }
    let mut idle = idle_nodes(state, now).min(ASKED_AT_ONCE_MAX);
    for id in heard {
        let Some(job) = state.jobs.get_mut(&id).filter(|job| job.phase == Phase::Running) else { continue };
        // They use the memory of their job.
        let needs_nothing_more = job.claim.needs.everywhere || job.claim.needs.is_nothing();
        if job.watch.splits != Some(job.current) || !needs_nothing_more {
            continue;
        }
        let is_recent = |asked: &UnixNanos| now.0.saturating_sub(asked.0) < ASKED_AGAIN_AFTER_NS;
        job.watch.asked.retain(|_, asked| is_recent(asked));
        // Attempts with a recent request may be about to fill a slot.
        idle = idle.saturating_sub(job.watch.asked.len());
        for (attempt, done) in longest(job).into_iter().take(idle) {
            idle -= 1;
            let slot = job.running[&attempt].slot;
            job.watch.asked.insert(attempt, now);
            outbox.push(Action::SplitTask { attempt, slot, done });
        }
    }
}

/// Returns the number of nodes with an idle slot.
fn idle_nodes(state: &mut State, now: UnixNanos) -> usize {
    let reserved = state.node_kept_for_wide();
    let may_lend = |node: &NodeId| state.shares(*node) && reserved != Some(*node);
    let nodes: Vec<NodeId> = state.free_slots.nodes().filter(may_lend).collect();
    nodes.into_iter().filter(|node| choose(state, *node, now).is_none()).count()
}

/// Returns the attempts of the current stage that are worth a split, longest remaining time first, with their progress.
/// A task with two attempts gives the attempt that would end first: the other is stopped when this one gives up its
/// end, so a speculative attempt does not prevent a split.
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

/// Adds a task for the range that an attempt gave up, after all others, if the stage still runs. Stops the other
/// attempts of the split task, which would go on to the old end.
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
