//! Chunks on several nodes as one service for the appender of one attempt.

mod lane;

use crate::error::DataError;
use crate::placement::{Candidate, ChunkPlacement};
use crate::request::append::lane::{Carrier, Lane};
use crate::request::client::{DataClient, Peer};
use crate::wire::messages::{BindRequest, CHUNKS_PER_RELEASE_MAX, ReleaseRequest};
use arena::{Charge, SlabWriter};
use chunkserver::ChunkServer;
use crossbeam_channel::bounded;
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{ChunkId, IfileIndex, JobId, NodeId, Source};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of an attempt that are gathered or in flight: more would only wait elsewhere.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Divisor of the chunk share that limits the windows of all slots together. No sorter can free these frames, so the
/// share must be small: attempts that wait for memory keep theirs.
const SHARE_OF_CHUNKS: u64 = 16;

/// Options of [`RemoteChunks`] for its attempt.
pub struct RemoteChunksOptions {
    pub job: JobId,
    /// The appending attempt.
    pub source: Source,
    /// The node that runs it, with its chunkserver, whose memory holds the frames.
    pub here: NodeId,
    pub local: Arc<ChunkServer>,
    /// True if chunks may be on this node too.
    pub is_candidate: bool,
    /// Node that gets no chunk while there is another one.
    pub avoided: Option<NodeId>,
    /// Other nodes that may host chunks of the job.
    pub peers: Vec<Peer>,
    /// Number of attempts that append on this node at once.
    pub slots: u32,
    /// Set when the attempt must stop.
    pub cancelled: Arc<AtomicBool>,
}

/// The chunk service of an attempt. Chunks of this node are reached by calls, those of others by requests.
pub struct RemoteChunks<'a> {
    here: NodeId,
    local: Arc<ChunkServer>,
    source: Source,
    carrier: Carrier,
    placement: &'a dyn ChunkPlacement,
    lanes: Mutex<Lanes>,
}

struct Lanes {
    by_node: BTreeMap<NodeId, Lane>,
    /// Nodes that may get a chunk, in order. Unreachable ones are removed.
    candidates: Vec<Candidate>,
}

impl Lanes {
    fn held_bytes(&self) -> u64 {
        self.by_node.values().map(Lane::held_bytes).sum()
    }

    /// Sends gathered frames and waits for one answer, if any is due: that of the lane that holds most.
    fn send_and_wait(&mut self, carrier: &Carrier) -> Result<(), AppendError> {
        for lane in self.by_node.values_mut() {
            lane.send(carrier);
        }
        match self.by_node.values_mut().max_by_key(|lane| lane.held_bytes()) {
            Some(lane) => lane.wait(carrier),
            None => Ok(()),
        }
    }
}

impl<'a> RemoteChunks<'a> {
    /// Creates a service for an attempt. Loads of nodes are unknown until [`Self::set_load`] sets them.
    pub fn new(client: &DataClient, placement: &'a dyn ChunkPlacement, options: RemoteChunksOptions) -> Self {
        let RemoteChunksOptions { job, source, here, local, is_candidate, avoided, peers, slots, cancelled } =
            options;
        let nodes = peers.iter().map(|peer| peer.node).chain(is_candidate.then_some(here));
        let unknown = |node| Candidate {
            node,
            is_here: node == here,
            is_avoided: Some(node) == avoided,
            free_bytes: u64::MAX,
            queued_bytes: 0,
        };
        let mut candidates: Vec<Candidate> = nodes.map(unknown).collect();
        candidates.sort_unstable_by_key(|candidate| candidate.node);
        let each = local.layout().chunk_share_bytes / SHARE_OF_CHUNKS / u64::from(slots.max(1));
        let window_bytes = each.min(WINDOW_BYTES_MAX);
        let by_node = peers.into_iter().map(|peer| (peer.node, Lane::new(peer, source))).collect();
        Self {
            here,
            local,
            source,
            carrier: Carrier { client: client.clone(), job, cancelled, window_bytes },
            placement,
            lanes: Mutex::new(Lanes { by_node, candidates }),
        }
    }

    /// Sets the load that a node reported about itself.
    pub fn set_load(&self, node: NodeId, free_bytes: u64, queued_bytes: u64) {
        let mut lanes = self.lanes();
        for candidate in lanes.candidates.iter_mut().filter(|candidate| candidate.node == node) {
            (candidate.free_bytes, candidate.queued_bytes) = (free_bytes, queued_bytes);
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on this thread for a request that runs on the client's runtime.
    fn request<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, DataError>> + Send + 'static,
    ) -> Result<T, DataError> {
        let (sender, answer) = bounded(1);
        self.carrier.client.runtime().spawn(async move {
            // Nobody waits if the attempt was cancelled.
            let _ = sender.send(request.await);
        });
        self.carrier.wait(&answer)
    }

    fn bind_there(&self, peer: Peer, ifile: IfileIndex, frame_bytes: u64) -> Result<ChunkId, DataError> {
        let (client, job, source) = (self.carrier.client.clone(), self.carrier.job, self.source);
        let request = BindRequest { ifile, source, frame_bytes };
        let node = peer.node;
        let chunk = self.request(async move { client.bind(&peer, job, request).await })?;
        match chunk.node() == node {
            true => Ok(chunk),
            false => Err(DataError::Refused { node, status: 410, reason: format!("it gave {chunk}") }),
        }
    }
}

impl ChunkService for RemoteChunks<'_> {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        self.local.service().slab()
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        self.local.service().oversize(bytes)
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        assert_eq!(source, self.source, "one service for each attempt");
        loop {
            let peer = {
                let lanes = self.lanes();
                if lanes.candidates.is_empty() {
                    return Err(AppendError::GaveUp {
                        from: source,
                        ifile,
                        tries: lanes.by_node.len() as u32,
                    });
                }
                let chosen = lanes.candidates[self.placement.choose(ifile, source, &lanes.candidates)];
                lanes.by_node.get(&chosen.node).map(|lane| lane.peer().clone())
            };
            let Some(peer) = peer else { return self.local.service().bind(ifile, source, frame_bytes) };
            let node = peer.node;
            match self.bind_there(peer, ifile, frame_bytes) {
                Ok(chunk) => {
                    if let Some(lane) = self.lanes().by_node.get_mut(&node) {
                        lane.bound(chunk);
                    }
                    return Ok(chunk);
                }
                Err(DataError::Cancelled | DataError::Stopped) => return Err(AppendError::Cancelled),
                // No frame was sent there: the chunk can as well be on another node.
                Err(_) => self.lanes().candidates.retain(|candidate| candidate.node != node),
            }
        }
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        if chunk.node() == self.here {
            return self.local.service().append(chunk, frame);
        }
        let mut lanes = self.lanes();
        let lane = lanes.by_node.get_mut(&chunk.node()).ok_or(AppendError::Gone(chunk))?;
        if let Some(standing_end) = lane.push(&self.carrier, chunk, frame)? {
            return Ok(AppendReply::Closed { standing_end });
        }
        while lanes.held_bytes() > self.carrier.window_bytes {
            lanes.send_and_wait(&self.carrier)?;
        }
        Ok(AppendReply::Sent)
    }

    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        let mut lanes = self.lanes();
        let mut answers = Vec::new();
        for lane in lanes.by_node.values_mut() {
            lane.look(&self.carrier)?;
            lane.take_answers(&mut answers);
        }
        if !wait || !answers.is_empty() {
            return Ok(answers);
        }
        lanes.send_and_wait(&self.carrier)?;
        for lane in lanes.by_node.values_mut() {
            lane.take_answers(&mut answers);
        }
        Ok(answers)
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        if chunk.node() == self.here {
            self.local.service().release(chunk, source);
        } else if let Some(lane) = self.lanes().by_node.get_mut(&chunk.node()) {
            lane.release(chunk);
        }
    }
}

impl Drop for RemoteChunks<'_> {
    /// Tells the other nodes, without waiting, that this attempt sends no more.
    fn drop(&mut self) {
        let lanes = self.lanes.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes.by_node.values_mut() {
            let released = lane.take_released();
            for chunks in released.chunks(CHUNKS_PER_RELEASE_MAX as usize) {
                let request = ReleaseRequest { source: self.source, chunks: chunks.to_vec() };
                let (client, job) = (self.carrier.client.clone(), self.carrier.job);
                let peer = lane.peer().clone();
                self.carrier.client.runtime().spawn(async move {
                    // A lost release occupies a seat among the appenders of chunks that are mostly closed.
                    let _ = client.release(&peer, job, &request).await;
                });
            }
        }
    }
}
