//! The stream of a scan, divided into the blocks of its runs.

use crate::error::{DataError, ScanError};
use crate::request::client::DataClient;
use crate::wire::scan::{Entry, EntryDecoder, EntryKind, LostRuns, RunEnd};
use bytes::Bytes;
use ids::NodeId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// Maximum number of blocks of a run that arrive before they are needed. One may by the order of the stream; more would
/// mean that the stream has no order, and memory must not depend on that.
const BLOCKS_AHEAD_MAX: usize = 2;
/// How often a waiting reader checks whether its attempt is cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A received piece of the stream, or the error.
pub(crate) type Piece = Result<Bytes, ScanError>;

/// The stream of one scan, shared by the cursors of its runs.
pub(crate) struct Reader {
    pieces: Receiver<Piece>,
    node: NodeId,
    cancelled: Arc<AtomicBool>,
    client: DataClient,
    /// Rest of the last piece.
    piece: Bytes,
    decoder: EntryDecoder,
    /// Blocks that arrived before they were needed, for each run.
    ahead: Vec<VecDeque<Vec<u8>>>,
    ends: Vec<Option<RunEnd>>,
    /// Runs that are now read from other nodes: their blocks are dropped.
    given_up: Vec<bool>,
    /// True after an error: nothing after it can be trusted.
    broken: bool,
    /// Runs that the other node has reported lost. All readers of the stream get this, because some may continue
    /// on other nodes and others cannot.
    lost: Option<LostRuns>,
}

impl Reader {
    /// Creates the reader of the answer to a scan of `run_count` runs.
    pub fn new(
        pieces: Receiver<Piece>,
        node: NodeId,
        run_count: usize,
        cancelled: Arc<AtomicBool>,
        client: DataClient,
    ) -> Self {
        Self {
            pieces,
            node,
            cancelled,
            client,
            piece: Bytes::new(),
            decoder: EntryDecoder::default(),
            ahead: (0..run_count).map(|_| VecDeque::new()).collect(),
            ends: vec![None; run_count],
            given_up: vec![false; run_count],
            broken: false,
            lost: None,
        }
    }

    /// Returns the totals of a run, once they are known.
    pub fn end_of(&self, index: usize) -> Option<RunEnd> {
        self.ends[index]
    }

    /// Stops reading a run from this stream.
    pub fn give_up(&mut self, index: usize) {
        self.given_up[index] = true;
        self.ahead[index].clear();
    }

    /// Returns the next piece of the stream; None at its end.
    fn next_piece(&mut self) -> Result<Option<Bytes>, ScanError> {
        if let Ok(piece) = self.pieces.try_recv() {
            return piece.map(Some);
        }
        let pieces = &mut self.pieces;
        let cancelled = &self.cancelled;
        self.client.runtime().block_on(async move {
            loop {
                match tokio::time::timeout(LOOK_AGAIN, pieces.recv()).await {
                    Ok(piece) => return piece.transpose(),
                    Err(_) if cancelled.load(Ordering::Relaxed) => return Err(DataError::Cancelled.into()),
                    Err(_) => {}
                }
            }
        })
    }

    pub fn next_entry(&mut self) -> Result<Entry, ScanError> {
        let node = self.node;
        match &self.lost {
            Some(LostRuns { runs, reason }) => {
                Err(ScanError::Lost { node, runs: runs.clone(), reason: reason.clone() })
            }
            None if self.broken => Err(ScanError::CutOff { node, source: None }),
            None => self.read_entry().inspect_err(|_| self.broken = true),
        }
    }

    fn read_entry(&mut self) -> Result<Entry, ScanError> {
        let node = self.node;
        loop {
            let mut rest = &self.piece[..];
            let taken = self.decoder.take(&mut rest);
            let left = rest.len();
            let used = self.piece.len() - left;
            let _ = self.piece.split_to(used);
            match taken.map_err(|source| ScanError::Damaged { node, source })? {
                Some(entry) if entry.head.kind == EntryKind::Failed => {
                    let reason = String::from_utf8_lossy(&entry.body).into_owned();
                    return Err(ScanError::Failed { node, reason });
                }
                Some(entry) if entry.head.kind == EntryKind::Lost => {
                    let lost = LostRuns::decode(&entry.body);
                    let lost = lost.map_err(|source| ScanError::Damaged { node, source })?;
                    let LostRuns { runs, reason } = self.lost.insert(lost).clone();
                    return Err(ScanError::Lost { node, runs, reason });
                }
                Some(entry) => return Ok(entry),
                None => match self.next_piece()? {
                    Some(piece) => self.piece = piece,
                    None => return Err(ScanError::CutOff { node, source: None }),
                },
            }
        }
    }

    /// Returns the next block of a run; None at its end.
    pub fn next_block(&mut self, index: usize) -> Result<Option<Vec<u8>>, ScanError> {
        let node = self.node;
        let unexpected = |what| ScanError::Unexpected { node, what };
        loop {
            if let Some(block) = self.ahead[index].pop_front() {
                return Ok(Some(block));
            }
            if self.ends[index].is_some() {
                return Ok(None);
            }
            let entry = self.next_entry()?;
            let run = entry.head.run_index as usize;
            let is_open = self.ends.get(run).is_some_and(Option::is_none);
            match entry.head.kind {
                EntryKind::Block if is_open && self.given_up[run] => {}
                EntryKind::Block if is_open => {
                    if self.ahead[run].len() == BLOCKS_AHEAD_MAX {
                        return Err(unexpected("blocks are out of order"));
                    }
                    self.ahead[run].push_back(entry.body);
                }
                EntryKind::RunEnd if is_open => {
                    let end = RunEnd::decode(&entry.body);
                    self.ends[run] = Some(end.map_err(|source| ScanError::Damaged { node, source })?);
                }
                _ => return Err(unexpected("an entry out of turn")),
            }
        }
    }

    /// Checks, at the end of the last run, that the stream is complete.
    pub fn check_end(&mut self) -> Result<(), ScanError> {
        let all_ended = self.ends.iter().all(Option::is_some);
        if !all_ended || self.decoder.is_at_end() || self.ahead.iter().any(|blocks| !blocks.is_empty()) {
            return Ok(());
        }
        match self.next_entry()?.head.kind {
            EntryKind::End => Ok(()),
            _ => Err(ScanError::Unexpected { node: self.node, what: "an entry behind the last run" }),
        }
    }
}
