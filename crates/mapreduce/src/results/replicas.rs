//! Replicas of runs (intermediate storage system, ISS, section 4; `docs/internals/replication.md`): the node from which
//! each run is read, and the data that is lost with a node.
//!
//! A replica is the same file under the same number. While the node that made the run has it, the replica is only a
//! second choice for readers. When that node or its file is lost, the replica is promoted (it *stands* for the run): it
//! is read in place of the run, and sealed by its node. Only one copy is left, so as long as readers are to come, its
//! node is ordered to copy it to a *second* one.

use api::task::{RunPlace, RunSummary};
use ids::{ChunkId, NodeId, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// Lost intermediate data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostData {
    /// A lost node, with all its data.
    pub node: Option<NodeId>,
    pub runs: BTreeSet<RunId>,
    pub chunks: BTreeSet<ChunkId>,
}

impl LostData {
    pub fn node(node: NodeId) -> Self {
        Self { node: Some(node), ..Self::default() }
    }

    pub fn runs(runs: &[RunId]) -> Self {
        Self { runs: runs.iter().copied().collect(), ..Self::default() }
    }

    pub fn chunks(chunks: &[ChunkId]) -> Self {
        Self { chunks: chunks.iter().copied().collect(), ..Self::default() }
    }

    /// Returns whether a run is lost, according to its number and location.
    pub fn takes(&self, run: RunId, replicas: &Replicas) -> bool {
        Some(replicas.home(run)) == self.node || self.runs.contains(&run)
    }

    pub(crate) fn takes_run(&self, run: &RunSummary, replicas: &Replicas) -> bool {
        self.takes(run.run, replicas) || run.chunks.iter().any(|chunk| self.chunks.contains(chunk))
    }

    pub(crate) fn takes_chunk(&self, chunk: ChunkId, replicas: &Replicas) -> bool {
        Some(replicas.chunk_home(chunk)) == self.node || self.chunks.contains(&chunk)
    }
}

/// A copy of a run on another node than the one that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub node: NodeId,
    /// Chunks in the run.
    pub chunks: Vec<ChunkId>,
    /// Time during which only one node had the run, in nanoseconds.
    pub single_ns: u64,
    /// True if the replica is promoted: the node that made the run has lost it.
    pub promoted: bool,
    /// Another node with the same file, which is promoted when `node` is lost.
    pub second: Option<NodeId>,
}

impl Replica {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.node).chain(self.second)
    }

    /// Returns whether it has exactly these chunks.
    pub(crate) fn holds(&self, chunks: &[ChunkId]) -> bool {
        let own: BTreeSet<&ChunkId> = self.chunks.iter().collect();
        own == chunks.iter().collect()
    }
}

/// The replicas of a job: at most one entry for each run, which may be on two nodes.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    pub(crate) by_run: BTreeMap<RunId, Replica>,
    /// The run of each chunk that has a replica.
    pub(crate) run_of: BTreeMap<ChunkId, RunId>,
    /// Runs whose nodes were ordered to copy them to a second node.
    pub(crate) asked: BTreeSet<RunId>,
}

impl Replicas {
    /// Adds a replica. Returns false if the run already has one, or if another replica holds some of its chunks.
    pub fn add(&mut self, run: RunId, replica: Replica) -> bool {
        let is_known = |chunk: &ChunkId| self.run_of.get(chunk).is_some_and(|known| *known != run);
        if self.by_run.contains_key(&run) || replica.chunks.iter().any(is_known) {
            return false;
        }
        self.run_of.extend(replica.chunks.iter().map(|chunk| (*chunk, run)));
        self.by_run.insert(run, replica);
        true
    }

    /// Restores replicas from the store, which has a row for each copy. A promoted one is read; there may be one more
    /// copy beside it, or beside the original run.
    pub fn restore(&mut self, mut known: Vec<(RunId, Replica)>) {
        known.sort_by_key(|(run, replica)| (*run, !replica.promoted, replica.node));
        for (run, replica) in known {
            match self.by_run.get_mut(&run) {
                Some(first) => first.second = first.second.or(Some(replica.node)),
                None => drop(self.add(run, replica)),
            }
        }
    }

    /// Returns the replica of a run on each of its nodes, for a store that has a row for each copy.
    pub fn each(&self, run: RunId) -> Vec<Replica> {
        let Some(replica) = self.by_run.get(&run) else { return Vec::new() };
        let alone = |node| Replica {
            node,
            promoted: replica.promoted && node == replica.node,
            second: None,
            ..replica.clone()
        };
        replica.nodes().map(alone).collect()
    }

    /// Returns whether a run is known to be on two nodes.
    pub fn is_on_two(&self, run: RunId) -> bool {
        self.by_run.get(&run).is_some_and(|replica| !replica.promoted || replica.second.is_some())
    }

    pub fn get(&self, run: RunId) -> Option<&Replica> {
        self.by_run.get(&run)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RunId, &Replica)> {
        self.by_run.iter().map(|(run, replica)| (*run, replica))
    }

    /// Returns all replicas with their nodes.
    pub fn held(&self) -> impl Iterator<Item = (RunId, NodeId)> {
        self.iter().flat_map(|(run, replica)| replica.nodes().map(move |node| (run, node)))
    }

    /// Forgets the replicas for which `is_gone` holds. Returns them with their nodes.
    pub fn forget(&mut self, is_gone: impl Fn(RunId, &Replica) -> bool) -> Vec<(RunId, NodeId)> {
        let gone = self.iter().filter(|(run, replica)| is_gone(*run, replica));
        let gone = gone.flat_map(|(run, replica)| replica.nodes().map(move |node| (run, node)));
        let gone: Vec<(RunId, NodeId)> = gone.collect();
        for (run, _) in &gone {
            self.asked.remove(run);
            let replica = self.by_run.remove(run);
            replica.iter().flat_map(|replica| &replica.chunks).for_each(|chunk| {
                self.run_of.remove(chunk);
            });
        }
        gone
    }

    /// Records that a replica is on another node than before.
    pub(crate) fn moved(&mut self, run: RunId, before: NodeId, node: NodeId) {
        let Some(replica) = self.by_run.get_mut(&run) else { return };
        if replica.node == before {
            replica.node = node;
            self.asked.remove(&run);
        } else if replica.second == Some(before) {
            replica.second = Some(node);
        }
    }

    /// Keeps the other replica of each run with two replicas, if the node of one is gone or its file is damaged.
    pub(crate) fn leave_second(&mut self, gone: &LostData) -> FallenBack {
        let mut fallen = FallenBack::default();
        for (run, replica) in &mut self.by_run {
            if let Some(second) = replica.second.take_if(|second| Some(*second) == gone.node) {
                fallen.dropped.push((*run, second));
            }
            let is_gone = Some(replica.node) == gone.node || (replica.promoted && gone.runs.contains(run));
            // Lost chunks are lost on every node.
            let other_data = replica.chunks.iter().any(|chunk| gone.chunks.contains(chunk));
            if let Some(second) = replica.second.take_if(|_| is_gone && !other_data) {
                fallen.dropped.push((*run, replica.node));
                replica.node = second;
                self.asked.remove(run);
                if replica.promoted {
                    fallen.standing.push(*run);
                }
            }
        }
        fallen
    }

    /// Returns the node from which a run is read.
    pub fn home(&self, run: RunId) -> NodeId {
        match self.by_run.get(&run) {
            Some(replica) if replica.promoted => replica.node,
            _ => run.node(),
        }
    }

    /// Returns the node from which the data of a chunk is read.
    pub fn chunk_home(&self, chunk: ChunkId) -> NodeId {
        match self.run_of.get(&chunk).and_then(|run| self.by_run.get(run)) {
            Some(replica) if replica.promoted => replica.node,
            _ => chunk.node(),
        }
    }

    /// Returns the promoted replicas on a node with any of these chunks.
    pub fn standing_on(&self, node: NodeId, chunks: &BTreeSet<ChunkId>) -> Vec<RunId> {
        let is_read = |replica: &Replica| replica.chunks.iter().any(|chunk| chunks.contains(chunk));
        self.iter()
            .filter(|(_, replica)| replica.promoted && replica.node == node && is_read(replica))
            .map(|(run, _)| run)
            .collect()
    }

    /// Returns the locations that readers of these runs need besides the numbers, in order of the runs.
    pub fn places(&self, runs: &[RunId]) -> Vec<RunPlace> {
        let place = |run: &RunId| {
            let replica = self.by_run.get(run)?;
            Some(match replica.promoted {
                true => RunPlace { run: *run, node: replica.node, replica: replica.second },
                false => RunPlace { run: *run, node: run.node(), replica: Some(replica.node) },
            })
        };
        let mut places: Vec<RunPlace> = runs.iter().filter_map(place).collect();
        places.sort_unstable_by_key(|place| place.run);
        places
    }
}

/// Effect of a data loss on the replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FallenBack {
    /// Replicas that were promoted.
    pub standing: Vec<RunId>,
    /// Replicas that were lost, or became useless, with their nodes.
    pub dropped: Vec<(RunId, NodeId)>,
}
