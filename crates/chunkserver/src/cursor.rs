//! Cursors over a key range of a run; what a merge pulls from.

use crate::disks::DiskFile;
use crate::error::ChunkServerError;
use crate::run::{DiskRun, MemoryRun, Place, Run};
use chunksorter::{OrderCursor, Position};
use ids::IfileIndex;
use ifile::record::{self, Record};
use ifile::run_file::FILE_HEADER_BYTES;
use ifile::{
    BLOCK_HEADER_BYTES, BlockHeader, FormatError, KeyShape, Problem, ReadAt, RunFile, SourceRow, block,
};
use imerger::SortedRun;
use std::ops::Range;
use std::sync::Arc;

/// What a cursor read so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorReport {
    /// Reads from the disk (from memory: one where there was anything).
    pub retrievals: u64,
    pub retrieved_bytes: u64,
}

/// A cursor over the records with lower <= partition key < upper.
pub struct RunCursor<'a> {
    run: &'a Run,
    place: CursorPlace<'a>,
}

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
                CursorPlace::Memory(MemoryCursor { memory, cursor, current: None, report })
            }
            Place::Disk(disk) => {
                CursorPlace::Disk(DiskCursor::open(disk, run, lower, upper, read_ahead_bytes)?)
            }
        };
        Ok(Self { run, place })
    }

    /// What was read so far.
    pub fn report(&self) -> CursorReport {
        match &self.place {
            CursorPlace::Memory(memory) => memory.report,
            CursorPlace::Disk(disk) => disk.report,
        }
    }
}

impl SortedRun for RunCursor<'_> {
    type Error = ChunkServerError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ChunkServerError> {
        match &mut self.place {
            CursorPlace::Memory(memory) => Ok(memory.advance()),
            CursorPlace::Disk(disk) => disk.advance(),
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match &self.place {
            CursorPlace::Memory(memory) => memory.current.expect("advance said there is a record").1,
            CursorPlace::Disk(disk) => disk.record(),
        }
    }

    #[inline]
    fn source_row(&self) -> u32 {
        match &self.place {
            CursorPlace::Memory(memory) => {
                let (position, _) = memory.current.expect("advance said there is a record");
                memory.memory.row_of_frame[position.frame as usize]
            }
            CursorPlace::Disk(disk) => disk.row,
        }
    }

    fn sources(&self) -> &[SourceRow] {
        &self.run.sources
    }

    fn ifile(&self) -> IfileIndex {
        self.run.ifile
    }
}

struct MemoryCursor<'a> {
    memory: &'a MemoryRun,
    cursor: OrderCursor,
    current: Option<(Position, Record<'a>)>,
    report: CursorReport,
}

impl MemoryCursor<'_> {
    #[inline]
    fn advance(&mut self) -> bool {
        self.current = self.cursor.next(&self.memory.order, self.memory.views());
        if let Some((_, record)) = &self.current {
            self.report.retrieved_bytes += record.encoded.len() as u64;
        }
        self.current.is_some()
    }
}

struct DiskCursor<'a> {
    disk: &'a DiskRun,
    file: Arc<DiskFile>,
    key_shape: KeyShape,
    source_count: usize,
    /// Records below it are passed over; taken away once the first one at or above it is met.
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// Bytes of the file not yet in `ahead`.
    unread: Range<u64>,
    read_ahead_bytes: usize,
    /// Bytes read from the file; blocks are taken from its front.
    ahead: Vec<u8>,
    taken: usize,
    /// The current block, decompressed.
    raw: Vec<u8>,
    next_in_raw: usize,
    row: u32,
    record_in_raw: Range<usize>,
    report: CursorReport,
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
            // The index is read for the range and let go: those of thousands of runs would not fit the budget.
            let opened = RunFile::open(&*file);
            let index = opened.map_err(|source| damaged(disk, source))?.index;
            let blocks = index.blocks_in_range(lower, upper);
            let start = index.entries.get(blocks.start).map_or(disk.blocks_end, |entry| entry.offset_bytes);
            let end = index.entries.get(blocks.end).map_or(disk.blocks_end, |entry| entry.offset_bytes);
            unread = start..end;
        }
        Ok(Self {
            disk,
            file,
            key_shape: run.key_shape,
            source_count: run.sources.len(),
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            unread,
            read_ahead_bytes: read_ahead_bytes.max(BLOCK_HEADER_BYTES),
            ahead: Vec::new(),
            taken: 0,
            raw: Vec::new(),
            next_in_raw: 0,
            row: 0,
            record_in_raw: 0..0,
            report: CursorReport::default(),
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
            if self.upper.as_ref().is_some_and(|upper| record.partition_key() >= upper.as_slice()) {
                self.next_in_raw = self.raw.len();
                self.taken = self.ahead.len();
                self.unread = self.unread.end..self.unread.end;
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

    /// Takes the next block from what was read ahead; false at the end of the range.
    fn load_block(&mut self) -> Result<bool, ChunkServerError> {
        if self.taken == self.ahead.len() && self.unread.is_empty() {
            return Ok(false);
        }
        self.read_until(BLOCK_HEADER_BYTES)?;
        let offset = self.unread.start - (self.ahead.len() - self.taken) as u64;
        let header = BlockHeader::decode(&self.ahead[self.taken..])
            .map_err(|error| damaged(self.disk, error.shifted(offset)))?;
        let whole = BLOCK_HEADER_BYTES + header.stored_bytes as usize;
        self.read_until(whole)?;
        let stored = &self.ahead[self.taken + BLOCK_HEADER_BYTES..self.taken + whole];
        block::decode_into(&header, stored, &mut self.raw)
            .map_err(|error| damaged(self.disk, error.shifted(offset + BLOCK_HEADER_BYTES as u64)))?;
        self.taken += whole;
        self.next_in_raw = 0;
        Ok(true)
    }

    /// Makes sure that `needed` bytes stand in `ahead` behind what was taken.
    fn read_until(&mut self, needed: usize) -> Result<(), ChunkServerError> {
        let present = self.ahead.len() - self.taken;
        if present >= needed {
            return Ok(());
        }
        self.ahead.drain(..self.taken);
        self.taken = 0;
        let left = self.unread.end - self.unread.start;
        let missing = (needed - present) as u64;
        if left < missing {
            let problem = Problem::Truncated { needed_bytes: missing, present_bytes: left };
            return Err(damaged(self.disk, FormatError::at(self.unread.start, problem)));
        }
        let wanted = (self.read_ahead_bytes.saturating_sub(present) as u64).max(missing).min(left);
        self.ahead.resize(present + wanted as usize, 0);
        self.file.read_at(self.unread.start, &mut self.ahead[present..]).map_err(|source| {
            ChunkServerError::Disk { action: "read", path: self.disk.path.clone(), source }
        })?;
        self.unread.start += wanted;
        self.report.retrievals += 1;
        self.report.retrieved_bytes += wanted;
        Ok(())
    }

    fn no_record(&self) -> ChunkServerError {
        let problem = Problem::Field { what: "a record of a block", value: self.next_in_raw as u64 };
        damaged(self.disk, FormatError::at(self.unread.start, problem))
    }
}

fn damaged(disk: &DiskRun, source: FormatError) -> ChunkServerError {
    ChunkServerError::Damaged { path: disk.path.clone(), source }
}
