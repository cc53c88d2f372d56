//! Runs of this node that need a copy on another one, promoted copies that need one, and their files as a stream of
//! pieces.
//!
//! A run that is only in memory is written first, as if memory were short: a copy in transit holds nothing of the
//! budget, and the sent bytes are the file that a local reader would open.

use crate::ChunkServer;
use crate::block_scan::{read_block, take};
use crate::error::ChunkServerError;
use crate::run::{DiskRun, Place, Run};
use crate::to_copy::RunToCopy;
use diskfile::WindowReader;
use ids::{ChunkId, IfileIndex, RunId};
use ifile::encoding::check_crc;
use ifile::run_file::FILE_HEADER_BYTES;
use ifile::{BlockHeader, FormatError, Problem, RunFile};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a piece; a larger block is a piece of its own.
const PIECE_BYTES: usize = 256 << 10;
/// Read ahead of a piece.
const READ_AHEAD_BYTES: usize = 2 * PIECE_BYTES;
/// Interval at which a waiter checks whether the job was cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl ChunkServer {
    /// Requests copies of all runs that exist here or are made here later, except adopted ones, which belong to another
    /// job. The call is idempotent.
    pub fn begin_copying(&self) {
        self.shared.lock().to_copy.begun = true;
        self.shared.to_copy.notify_all();
    }

    /// Sets the promoted copies here that need one more copy; no other ones do.
    pub fn copy_standing(&self, runs: &[RunId]) {
        let mut table = self.shared.lock();
        let here = runs.iter().filter(|run| table.copies.contains_key(run)).copied().collect();
        table.to_copy.want_standing(here);
        drop(table);
        self.shared.to_copy.notify_all();
    }

    /// Returns open chunks with frames: nothing of them can be copied yet.
    pub fn begun_chunks(&self) -> Vec<ChunkId> {
        self.shared.lock().begun_chunks()
    }

    /// Closes partial chunks, so that they are sorted and can be copied. Appenders continue with other chunks.
    pub fn close_chunks(&self, chunks: &[ChunkId]) {
        let mut table = self.shared.lock();
        chunks.iter().for_each(|chunk| table.close_one(*chunk));
        drop(table);
        self.shared.work.notify_all();
    }

    /// Returns the oldest run without a copy; waits at most this long for one. None also when the job is cancelled.
    pub fn next_to_copy(&self, wait: Duration) -> Option<RunToCopy> {
        let shared = &self.shared;
        let end = Instant::now() + wait;
        let mut table = shared.lock();
        loop {
            if table.stopping || shared.is_cancelled() {
                return None;
            }
            if let Some(next) = table.to_copy.take() {
                return Some(next);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = shared.to_copy.wait_timeout(table, left.min(LOOK_AGAIN));
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that the run still, or again, needs a copy: it moves to the end of the queue. A run that was merged is
    /// dropped.
    pub fn copy_again(&self, again: RunToCopy) {
        let mut table = self.shared.lock();
        if table.runs.contains_key(&again.run) || table.to_copy.is_standing(again.run) {
            table.to_copy.put_back(again);
            drop(table);
            self.shared.to_copy.notify_all();
        }
    }

    /// Records that the run has its copy.
    pub fn copied(&self, run: RunId) {
        self.shared.lock().to_copy.has_copy(run);
    }

    /// Returns the runs without a copy, including those whose copies are in transit.
    pub fn uncopied_count(&self) -> usize {
        self.shared.lock().to_copy.count()
    }

    /// Opens a run for copying, byte for byte. A run only in memory is written to disk.
    pub fn copy_source(&self, run: RunId) -> Result<CopySource, ChunkServerError> {
        let run = self.on_disk(run)?;
        let id = run.id;
        CopySource::open(run).map_err(|error| error.of_run(id))
    }

    /// Returns the run, once it has a file. An error here is no damage of the run, which is still in memory.
    fn on_disk(&self, id: RunId) -> Result<Arc<Run>, ChunkServerError> {
        let shared = &self.shared;
        let mut table = shared.lock();
        loop {
            let run = Arc::clone(table.run(id).ok_or(ChunkServerError::UnknownRun(id))?);
            if !run.is_in_memory() {
                return Ok(run);
            }
            if let Some(position) = table.memory_runs.iter().position(|each| *each == id) {
                table.memory_runs.remove(position);
                drop(table);
                let evicted = shared.evict(&run);
                table = shared.lock();
                if evicted.is_err() && table.runs.contains_key(&id) {
                    table.memory_runs.push_back(id);
                }
                shared.changed.notify_all();
                evicted?;
                continue;
            }
            // Another thread took it to write it, and reports the end.
            if table.stopping || table.failure.is_some() || shared.is_cancelled() {
                return Err(ChunkServerError::Cancelled);
            }
            let waited = shared.changed.wait_timeout(table, LOOK_AGAIN);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Part of the file that a copy reads next.
#[derive(Clone, Copy)]
enum Next {
    Header,
    Block(usize),
    /// In one of the parts after the blocks.
    Tail {
        part: usize,
    },
    End,
}

/// A part after the blocks, with the checksum that was read at the opening.
#[derive(Clone, Copy)]
struct TailPart {
    what: &'static str,
    end: u64,
    crc32c: u32,
}

/// The file of a run, front to back. Everything is verified on the way: a copy of a damaged run would be worse than
/// none.
pub struct CopySource {
    run: Arc<Run>,
    file: RunFile,
    reader: WindowReader,
    next: Next,
    offset: u64,
    tail: [TailPart; 3],
    /// Checksum of the bytes sent so far of the current part of the tail.
    crc32c: u32,
}

impl CopySource {
    fn open(run: Arc<Run>) -> Result<Self, ChunkServerError> {
        let disk = disk_of(&run);
        let file = disk.read_index()?;
        let footer = &file.footer;
        let footer_offset = footer.sources_offset + footer.sources_bytes();
        let tail = [
            TailPart { what: "key index", end: footer.sources_offset, crc32c: footer.index_crc32c },
            TailPart { what: "source table", end: footer_offset, crc32c: footer.sources_crc32c },
            TailPart { what: "footer", end: file.file_bytes(), crc32c: crc32c::crc32c(&footer.encode()) },
        ];
        let stretch = 0..file.file_bytes();
        let reader = WindowReader::new(disk.open()?, Arc::clone(&disk.reads), stretch, READ_AHEAD_BYTES);
        Ok(Self { run, file, reader, next: Next::Header, offset: 0, tail, crc32c: 0 })
    }

    pub fn run(&self) -> RunId {
        self.run.id
    }

    pub fn ifile(&self) -> IfileIndex {
        self.run.ifile
    }

    /// Returns the chunks that were sorted into it.
    pub fn chunks(&self) -> Vec<ChunkId> {
        self.run.chunks()
    }

    /// Returns the bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.file.file_bytes()
    }

    /// Returns the next bytes of the file, about 256 KiB or one larger block; None at its end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, ChunkServerError> {
        self.read_piece().map_err(|error| error.of_run(self.run.id))
    }

    fn read_piece(&mut self) -> Result<Option<Vec<u8>>, ChunkServerError> {
        let mut piece = Vec::new();
        while piece.len() < PIECE_BYTES {
            match self.next {
                Next::Header => self.read_header(&mut piece)?,
                Next::Block(block) => {
                    if !self.read_block(block, &mut piece)? {
                        break;
                    }
                }
                Next::Tail { part } => self.read_tail(part, &mut piece)?,
                Next::End => break,
            }
        }
        self.offset += piece.len() as u64;
        Ok((!piece.is_empty()).then_some(piece))
    }

    fn read_header(&mut self, piece: &mut Vec<u8>) -> Result<(), ChunkServerError> {
        let disk = disk_of(&self.run);
        let header = take(disk, &mut self.reader, 0, FILE_HEADER_BYTES)?;
        let expected = crc32c::crc32c(&self.file.identity.encode_header());
        check_crc("file header", 0, header, expected).map_err(|source| disk.damaged(source))?;
        piece.extend_from_slice(header);
        self.next = Next::Block(0);
        Ok(())
    }

    /// Adds a block; false if it has to wait for the next piece.
    fn read_block(&mut self, block: usize, piece: &mut Vec<u8>) -> Result<bool, ChunkServerError> {
        let Some(entry) = self.file.index.entries.get(block) else {
            self.next = Next::Tail { part: 0 };
            return Ok(true);
        };
        if !piece.is_empty() && piece.len() + entry.stored_bytes as usize > PIECE_BYTES {
            return Ok(false);
        }
        let disk = disk_of(&self.run);
        let (header, stored): (BlockHeader, usize) = read_block(disk, &mut self.reader, entry, piece)?;
        let at_block = |error: FormatError| disk.damaged(error.shifted(entry.offset_bytes));
        check_crc("block", 0, &piece[stored..], header.stored_crc32c).map_err(at_block)?;
        if header.raw_bytes != entry.raw_bytes {
            let (here, there) = (header.raw_bytes.into(), entry.raw_bytes.into());
            let problem = Problem::Disagreement { what: "uncompressed size of a block", here, there };
            return Err(at_block(FormatError::at(0, problem)));
        }
        self.next = Next::Block(block + 1);
        Ok(true)
    }

    /// Adds as much of a part after the blocks as fits.
    fn read_tail(&mut self, part: usize, piece: &mut Vec<u8>) -> Result<(), ChunkServerError> {
        let Some(TailPart { what, end, crc32c }) = self.tail.get(part).copied() else {
            self.next = Next::End;
            return Ok(());
        };
        let disk = disk_of(&self.run);
        let offset = self.offset + piece.len() as u64;
        let count = (end - offset).min((PIECE_BYTES - piece.len()) as u64);
        let bytes = take(disk, &mut self.reader, offset, count as usize)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        piece.extend_from_slice(bytes);
        if offset + count < end {
            return Ok(());
        }
        let computed = std::mem::take(&mut self.crc32c);
        if computed != crc32c {
            let problem = Problem::Checksum { what, stored: crc32c, computed };
            return Err(disk.damaged(FormatError::at(offset, problem)));
        }
        self.next = Next::Tail { part: part + 1 };
        Ok(())
    }
}

fn disk_of(run: &Run) -> &DiskRun {
    match &run.place {
        Place::Disk(disk) => disk,
        Place::Memory(_) => unreachable!("a run is written before it is copied"),
    }
}
