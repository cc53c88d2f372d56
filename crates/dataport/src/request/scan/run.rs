//! A run of another node, read record by record.

use crate::error::ScanError;
use crate::request::failover::Fallback;
use crate::request::scan::Scan;
use crate::request::scan::reader::Reader;
use crate::wire::scan::{RunEnd, RunSources};
use api::Codec;
use chunkserver::CursorReport;
use ids::{IfileIndex, NodeId, RunId};
use ifile::encoding::check_crc;
use ifile::{
    BLOCK_HEADER_BYTES, BlockHeader, FormatError, KeyShape, Problem, Record, SourceRow, block, record,
};
use imerger::SortedRun;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A run of another node. After a failure it continues at a replica if there is one; a merge does not notice.
pub struct RemoteRun {
    reader: Arc<Mutex<Reader>>,
    node: NodeId,
    index: usize,
    sources: RunSources,
    /// The current block, decompressed, or in the received form if it was not compressed.
    raw: Vec<u8>,
    next_in_raw: usize,
    row: u32,
    record_in_raw: Range<usize>,
    taken: RunEnd,
    block_bytes: u64,
    /// Time spent waiting for blocks.
    waited: Duration,
    ended: bool,
    /// Records at the front of the range that were not requested, and the number of them still to come.
    unwanted: u64,
    discard: u64,
    /// The scan that finds another location when this stream breaks; used once.
    scan: Option<Arc<Scan>>,
    /// Retrievals before the run continued here; None without a failure.
    earlier: Option<CursorReport>,
}

impl RemoteRun {
    /// Creates the run at `index` of a stream whose source tables were read.
    pub(crate) fn new(
        reader: Arc<Mutex<Reader>>,
        node: NodeId,
        index: usize,
        sources: RunSources,
        scan: Arc<Scan>,
    ) -> Result<Self, ScanError> {
        let unwanted = scan.options.skip_records.get(index).copied().unwrap_or(0);
        let Some(discard) = unwanted.checked_sub(sources.skipped_records) else {
            return Err(ScanError::Unexpected { node, what: "more records were skipped than requested" });
        };
        Ok(Self {
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
            unwanted,
            discard,
            scan: Some(scan),
            earlier: None,
        })
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the run.
    pub fn id(&self) -> RunId {
        self.sources.run
    }

    /// Returns the node from which it is read.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns whether a replica is read because the run could not be read, or not to its end.
    pub fn resumed(&self) -> bool {
        self.earlier.is_some()
    }

    /// Returns the number of records of the range before the next one.
    fn position(&self) -> u64 {
        self.unwanted.max(self.sources.skipped_records + self.taken.records)
    }

    /// Returns the time spent waiting for data of other nodes.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the shape of stored keys, which defines the partition key.
    pub fn key_shape(&self) -> KeyShape {
        self.sources.key_shape
    }

    /// Returns the retrievals so far. The scan of all runs of a node is one retrieval, counted with the first of them.
    pub fn report(&self) -> CursorReport {
        let earlier = self.earlier.unwrap_or_default();
        CursorReport {
            retrievals: earlier.retrievals + u64::from(self.index == 0),
            retrieved_bytes: earlier.retrieved_bytes + self.block_bytes,
        }
    }

    fn damaged(&self, source: FormatError) -> ScanError {
        ScanError::DamagedRun { node: self.node, run: self.sources.run, source }
    }

    fn no_record(&self) -> ScanError {
        let problem = Problem::Field { what: "a record of a block", value: self.next_in_raw as u64 };
        self.damaged(FormatError::at(self.next_in_raw as u64, problem))
    }

    /// Moves to the next block. Returns false at the end of the range.
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
            // The block keeps this form, so it is checked and not copied.
            check_crc("block", 0, stored, header.stored_crc32c).map_err(|error| self.damaged(error))?;
            self.raw = encoded;
            self.next_in_raw = BLOCK_HEADER_BYTES;
        } else {
            let decoded = block::decode_into(&header, stored, &mut self.raw);
            decoded.map_err(|error| self.damaged(error))?;
            self.next_in_raw = 0;
        }
        self.discard_front()?;
        Ok(true)
    }

    /// Skips unwanted records of the block.
    fn discard_front(&mut self) -> Result<(), ScanError> {
        while self.discard > 0 && self.next_in_raw < self.raw.len() {
            let decoded = block::decode_record(self.sources.key_shape, &self.raw[self.next_in_raw..]);
            let (_, _, taken) = decoded.ok_or_else(|| self.no_record())?;
            self.next_in_raw += taken;
            self.discard -= 1;
            self.taken.records += 1;
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), ScanError> {
        let mut reader = self.reader();
        if self.discard > 0 {
            return Err(ScanError::Unexpected {
                node: self.node,
                what: "fewer records than were read before",
            });
        }
        if let Some(end) = reader.end_of(self.index).filter(|end| *end != self.taken) {
            let (here, there) = (self.taken.records, end.records);
            let problem = Problem::Disagreement { what: "number of records of a run", here, there };
            return Err(self.damaged(FormatError::at(0, problem)));
        }
        reader.check_end()
    }

    #[inline]
    fn advance_here(&mut self) -> Result<bool, ScanError> {
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

    /// Continues at another location of the run, after the records that were returned.
    #[cold]
    fn go_on(&mut self, error: ScanError) -> Result<bool, ScanError> {
        let Some(scan) = self.scan.take() else { return Err(error) };
        let run = self.sources.run;
        if !error.is_about_there() {
            return Err(error);
        }
        let Some(peer) = scan.elsewhere(run, self.node) else { return Err(error) };
        let fallback = Fallback::at(&scan.client, &scan.options, run, peer);
        // Other runs may still be read from the stream.
        self.reader().give_up(self.index);
        let began = Instant::now();
        match fallback.resume(self.position(), self.report(), Some(&self.sources.rows)) {
            Ok(copy) => {
                let waited = self.waited + began.elapsed();
                *self = Self { waited, ..copy };
                self.advance_here()
            }
            Err(_) => Err(error),
        }
    }

    /// Returns the run with the retrievals of its beginning, which was read elsewhere.
    pub(crate) fn after(self, earlier: CursorReport) -> Self {
        Self { earlier: Some(earlier), ..self }
    }
}

impl SortedRun for RemoteRun {
    type Error = ScanError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ScanError> {
        match self.advance_here() {
            Err(error) => self.go_on(error),
            done => done,
        }
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
