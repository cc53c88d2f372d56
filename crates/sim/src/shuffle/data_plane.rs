//! The chunkservers of all nodes and the network between them. The accounts of chunks are the real ones of the
//! chunkserver; the model of sockets and threads delays, loses, repeats and cuts off requests.

use super::lane::{Sender, SenderId};
use super::plan::RecordName;
use super::run::ShuffleRun;
use super::world::{FaultRates, Planted, Situation, Sometimes};
use crate::future::Future;
use api::Layout;
use chunkserver::ChunkTable;
use fastrand::Rng;
use iappender::{APPEND_TRIES_MAX, AppendError, AppendFrame, AppendReply};
use ids::{ChunkId, IfileIndex, JobId, NodeId, RunId, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MILLISECOND_NS: u64 = 1_000_000;
/// Timeout of an append request before it is sent again.
const ANSWER_WITHIN_NS: u64 = 300 * MILLISECOND_NS;
/// Longest delay of a slow or repeated request.
const SLOW_NS_MAX: u64 = 3_000 * MILLISECOND_NS;

pub(crate) type Frames = Arc<[(ChunkId, AppendFrame)]>;

/// Data of a job on a node.
pub(crate) struct JobData {
    pub books: ChunkTable,
    pub runs: BTreeMap<RunId, Arc<ShuffleRun>>,
    /// Replicas of other nodes' runs, promoted or not.
    pub copies: BTreeMap<RunId, Arc<ShuffleRun>>,
    pub standing: BTreeSet<RunId>,
    /// Runs that the disk lost.
    pub damaged: BTreeSet<RunId>,
    /// Parts on this node, by name: its own, and replicas of others.
    pub parts: BTreeMap<String, Arc<[RecordName]>>,
    pub part_copies: BTreeMap<String, Arc<[RecordName]>>,
}

/// A live process.
pub(crate) struct Host {
    pub address: u32,
    pub jobs: BTreeMap<JobId, JobData>,
    /// Finished jobs: their data is no longer accepted.
    pub forgotten: BTreeSet<JobId>,
}

/// The reason why a run cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    Unreachable,
    /// Another process runs at the address of the run.
    Stale,
    Unknown,
    Damaged,
}

/// Two nodes: one that asks, and one that is asked.
#[derive(Clone, Copy)]
pub(crate) struct Between {
    pub here: NodeId,
    pub there: NodeId,
}

/// A message in flight between two nodes.
pub(crate) enum Packet {
    Frames { from: SenderId, here: NodeId, job: JobId, to: NodeId, request: u64, frames: Frames },
    Answer { from: SenderId, to: NodeId, request: u64, closed: Vec<Option<u64>> },
    Refused { from: SenderId, to: NodeId, request: u64 },
    TimedOut { from: SenderId, to: NodeId, request: u64 },
}

pub(crate) struct DataPlane {
    pub now_ns: u64,
    pub random: Rng,
    pub faults: FaultRates,
    pub planted: Option<Planted>,
    pub sometimes: Sometimes,
    pub hosts: BTreeMap<NodeId, Host>,
    pub layouts: BTreeMap<JobId, Layout>,
    /// Nodes that are unreachable for the moment.
    pub cut_off: BTreeSet<NodeId>,
    /// Address of every node so far.
    pub addresses: BTreeMap<NodeId, u32>,
    pub senders: BTreeMap<SenderId, Sender>,
    /// Unreachable nodes, each after the node that tried.
    pub unreached: BTreeSet<(NodeId, NodeId)>,
    packets: Future<Packet>,
    next_request: u64,
    /// Frames that were acknowledged, and chunks that refused one: a second account for checks.
    acknowledged: BTreeSet<(JobId, ChunkId, Source, u64)>,
    closed: BTreeSet<(JobId, ChunkId)>,
}

impl DataPlane {
    pub fn new(seed: u64, faults: FaultRates, planted: Option<Planted>) -> Self {
        Self {
            now_ns: 1,
            random: Rng::with_seed(seed ^ 0x00da_7a91),
            faults,
            planted,
            sometimes: Sometimes::default(),
            hosts: BTreeMap::new(),
            layouts: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            addresses: BTreeMap::new(),
            senders: BTreeMap::new(),
            unreached: BTreeSet::new(),
            packets: Future::default(),
            next_request: 0,
            acknowledged: BTreeSet::new(),
            closed: BTreeSet::new(),
        }
    }

    pub fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.random.f64() < chance
    }

    /// Chooses the delay of a message.
    pub fn delay_ns(&mut self) -> u64 {
        match self.chance(self.faults.message_slow) {
            true => self.random.u64(MILLISECOND_NS..SLOW_NS_MAX),
            false => self.random.u64(MILLISECOND_NS / 10..10 * MILLISECOND_NS),
        }
    }

    pub fn slow_ns(&mut self) -> u64 {
        self.random.u64(MILLISECOND_NS..SLOW_NS_MAX)
    }

    /// Returns whether the network connects two nodes.
    pub fn connects(&self, from: NodeId, to: NodeId) -> bool {
        from == to || !(self.cut_off.contains(&from) || self.cut_off.contains(&to))
    }

    /// Returns whether another process runs at the address of this node.
    pub fn is_stale(&self, node: NodeId) -> bool {
        let address = self.addresses.get(&node);
        !self.hosts.contains_key(&node) && self.hosts.values().any(|host| Some(&host.address) == address)
    }

    /// Returns the data of a job on a node; None if the node accepts nothing of the job, or is dead.
    pub fn job_data(&mut self, node: NodeId, job: JobId) -> Option<&mut JobData> {
        let layout = *self.layouts.get(&job)?;
        let host = self.hosts.get_mut(&node).filter(|host| !host.forgotten.contains(&job))?;
        Some(host.jobs.entry(job).or_insert_with(|| JobData {
            books: ChunkTable::new(node, layout, 1),
            runs: BTreeMap::new(),
            copies: BTreeMap::new(),
            standing: BTreeSet::new(),
            damaged: BTreeSet::new(),
            parts: BTreeMap::new(),
            part_copies: BTreeMap::new(),
        }))
    }

    pub fn next_packet_ns(&self) -> Option<u64> {
        self.packets.next_ns()
    }

    /// Delivers the next packet. Returns false if none is in flight.
    pub fn step(&mut self) -> bool {
        let Some((at_ns, packet)) = self.packets.pop() else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        match packet {
            Packet::Frames { from, here, job, to, request, frames } => {
                self.frames_arrive(from, here, job, to, request, &frames);
            }
            Packet::Answer { from, to, request, closed } => {
                if let Some(sender) = self.senders.get_mut(&from) {
                    sender.answered(to, request, &closed);
                }
            }
            Packet::Refused { from, to, request } => {
                if let Some(sender) = self.senders.get_mut(&from) {
                    sender.gives_up(to, request);
                }
            }
            Packet::TimedOut { from, to, request } => self.timed_out(from, to, request),
        }
        true
    }

    /// Sends the gathered frames for a node if no request to it is in flight.
    pub fn send(&mut self, from: SenderId, to: NodeId) {
        let request = self.next_request;
        let Some(sender) = self.senders.get_mut(&from) else { return };
        if sender.begin(to, request) {
            self.next_request += 1;
            self.transmit(from, to);
        }
    }

    fn transmit(&mut self, from: SenderId, to: NodeId) {
        let Some(sender) = self.senders.get(&from) else { return };
        let Some((request, frames)) = sender.under_way(to) else { return };
        let (here, job, now_ns) = (sender.here, sender.job, self.now_ns);
        self.packets.foresee(now_ns + ANSWER_WITHIN_NS, Packet::TimedOut { from, to, request });
        let mut arrives = Vec::new();
        if !self.chance(self.faults.message_lost) {
            arrives.push(now_ns + self.delay_ns());
        }
        if self.chance(self.faults.message_repeated) {
            arrives.push(now_ns + self.slow_ns());
        }
        for at_ns in arrives {
            let frames = Arc::clone(&frames);
            self.packets.foresee(at_ns, Packet::Frames { from, here, job, to, request, frames });
        }
    }

    fn timed_out(&mut self, from: SenderId, to: NodeId, request: u64) {
        match self.senders.get_mut(&from).and_then(|sender| sender.tries_again(to, request)) {
            Some(tries) if tries < APPEND_TRIES_MAX => self.transmit(from, to),
            Some(_) => {
                self.sometimes.saw(Situation::AppendGivenUp);
                if let Some(sender) = self.senders.get_mut(&from) {
                    sender.gives_up(to, request);
                }
            }
            None => {}
        }
    }

    fn frames_arrive(
        &mut self,
        from: SenderId,
        here: NodeId,
        job: JobId,
        to: NodeId,
        request: u64,
        frames: &Frames,
    ) {
        if !self.connects(here, to) {
            return;
        }
        let answers_at_ns = self.now_ns + self.delay_ns();
        if self.is_stale(to) {
            // The process there was started later, and says that it is not the requested one.
            self.sometimes.saw(Situation::StaleChunkRefused);
            return self.packets.foresee(answers_at_ns, Packet::Refused { from, to, request });
        }
        if !self.hosts.contains_key(&to) {
            return;
        }
        let is_cut = self.chance(self.faults.message_cut);
        let count = if is_cut { self.random.usize(..=frames.len()) } else { frames.len() };
        let taken = self.receive(to, job, &frames[..count]);
        if is_cut {
            // Accepted frames stay; the sender gets no answer.
            return self.sometimes.saw(Situation::RequestCutOff);
        }
        let answer_is_lost = self.chance(self.faults.message_lost);
        match taken {
            Ok(_) if answer_is_lost => {}
            Ok(closed) => self.packets.foresee(answers_at_ns, Packet::Answer { from, to, request, closed }),
            Err(_) => self.packets.foresee(answers_at_ns, Packet::Refused { from, to, request }),
        }
    }

    /// Accepts the frames of a request in turn, as `crates/dataport/src/serve/append.rs` does: a chunk that refused one
    /// of them gets no later one of the same request.
    fn receive(
        &mut self,
        node: NodeId,
        job: JobId,
        frames: &[(ChunkId, AppendFrame)],
    ) -> Result<Vec<Option<u64>>, AppendError> {
        let mut answers = Vec::with_capacity(frames.len());
        let mut refused: BTreeMap<ChunkId, u64> = BTreeMap::new();
        for (chunk, frame) in frames {
            if let Some(standing_end) = refused.get(chunk) {
                answers.push(Some(*standing_end));
                continue;
            }
            match self.append(node, job, *chunk, frame.clone())? {
                AppendReply::Closed { standing_end } => {
                    refused.insert(*chunk, standing_end);
                    answers.push(Some(standing_end));
                }
                AppendReply::Acked | AppendReply::Sent => answers.push(None),
            }
        }
        Ok(answers)
    }

    /// Passes a frame to the accounts of a chunk.
    pub fn append(
        &mut self,
        node: NodeId,
        job: JobId,
        chunk: ChunkId,
        frame: AppendFrame,
    ) -> Result<AppendReply, AppendError> {
        let (source, sequence) = (frame.header.source, frame.header.sequence);
        let data = self.job_data(node, job).ok_or(AppendError::Gone(chunk))?;
        let reply = data.books.append(chunk, frame)?;
        let key = (job, chunk, source, sequence);
        match reply {
            AppendReply::Acked if !self.acknowledged.insert(key) => {
                self.sometimes.saw(Situation::FrameRepeatedAndDropped);
                let is_closed = self.closed.contains(&(job, chunk));
                if is_closed && self.planted == Some(Planted::FrameInTwoChunks) {
                    return Ok(AppendReply::Closed { standing_end: sequence });
                }
            }
            AppendReply::Closed { .. } => {
                self.closed.insert((job, chunk));
                self.sometimes.saw(Situation::ChunkClosedUnderAppender);
            }
            AppendReply::Acked | AppendReply::Sent => {}
        }
        Ok(reply)
    }

    /// Chooses or opens a chunk on a node that is reachable from `here`.
    pub fn bind(
        &mut self,
        between: Between,
        job: JobId,
        ifile: IfileIndex,
        source: Source,
        frame_bytes: u64,
    ) -> Option<ChunkId> {
        let Between { here, there } = between;
        if !self.connects(here, there) {
            return None;
        }
        Some(self.job_data(there, job)?.books.bind(ifile, source, frame_bytes))
    }

    /// Sorts closed chunks of a job into one run. Returns false if none waits.
    pub fn sort_some(&mut self, node: NodeId, job: JobId) -> bool {
        let Some(data) = self.job_data(node, job) else { return false };
        let Some(chunks) = data.books.take_sort_work() else { return false };
        let (ifile, _, frames) = data.books.take_frames(&chunks);
        let run = ShuffleRun::sort(data.books.take_run_id(), ifile, frames);
        data.books.sorted(&chunks);
        data.runs.insert(run.id, Arc::new(run));
        self.closed.extend(chunks.into_iter().map(|chunk| (job, chunk)));
        true
    }

    fn reaches(&mut self, between: Between) -> Result<(), ReadError> {
        let Between { here, there } = between;
        if !self.connects(here, there) {
            return Err(ReadError::Unreachable);
        }
        if self.is_stale(there) {
            self.sometimes.saw(Situation::StaleRunRefused);
            return Err(ReadError::Stale);
        }
        match self.hosts.contains_key(&there) {
            true => Ok(()),
            false => Err(ReadError::Unreachable),
        }
    }

    /// Reads a part on a node, from another node.
    pub fn read_part(
        &mut self,
        between: Between,
        job: JobId,
        name: &str,
    ) -> Result<Arc<[RecordName]>, ReadError> {
        self.reaches(between)?;
        let data = self.job_data(between.there, job).ok_or(ReadError::Unknown)?;
        let part = data.parts.get(name).or_else(|| data.part_copies.get(name));
        part.cloned().ok_or(ReadError::Unknown)
    }

    /// Reads a run on a node, from another node.
    pub fn read(&mut self, between: Between, job: JobId, run: RunId) -> Result<Arc<ShuffleRun>, ReadError> {
        self.reaches(between)?;
        let data = self.job_data(between.there, job).ok_or(ReadError::Unknown)?;
        if data.damaged.contains(&run) {
            return Err(ReadError::Damaged);
        }
        data.runs.get(&run).or_else(|| data.copies.get(&run)).cloned().ok_or(ReadError::Unknown)
    }
}
