//! The frames of an attempt in flight to one node.
//!
//! Frames gather in a queue while a request is in flight; after its answer the queue is the next request. So a mapper
//! fills frames while others travel, and no frame can overtake another.

use crate::error::DataError;
use crate::request::client::{DataClient, Peer};
use crate::wire::messages::FRAMES_PER_REQUEST_MAX;
use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, bounded};
use iappender::{AppendAnswer, AppendError, AppendFrame};
use ids::{ChunkId, JobId, Source};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Gathered bytes that are sent at once while no request is in flight.
const REQUEST_BYTES_MIN: u64 = 256 << 10;
/// Divisor of the window for a smaller limit of this kind.
const REQUEST_SHARE: u64 = 4;
/// How often a waiting lane checks whether its attempt is cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

struct UnderWay {
    frames: Arc<[(ChunkId, AppendFrame)]>,
    bytes: u64,
    answer: Receiver<Result<Vec<Option<u64>>, DataError>>,
    task: AbortHandle,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // An attempt that ends early needs no answers; after an answer there is no task to stop.
        self.task.abort();
    }
}

pub(crate) struct Lane {
    peer: Peer,
    source: Source,
    queue: VecDeque<(ChunkId, AppendFrame)>,
    queue_bytes: u64,
    under_way: Option<UnderWay>,
    /// Answers that nobody has taken yet.
    answers: VecDeque<AppendAnswer>,
    /// Chunks that refused a frame, with the end of their data: they get no more of this source until it binds again.
    refused: BTreeMap<ChunkId, u64>,
    released: Vec<ChunkId>,
}

/// Client, job and limits that all lanes of an attempt share.
pub(crate) struct Carrier {
    pub client: DataClient,
    pub job: JobId,
    pub cancelled: Arc<AtomicBool>,
    /// Maximum bytes of all lanes that are gathered or in flight; a larger frame is sent alone.
    pub window_bytes: u64,
}

impl Carrier {
    /// Waits for the result of a request; stops waiting when the attempt is cancelled.
    pub fn wait<T>(&self, answer: &Receiver<Result<T, DataError>>) -> Result<T, DataError> {
        loop {
            match answer.recv_timeout(LOOK_AGAIN) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(DataError::Stopped),
                Err(RecvTimeoutError::Timeout) if self.cancelled.load(Ordering::Relaxed) => {
                    return Err(DataError::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Lane {
    pub fn new(peer: Peer, source: Source) -> Self {
        Self {
            peer,
            source,
            queue: VecDeque::new(),
            queue_bytes: 0,
            under_way: None,
            answers: VecDeque::new(),
            refused: BTreeMap::new(),
            released: Vec::new(),
        }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Records that the source has bound to the chunk.
    pub fn bound(&mut self, chunk: ChunkId) {
        self.refused.remove(&chunk);
    }

    pub fn release(&mut self, chunk: ChunkId) {
        self.released.push(chunk);
    }

    pub fn take_released(&mut self) -> Vec<ChunkId> {
        std::mem::take(&mut self.released)
    }

    pub fn take_answers(&mut self, into: &mut Vec<AppendAnswer>) {
        into.extend(self.answers.drain(..));
    }

    /// Returns the bytes of frames that are gathered or in flight.
    pub fn held_bytes(&self) -> u64 {
        self.queue_bytes + self.under_way.as_ref().map_or(0, |under_way| under_way.bytes)
    }

    /// Takes a frame, or returns the end of the data in a chunk that has refused one.
    pub fn push(
        &mut self,
        carrier: &Carrier,
        chunk: ChunkId,
        frame: AppendFrame,
    ) -> Result<Option<u64>, AppendError> {
        self.look(carrier)?;
        if let Some(standing_end) = self.refused.get(&chunk) {
            return Ok(Some(*standing_end));
        }
        self.queue_bytes += frame.payload.len() as u64;
        self.queue.push_back((chunk, frame));
        if self.queue_bytes >= (carrier.window_bytes / REQUEST_SHARE).min(REQUEST_BYTES_MIN) {
            self.send(carrier);
        }
        Ok(None)
    }

    /// Sends the gathered frames if no request is in flight.
    pub fn send(&mut self, carrier: &Carrier) {
        if self.under_way.is_some() || self.queue.is_empty() {
            return;
        }
        let count = self.queue.len().min(FRAMES_PER_REQUEST_MAX as usize);
        let frames: Arc<[(ChunkId, AppendFrame)]> = self.queue.drain(..count).collect();
        let bytes = frames.iter().map(|(_, frame)| frame.payload.len() as u64).sum();
        self.queue_bytes -= bytes;
        let (sender, answer) = bounded(1);
        let (client, peer, job) = (carrier.client.clone(), self.peer.clone(), carrier.job);
        let (source, sent) = (self.source, Arc::clone(&frames));
        let task = carrier.client.runtime().spawn(async move {
            // The lane no longer exists when its attempt has ended; nobody needs the answer.
            let _ = sender.send(client.append(&peer, job, source, sent).await);
        });
        self.under_way = Some(UnderWay { frames, bytes, answer, task: task.abort_handle() });
    }

    /// Handles the answer to the request in flight if it has arrived.
    pub fn look(&mut self, carrier: &Carrier) -> Result<(), AppendError> {
        let Some(under_way) = &self.under_way else { return Ok(()) };
        match under_way.answer.try_recv() {
            Ok(answered) => self.answered(answered),
            Err(TryRecvError::Disconnected) => self.answered(Err(DataError::Stopped)),
            Err(TryRecvError::Empty) if carrier.cancelled.load(Ordering::Relaxed) => {
                Err(AppendError::Cancelled)
            }
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    /// Waits for the answer to the request in flight.
    pub fn wait(&mut self, carrier: &Carrier) -> Result<(), AppendError> {
        let Some(under_way) = &self.under_way else { return Ok(()) };
        let answered = carrier.wait(&under_way.answer);
        self.answered(answered)
    }

    fn answered(&mut self, answered: Result<Vec<Option<u64>>, DataError>) -> Result<(), AppendError> {
        let Some(under_way) = self.under_way.take() else { return Ok(()) };
        let closed = answered.map_err(|error| {
            let (chunk, frame) = &under_way.frames[0];
            error.to_append_error(*chunk, self.source, frame.header.ifile)
        })?;
        for ((chunk, frame), closed) in under_way.frames.iter().zip(closed) {
            self.answer(*chunk, frame, closed);
        }
        if !self.refused.is_empty() {
            self.send_back_refused();
        }
        Ok(())
    }

    fn answer(&mut self, chunk: ChunkId, frame: &AppendFrame, closed: Option<u64>) {
        if let Some(standing_end) = closed {
            self.refused.insert(chunk, standing_end);
        }
        let (ifile, sequence) = (frame.header.ifile, frame.header.sequence);
        self.answers.push_back(AppendAnswer { ifile, chunk, sequence, closed });
    }

    /// Removes frames in the queue for a chunk that refused an earlier frame: they must not be sent there.
    fn send_back_refused(&mut self) {
        for (chunk, frame) in std::mem::take(&mut self.queue) {
            match self.refused.get(&chunk).copied() {
                Some(standing_end) => {
                    self.queue_bytes -= frame.payload.len() as u64;
                    self.answer(chunk, &frame, Some(standing_end));
                }
                None => self.queue.push_back((chunk, frame)),
            }
        }
    }
}
