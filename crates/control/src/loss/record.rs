//! Losses of one job so far.

use ids::{AttemptKey, NodeId, RunId, TaskKey};
use std::collections::{BTreeMap, BTreeSet};

/// Losses of a job so far, as far as later decisions depend on them.
#[derive(Debug, Default)]
pub(crate) struct LossRecord {
    /// Time since when each run is read from its replica, in nanoseconds since 1970.
    replica_since_ns: BTreeMap<RunId, u64>,
    /// Nodes that are away and whose data the job recomputes.
    given_up: BTreeSet<NodeId>,
    lost_runs: BTreeSet<RunId>,
    /// The lost runs that each running attempt had read before.
    reads: BTreeMap<AttemptKey, BTreeSet<RunId>>,
    /// Pairs of a task and a node that an attempt of the task could not reach.
    unreached: BTreeSet<(TaskKey, NodeId)>,
}

impl LossRecord {
    /// Records that these runs are read from their replicas from now on.
    pub fn fell_back(&mut self, runs: &[RunId], now_ns: u64) {
        self.replica_since_ns.extend(runs.iter().map(|run| (*run, now_ns)));
    }

    /// Returns whether a run has been read from its replica since a time after this one.
    pub fn fell_back_after(&self, run: RunId, time_ns: u64) -> bool {
        self.replica_since_ns.get(&run).is_some_and(|since_ns| *since_ns > time_ns)
    }

    /// Records that the job recomputes the data of a node that is away.
    pub fn give_up(&mut self, node: NodeId) {
        self.given_up.insert(node);
    }

    pub fn given_up(&self) -> &BTreeSet<NodeId> {
        &self.given_up
    }

    pub fn lose(&mut self, runs: &BTreeSet<RunId>) {
        self.lost_runs.extend(runs);
    }

    pub fn is_lost(&self, run: RunId) -> bool {
        self.lost_runs.contains(&run)
    }

    /// Records that a running attempt had read these runs before they were lost.
    pub fn had_read(&mut self, attempt: AttemptKey, runs: Vec<RunId>) {
        self.reads.entry(attempt).or_default().extend(runs);
    }

    /// Returns the lost runs that each running attempt had read before.
    pub fn reads(&self) -> impl Iterator<Item = (&AttemptKey, &BTreeSet<RunId>)> {
        self.reads.iter()
    }

    /// Removes an attempt that has ended.
    pub fn attempt_ended(&mut self, attempt: AttemptKey) {
        self.reads.remove(&attempt);
    }

    /// Returns whether an attempt is the first of its task that could not reach this node. The node may have died since
    /// its last poll, which still waits at the server, so that its loss is unknown. True once per task and node.
    pub fn first_to_miss(&mut self, task: TaskKey, node: NodeId) -> bool {
        self.unreached.insert((task, node))
    }
}
