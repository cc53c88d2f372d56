//! A node whose process has ended is *away* for a grace period before its data is abandoned: another process may start
//! on its disks at once and bring back all intact data (`readmission.rs`).
//!
//! The attempts that ran there are retried on other nodes at once. Each job waits for the data of the node as long as
//! recomputing it would take, and at most [`AWAY_MAX`]: a job that waits in vain loses at most the same time again.
//! There is no grace period for a node that fell silent without a sign that its process ended, for a graceful shutdown,
//! or for a node whose data has replicas.

use crate::interface::Outbox;
use crate::job::Job;
use crate::loss::data_gone;
use crate::membership::{Away, let_nodes_rest, lose_node};
use crate::scheduling::{attempt_lost, feed};
use crate::work::Work;
use api::history::{AttemptState, EventKind};
use ids::{JobId, NodeId, StageIndex, StageKind, TaskIndex};
use mapreduce::{AttemptTime, LostData};
use rows::NodeState;
use scheduler::Event;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest grace period: a restarted process has registered by then.
const AWAY_MAX: Duration = Duration::from_secs(15);
/// Least recompute time for which a job waits at all.
const WORTH_MIN: Duration = Duration::from_secs(1);

/// Declares a node lost, or away if its process has ended and a job waits for its data.
pub(crate) fn miss(work: &mut Work, outbox: &mut Outbox, node: NodeId, why: String) {
    let patience = patience_for(work, node);
    let Some(known) = work.fleet.get_mut(node) else { return };
    if patience.is_empty() || !known.presence.process_ended() {
        return lose_node(work, outbox, node, NodeState::Dead, &why);
    }
    let running = std::mem::take(&mut known.running);
    known.heard.clear();
    drop(known.take_parked());
    outbox.info(format!("the node {} ({node}) is away: {why}", known.info.name));
    let longest = patience.values().max().copied().unwrap_or_default();
    let detail = format!(
        "{node} ({}): {why}; jobs wait for its data for {} ms at most",
        known.info.name,
        longest.as_millis()
    );
    known.away = Some(Away { since: outbox.moment(), why, patience });
    outbox.note_of_cluster(EventKind::NodeAway, detail);
    work.fleet.lost_one(outbox.now());
    for (attempt, (_, started_ns)) in running {
        attempt_lost(&mut work.jobs, outbox, attempt, started_ns, AttemptState::Interrupted);
    }
    feed(work, outbox, Event::SlotsGone { node });
    feed(work, outbox, Event::NodeLost { node });
    let_nodes_rest(work, outbox);
}

/// Returns how long each job would wait for its data on the node.
fn patience_for(work: &Work, node: NodeId) -> BTreeMap<JobId, Duration> {
    let (_, slots) = work.fleet.nodes_and_slots();
    let needed = work.jobs.values().filter(|job| job.misses(node));
    let each = needed.map(|job| (job.id(), job.remake_time(node, slots).min(AWAY_MAX)));
    each.filter(|(_, patience)| *patience >= WORTH_MIN).collect()
}

/// Abandons the data whose grace period has ended, and removes nodes that no job waits for.
pub(crate) fn give_up_away(work: &mut Work, outbox: &mut Outbox) {
    for (node, name) in work.fleet.away() {
        let Some(away) = work.fleet.get_mut(node).and_then(|known| known.away.as_ref()) else { continue };
        let (waited, why) = (outbox.moment().since(away.since), away.why.clone());
        let patience = away.patience.clone();
        let with = format!("the node {name} ({why})");
        let jobs: Vec<JobId> = work.jobs.keys().copied().collect();
        let mut is_waited_for = false;
        for id in jobs {
            let Some(job) = work.jobs.get_mut(&id) else { continue };
            if job.losses().given_up().contains(&node) || !job.misses(node) {
                continue;
            }
            if patience.get(&id).is_some_and(|patience| waited < *patience) {
                is_waited_for = true;
                continue;
            }
            job.losses_mut().give_up(node);
            data_gone(work, outbox, id, &LostData::node(node), &with);
        }
        if !is_waited_for {
            let why = format!("{why}; it did not come back within {} ms", waited.as_millis());
            lose_node(work, outbox, node, NodeState::Dead, &why);
        }
    }
}

impl Job {
    /// Returns whether the job, or a stage that reads its parts, may need data on the node.
    pub(crate) fn misses(&self, node: NodeId) -> bool {
        self.may_need(node) || (self.outcome().is_none() && !self.results().parts_on(node).is_empty())
    }

    /// Estimates the time to recompute the data that only this node has, in `slots` slots. It is at least the time of
    /// the longest task.
    pub(crate) fn remake_time(&self, node: NodeId, slots: u64) -> Duration {
        let (maps, parts) = (self.results().maps_on(node), self.results().parts_on(node));
        let (map, last) = (
            self.stage_index(StageKind::Map),
            self.stage_index(StageKind::Reduce).or(self.stage_index(StageKind::Map)),
        );
        let is_victim = |attempt: &&AttemptTime| {
            let (stage, task) = (Some(attempt.stage), &attempt.task);
            attempt.won && ((stage == map && maps.contains(task)) || (stage == last && parts.contains(task)))
        };
        let mut took: BTreeMap<(StageIndex, TaskIndex), u64> = BTreeMap::new();
        for attempt in self.results().attempts.iter().filter(is_victim) {
            let ran_ns = attempt.ended_ns.saturating_sub(attempt.started_ns);
            took.insert((attempt.stage, attempt.task), ran_ns);
        }
        let longest_ns = took.values().max().copied().unwrap_or_default();
        let shared_ns = took.values().sum::<u64>() / slots.max(1);
        Duration::from_nanos(shared_ns.max(longest_ns))
    }
}
