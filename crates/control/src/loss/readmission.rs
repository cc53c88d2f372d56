//! Readmission: a process died, and another one starts on its disks. Its intact runs and parts are read again.
//!
//! The rule: data that a job still counts on is readmitted; data that a job has abandoned stays abandoned. A job counts
//! on the data of a node until its loss is decided (`membership/grace_period.rs` says when), in one transaction with
//! the map tasks that run again. So a run is never both readmitted and recomputed, and no record counts twice. A
//! process that starts before its predecessor is abandoned ends the wait: it brings the intact data, and the rest is
//! lost from then on.
//!
//! A run keeps its number, which names the node that made it. On the new node it becomes a replica and is read in place
//! of the original. If it was a replica before, it becomes a replica again. Raw chunks, and runs that were only in
//! memory, are lost.

use crate::interface::Outbox;
use crate::membership::Fleet;
use crate::work::Work;
use api::history::EventKind;
use api::orphaned::OrphanedData;
use ids::{JobId, NodeId, RunId, TaskIndex};
use rows::{Change, PartReplicaRow, ReplicaRow, ReplicaState};

/// Returns the nodes that are not abandoned yet and whose processes are dead according to these directories.
pub(crate) fn forerunners(fleet: &Fleet, left: &[OrphanedData]) -> Vec<NodeId> {
    let known = left.iter().filter_map(|left| fleet.of_incarnation(&left.incarnation));
    let mut nodes: Vec<NodeId> = known.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Readmits the data that a node found on the disks of abandoned predecessors. Returns the jobs that read some of it.
pub(crate) fn readmit(
    work: &mut Work,
    outbox: &mut Outbox,
    node: NodeId,
    left: Vec<OrphanedData>,
) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for left in left {
        let before = work.fleet.of_incarnation(&left.incarnation);
        let Some(before) = before.filter(|before| *before != node) else { continue };
        if readmit_of_job(work, outbox, before, node, &left) {
            jobs.push(left.job);
        }
    }
    jobs.sort_unstable();
    jobs.dedup();
    work.fleet.may_hold(node, jobs.iter().copied());
    jobs
}

fn readmit_of_job(
    work: &mut Work,
    outbox: &mut Outbox,
    before: NodeId,
    node: NodeId,
    left: &OrphanedData,
) -> bool {
    let name = work.fleet.get(before).map(|known| known.info().name.clone()).unwrap_or_default();
    let Some(job) = work.jobs.get_mut(&left.job).filter(|job| job.outcome().is_none()) else {
        return false;
    };
    // The inputs of such a job are in other directories.
    if job.spec().kind.source().is_some() || job.is_single() || job.losses().given_up().contains(&before) {
        return false;
    }
    let runs = job.readmit_runs(before, node, left);
    let parts = job.results_mut().readmit_parts(before, node, &left.parts);
    if runs.is_empty() && parts.is_empty() {
        return false;
    }
    let row = |run: &RunId| {
        let replica = job.results().replicas.get(*run)?;
        let is_promoted = replica.promoted && replica.node == node;
        let state = if is_promoted { ReplicaState::Promoted } else { ReplicaState::Complete };
        let bytes = left.runs.iter().find(|left| left.run == *run).map_or(0, |left| left.stored_bytes);
        let (chunks, single_ns) = (replica.chunks.clone(), replica.single_ns);
        Some(ReplicaRow { run: *run, node, state, chunks, bytes, single_ns, sending_ns: 0 })
    };
    let lost = |run: &RunId| ReplicaRow {
        run: *run,
        node: before,
        state: ReplicaState::Lost,
        chunks: Vec::new(),
        bytes: 0,
        single_ns: 0,
        sending_ns: 0,
    };
    // There is no replica of a run that the predecessor itself made.
    let moved = runs.iter().filter(|run| run.node() != before).map(lost);
    let replicas = runs.iter().filter_map(row).chain(moved).collect();
    outbox.write(Change::Replicas { job: left.job, replicas });
    let part_row = |task: &TaskIndex| {
        let bytes = job.results().part(*task).map_or(0, |part| part.bytes);
        PartReplicaRow { task: *task, node, bytes, single_ns: 0, sending_ns: 0 }
    };
    if !parts.is_empty() {
        let replicas = parts.iter().map(part_row).collect();
        outbox.write(Change::PartReplicas { job: left.job, replicas });
    }
    let detail = format!(
        "the node {name} came back as {node}: {} runs and {} parts on its disks are intact and are read again",
        runs.len(),
        parts.len()
    );
    outbox.note(left.job, EventKind::DataIsBack, detail);
    true
}
