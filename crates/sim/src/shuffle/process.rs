//! The processes of nodes for the clock: slots, orders, polls, replicas.

use super::node::Running;
use api::control::{AttemptEnd, NodeOrder, NodePoll, NumberedOrder};
use api::machine::{AttemptProgress, NodeReport, ReplicatedPart, ReplicatedRun};
use api::task::AttemptUsage;
use api::{Task, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, JobId, NodeId, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// An ordered attempt: its slot and its task.
pub(crate) type Waiting = (AttemptKey, u32, Box<Task>);

/// A process; its number is never reused.
pub(crate) struct Process<'a> {
    pub number: u64,
    pub address: u32,
    /// Its node number, after it has joined.
    pub node: Option<NodeId>,
    pub slots: u32,
    pub running: BTreeMap<AttemptKey, Running<'a>>,
    /// Ordered attempts that have not begun: their slots are still busy.
    pub waiting: Vec<Waiting>,
    pub peers: Vec<NodeId>,
    pub replicating: BTreeSet<JobId>,
    /// Runs with a replica, and the node of the replica.
    pub replicas: BTreeMap<(JobId, RunId), NodeId>,
    /// Promoted replicas here that must be copied to one more node.
    pub again: BTreeMap<JobId, Vec<RunId>>,
    /// Its own parts with a replica, and the node of the replica.
    pub part_replicas: BTreeMap<(JobId, String), NodeId>,
    finished: Vec<AttemptEnd>,
    replicated: Vec<ReplicatedRun>,
    parts_replicated: Vec<ReplicatedPart>,
    received: u64,
    /// Number of the last poll. `carried`: counts of ended attempts, replicas and replicas of parts in it.
    poll: u64,
    carried: (usize, usize, usize),
    /// Time of the last poll, while it has no answer.
    polled_ns: Option<u64>,
}

impl<'a> Process<'a> {
    pub fn new(number: u64, address: u32, slots: u32) -> Self {
        Self {
            number,
            address,
            node: None,
            slots,
            running: BTreeMap::new(),
            waiting: Vec::new(),
            peers: Vec::new(),
            replicating: BTreeSet::new(),
            replicas: BTreeMap::new(),
            again: BTreeMap::new(),
            part_replicas: BTreeMap::new(),
            finished: Vec::new(),
            replicated: Vec::new(),
            parts_replicated: Vec::new(),
            received: 0,
            poll: 0,
            carried: (0, 0, 0),
            polled_ns: None,
        }
    }

    pub fn is_free(&self, slot: u32) -> bool {
        !self.running.values().any(|running| running.slot == slot)
    }

    /// Records the end of an attempt; it is reported until a poll that carries it is answered.
    pub fn end(&mut self, attempt: AttemptKey, outcome: Result<TaskResult, TaskFailure>, now_ns: u64) {
        let started_ns = self.running.remove(&attempt).map_or(now_ns, |running| running.started_ns);
        let usage = AttemptUsage::default();
        let end = AttemptEnd { attempt, outcome: outcome.into(), started_ns, ended_ns: now_ns, usage };
        self.finished.push(end);
    }

    pub fn has_replica(&mut self, job: JobId, run: RunId, to: NodeId, chunks: Vec<ChunkId>) {
        match self.again.get_mut(&job).filter(|_| Some(run.node()) != self.node) {
            Some(again) => again.retain(|each| *each != run),
            None => drop(self.replicas.insert((job, run), to)),
        }
        let (bytes, single_ns, sending_ns) = (0, 1, 1);
        self.replicated.push(ReplicatedRun { job, run, chunks, to, bytes, single_ns, sending_ns });
    }

    pub fn has_part_replica(&mut self, sent: ReplicatedPart) {
        self.part_replicas.insert((sent.job, sent.name.clone()), sent.to);
        self.parts_replicated.push(sent);
    }

    /// Returns the time of the poll that waits for its answer.
    pub fn polled_ns(&self) -> Option<u64> {
        self.polled_ns
    }

    /// Returns the number of the last poll.
    pub fn poll_number(&self) -> u64 {
        self.poll
    }

    pub fn next_poll(&mut self, now_ns: u64, progress: Vec<AttemptProgress>) -> NodePoll {
        self.poll += 1;
        self.polled_ns = Some(now_ns);
        self.carried = (self.finished.len(), self.replicated.len(), self.parts_replicated.len());
        let here = self.running.keys().chain(self.waiting.iter().map(|(attempt, ..)| attempt));
        let ended = self.finished.iter().map(|end| &end.attempt);
        let is_idle =
            |slot: &u32| self.is_free(*slot) && !self.waiting.iter().any(|(_, other, ..)| other == slot);
        NodePoll {
            incarnation: self.number.to_string(),
            received: self.received,
            held: here.chain(ended).copied().collect(),
            finished: self.finished.clone(),
            free_slots: (0..self.slots).filter(is_idle).collect(),
            places: Vec::new(),
            report: NodeReport {
                replicated: self.replicated.clone(),
                replicated_parts: self.parts_replicated.clone(),
                progress,
                ..NodeReport::default()
            },
        }
    }

    /// Takes the answer to the last poll and returns the new orders. None for a late answer.
    pub fn answered(&mut self, number: u64, orders: Vec<NumberedOrder>) -> Option<Vec<NodeOrder>> {
        if number != self.poll || self.polled_ns.take().is_none() {
            return None;
        }
        self.finished.drain(..self.carried.0);
        self.replicated.drain(..self.carried.1);
        self.parts_replicated.drain(..self.carried.2);
        self.carried = (0, 0, 0);
        let received = self.received;
        let fresh: Vec<NumberedOrder> = orders.into_iter().filter(|order| order.number > received).collect();
        self.received = fresh.last().map_or(received, |order| order.number);
        Some(fresh.into_iter().map(|order| order.order).collect())
    }
}
