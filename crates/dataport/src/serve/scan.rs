//! The serving side of a scan: blocks of several runs in one stream, in the order in which a merge opens them.
//!
//! A merge needs the next block of a run when it has used up the current one, at a position at or after the first
//! record of the current one. So the block after a block is sent at the position of that block's first record in the
//! merged order: everything before it in the stream belongs to blocks that the merge has opened already, or is the very
//! next of its run. A reader never holds more than one block of a run beyond the current one.

use crate::serve::port::{Port, Refusal};
use crate::wire::messages::ScanRequest;
use crate::wire::scan::{
    ENTRY_HEAD_BYTES, EntryHead, EntryKind, LostRuns, REASON_BYTES_MAX, RunEnd, encode_sources,
};
use axum::body::Body;
use bytes::Bytes;
use chunkserver::{BlockScan, ChunkServer, ChunkServerError, FirstRecord, Reading};
use ids::{AttemptKey, RunId};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Bytes that are gathered before they are passed to the connection.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of batches that wait for the connection; beyond it the producer waits.
const BATCHES_MAX: usize = 2;
/// Maximum bytes that are read ahead of a run, and the divisor of the I/O share that a scan reads ahead.
const READ_AHEAD_BYTES_MAX: u64 = 1 << 20;
const SHARE_OF_IO: u64 = 4;

/// Opens the runs and starts the stream.
pub(crate) async fn stream(
    port: &Port,
    server: Arc<ChunkServer>,
    request: ScanRequest,
    attempt: Option<AttemptKey>,
) -> Result<Body, Refusal> {
    let permit = Arc::clone(&port.scans).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let (sender, mut batches): (_, Receiver<VecDeque<Bytes>>) = channel(BATCHES_MAX);
    let opening = Arc::clone(&server);
    let opened = tokio::task::spawn_blocking(move || open_runs(&opening, &request)).await;
    let runs = match opened.map_err(|_| Refusal::Thread)? {
        Err(error) if error.lost_run().is_none() => return Err(error.into()),
        // Lost runs are reported in the stream.
        runs => runs,
    };
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        produce(&server, attempt, runs, sender);
    });
    // A producer that panicked leaves a stream without an end mark, which the reader treats as cut off.
    let mut batch = VecDeque::new();
    let stream = futures_util::stream::poll_fn(move |context| {
        loop {
            if let Some(piece) = batch.pop_front() {
                return Poll::Ready(Some(Ok::<Bytes, Infallible>(piece)));
            }
            match ready!(batches.poll_recv(context)) {
                Some(next) => batch = next,
                None => return Poll::Ready(None),
            }
        }
    });
    Ok(Body::from_stream(stream))
}

fn open_runs(server: &ChunkServer, request: &ScanRequest) -> Result<Vec<RunScan>, ChunkServerError> {
    let layout = server.layout();
    let each = layout.io_share_bytes / SHARE_OF_IO / (request.runs.len() as u64).max(1);
    let read_ahead = each.clamp(layout.block_bytes.min(READ_AHEAD_BYTES_MAX), READ_AHEAD_BYTES_MAX) as usize;
    let (lower, upper) = (request.lower.as_deref(), request.upper.as_deref());
    let open = |(index, run): (usize, &RunId)| {
        let scan = server.scan(*run, lower, upper, read_ahead)?;
        let mut scan = if request.compress { scan } else { scan.uncompressed() };
        let skipped_records = match request.skip_records.get(index) {
            Some(records) => scan.skip_records(*records)?,
            None => 0,
        };
        Ok(RunScan::new(scan, skipped_records))
    };
    request.runs.iter().enumerate().map(open).collect()
}

/// The reader has disconnected.
struct BrokeOff;

/// The reason why a stream ends early.
enum Stopped {
    BrokeOff,
    At(ChunkServerError),
}

impl From<BrokeOff> for Stopped {
    fn from(BrokeOff: BrokeOff) -> Self {
        Self::BrokeOff
    }
}

/// A run of a scan.
struct RunScan {
    scan: BlockScan,
    skipped_records: u64,
    /// The last sent block, which determines the position of the next one.
    block: Bytes,
    first_key: Vec<u8>,
    /// Decoded only if first keys are equal.
    first_record: Option<FirstRecord>,
    sent: RunEnd,
}

impl RunScan {
    fn new(scan: BlockScan, skipped_records: u64) -> Self {
        let (block, first_key) = (Bytes::new(), Vec::new());
        Self { scan, skipped_records, block, first_key, first_record: None, sent: RunEnd::default() }
    }

    /// Moves to the next block. Returns false if there is none.
    fn advance(&mut self) -> Result<bool, ChunkServerError> {
        let mut block = Vec::with_capacity(self.block.len());
        self.first_record = None;
        let Some(next) = self.scan.next_block(&mut block)? else { return Ok(false) };
        self.block = block.into();
        self.first_key = next.first_key;
        self.sent.blocks += 1;
        self.sent.records += u64::from(next.records);
        Ok(true)
    }

    fn first_record(&mut self) -> Result<&FirstRecord, ChunkServerError> {
        match &mut self.first_record {
            Some(first) => Ok(first),
            none => Ok(none.insert(self.scan.first_record(&self.block)?)),
        }
    }
}

/// Returns whether the last block of run `left` begins before that of run `right`.
fn begins_first(runs: &mut [RunScan], left: usize, right: usize) -> Result<bool, ChunkServerError> {
    match runs[left].first_key.cmp(&runs[right].first_key) {
        Ordering::Less => Ok(true),
        Ordering::Greater => Ok(false),
        Ordering::Equal => {
            runs[left].first_record()?;
            runs[right].first_record()?;
            let order = runs[left].first_record.cmp(&runs[right].first_record);
            Ok(order.then(left.cmp(&right)) == Ordering::Less)
        }
    }
}

/// The stream being written. Bodies are passed to the connection without copying.
struct Entries {
    sender: Sender<VecDeque<Bytes>>,
    batch: VecDeque<Bytes>,
    batch_bytes: usize,
    ordinal: u32,
}

impl Entries {
    fn put(&mut self, kind: EntryKind, run_index: usize, body: Bytes) -> Result<(), BrokeOff> {
        let head = EntryHead::of(kind, run_index as u32, self.ordinal, &body);
        self.ordinal = self.ordinal.wrapping_add(1);
        self.batch_bytes += ENTRY_HEAD_BYTES + body.len();
        self.batch.push_back(Bytes::copy_from_slice(&head.encode()));
        if !body.is_empty() {
            self.batch.push_back(body);
        }
        if self.batch_bytes < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), BrokeOff> {
        self.batch_bytes = 0;
        self.sender.blocking_send(std::mem::take(&mut self.batch)).map_err(|_| BrokeOff)
    }

    /// Tells the reader why the stream ends.
    fn fail(&mut self, server: &ChunkServer, error: &ChunkServerError) -> Result<(), BrokeOff> {
        let reason = error.to_failure().message;
        let (kind, body) = match error.lost_run() {
            Some(run) => {
                let beside = server.unreadable_runs().into_iter().filter(|each| *each != run);
                let runs = std::iter::once(run).chain(beside).collect();
                (EntryKind::Lost, LostRuns { runs, reason }.encode())
            }
            None => {
                let end = reason.floor_char_boundary(REASON_BYTES_MAX);
                (EntryKind::Failed, reason.as_bytes()[..end].to_vec())
            }
        };
        self.put(kind, 0, body.into())?;
        self.flush()
    }
}

fn produce(
    server: &ChunkServer,
    attempt: Option<AttemptKey>,
    runs: Result<Vec<RunScan>, ChunkServerError>,
    sender: Sender<VecDeque<Bytes>>,
) {
    let mut entries = Entries { sender, batch: VecDeque::new(), batch_bytes: 0, ordinal: 0 };
    let done = runs.map_err(Stopped::At).and_then(|mut runs| {
        let marks = runs.iter().filter_map(|run| run.scan.read_mark()).collect();
        let reading = attempt.map(|attempt| server.begin_reading(attempt, marks));
        put_all(&mut runs, &mut entries)?;
        reading.into_iter().for_each(Reading::is_served);
        Ok(())
    });
    // If the reader has disconnected, nobody needs this.
    if let Err(Stopped::At(error)) = done {
        drop(entries.fail(server, &error));
    }
}

fn put_all(runs: &mut [RunScan], entries: &mut Entries) -> Result<(), Stopped> {
    for (index, run) in runs.iter().enumerate() {
        let mut body = Vec::new();
        encode_sources(run.scan.run(), run.skipped_records, &mut body);
        entries.put(EntryKind::Sources, index, body.into())?;
    }
    // Runs in descending order of the first records of their last blocks.
    let mut order: Vec<usize> = Vec::with_capacity(runs.len());
    for index in 0..runs.len() {
        put_next(runs, index, &mut order, entries)?;
    }
    while let Some(index) = order.pop() {
        put_next(runs, index, &mut order, entries)?;
    }
    entries.put(EntryKind::End, 0, Bytes::new())?;
    Ok(entries.flush()?)
}

/// Sends the next block of a run, and sorts the run into the order.
fn put_next(
    runs: &mut [RunScan],
    index: usize,
    order: &mut Vec<usize>,
    entries: &mut Entries,
) -> Result<(), Stopped> {
    if !runs[index].advance().map_err(Stopped::At)? {
        let end = Bytes::copy_from_slice(&runs[index].sent.encode());
        return Ok(entries.put(EntryKind::RunEnd, index, end)?);
    }
    entries.put(EntryKind::Block, index, runs[index].block.clone())?;
    let (mut low, mut high) = (0, order.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match begins_first(runs, index, order[middle]).map_err(Stopped::At)? {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    order.insert(low, index);
    Ok(())
}
