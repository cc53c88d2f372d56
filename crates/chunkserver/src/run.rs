//! A sorted run: in memory (frames and their order) or on disk (a run file).

use crate::disks::DiskFile;
use crate::error::{ChunkServerError, is_of_the_file};
use api::task::{KeyWeight, RunSummary};
use api::{KeyBytes, Layout};
use arena::Charge;
use chunksorter::SortedOrder;
use diskfile::{AlignedBuffer, ReadPool, open_direct};
use iappender::AppendFrame;
use ids::{ChunkId, DiskIndex, IfileIndex, RunId};
use ifile::{FormatError, KeyShape, RunFile, SourceRow};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Minimum and maximum bytes per weight: fine enough to cut small jobs, coarse enough that the weights of thousands of
/// runs stay small.
const WEIGHT_BYTES_MIN: u64 = 64 << 10;
const WEIGHT_BYTES_MAX: u64 = 1 << 20;
/// Target number of weights of a run within those limits.
const WEIGHTS_PER_RUN: u64 = 64;

/// A sorted run.
pub struct Run {
    pub id: RunId,
    pub ifile: IfileIndex,
    pub key_shape: KeyShape,
    pub sources: Vec<SourceRow>,
    pub(crate) place: Place,
}

pub(crate) enum Place {
    Memory(MemoryRun),
    Disk(DiskRun),
}

/// Frames in input order, and the order of their records.
pub(crate) struct MemoryRun {
    /// Borrowed from `frames`; declared first, so that it is dropped first.
    views: Vec<&'static [u8]>,
    _frames: Vec<AppendFrame>,
    /// Source row of each frame.
    pub row_of_frame: Vec<u32>,
    pub order: SortedOrder,
    _charge: Charge,
}

impl MemoryRun {
    pub fn new(frames: Vec<AppendFrame>, row_of_frame: Vec<u32>, order: SortedOrder, charge: Charge) -> Self {
        let views = frames
            .iter()
            .map(|frame| {
                let bytes: &[u8] = &frame.payload;
                // SAFETY: the bytes are shared, immutable memory that `frame` keeps alive; `frames` is never changed or
                // moved out of while `views` exists, and the borrow of `views()` ends with &self.
                unsafe { std::mem::transmute::<&[u8], &'static [u8]>(bytes) }
            })
            .collect();
        Self { views, _frames: frames, row_of_frame, order, _charge: charge }
    }

    /// Returns the payloads, by frame.
    pub fn views(&self) -> &[&[u8]] {
        &self.views
    }
}

pub(crate) struct DiskRun {
    pub path: PathBuf,
    pub records: u64,
    pub blocks_end: u64,
    pub file_bytes: u64,
    pub block_bytes_max: u64,
    /// Open files are shared by the readers of a run and closed with the last of them.
    file: Mutex<Weak<File>>,
    pub reads: Arc<ReadPool>,
}

impl DiskRun {
    pub fn new(path: PathBuf, file: &RunFile, reads: Arc<ReadPool>) -> Self {
        Self {
            path,
            records: file.footer.sum.records,
            blocks_end: file.footer.index_offset,
            file_bytes: file.file_bytes(),
            block_bytes_max: file.footer.block_bytes_max,
            file: Mutex::new(Weak::new()),
            reads,
        }
    }

    /// Returns the file, for reading in windows.
    pub fn open(&self) -> Result<Arc<File>, ChunkServerError> {
        let mut shared = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = shared.upgrade() {
            return Ok(file);
        }
        let opened = open_direct(&self.path);
        let file = Arc::new(opened.map_err(|source| ChunkServerError::Disk {
            action: "open",
            path: self.path.clone(),
            source,
        })?);
        *shared = Arc::downgrade(&file);
        Ok(file)
    }

    /// Returns whether the file has become unreadable, judged by its length and its beginning.
    pub fn is_gone(&self) -> bool {
        let look = || -> std::io::Result<bool> {
            let file = open_direct(&self.path)?;
            let mut buffer = AlignedBuffer::new(1);
            let is_whole = file.metadata()?.len() == self.file_bytes;
            Ok(!is_whole || file.read_at(&mut buffer, 0)? == 0)
        };
        look().unwrap_or_else(|error| is_of_the_file(&error))
    }

    /// Reads and checks everything except the blocks.
    pub fn read_index(&self) -> Result<RunFile, ChunkServerError> {
        let named = DiskFile::open(&self.path).map_err(|source| ChunkServerError::Disk {
            action: "open",
            path: self.path.clone(),
            source,
        })?;
        RunFile::open(&named).map_err(|source| self.damaged(source))
    }

    pub fn damaged(&self, source: FormatError) -> ChunkServerError {
        ChunkServerError::Damaged { path: self.path.clone(), source }
    }
}

impl Run {
    /// Returns whether it is only in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory(_))
    }

    /// Returns the run file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Disk(disk) => Some(&disk.path),
            Place::Memory(_) => None,
        }
    }

    /// Returns the size of the largest block of the run file, uncompressed; 0 in memory.
    pub fn block_bytes_max(&self) -> u64 {
        match &self.place {
            Place::Memory(_) => 0,
            Place::Disk(disk) => disk.block_bytes_max,
        }
    }

    /// Returns the encoded record bytes of all sources.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.sources.iter().map(|row| row.sum.bytes).sum()
    }

    /// Returns the number of records of all sources.
    pub fn records(&self) -> u64 {
        match &self.place {
            Place::Memory(memory) => memory.order.len() as u64,
            Place::Disk(disk) => disk.records,
        }
    }

    /// Returns whether it is a file that has become unreadable.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.place {
            Place::Memory(_) => false,
            Place::Disk(disk) => disk.is_gone(),
        }
    }

    pub(crate) fn chunks(&self) -> Vec<ChunkId> {
        let mut chunks: Vec<ChunkId> = self.sources.iter().map(|row| row.chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        chunks
    }
}

fn weight_bytes(run_bytes: u64) -> u64 {
    (run_bytes / WEIGHTS_PER_RUN).clamp(WEIGHT_BYTES_MIN, WEIGHT_BYTES_MAX)
}

/// Makes the summary of a run that stays in memory. Weights are taken at even steps through each sorted batch; bytes
/// are divided evenly, which is exact for records of one size and a good estimate otherwise.
pub(crate) fn summarize_memory(
    run: &Run,
    memory: &MemoryRun,
    layout: &Layout,
    disk: DiskIndex,
) -> RunSummary {
    let record_bytes = run.record_bytes();
    let records = memory.order.len() as u64;
    let step = (records * weight_bytes(record_bytes)).checked_div(record_bytes).unwrap_or(1).max(1);
    let mut weights: Vec<KeyWeight> = memory
        .order
        .samples(memory.views(), step as usize)
        .map(|(record, stands_for)| KeyWeight {
            first_key: KeyBytes(ifile::key_index::index_key(&record).0),
            bytes: (u128::from(record_bytes) * stands_for as u128 / u128::from(records.max(1))) as u64,
            records: stands_for as u64,
        })
        .collect();
    weights.sort_by(|left, right| left.first_key.cmp(&right.first_key));
    RunSummary {
        run: run.id,
        ifile: run.ifile,
        chunks: run.chunks(),
        records,
        record_bytes,
        stored_bytes: 0,
        in_memory: true,
        disk,
        block_bytes_max: layout.block_bytes_of(record_bytes),
        weights,
    }
}

/// Makes the summary of a run file.
pub(crate) fn summarize_disk(run: &Run, file: &RunFile, disk: DiskIndex) -> RunSummary {
    let aim = weight_bytes(file.footer.sum.bytes);
    let mut weights: Vec<KeyWeight> = Vec::new();
    for entry in &file.index.entries {
        let (bytes, records) = (u64::from(entry.raw_bytes), u64::from(entry.records));
        match weights.last_mut() {
            Some(weight) if weight.bytes + bytes / 2 < aim => {
                weight.bytes += bytes;
                weight.records += records;
            }
            _ => weights.push(KeyWeight { first_key: KeyBytes(entry.first_key.clone()), bytes, records }),
        }
    }
    RunSummary {
        run: run.id,
        ifile: run.ifile,
        chunks: run.chunks(),
        records: file.footer.sum.records,
        record_bytes: file.footer.sum.bytes,
        stored_bytes: file.file_bytes(),
        in_memory: false,
        disk,
        block_bytes_max: file.footer.block_bytes_max,
        weights,
    }
}
