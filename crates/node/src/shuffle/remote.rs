//! Record data of a job on several nodes: appended to and read through their data ports.

use crate::intermediate::intermediate_files::IntermediateFiles;
use crate::job_data::AttemptData;
use crate::stored::job_output::JobOutput;
use crate::tasks::attempt_files::LocalSource;
use crate::tasks::growing_outputs::{GrowingOutputs, GrowingStream};
use crate::tasks::map::stored_input::StoredReads;
use api::TaskFailure;
use api::machine::{ReplicatedPart, ReplicatedRun};
use api::stored::cluster::StoredPut;
use api::task::{GrowingInput, ReduceTask, RunPlace};
use chunkserver::{ChunkServer, ChunkServerError, KeyRange, Run, RunCursor};
use dataport::{
    AnyRun, DataClient, Fallback, Peer, Places, RemoteChunks, RemoteChunksOptions, RemoteScan, ScanError,
    ScanOptions, StoredFileService,
};
use ids::{JobId, NodeId, RunId, Source};
use mapper::StoredFileSource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Blocks of the merging share per run of another node: one decompressed and two in received form.
const BLOCKS_PER_AWAY_RUN: u64 = 3;

/// Other nodes with record data of a job.
#[derive(Clone)]
pub struct OtherNodes {
    pub here: NodeId,
    /// Client with the token of the job.
    pub client: DataClient,
    pub peers: Vec<Peer>,
    /// The nodes on which map tasks of this node may open chunks.
    pub hosts: BTreeSet<NodeId>,
    /// The nodes that may get replicas of runs of this node.
    pub replica_hosts: BTreeSet<NodeId>,
    /// Source of current locations of runs of the job.
    pub places: Option<Arc<dyn Places>>,
}

/// Local and remote runs, and the key range to read.
#[derive(Clone, Copy)]
pub(crate) struct RunsToOpen<'a> {
    pub runs: &'a [RunId],
    pub places: &'a [RunPlace],
    pub keys: KeyRange<'a>,
}

/// Source of the nodes that host data of a job; called at the start of each attempt.
pub trait RecordData: Send + Sync {
    /// Reports a replica of a run to the server.
    fn replicated(&self, run: ReplicatedRun);

    /// Reports a replica of a part that later stages read.
    fn replicated_part(&self, part: ReplicatedPart);

    /// Returns the other nodes; None if all data of the job is here.
    fn other_nodes(&self, job: JobId) -> Option<OtherNodes>;

    /// Returns the intermediate files of users on this node.
    fn user_files(&self) -> Option<Arc<IntermediateFiles>> {
        None
    }

    /// Returns the opener of stored files that a job reads, which counts the bytes.
    fn stored_input(&self, _job: JobId, _reads: &Arc<StoredReads>) -> Option<Arc<dyn StoredFileSource>> {
        None
    }

    /// Returns the local copies of stored files on this node, made from parts that a job reads.
    fn local_source(&self, _job: JobId, _reads: &Arc<StoredReads>) -> Option<LocalSource> {
        None
    }

    /// Returns the stored files of the cluster as the destination of a job's output.
    fn stored_output(&self, _job: JobId, _of: StoredPut) -> Option<Arc<dyn JobOutput>> {
        None
    }

    /// Returns the outputs that programs of this node are writing, for readers on other nodes.
    fn growing_outputs(&self) -> Option<Arc<GrowingOutputs>> {
        None
    }

    /// Returns a reader of an output that another attempt is writing.
    fn growing_stream(&self, _input: GrowingInput) -> Option<Box<dyn GrowingStream>> {
        None
    }

    /// Returns the replicas of stored files on this node.
    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        None
    }
}

/// Conversion of an unreadable run to a failure of the attempt.
pub(crate) trait RunFailure {
    fn to_task_failure(&self) -> TaskFailure;
}

impl RunFailure for ChunkServerError {
    fn to_task_failure(&self) -> TaskFailure {
        self.to_failure()
    }
}

impl RunFailure for ScanError {
    fn to_task_failure(&self) -> TaskFailure {
        self.to_failure()
    }
}

impl OtherNodes {
    /// Adds hosts of chunks for an attempt if `avoided` is the only one: the hosts of replicas. In a rack of one node
    /// they are in another rack.
    pub(crate) fn away_from(mut self, avoided: NodeId) -> Self {
        if self.hosts.iter().all(|host| *host == avoided) {
            self.hosts.extend(&self.replica_hosts);
        }
        self
    }

    /// Returns whether chunks may be on any node except this one.
    pub(crate) fn has_host_beside(&self, node: NodeId) -> bool {
        self.hosts.iter().any(|host| *host != node)
    }

    /// Returns the chunks of all nodes as one service for a map attempt; `avoided` gets none while there is another
    /// node.
    pub(crate) fn chunks<'a>(
        self,
        job: &'a AttemptData,
        source: Source,
        local: Arc<ChunkServer>,
        avoided: Option<NodeId>,
    ) -> RemoteChunks<'a> {
        let options = RemoteChunksOptions {
            job: job.job,
            source,
            here: self.here,
            local,
            is_candidate: self.hosts.contains(&self.here),
            avoided,
            peers: self.peers.into_iter().filter(|peer| self.hosts.contains(&peer.node)).collect(),
            slots: job.run.spec.slots,
            cancelled: Arc::clone(&job.cancelled),
        };
        RemoteChunks::new(&self.client, &job.placement, options)
    }

    /// Returns the node from which a run is read: this one, if the run is here.
    fn home(&self, run: RunId, places: &[RunPlace]) -> NodeId {
        match RunPlace::of(run, places) {
            Some(place) if place.replica == Some(self.here) => self.here,
            Some(place) => place.node,
            None => run.node(),
        }
    }

    /// Returns whether a run is not on this node.
    pub(crate) fn is_away(&self, run: RunId, places: &[RunPlace]) -> bool {
        self.home(run, places) != self.here
    }

    /// Returns the second node of each run, besides the one from which it is read first.
    fn second_homes(&self, runs: &[RunId], places: &[RunPlace]) -> BTreeMap<RunId, Peer> {
        let second = |run: &RunId| {
            let place = RunPlace::of(*run, places)?;
            let home = self.home(*run, places);
            let node = [Some(place.node), place.replica].into_iter().flatten().find(|node| *node != home)?;
            Some((*run, self.peers.iter().find(|peer| peer.node == node)?.clone()))
        };
        runs.iter().filter_map(second).collect()
    }

    /// Returns the memory that a merge needs for runs of other nodes, whose largest blocks have `blocks_bytes`
    /// together.
    pub(crate) fn need_bytes(blocks_bytes: u64) -> u64 {
        blocks_bytes.saturating_mul(BLOCKS_PER_AWAY_RUN)
    }

    /// Opens the local and remote runs of a reduce task, in the order of the task. Each other node gets one request.
    pub(crate) fn open<'a>(
        &self,
        job: &AttemptData,
        task: &ReduceTask,
        here: &'a [Arc<Run>],
        read_ahead_bytes: usize,
    ) -> Result<Vec<AnyRun<'a>>, ScanError> {
        let lower = task.lower_key.as_ref().map(|key| key.0.as_slice());
        let upper = task.upper_key.as_ref().map(|key| key.0.as_slice());
        let of = RunsToOpen { runs: &task.runs, places: &task.places, keys: KeyRange { lower, upper } };
        self.open_range(job, of, here, read_ahead_bytes)
    }

    /// Opens runs, the local ones of `here` and remote ones, in the order in which they are named.
    pub(crate) fn open_range<'a>(
        &self,
        job: &AttemptData,
        of: RunsToOpen<'_>,
        here: &'a [Arc<Run>],
        read_ahead_bytes: usize,
    ) -> Result<Vec<AnyRun<'a>>, ScanError> {
        let RunsToOpen { runs, places, keys: KeyRange { lower, upper } } = of;
        let mut by_node: BTreeMap<NodeId, Vec<RunId>> = BTreeMap::new();
        for run in runs.iter().filter(|run| self.is_away(**run, places)) {
            by_node.entry(self.home(*run, places)).or_default().push(*run);
        }
        let mut opened: BTreeMap<RunId, AnyRun<'a>> = BTreeMap::new();
        let mut scans = Vec::with_capacity(by_node.len());
        let options_of = |runs: Vec<RunId>| ScanOptions {
            job: job.job,
            copies: self.second_homes(&runs, places),
            runs,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            skip_records: Vec::new(),
            places: self.places.clone(),
            compress: None,
            attempt: Some(job.attempt),
            cancelled: Arc::clone(&job.cancelled),
        };
        for (node, of_node) in by_node {
            let options = options_of(of_node);
            match self.peers.iter().find(|peer| peer.node == node) {
                Some(peer) => scans.push(RemoteScan::start(&self.client, peer, options)?),
                None => {
                    let runs = RemoteScan::open_at_copies(&self.client, node, &options)?;
                    opened.extend(runs.into_iter().map(|run| (run.id(), AnyRun::There(run))));
                }
            }
        }
        for run in here {
            let fallback = Fallback::of(&self.client, &options_of(vec![run.id]), run.id);
            let cursor = RunCursor::open(run, lower, upper, read_ahead_bytes);
            opened.insert(run.id, AnyRun::here(cursor, fallback)?);
        }
        for scan in scans {
            opened.extend(scan.into_runs()?.into_iter().map(|run| (run.id(), AnyRun::There(run))));
        }
        Ok(runs.iter().filter_map(|run| opened.remove(run)).collect())
    }
}
