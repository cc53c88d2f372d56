//! The frames of an attempt in flight to other nodes, and the service through which its appender reaches chunks.
//!
//! Like `crates/dataport/src/request/{append,append/lane}.rs`, without sockets and threads: one request is in flight to
//! a node, later frames are gathered, and a chunk that refused a frame gets no other until the appender binds again.

use super::data_plane::{Between, DataPlane, Frames};
use super::world::Situation;
use arena::{Arena, Charge, SlabWriter};
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{ChunkId, IfileIndex, JobId, NodeId, Source};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of an appender.
pub(crate) type SenderId = u64;

const FRAMES_PER_REQUEST_MAX: usize = 5;
/// Maximum number of frames of an attempt that are gathered or in flight.
const WINDOW_FRAMES: usize = 8;

struct UnderWay {
    request: u64,
    frames: Frames,
    tries: u32,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<(ChunkId, AppendFrame)>,
    under_way: Option<UnderWay>,
    refused: BTreeMap<ChunkId, u64>,
}

/// Frames and answers in flight for one attempt.
pub(crate) struct Sender {
    pub here: NodeId,
    pub job: JobId,
    lanes: BTreeMap<NodeId, Lane>,
    answers: Vec<AppendAnswer>,
    /// A chunk that has become unreachable.
    failed: Option<ChunkId>,
    /// I-files with a chunk that closed under this appender.
    fenced: BTreeSet<IfileIndex>,
}

impl Sender {
    pub fn new(here: NodeId, job: JobId) -> Self {
        Self { here, job, lanes: BTreeMap::new(), answers: Vec::new(), failed: None, fenced: BTreeSet::new() }
    }

    fn held_frames(&self) -> usize {
        let held = |lane: &Lane| lane.queue.len() + lane.under_way.as_ref().map_or(0, |way| way.frames.len());
        self.lanes.values().map(held).sum()
    }

    /// Makes the next request to a node from the gathered frames. False if one is under way, or no frame is gathered.
    pub fn begin(&mut self, to: NodeId, request: u64) -> bool {
        let Some(lane) = self.lanes.get_mut(&to) else { return false };
        if lane.under_way.is_some() || lane.queue.is_empty() {
            return false;
        }
        let count = lane.queue.len().min(FRAMES_PER_REQUEST_MAX);
        let frames: Frames = lane.queue.drain(..count).collect();
        lane.under_way = Some(UnderWay { request, frames, tries: 0 });
        true
    }

    pub fn under_way(&self, to: NodeId) -> Option<(u64, Frames)> {
        let under_way = self.lanes.get(&to)?.under_way.as_ref()?;
        Some((under_way.request, Frames::clone(&under_way.frames)))
    }

    /// Counts a try of a request without an answer, and returns the tries so far; None if it had an answer.
    pub fn tries_again(&mut self, to: NodeId, request: u64) -> Option<u32> {
        let under_way = self.lanes.get_mut(&to)?.under_way.as_mut().filter(|way| way.request == request)?;
        under_way.tries += 1;
        Some(under_way.tries)
    }

    pub fn gives_up(&mut self, to: NodeId, request: u64) {
        let lane = self.lanes.get(&to).and_then(|lane| lane.under_way.as_ref());
        if let Some(under_way) = lane.filter(|under_way| under_way.request == request) {
            self.failed = under_way.frames.first().map(|(chunk, _)| *chunk);
        }
    }

    /// Takes the answer to the request under way; ignores the answer to an earlier request.
    pub fn answered(&mut self, to: NodeId, request: u64, closed: &[Option<u64>]) {
        let Some(lane) = self.lanes.get_mut(&to) else { return };
        let Some(under_way) = lane.under_way.take_if(|way| way.request == request) else { return };
        let mut told: Vec<(ChunkId, AppendFrame, Option<u64>)> = Vec::new();
        for ((chunk, frame), closed) in under_way.frames.iter().zip(closed) {
            lane.refused.extend(closed.map(|standing_end| (*chunk, standing_end)));
            told.push((*chunk, frame.clone(), *closed));
        }
        for (chunk, frame) in std::mem::take(&mut lane.queue) {
            match lane.refused.get(&chunk).copied() {
                Some(standing_end) => told.push((chunk, frame, Some(standing_end))),
                None => lane.queue.push_back((chunk, frame)),
            }
        }
        for (chunk, frame, closed) in told {
            let (ifile, sequence) = (frame.header.ifile, frame.header.sequence);
            if closed.is_some() {
                self.fenced.insert(ifile);
            }
            self.answers.push(AppendAnswer { ifile, chunk, sequence, closed });
        }
    }
}

/// Chunks on all nodes, for one appender.
pub(crate) struct Port<'a> {
    plane: &'a Mutex<DataPlane>,
    arena: Arena,
    whose: OnceLock<Whose>,
}

struct Whose {
    sender: SenderId,
    here: NodeId,
    job: JobId,
    /// The nodes that its node knew when it began, in order.
    candidates: Mutex<Vec<NodeId>>,
}

impl<'a> Port<'a> {
    /// Makes a port without an appender.
    pub fn new(plane: &'a Mutex<DataPlane>, arena: &Arena) -> Self {
        Self { plane, arena: arena.clone(), whose: OnceLock::new() }
    }

    /// Gives the port to an attempt. Panics the second time.
    pub fn take(&self, sender: SenderId, here: NodeId, job: JobId, candidates: Vec<NodeId>) {
        let whose = Whose { sender, here, job, candidates: Mutex::new(candidates) };
        assert!(self.whose.set(whose).is_ok(), "a port has one appender");
        self.plane().senders.insert(sender, Sender::new(here, job));
    }

    fn whose(&self) -> &Whose {
        self.whose.get().expect("an appender has taken its port")
    }

    fn plane(&self) -> MutexGuard<'_, DataPlane> {
        self.plane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers packets until `is_done`, or until the attempt has failed.
    fn wait(&self, plane: &mut DataPlane, is_done: impl Fn(&Sender) -> bool) -> Result<(), AppendError> {
        let sender = self.whose().sender;
        loop {
            let Some(state) = plane.senders.get(&sender) else { return Err(AppendError::Cancelled) };
            if let Some(chunk) = state.failed {
                return Err(AppendError::Gone(chunk));
            }
            if is_done(state) {
                return Ok(());
            }
            let nodes: Vec<NodeId> = state.lanes.keys().copied().collect();
            nodes.into_iter().for_each(|node| plane.send(sender, node));
            if !plane.step() {
                return Err(AppendError::Cancelled);
            }
        }
    }
}

impl ChunkService for Port<'_> {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        Ok(self.arena.try_slab().expect("worlds are small"))
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        self.plane().sometimes.saw(Situation::OversizeRecord);
        Ok(self.arena.try_charge(bytes).expect("worlds are small"))
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        let whose = self.whose();
        let mut plane = self.plane();
        let mut candidates = whose.candidates.lock().unwrap_or_else(PoisonError::into_inner);
        if plane.senders.get(&whose.sender).is_some_and(|sender| sender.fenced.contains(&ifile)) {
            plane.sometimes.saw(Situation::ReboundAfterFence);
        }
        loop {
            if candidates.is_empty() {
                return Err(AppendError::GaveUp { from: source, ifile, tries: 0 });
            }
            let node = candidates[ifile.0 as usize % candidates.len()];
            let bound =
                plane.bind(Between { here: whose.here, there: node }, whose.job, ifile, source, frame_bytes);
            let message_lost = plane.faults.message_lost;
            let is_lost = plane.chance(message_lost) && node != whose.here;
            match bound {
                Some(_) if is_lost => return Err(AppendError::AnswerLost),
                Some(chunk) => {
                    let sender = plane.senders.get_mut(&whose.sender);
                    if let Some(lane) = sender.and_then(|sender| sender.lanes.get_mut(&node)) {
                        lane.refused.remove(&chunk);
                    }
                    return Ok(chunk);
                }
                // No frame was sent there: the chunk can as well be on another node.
                None => candidates.retain(|candidate| *candidate != node),
            }
        }
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        let whose = self.whose();
        let mut plane = self.plane();
        if chunk.node() == whose.here {
            let ifile = frame.header.ifile;
            let reply = plane.append(whose.here, whose.job, chunk, frame)?;
            if let (AppendReply::Closed { .. }, Some(sender)) = (reply, plane.senders.get_mut(&whose.sender))
            {
                sender.fenced.insert(ifile);
            }
            return Ok(reply);
        }
        let sender = plane.senders.get_mut(&whose.sender).ok_or(AppendError::Cancelled)?;
        if let Some(chunk) = sender.failed {
            return Err(AppendError::Gone(chunk));
        }
        let lane = sender.lanes.entry(chunk.node()).or_default();
        if let Some(standing_end) = lane.refused.get(&chunk) {
            return Ok(AppendReply::Closed { standing_end: *standing_end });
        }
        lane.queue.push_back((chunk, frame));
        if plane.random.bool() {
            plane.send(whose.sender, chunk.node());
        }
        self.wait(&mut plane, |sender| sender.held_frames() <= WINDOW_FRAMES)?;
        Ok(AppendReply::Sent)
    }

    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        let mut plane = self.plane();
        self.wait(&mut plane, |sender| !wait || !sender.answers.is_empty())?;
        let sender = plane.senders.get_mut(&self.whose().sender).ok_or(AppendError::Cancelled)?;
        Ok(std::mem::take(&mut sender.answers))
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        let whose = self.whose();
        let mut plane = self.plane();
        if plane.connects(whose.here, chunk.node())
            && let Some(data) = plane.job_data(chunk.node(), whose.job)
        {
            data.books.release(chunk, source);
        }
    }
}
