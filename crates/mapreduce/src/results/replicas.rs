//! Runs that lie on a second node as well (ISS section 4; `docs/internals/replication.md`): where each is to be read, and what a
//! node that is gone takes with it.
//!
//! A replica is the same file under the same number. While the run lies with the node that made it, the replica is only a second
//! choice for readers. When that node is gone, or its file damaged, the replica *stands* for the run: it is read in its place, and
//! sealed by the node that has it. Then it lies on one node only, and as long as somebody has yet to read it, that node is asked to
//! send it to a *second* one.

use api::task::{RunPlace, RunSummary};
use ids::{ChunkId, NodeId, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// Intermediate data that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// With all that lay on it.
    pub node: Option<NodeId>,
    pub runs: BTreeSet<RunId>,
    pub chunks: BTreeSet<ChunkId>,
}

impl Gone {
    pub fn node(node: NodeId) -> Self {
        Self { node: Some(node), ..Self::default() }
    }

    pub fn runs(runs: &[RunId]) -> Self {
        Self { runs: runs.iter().copied().collect(), ..Self::default() }
    }

    pub fn chunks(chunks: &[ChunkId]) -> Self {
        Self { chunks: chunks.iter().copied().collect(), ..Self::default() }
    }

    /// Whether a run is gone, as far as its number and its place tell.
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

/// A run on another node than the one that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub node: NodeId,
    /// Chunks in the run.
    pub chunks: Vec<ChunkId>,
    /// How long it lay on one node only.
    pub single_ns: u64,
    /// The run is not with the node that made it any more.
    pub stands: bool,
    /// Another node with the same file, which takes over when `node` is gone.
    pub second: Option<NodeId>,
}

impl Replica {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.node).chain(self.second)
    }

    /// Whether it has the same in it.
    pub(crate) fn holds(&self, chunks: &[ChunkId]) -> bool {
        let own: BTreeSet<&ChunkId> = self.chunks.iter().collect();
        own == chunks.iter().collect()
    }
}

/// The replicas of a job: at most one for each run, which may lie on two nodes.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    pub(crate) by_run: BTreeMap<RunId, Replica>,
    /// The run of each chunk that has a replica.
    pub(crate) run_of: BTreeMap<ChunkId, RunId>,
    /// Those that their nodes were asked to send to a second one.
    pub(crate) asked: BTreeSet<RunId>,
}

impl Replicas {
    /// Takes a replica in. Refused, as false: one of a run that has one, or of chunks that another replica holds.
    pub fn add(&mut self, run: RunId, replica: Replica) -> bool {
        let is_known = |chunk: &ChunkId| self.run_of.get(chunk).is_some_and(|known| *known != run);
        if self.by_run.contains_key(&run) || replica.chunks.iter().any(is_known) {
            return false;
        }
        self.run_of.extend(replica.chunks.iter().map(|chunk| (*chunk, run)));
        self.by_run.insert(run, replica);
        true
    }

    /// Takes in what a store knows of replicas, one by one. The one that stands for its run is read; beside it, or beside the run, there
    /// may be one more.
    pub fn restore(&mut self, mut known: Vec<(RunId, Replica)>) {
        known.sort_by_key(|(run, replica)| (*run, !replica.stands, replica.node));
        for (run, replica) in known {
            match self.by_run.get_mut(&run) {
                Some(first) => first.second = first.second.or(Some(replica.node)),
                None => drop(self.add(run, replica)),
            }
        }
    }

    /// The replica of a run on each of the nodes where it lies, for a store that knows each by itself.
    pub fn each(&self, run: RunId) -> Vec<Replica> {
        let Some(replica) = self.by_run.get(&run) else { return Vec::new() };
        let alone = |node| Replica {
            node,
            stands: replica.stands && node == replica.node,
            second: None,
            ..replica.clone()
        };
        replica.nodes().map(alone).collect()
    }

    /// Whether a run lies on two nodes, as far as is known.
    pub fn is_on_two(&self, run: RunId) -> bool {
        self.by_run.get(&run).is_some_and(|replica| !replica.stands || replica.second.is_some())
    }

    pub fn get(&self, run: RunId) -> Option<&Replica> {
        self.by_run.get(&run)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RunId, &Replica)> {
        self.by_run.iter().map(|(run, replica)| (*run, replica))
    }

    /// Each, and where it is.
    pub fn held(&self) -> impl Iterator<Item = (RunId, NodeId)> {
        self.iter().flat_map(|(run, replica)| replica.nodes().map(move |node| (run, node)))
    }

    /// Forgets the replicas for which this holds; which they were, and where.
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

    /// A replica is on another node than was known.
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
    pub(crate) fn leave_second(&mut self, gone: &Gone) -> FallenBack {
        let mut fallen = FallenBack::default();
        for (run, replica) in &mut self.by_run {
            if let Some(second) = replica.second.take_if(|second| Some(*second) == gone.node) {
                fallen.dropped.push((*run, second));
            }
            let is_gone = Some(replica.node) == gone.node || (replica.stands && gone.runs.contains(run));
            // Chunks that are gone are so wherever they lie.
            let other_data = replica.chunks.iter().any(|chunk| gone.chunks.contains(chunk));
            if let Some(second) = replica.second.take_if(|_| is_gone && !other_data) {
                fallen.dropped.push((*run, replica.node));
                replica.node = second;
                self.asked.remove(run);
                if replica.stands {
                    fallen.standing.push(*run);
                }
            }
        }
        fallen
    }

    /// The node on which a run is to be read.
    pub fn home(&self, run: RunId) -> NodeId {
        match self.by_run.get(&run) {
            Some(replica) if replica.stands => replica.node,
            _ => run.node(),
        }
    }

    /// The node on which what was appended to a chunk is to be read.
    pub fn chunk_home(&self, chunk: ChunkId) -> NodeId {
        match self.run_of.get(&chunk).and_then(|run| self.by_run.get(run)) {
            Some(replica) if replica.stands => replica.node,
            _ => chunk.node(),
        }
    }

    /// The replicas on a node that stand for runs of others with any of these chunks.
    pub fn standing_on(&self, node: NodeId, chunks: &BTreeSet<ChunkId>) -> Vec<RunId> {
        let is_read = |replica: &Replica| replica.chunks.iter().any(|chunk| chunks.contains(chunk));
        self.iter()
            .filter(|(_, replica)| replica.stands && replica.node == node && is_read(replica))
            .map(|(run, _)| run)
            .collect()
    }

    /// Returns the places that readers of these runs need besides the numbers, in order of the runs.
    pub fn places(&self, runs: &[RunId]) -> Vec<RunPlace> {
        let place = |run: &RunId| {
            let replica = self.by_run.get(run)?;
            Some(match replica.stands {
                true => RunPlace { run: *run, node: replica.node, replica: replica.second },
                false => RunPlace { run: *run, node: run.node(), replica: Some(replica.node) },
            })
        };
        let mut places: Vec<RunPlace> = runs.iter().filter_map(place).collect();
        places.sort_unstable_by_key(|place| place.run);
        places
    }
}

/// Effect of a loss of data on the replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FallenBack {
    /// Replicas that stand for their runs from now on.
    pub standing: Vec<RunId>,
    /// Replicas that are gone themselves, or of no use, and where they were.
    pub dropped: Vec<(RunId, NodeId)>,
}
