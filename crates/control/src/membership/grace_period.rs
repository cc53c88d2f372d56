//! A node whose process has ended is *away* for a while before its data is given up: another process may start on its
//! disks at once, and bring back all data that is whole (`readmission.rs`).
//!
//! The attempts that ran there go to other nodes at once. Each job waits for the data of the node as long as making
//! that data again would take, and at most [`AWAY_MAX`]: so a job that waits in vain loses at most as much time
//! again. The server does not wait for a node that fell silent without a sign that its process ended, for one that
//! said good-bye, nor for one whose data has copies on other nodes.

use crate::interface::Outbox;
use crate::job::Job;
use crate::loss::data_gone;
use crate::membership::{Away, let_nodes_rest, lose_node};
use crate::scheduling::{attempt_lost, feed};
use crate::work::Work;
use api::history::{AttemptState, EventKind};
use ids::{JobId, NodeId, StageIndex, StageKind, TaskIndex};
use mapreduce::{AttemptTime, Gone};
use rows::NodeState;
use scheduler::Event;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait: a process that is started again has registered by then.
const AWAY_MAX: Duration = Duration::from_secs(15);
/// Least time to make data again for which a job waits at all.
const WORTH_MIN: Duration = Duration::from_secs(1);

/// A node is taken for dead.
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
        "{node} ({}): {why}; what it held is waited for, {} ms at most",
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

/// How long each job would wait for what it has there.
fn patience_for(work: &Work, node: NodeId) -> BTreeMap<JobId, Duration> {
    let (_, slots) = work.fleet.nodes_and_slots();
    let needed = work.jobs.values().filter(|job| job.misses(node));
    let each = needed.map(|job| (job.id, job.remake_time(node, slots).min(AWAY_MAX)));
    each.filter(|(_, patience)| *patience >= WORTH_MIN).collect()
}

/// Gives up what has been waited for long enough.
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
            if job.given_up.contains(&node) || !job.misses(node) {
                continue;
            }
            if patience.get(&id).is_some_and(|patience| waited < *patience) {
                is_waited_for = true;
                continue;
            }
            job.given_up.insert(node);
            data_gone(work, outbox, id, &Gone::node(node), &with);
        }
        if !is_waited_for {
            let why = format!("{why}; it did not come back within {} ms", waited.as_millis());
            lose_node(work, outbox, node, NodeState::Dead, &why);
        }
    }
}

impl Job {
    /// Whether it, or a stage that reads its parts, may lack what lies there.
    pub(crate) fn misses(&self, node: NodeId) -> bool {
        self.may_need(node) || (self.outcome.is_none() && !self.results.parts_on(node).is_empty())
    }

    /// How long making again would take what lies on a node and nowhere else, in so many slots: no less than the longest of its tasks.
    pub(crate) fn remake_time(&self, node: NodeId, slots: u64) -> Duration {
        let (maps, parts) = (self.results.maps_on(node), self.results.parts_on(node));
        let (map, last) = (
            self.stage_index(StageKind::Map),
            self.stage_index(StageKind::Reduce).or(self.stage_index(StageKind::Map)),
        );
        let is_victim = |attempt: &&AttemptTime| {
            let (stage, task) = (Some(attempt.stage), &attempt.task);
            attempt.won && ((stage == map && maps.contains(task)) || (stage == last && parts.contains(task)))
        };
        let mut took: BTreeMap<(StageIndex, TaskIndex), u64> = BTreeMap::new();
        for attempt in self.results.attempts.iter().filter(is_victim) {
            let ran_ns = attempt.ended_ns.saturating_sub(attempt.started_ns);
            took.insert((attempt.stage, attempt.task), ran_ns);
        }
        let longest_ns = took.values().max().copied().unwrap_or_default();
        let shared_ns = took.values().sum::<u64>() / slots.max(1);
        Duration::from_nanos(shared_ns.max(longest_ns))
    }
}
