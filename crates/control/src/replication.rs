//! Replication of runs to a second node: the jobs with replicas, the reports of nodes, and the stored state.
//!
//! Nodes copy by themselves, run by run, to a node of their choice (`crates/node/src/shuffle/replicate.rs`). This
//! module decides whether replication pays for a job, and from which node its runs are read.

use crate::interface::{ControlError, Ended, Outbox, Service};
use crate::job::{Job, Jobs, Replicating};
use crate::membership::Fleet;
use crate::work::Work;
use api::control::{NodeOrder, PlacesAnswer, PlacesQuestion};
use api::history::EventKind;
use api::machine::ReplicatedRun;
use api::task::Part;
use api::{Replication, TaskResult};
use ids::{JobId, NodeId, RunId};
use mapreduce::{FallenBack, JobResults, Replica};
use rows::{Change, RecoveredJob, ReplicaRow, ReplicaState};
use std::collections::BTreeSet;

const NANOS_PER_SECOND: f64 = 1e9;

/// Starts the replication of a job that begins or continues under this server, if its user asked for it.
pub(crate) fn begin_to_replicate(fleet: &mut Fleet, service: Service, job: &mut Job) {
    let spec = job.spec();
    let has_none = !spec.kind.has_shuffle() && !spec.feeds();
    if service == Service::Embedded || has_none || spec.kind.source().is_some() || job.waits() {
        return;
    }
    let replicating = Replicating::from_the_start(spec);
    job.begin_replicating(replicating);
    // With `auto`, the previous server had already decided for replication.
    if job.results().replicas.held().next().is_some() || job.results().replicated_parts().next().is_some() {
        let replicating = job.replicating_mut();
        (replicating.is_on, replicating.is_settled) = (true, true);
    }
    if job.replicating().is_on {
        fleet.order_everybody(job.id(), NodeOrder::Replicate { job: job.id() });
        order_again(fleet, job);
    }
}

/// Reconsiders replication with mode `auto` after the end of a task.
pub(crate) fn weigh_replication(work: &mut Work, outbox: &mut Outbox, finished: &Ended, result: &TaskResult) {
    let bytes = match result {
        TaskResult::Map(map) if map.part.is_none() => map.commits.iter().map(|commit| commit.sum.bytes).sum(),
        TaskResult::Map(map) => feeding_bytes(map.part.as_ref()),
        TaskResult::Reduce(reduce) => feeding_bytes(Some(&reduce.part)),
        _ => 0,
    };
    if bytes == 0 {
        return;
    }
    let id = finished.attempt.task.job;
    let Some(job) = work.jobs.get_mut(&id) else { return };
    let spec = job.spec();
    let has_data = spec.kind.has_shuffle() || spec.feeds();
    let is_open = spec.replication == Replication::Auto && !job.replicating().is_on && has_data;
    if work.service == Service::Embedded || !is_open {
        return;
    }
    let took_ns = finished.ended_ns.saturating_sub(finished.started_ns);
    job.replicating_mut().add(took_ns, bytes, homes_of(result));
    let (nodes, slots) = work.fleet.nodes_and_slots();
    let (pays, why) = job.replicating().weigh(nodes, slots);
    if pays {
        job.replicating_mut().is_on = true;
        job.replicating_mut().is_settled = true;
        outbox.note(id, EventKind::Replication, format!("auto: runs get replicas: {why}"));
        work.fleet.order_everybody(id, NodeOrder::Replicate { job: id });
        order_again(&mut work.fleet, job);
    }
}

/// Re-replicates the unread data of a job that has only one copy, after a loss or after a reader has finished.
pub(crate) fn replicate_again(work: &mut Work, id: JobId) {
    if let Some(job) = work.jobs.get_mut(&id) {
        order_again(&mut work.fleet, job);
    }
}

/// Notes the decision against replication when the maps are over.
pub(crate) fn settle_replication(work: &mut Work, outbox: &mut Outbox, id: JobId) {
    let (nodes, slots) = work.fleet.nodes_and_slots();
    let Some(job) = work.jobs.get_mut(&id) else { return };
    let is_asked = job.spec().replication == Replication::Auto && job.replicating().maps > 0;
    if work.service == Service::Cluster && is_asked && !job.replicating().is_settled {
        job.replicating_mut().is_settled = true;
        let (_, why) = job.replicating().weigh(nodes, slots);
        outbox.note(id, EventKind::Replication, format!("auto: runs get no replicas: {why}"));
    }
}

/// Returns the current locations of runs, for a reader whose node is gone and who began before there were replicas.
pub(crate) fn places(
    jobs: &Jobs,
    job: JobId,
    question: &PlacesQuestion,
) -> Result<PlacesAnswer, ControlError> {
    let known = jobs.get(&job).ok_or(ControlError::UnknownJob { job })?;
    Ok(PlacesAnswer { places: known.results().replicas.places(&question.runs) })
}

/// Handles a node's report of runs that it has replicated to another node.
pub(crate) fn replicated(work: &mut Work, outbox: &mut Outbox, from: NodeId, told: Vec<ReplicatedRun>) {
    for told in told {
        let Some(job) = work.jobs.get_mut(&told.job) else { continue };
        // A node that is gone holds nothing.
        if job.outcome().is_some() || told.to == from || !work.fleet.has(told.to) {
            continue;
        }
        let replica = Replica {
            node: told.to,
            chunks: told.chunks.clone(),
            single_ns: told.single_ns,
            stands: false,
            second: None,
        };
        if job.results_mut().add_copy(from, told.run, replica) {
            job.replicating_mut().again += u64::from(told.run.node() != from);
            let row = ReplicaRow {
                run: told.run,
                node: told.to,
                state: ReplicaState::Complete,
                chunks: told.chunks,
                bytes: told.bytes,
                single_ns: told.single_ns,
                sending_ns: told.sending_ns,
            };
            outbox.write(Change::Replicas { job: told.job, replicas: vec![row] });
        }
    }
}

impl Job {
    /// Stores the replicas that are read in place of their runs, and those that are lost.
    pub(crate) fn fallen_back(&self, fallen: &FallenBack, with: &str, outbox: &mut Outbox) {
        let standing = fallen.standing.iter().filter_map(|run| {
            let replica = self.results().replicas.get(*run)?;
            Some(state_row(*run, replica.node, ReplicaState::Standing))
        });
        let rows: Vec<ReplicaRow> = standing.chain(lost_rows(&fallen.dropped)).collect();
        if !rows.is_empty() {
            outbox.write(Change::Replicas { job: self.id(), replicas: rows });
        }
        if !fallen.standing.is_empty() {
            let detail = format!("with {with}: {} runs are read from their replicas", fallen.standing.len());
            outbox.note(self.id(), EventKind::ReplicasStandIn, detail);
        }
    }

    /// Marks replicas as lost that are of no use any more.
    pub(crate) fn replicas_dropped(&self, dropped: &[(RunId, NodeId)], outbox: &mut Outbox) {
        if !dropped.is_empty() {
            outbox.write(Change::Replicas { job: self.id(), replicas: lost_rows(dropped).collect() });
        }
    }

    /// Notes a summary of a job's replication in the history, when nothing will be read any more.
    pub(crate) fn summarize_replication(&self, outbox: &mut Outbox) {
        let mut single_ns: Vec<u64> =
            self.results().replicas.iter().map(|(_, replica)| replica.single_ns).collect();
        // A run that was readmitted has no second copy.
        single_ns.retain(|single_ns| *single_ns > 0);
        single_ns.sort_unstable();
        let Some((median, most)) = single_ns.get(single_ns.len() / 2).zip(single_ns.last()) else { return };
        let seconds = |ns: u64| ns as f64 / NANOS_PER_SECOND;
        let (count, runs) = (single_ns.len(), self.results().surviving_runs().len());
        let again = match self.replicating().again {
            0 => String::new(),
            times => format!("; {times} times a run that had lost a node was copied again"),
        };
        let detail = format!(
            "{count} of {runs} runs lay on two nodes; on one only for {:.1} s (median), {:.1} s at most{again}",
            seconds(*median),
            seconds(*most)
        );
        outbox.note(self.id(), EventKind::Replication, detail);
    }
}

/// Orders nodes to copy the promoted replicas on them to further nodes. With `selective` all data is in spools.
fn order_again(fleet: &mut Fleet, job: &mut Job) {
    if !job.replicating().is_on || job.spec().replication == Replication::Selective || job.outcome().is_some()
    {
        return;
    }
    let seal_state = job.seal_state();
    for (node, runs) in job.results_mut().copy_again(seal_state) {
        fleet.may_hold(node, std::iter::once(job.id()));
        fleet.holds(node, [job.id()]);
        if let Some(node) = fleet.get_mut(node) {
            node.order(NodeOrder::ReplicateAgain { job: job.id(), runs });
        }
    }
}

/// Returns the number of nodes that hold the output of a task.
fn homes_of(result: &TaskResult) -> usize {
    match result {
        TaskResult::Map(map) if map.part.is_none() => {
            map.commits.iter().map(|commit| commit.chunk.node()).collect::<BTreeSet<_>>().len()
        }
        _ => 1,
    }
}

/// Returns the bytes of a part that later stages would lack if it were lost; 0 if no node has it.
fn feeding_bytes(part: Option<&Part>) -> u64 {
    part.filter(|part| part.node.is_some()).map_or(0, |part| part.bytes)
}

/// Makes a row that changes only the state of a replica. The table must have that replica already.
fn state_row(run: RunId, node: NodeId, state: ReplicaState) -> ReplicaRow {
    ReplicaRow { run, node, state, chunks: Vec::new(), bytes: 0, single_ns: 0, sending_ns: 0 }
}

fn lost_rows(dropped: &[(RunId, NodeId)]) -> impl Iterator<Item = ReplicaRow> {
    dropped.iter().map(|(run, node)| state_row(*run, *node, ReplicaState::Lost))
}

/// Restores the replicas of a job from its rows, without those on nodes that are gone.
pub(crate) fn restore(recovered: &RecoveredJob, results: &mut JobResults, lives: impl Fn(NodeId) -> bool) {
    let there = recovered.replicas.iter().filter(|row| row.state != ReplicaState::Lost && lives(row.node));
    let replica = |row: &ReplicaRow| Replica {
        node: row.node,
        chunks: row.chunks.clone(),
        single_ns: row.single_ns,
        stands: row.state == ReplicaState::Standing,
        second: None,
    };
    results.replicas.restore(there.map(|row| (row.run, replica(row))).collect());
}
