//! A key range of a run as encoded blocks, for readers on other nodes: stored blocks are sent unchanged, blocks at the
//! edges are cut, and records in memory are encoded on the way.

use crate::ChunkServer;
use crate::error::ChunkServerError;
use crate::key_range::KeyRange;
use crate::readers::AllRead;
use crate::run::{DiskRun, MemoryRun, Place, Run};
use api::Codec;
use chunksorter::{BATCH_RECORDS, OrderCursor, Position};
use diskfile::WindowReader;
use ids::{AttemptNumber, RunId, TaskIndex};
use ifile::key_index::index_key;
use ifile::run_file::FILE_HEADER_BYTES;
use ifile::{BLOCK_HEADER_BYTES, BlockHeader, FormatError, IndexEntry, Problem, block, record};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// A block of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanBlock {
    pub records: u32,
    /// Prefix of the partition key of its first record, as in a key index. Blocks with different first keys are in that
    /// order; if the keys are equal, [`FirstRecord`] decides.
    pub first_key: Vec<u8>,
}

/// Order of the first record of a block among other runs: by its key, then by its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirstRecord {
    pub key: Vec<u8>,
    pub rank: (TaskIndex, AttemptNumber, u64),
}

/// The blocks of one run in a key range, in order.
pub struct BlockScan {
    run: Arc<Run>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    codec: Codec,
    block_bytes: usize,
    place: ScanPlace,
    /// Raw bytes of a block that is encoded here.
    raw: Vec<u8>,
    /// A block that was read to be skipped and exceeds the number to skip: it is the next one.
    kept: Option<(ScanBlock, Vec<u8>)>,
}

enum ScanPlace {
    Memory {
        cursor: OrderCursor,
        /// Number of records taken from it and not yet in a block.
        taken: VecDeque<Position>,
    },
    Disk {
        reader: WindowReader,
        /// Unread blocks of the range, last first, and whether each lies completely inside.
        unread: Vec<(IndexEntry, bool)>,
        /// Offset of the end of the last of them.
        end: u64,
        read_ahead_bytes: usize,
    },
}

impl ChunkServer {
    /// Opens a run for the records with lower <= partition key < upper. From disk, blocks are read `read_ahead_bytes`
    /// at a time (at least a block).
    pub fn scan(
        &self,
        run: RunId,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        read_ahead_bytes: usize,
    ) -> Result<BlockScan, ChunkServerError> {
        let run = self.run(run).ok_or(ChunkServerError::UnknownRun(run))?;
        let place = match &run.place {
            Place::Memory(memory) => {
                let cursor = memory.order.cursor(memory.views(), lower, upper);
                ScanPlace::Memory { cursor, taken: VecDeque::with_capacity(BATCH_RECORDS) }
            }
            Place::Disk(disk) => {
                let opened = open_disk(disk, lower, upper, read_ahead_bytes);
                opened.map_err(|error| error.of_run(run.id))?
            }
        };
        let block_bytes = self.shared.config.layout.block_bytes_of(run.record_bytes()) as usize;
        Ok(BlockScan {
            run,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            codec: self.shared.config.codec,
            block_bytes,
            place,
            raw: Vec::new(),
            kept: None,
        })
    }
}

fn open_disk(
    disk: &DiskRun,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    read_ahead_bytes: usize,
) -> Result<ScanPlace, ChunkServerError> {
    let index = disk.read_index()?.index;
    let range = index.blocks_in_range(lower, upper);
    let offset = |block: usize| index.entries.get(block).map_or(disk.blocks_end, |entry| entry.offset_bytes);
    let stretch = offset(range.start).max(FILE_HEADER_BYTES as u64)..offset(range.end);
    let unread = range.rev().map(|block| {
        let inside = index.is_wholly_inside(block, lower, upper);
        (index.entries[block].clone(), inside)
    });
    let (unread, end) = (unread.collect(), stretch.end);
    let reader = WindowReader::new(disk.open()?, Arc::clone(&disk.reads), stretch, read_ahead_bytes);
    Ok(ScanPlace::Disk { reader, unread, end, read_ahead_bytes })
}

impl BlockScan {
    /// Leaves blocks that are encoded here uncompressed; blocks on disk are still sent as stored.
    pub fn uncompressed(self) -> Self {
        Self { codec: Codec::None, ..self }
    }

    /// Returns the run being scanned.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Returns the run and a flag that is set once everything was read from its file; None in memory. Call it after
    /// [`Self::skip_records`].
    pub fn read_mark(&self) -> Option<(RunId, AllRead)> {
        match &self.place {
            ScanPlace::Memory { .. } => None,
            ScanPlace::Disk { reader, .. } => Some((self.run.id, reader.all_read())),
        }
    }

    /// Skips blocks at the front of the range as long as these have at most `records` records together, and returns the
    /// number of skipped records: a reader that got these from another node continues after them. Blocks on disk that
    /// lie completely inside the range are not even read. Call it before the first block is taken.
    pub fn skip_records(&mut self, records: u64) -> Result<u64, ChunkServerError> {
        let mut skipped = 0;
        while skipped < records {
            skipped += self.skip_unread(records - skipped).map_err(|error| error.of_run(self.run.id))?;
            let mut encoded = Vec::new();
            let Some(block) = self.next_block(&mut encoded)? else { break };
            if u64::from(block.records) > records - skipped {
                self.kept = Some((block, encoded));
                break;
            }
            skipped += u64::from(block.records);
        }
        Ok(skipped)
    }

    /// Skips blocks by the record counts of the key index.
    fn skip_unread(&mut self, records: u64) -> Result<u64, ChunkServerError> {
        let (ScanPlace::Disk { reader, unread, end, read_ahead_bytes }, Place::Disk(disk)) =
            (&mut self.place, &self.run.place)
        else {
            return Ok(0);
        };
        let mut skipped = 0;
        while let Some((entry, true)) = unread.last() {
            if u64::from(entry.records) > records - skipped {
                break;
            }
            skipped += u64::from(entry.records);
            unread.pop();
        }
        if skipped > 0 {
            let start = unread.last().map_or(*end, |(entry, _)| entry.offset_bytes);
            let reads = Arc::clone(&disk.reads);
            *reader = WindowReader::new(disk.open()?, reads, start..*end, *read_ahead_bytes);
        }
        Ok(skipped)
    }

    /// Appends the next block to `out`, header and stored bytes; None at the end of the range. Blocks are never empty.
    pub fn next_block(&mut self, out: &mut Vec<u8>) -> Result<Option<ScanBlock>, ChunkServerError> {
        if let Some((block, encoded)) = self.kept.take() {
            out.extend_from_slice(&encoded);
            return Ok(Some(block));
        }
        let run = self.run.id;
        self.read_next_block(out).map_err(|error| error.of_run(run))
    }

    fn read_next_block(&mut self, out: &mut Vec<u8>) -> Result<Option<ScanBlock>, ChunkServerError> {
        let Self { run, lower, upper, codec, block_bytes, place, raw, .. } = self;
        match (place, &run.place) {
            (ScanPlace::Memory { cursor, taken }, Place::Memory(memory)) => {
                raw.clear();
                let made = fill_block(run, memory, cursor, taken, *block_bytes, raw);
                if let Some(made) = &made {
                    block::encode(raw, made.records, *codec, out);
                }
                Ok(made)
            }
            (ScanPlace::Disk { reader, unread, .. }, Place::Disk(disk)) => {
                while let Some((entry, inside)) = unread.pop() {
                    let (header, stored) = read_block(disk, reader, &entry, out)?;
                    if inside {
                        return Ok(Some(ScanBlock { records: header.records, first_key: entry.first_key }));
                    }
                    let keys = KeyRange { lower: lower.as_deref(), upper: upper.as_deref() };
                    let cut = cut_block(run, disk, &entry, &header, &out[stored..], keys, raw)?;
                    out.truncate(stored - BLOCK_HEADER_BYTES);
                    if let Some(cut) = cut {
                        block::encode(raw, cut.records, *codec, out);
                        return Ok(Some(cut));
                    }
                }
                Ok(None)
            }
            _ => unreachable!("a run never moves from memory to disk: it is replaced"),
        }
    }

    /// Returns the first record of a block from [`Self::next_block`].
    pub fn first_record(&self, encoded: &[u8]) -> Result<FirstRecord, ChunkServerError> {
        self.decode_first(encoded).map_err(|source| {
            let path = self.run.path().map(Path::to_path_buf).unwrap_or_default();
            ChunkServerError::Damaged { path, source }.of_run(self.run.id)
        })
    }

    fn decode_first(&self, encoded: &[u8]) -> Result<FirstRecord, FormatError> {
        let header = BlockHeader::decode(encoded)?;
        let mut raw = Vec::new();
        block::decode_into(&header, &encoded[BLOCK_HEADER_BYTES..], &mut raw)?;
        let first = block::decode_record(self.run.key_shape, &raw);
        let source = |row: u32| self.run.sources.get(row as usize);
        match first.and_then(|(row, record, _)| Some((source(row)?.rank(), record.key.to_vec()))) {
            Some((rank, key)) => Ok(FirstRecord { key, rank }),
            None => Err(FormatError::at(0, Problem::Field { what: "a record of a block", value: 0 })),
        }
    }
}

/// Gathers records of a run in memory until a block is full.
fn fill_block(
    run: &Run,
    memory: &MemoryRun,
    cursor: &mut OrderCursor,
    taken: &mut VecDeque<Position>,
    block_bytes: usize,
    raw: &mut Vec<u8>,
) -> Option<ScanBlock> {
    let views = memory.views();
    let mut made: Option<ScanBlock> = None;
    loop {
        if taken.is_empty() {
            cursor.take_batch(&memory.order, views, |position, _| taken.push_back(position));
        }
        let Some(position) = taken.front().copied() else { return made };
        let bytes = &views[position.frame as usize][position.offset as usize..];
        let Some(record) = record::decode(run.key_shape, bytes) else {
            unreachable!("a record that was sorted was decoded before");
        };
        if made.is_some() && raw.len() + record.encoded.len() + 5 > block_bytes {
            return made;
        }
        taken.pop_front();
        block::push_record(raw, memory.row_of_frame[position.frame as usize], record.encoded);
        match &mut made {
            Some(made) => made.records += 1,
            None => made = Some(ScanBlock { records: 1, first_key: index_key(&record).0 }),
        }
    }
}

/// Returns the next bytes of a run file, which start at `offset_bytes`.
pub(crate) fn take<'a>(
    disk: &DiskRun,
    reader: &'a mut WindowReader,
    offset_bytes: u64,
    count: usize,
) -> Result<&'a [u8], ChunkServerError> {
    reader.take(count).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let problem = Problem::Truncated { needed_bytes: count as u64, present_bytes: 0 };
            disk.damaged(FormatError::at(offset_bytes, problem))
        }
        _ => ChunkServerError::Disk { action: "read", path: disk.path.clone(), source },
    })
}

/// Appends a stored block to `out`; returns its header and the position in `out` of the stored bytes.
pub(crate) fn read_block(
    disk: &DiskRun,
    reader: &mut WindowReader,
    entry: &IndexEntry,
    out: &mut Vec<u8>,
) -> Result<(BlockHeader, usize), ChunkServerError> {
    let bytes = take(disk, reader, entry.offset_bytes, entry.stored_bytes as usize)?;
    let header =
        BlockHeader::decode(bytes).map_err(|error| disk.damaged(error.shifted(entry.offset_bytes)))?;
    let present = entry.stored_bytes.saturating_sub(BLOCK_HEADER_BYTES as u32);
    if header.stored_bytes != present || header.records != entry.records {
        let problem = Problem::Disagreement {
            what: "size of a block",
            here: header.stored_bytes.into(),
            there: present.into(),
        };
        return Err(disk.damaged(FormatError::at(entry.offset_bytes, problem)));
    }
    let stored = out.len() + BLOCK_HEADER_BYTES;
    out.extend_from_slice(bytes);
    Ok((header, stored))
}

/// Keeps in `raw` the records of a block that lie in the range; None if there are none.
fn cut_block(
    run: &Run,
    disk: &DiskRun,
    entry: &IndexEntry,
    header: &BlockHeader,
    stored: &[u8],
    keys: KeyRange<'_>,
    raw: &mut Vec<u8>,
) -> Result<Option<ScanBlock>, ChunkServerError> {
    let at_block = |error: FormatError| disk.damaged(error.shifted(entry.offset_bytes));
    block::decode_into(header, stored, raw).map_err(at_block)?;
    let (mut start, mut end, mut next) = (None, 0, 0);
    let mut made: Option<ScanBlock> = None;
    while next < raw.len() {
        let Some((_, record, taken)) = block::decode_record(run.key_shape, &raw[next..]) else {
            let problem = Problem::Field { what: "a record of a block", value: next as u64 };
            return Err(at_block(FormatError::at(0, problem)));
        };
        let key = record.partition_key();
        if keys.upper.is_some_and(|upper| key >= upper) {
            break;
        }
        if keys.lower.is_none_or(|lower| key >= lower) {
            start.get_or_insert(next);
            end = next + taken;
            match &mut made {
                Some(made) => made.records += 1,
                None => made = Some(ScanBlock { records: 1, first_key: index_key(&record).0 }),
            }
        }
        next += taken;
    }
    raw.truncate(end);
    raw.drain(..start.unwrap_or(end));
    Ok(made)
}
