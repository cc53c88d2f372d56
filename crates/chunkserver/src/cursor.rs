//! Cursors over a key range of a run, from which a merge pulls.

use crate::error::ChunkServerError;
use crate::readers::AllRead;
use crate::run::{DiskRun, MemoryRun, Place, Run};
use chunksorter::{BATCH_RECORDS, OrderCursor};
use diskfile::WindowReader;
use ids::{IfileIndex, RunId};
use ifile::record::{self, Record};
use ifile::run_file::FILE_HEADER_BYTES;
use ifile::{BLOCK_HEADER_BYTES, BlockHeader, FormatError, KeyShape, Problem, SourceRow, block};
use imerger::SortedRun;
use std::ops::Range;
use std::sync::Arc;

/// Retrievals of a cursor so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorReport {
    /// Number of reads from the disk (in memory: one, if there was any record).
    pub retrievals: u64,
    pub retrieved_bytes: u64,
}

/// A cursor over the records with lower <= partition key < upper.
pub struct RunCursor<'a> {
    run: &'a Run,
    place: CursorPlace<'a>,
}

#[expect(clippy::large_enum_variant, reason = "there is one a run, and each record would go through a box")]
enum CursorPlace<'a> {
    Memory(MemoryCursor<'a>),
    Disk(DiskCursor<'a>),
}

impl<'a> RunCursor<'a> {
    /// Opens a cursor. From disk, blocks are read `read_ahead_bytes` at a time (at least a block).
    pub fn open(
        run: &'a Run,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        read_ahead_bytes: usize,
    ) -> Result<Self, ChunkServerError> {
        let place = match &run.place {
            Place::Memory(memory) => {
                let cursor = memory.order.cursor(memory.views(), lower, upper);
                let report =
                    CursorReport { retrievals: u64::from(cursor.remaining() > 0), retrieved_bytes: 0 };
                let ready = Vec::with_capacity(BATCH_RECORDS);
                CursorPlace::Memory(MemoryCursor { memory, cursor, ready, current: 0, report })
            }
            Place::Disk(disk) => {
                let opened = DiskCursor::open(disk, run, lower, upper, read_ahead_bytes);
                CursorPlace::Disk(opened.map_err(|error| error.of_run(run.id))?)
            }
        };
        Ok(Self { run, place })
    }

    /// Returns the retrievals so far.
    pub fn report(&self) -> CursorReport {
        match &self.place {
            CursorPlace::Memory(memory) => memory.report,
            CursorPlace::Disk(disk) => {
                let (retrievals, retrieved_bytes) = disk.reader.report();
                CursorReport { retrievals, retrieved_bytes }
            }
        }
    }
}

impl RunCursor<'_> {
    /// Returns the run and a flag that is set once everything was read from its file; None in memory.
    pub fn read_mark(&self) -> Option<(RunId, AllRead)> {
        match &self.place {
            CursorPlace::Memory(_) => None,
            CursorPlace::Disk(disk) => Some((self.run.id, disk.reader.all_read())),
        }
    }
}

impl SortedRun for RunCursor<'_> {
    type Error = ChunkServerError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ChunkServerError> {
        match &mut self.place {
            CursorPlace::Memory(memory) => Ok(memory.advance()),
            CursorPlace::Disk(disk) => disk.advance().map_err(|error| error.of_run(self.run.id)),
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match &self.place {
            CursorPlace::Memory(memory) => memory.ready[memory.current].record,
            CursorPlace::Disk(disk) => disk.record(),
        }
    }

    #[inline]
    fn source_row(&self) -> u32 {
        match &self.place {
            CursorPlace::Memory(memory) => memory.ready[memory.current].row,
            CursorPlace::Disk(disk) => disk.row,
        }
    }

    #[inline]
    fn prefix(&self) -> u64 {
        match &self.place {
            CursorPlace::Memory(memory) => memory.ready[memory.current].prefix,
            CursorPlace::Disk(disk) => record::record_key_prefix(&disk.record()),
        }
    }

    fn sources(&self) -> &[SourceRow] {
        &self.run.sources
    }

    fn ifile(&self) -> IfileIndex {
        self.run.ifile
    }
}

/// A record at or after the position of a cursor over memory.
struct Ready<'a> {
    record: Record<'a>,
    prefix: u64,
    row: u32,
}

struct MemoryCursor<'a> {
    memory: &'a MemoryRun,
    cursor: OrderCursor,
    /// A batch of records from `cursor`: their bytes are prefetched at once, and decoded in one short loop.
    ready: Vec<Ready<'a>>,
    /// The current record of the cursor.
    current: usize,
    report: CursorReport,
}

impl MemoryCursor<'_> {
    #[inline]
    fn advance(&mut self) -> bool {
        self.current += 1;
        self.current < self.ready.len() || self.take_batch()
    }

    #[inline(never)]
    fn take_batch(&mut self) -> bool {
        let (memory, ready) = (self.memory, &mut self.ready);
        let mut bytes = 0;
        ready.clear();
        self.cursor.take_batch(&memory.order, memory.views(), |position, record| {
            bytes += record.encoded.len() as u64;
            let row = memory.row_of_frame[position.frame as usize];
            ready.push(Ready { record, prefix: record::record_key_prefix(&record), row });
        });
        self.current = 0;
        self.report.retrieved_bytes += bytes;
        !self.ready.is_empty()
    }
}

/// The end of a key range, compared with every record: mostly by its first eight bytes alone.
struct UpperBound {
    key: Vec<u8>,
    prefix: u64,
}

impl UpperBound {
    fn new(key: &[u8]) -> Self {
        Self { key: key.to_vec(), prefix: record::key_prefix(key) }
    }

    #[inline]
    fn is_above(&self, key: &[u8]) -> bool {
        record::key_prefix(key) < self.prefix || key < self.key.as_slice()
    }
}

struct DiskCursor<'a> {
    disk: &'a DiskRun,
    key_shape: KeyShape,
    source_count: usize,
    /// Lower bound of records; removed once the first record at or above it is reached.
    lower: Option<Vec<u8>>,
    upper: Option<UpperBound>,
    reader: WindowReader,
    /// Offset of the next block in the file.
    block_offset: u64,
    /// The current block, decompressed.
    raw: Vec<u8>,
    next_in_raw: usize,
    row: u32,
    record_in_raw: Range<usize>,
}

impl<'a> DiskCursor<'a> {
    fn open(
        disk: &'a DiskRun,
        run: &Run,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        read_ahead_bytes: usize,
    ) -> Result<Self, ChunkServerError> {
        let file = disk.open()?;
        let mut unread = FILE_HEADER_BYTES as u64..disk.blocks_end;
        if lower.is_some() || upper.is_some() {
            // The index is read for the range and dropped: the indexes of thousands of runs would exceed the budget.
            let index = disk.read_index()?.index;
            let blocks = index.blocks_in_range(lower, upper);
            let start = index.entries.get(blocks.start).map_or(disk.blocks_end, |entry| entry.offset_bytes);
            let end = index.entries.get(blocks.end).map_or(disk.blocks_end, |entry| entry.offset_bytes);
            unread = start..end;
        }
        Ok(Self {
            disk,
            block_offset: unread.start,
            reader: WindowReader::new(file, Arc::clone(&disk.reads), unread, read_ahead_bytes),
            key_shape: run.key_shape,
            source_count: run.sources.len(),
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(UpperBound::new),
            raw: Vec::new(),
            next_in_raw: 0,
            row: 0,
            record_in_raw: 0..0,
        })
    }

    fn advance(&mut self) -> Result<bool, ChunkServerError> {
        loop {
            if self.next_in_raw == self.raw.len() && !self.load_block()? {
                return Ok(false);
            }
            let start = self.next_in_raw;
            let Some((row, record, taken)) = block::decode_record(self.key_shape, &self.raw[start..]) else {
                return Err(self.no_record());
            };
            if row as usize >= self.source_count {
                return Err(self.no_record());
            }
            self.row = row;
            self.record_in_raw = start + taken - record.encoded.len()..start + taken;
            self.next_in_raw = start + taken;
            if self.lower.as_ref().is_some_and(|lower| record.partition_key() < lower.as_slice()) {
                continue;
            }
            if self.upper.as_ref().is_some_and(|upper| !upper.is_above(record.partition_key())) {
                self.next_in_raw = self.raw.len();
                self.reader.skip_rest();
                return Ok(false);
            }
            self.lower = None;
            return Ok(true);
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        record::decode(self.key_shape, &self.raw[self.record_in_raw.clone()])
            .expect("the record decoded when the cursor moved to it")
    }

    /// Takes the next block from the read-ahead; false at the end of the range.
    fn load_block(&mut self) -> Result<bool, ChunkServerError> {
        if self.reader.is_at_end() {
            return Ok(false);
        }
        let (disk, offset) = (self.disk, self.block_offset);
        let read_error = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let problem = Problem::Truncated { needed_bytes: disk.blocks_end - offset, present_bytes: 0 };
                disk.damaged(FormatError::at(offset, problem))
            }
            _ => ChunkServerError::Disk { action: "read", path: disk.path.clone(), source },
        };
        let header = self.reader.take(BLOCK_HEADER_BYTES).map_err(read_error)?;
        let header = BlockHeader::decode(header).map_err(|error| disk.damaged(error.shifted(offset)))?;
        let stored = self.reader.take(header.stored_bytes as usize).map_err(read_error)?;
        block::decode_into(&header, stored, &mut self.raw)
            .map_err(|error| disk.damaged(error.shifted(offset + BLOCK_HEADER_BYTES as u64)))?;
        self.block_offset += BLOCK_HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        self.next_in_raw = 0;
        Ok(true)
    }

    fn no_record(&self) -> ChunkServerError {
        let problem = Problem::Field { what: "a record of a block", value: self.next_in_raw as u64 };
        self.disk.damaged(FormatError::at(self.block_offset, problem))
    }
}
