//! The reading side of a scan: runs of another node as cursors for a merge.

use crate::client::{DataClient, Peer};
use crate::error::{DataError, ScanError};
use crate::scan_wire::{Entry, EntryDecoder, EntryKind, LostRuns, RunEnd, RunSources};
use crate::wire::{BOUND_BYTES_MAX, RUNS_PER_SCAN_MAX, ScanRequest};
use api::Codec;
use bytes::Bytes;
use chunkserver::{CursorReport, RunCursor};
use ids::{IfileIndex, JobId, NodeId, RunId};
use ifile::field::check_crc;
use ifile::{
    BLOCK_HEADER_BYTES, BlockHeader, FormatError, KeyShape, Problem, Record, SourceRow, block, record,
};
use imerger::SortedRun;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};

/// Pieces of the stream that wait for the merge; the connection waits when there are more.
const PIECES_MAX: usize = 4;
/// Blocks of a run that may come before they are wanted. One does by the order of the stream; more than these would
/// mean that it is in no order, and memory must not depend on that.
const BLOCKS_AHEAD_MAX: usize = 2;
/// How often a waiting reader looks whether its attempt is cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What to scan, and for whom.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    pub job: JobId,
    /// Runs of that node, in the order of their cursors.
    pub runs: Vec<RunId>,
    /// Records with lower <= partition key < upper.
    pub lower: Option<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    /// Whether blocks that are made on the way are compressed; None: unless the node is on this machine.
    pub compress: Option<bool>,
    /// Set when the attempt is to stop.
    pub cancelled: Arc<AtomicBool>,
}

type Piece = Result<Bytes, ScanError>;

/// A scan under way: one request, one stream, a cursor for each run.
pub struct RemoteScan {
    pieces: Receiver<Piece>,
    node: NodeId,
    runs: Vec<RunId>,
    cancelled: Arc<AtomicBool>,
    client: DataClient,
}

impl RemoteScan {
    /// Sends the request. Start those to all nodes before the first [`Self::into_runs`], so that they run at once.
    pub fn start(client: &DataClient, peer: &Peer, options: ScanOptions) -> Result<Self, ScanError> {
        let node = peer.node;
        let bounds = [&options.lower, &options.upper];
        if bounds.into_iter().flatten().any(|bound| bound.len() > BOUND_BYTES_MAX)
            || options.runs.len() > RUNS_PER_SCAN_MAX as usize
        {
            return Err(ScanError::Unexpected { node, what: "more than one scan can be" });
        }
        let (sender, pieces) = channel(PIECES_MAX);
        let (there, peer, job) = (client.clone(), peer.clone(), options.job);
        let (runs, cancelled) = (options.runs.clone(), Arc::clone(&options.cancelled));
        let ScanOptions { runs: wanted, lower, upper, .. } = options;
        let compress = options.compress.unwrap_or(!peer.is_this_machine());
        let request = ScanRequest { runs: wanted, lower, upper, compress };
        client.runtime().spawn(async move {
            let mut answer = match there.scan(&peer, job, &request).await {
                Ok(answer) => answer,
                Err(error) => {
                    // Where nobody listens any more, nobody needs to know.
                    let _ = sender.send(Err(error.into())).await;
                    return;
                }
            };
            loop {
                let piece = match answer.chunk().await {
                    Ok(Some(piece)) => Ok(piece),
                    Ok(None) => return,
                    Err(source) => Err(ScanError::CutOff { node, source: Some(source.without_url()) }),
                };
                let was_cut = piece.is_err();
                if sender.send(piece).await.is_err() || was_cut {
                    return;
                }
            }
        });
        Ok(Self { pieces, node, runs, cancelled, client: client.clone() })
    }

    /// Waits for the source tables and gives a cursor for each run, in the order asked for.
    pub fn into_runs(self) -> Result<Vec<RemoteRun>, ScanError> {
        let Self { pieces, node, runs, cancelled, client } = self;
        let count = runs.len();
        let mut reader = Reader {
            pieces,
            node,
            cancelled,
            client,
            piece: Bytes::new(),
            decoder: EntryDecoder::default(),
            ahead: (0..count).map(|_| VecDeque::new()).collect(),
            ends: vec![None; count],
        };
        let mut opened = Vec::with_capacity(count);
        for (index, run) in runs.iter().enumerate() {
            let unexpected = |what| ScanError::Unexpected { node, what };
            let entry = reader.next_entry()?;
            if entry.head.kind != EntryKind::Sources || entry.head.run_index as usize != index {
                return Err(unexpected("a source table is missing"));
            }
            let sources = RunSources::decode(&entry.body);
            let sources = sources.map_err(|source| ScanError::DamagedRun { node, run: *run, source })?;
            if sources.run != *run {
                return Err(unexpected("another run"));
            }
            opened.push(sources);
        }
        let reader = Arc::new(Mutex::new(reader));
        let run = |(index, sources)| RemoteRun::new(Arc::clone(&reader), node, index, sources);
        Ok(opened.into_iter().enumerate().map(run).collect())
    }
}

/// The stream of one scan, shared by the cursors of its runs.
struct Reader {
    pieces: Receiver<Piece>,
    node: NodeId,
    cancelled: Arc<AtomicBool>,
    client: DataClient,
    /// What is left of the piece that came last.
    piece: Bytes,
    decoder: EntryDecoder,
    /// Blocks that came before they were wanted, for each run.
    ahead: Vec<VecDeque<Vec<u8>>>,
    ends: Vec<Option<RunEnd>>,
}

impl Reader {
    /// The next piece of the stream; None at its end.
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

    fn next_entry(&mut self) -> Result<Entry, ScanError> {
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
                    let LostRuns { runs, reason } =
                        lost.map_err(|source| ScanError::Damaged { node, source })?;
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

    /// The next block of a run; None when it has no more.
    fn next_block(&mut self, index: usize) -> Result<Option<Vec<u8>>, ScanError> {
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

    /// Called when a run is used up: the last one makes sure that the stream is whole.
    fn check_end(&mut self) -> Result<(), ScanError> {
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

/// A run of another node, read record by record.
pub struct RemoteRun {
    reader: Arc<Mutex<Reader>>,
    node: NodeId,
    index: usize,
    sources: RunSources,
    /// The current block, decompressed, or as it came where it was not compressed.
    raw: Vec<u8>,
    next_in_raw: usize,
    row: u32,
    record_in_raw: Range<usize>,
    taken: RunEnd,
    block_bytes: u64,
    /// For blocks.
    waited: Duration,
    ended: bool,
}

impl RemoteRun {
    fn new(reader: Arc<Mutex<Reader>>, node: NodeId, index: usize, sources: RunSources) -> Self {
        Self {
            reader,
            node,
            index,
            sources,
            raw: Vec::new(),
            next_in_raw: 0,
            row: 0,
            record_in_raw: 0..0,
            taken: RunEnd::default(),
            block_bytes: 0,
            waited: Duration::ZERO,
            ended: false,
        }
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run.
    pub fn id(&self) -> RunId {
        self.sources.run
    }

    /// How long it was waited for data of the other node.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// What the partition key of a stored key is.
    pub fn key_shape(&self) -> KeyShape {
        self.sources.key_shape
    }

    /// What was read so far. The scan of all runs of a node is one retrieval, counted with the first of them.
    pub fn report(&self) -> CursorReport {
        CursorReport { retrievals: u64::from(self.index == 0), retrieved_bytes: self.block_bytes }
    }

    fn damaged(&self, source: FormatError) -> ScanError {
        ScanError::DamagedRun { node: self.node, run: self.sources.run, source }
    }

    fn no_record(&self) -> ScanError {
        let problem = Problem::Field { what: "a record of a block", value: self.next_in_raw as u64 };
        self.damaged(FormatError::at(self.next_in_raw as u64, problem))
    }

    /// Moves to the next block; false at the end of the range.
    fn load_block(&mut self) -> Result<bool, ScanError> {
        if self.ended {
            return Ok(false);
        }
        let began = Instant::now();
        let next = self.reader().next_block(self.index);
        self.waited += began.elapsed();
        let Some(encoded) = next? else {
            self.ended = true;
            return self.check_end().map(|()| false);
        };
        let header = BlockHeader::decode(&encoded).map_err(|error| self.damaged(error))?;
        self.taken.blocks += 1;
        self.block_bytes += encoded.len() as u64;
        let stored = &encoded[BLOCK_HEADER_BYTES..];
        if header.codec == Codec::None && header.stored_bytes as usize == stored.len() {
            // It is what it will be: to be checked, not copied.
            check_crc("block", 0, stored, header.stored_crc32c).map_err(|error| self.damaged(error))?;
            self.raw = encoded;
            self.next_in_raw = BLOCK_HEADER_BYTES;
            return Ok(true);
        }
        block::decode_into(&header, stored, &mut self.raw).map_err(|error| self.damaged(error))?;
        self.next_in_raw = 0;
        Ok(true)
    }

    fn check_end(&self) -> Result<(), ScanError> {
        let mut reader = self.reader();
        if let Some(end) = reader.ends[self.index].filter(|end| *end != self.taken) {
            let (here, there) = (self.taken.records, end.records);
            let problem = Problem::Disagreement { what: "number of records of a run", here, there };
            return Err(self.damaged(FormatError::at(0, problem)));
        }
        reader.check_end()
    }
}

impl SortedRun for RemoteRun {
    type Error = ScanError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ScanError> {
        while self.next_in_raw == self.raw.len() {
            if !self.load_block()? {
                return Ok(false);
            }
        }
        let start = self.next_in_raw;
        let Some((row, record, taken)) = block::decode_record(self.sources.key_shape, &self.raw[start..])
        else {
            return Err(self.no_record());
        };
        if row as usize >= self.sources.rows.len() {
            return Err(self.no_record());
        }
        self.row = row;
        self.record_in_raw = start + taken - record.encoded.len()..start + taken;
        self.next_in_raw = start + taken;
        self.taken.records += 1;
        Ok(true)
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        record::decode(self.sources.key_shape, &self.raw[self.record_in_raw.clone()])
            .expect("the record decoded when the cursor moved to it")
    }

    #[inline]
    fn source_row(&self) -> u32 {
        self.row
    }

    fn sources(&self) -> &[SourceRow] {
        &self.sources.rows
    }

    fn ifile(&self) -> IfileIndex {
        self.sources.ifile
    }
}

/// A run here or on another node: what a merge over both is made of.
pub enum AnyRun<'a> {
    Here(RunCursor<'a>),
    There(RemoteRun),
}

impl AnyRun<'_> {
    /// What was read so far.
    pub fn report(&self) -> CursorReport {
        match self {
            Self::Here(run) => run.report(),
            Self::There(run) => run.report(),
        }
    }

    /// The other node from which it comes, and how long it was waited for that.
    pub fn waited(&self) -> Option<(NodeId, Duration)> {
        match self {
            Self::Here(_) => None,
            Self::There(run) => Some((run.node, run.waited())),
        }
    }
}

impl SortedRun for AnyRun<'_> {
    type Error = ScanError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ScanError> {
        match self {
            Self::Here(run) => Ok(run.advance()?),
            Self::There(run) => run.advance(),
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match self {
            Self::Here(run) => run.record(),
            Self::There(run) => run.record(),
        }
    }

    #[inline]
    fn prefix(&self) -> u64 {
        match self {
            Self::Here(run) => run.prefix(),
            Self::There(run) => run.prefix(),
        }
    }

    #[inline]
    fn source_row(&self) -> u32 {
        match self {
            Self::Here(run) => run.source_row(),
            Self::There(run) => run.source_row(),
        }
    }

    fn sources(&self) -> &[SourceRow] {
        match self {
            Self::Here(run) => run.sources(),
            Self::There(run) => run.sources(),
        }
    }

    fn ifile(&self) -> IfileIndex {
        match self {
            Self::Here(run) => run.ifile(),
            Self::There(run) => run.ifile(),
        }
    }
}
