//! # What it does
//! Owns the chunks of a job on one node: takes appended frames into memory, closes full chunks, sorts them in the
//! background, keeps sorted runs in memory while the budget allows and on its disks otherwise, and gives readers
//! cursors over key ranges.
//!
//! # Where it sits
//! iappender (frames) -> chunkserver (stable chunk, sorted run) -> imerger (cursors).
//!
//! # Invariants
//! A chunk takes a source's frames in increasing order only; a repeated one is acknowledged and dropped. A closed chunk
//! never opens again, and reports which sequence numbers stand. Frames and orders stay within the chunk share of the
//! budget, sort scratch within the sort share. A run is written once, front to back, and never changed. A copy of
//! another node's run is the same file under the same number; it is read like any run and does not count until the seal
//! promotes it. A complete run of another node in the directories of the job at start counts as such a copy.
//!
//! # Deliberately absent
//! No network, no decision about winning or losing attempts, no plan: a chunk contains exactly the appended frames. The
//! caller decides where copies go and which of them are promoted.
//!
//! # How it is tested
//! Property tests in `tests/`: any interleaving of appenders, lost answers, rebinding, spills and killed attempts
//! gives exactly the model's records. Black-box tests kill the process at every crash point.
//!
//! Source: Sailfish section 5 (chunkserver, chunksorter); one sequential write per chunk replaces write-read-write.

mod adopting;
mod block_scan;
mod checking;
mod chunk_table;
mod copies;
pub mod copy_pace;
mod copying;
mod cursor;
mod disks;
mod error;
mod key_range;
mod losing;
mod merging;
mod readers;
mod receiving;
mod run;
mod sealing;
mod service;
mod sorting;
mod spill;
mod to_copy;

pub use block_scan::{BlockScan, FirstRecord, ScanBlock};
pub use checking::{Checking, check_kept};
pub use chunk_table::{APPENDERS_PER_CHUNK_MAX, ChunkTable};
pub use copies::{CopyWriter, left_run};
pub use copying::CopySource;
pub use cursor::{CursorReport, RunCursor};
pub use disks::{DiskFile, run_file_name, run_of_file};
pub use error::{ChunkServerError, is_of_the_file};
pub use key_range::KeyRange;
pub use losing::LostOnDisk;
pub use merging::MergeFailure;
pub use readers::{AllRead, Reading};
pub use run::Run;
pub use to_copy::RunToCopy;

use api::{Codec, Layout};
use arena::Arena;
use diskfile::ReadPool;
use disks::Disks;
use ids::{IfileIndex, JobId, NodeId, RunId};
use ifile::KeyShape;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that read ahead for merges: enough to keep each of several disks busy.
const READ_THREADS: usize = 4;
const WRITE_BUFFER_BYTES_MAX: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MIN: u64 = 32 << 10;

/// Returns the size of a write buffer: half of the share for I/O, if every sorter and every slot writes a run at once.
fn write_buffer_bytes(layout: &Layout, sorters: u64, slots: u32) -> usize {
    let buffers = (sorters + u64::from(slots)) * diskfile::BUFFERS as u64;
    (layout.io_share_bytes / 2 / buffers).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX) as usize
}

/// Configuration of a chunkserver for its job.
#[derive(Clone, Debug)]
pub struct Config {
    pub job: JobId,
    /// The node in the numbers of this chunkserver's chunks and runs.
    pub node: NodeId,
    pub layout: Layout,
    pub codec: Codec,
    pub key_shape: KeyShape,
    /// Existing directories for this job alone, one per disk; never empty.
    pub disk_dirs: Vec<PathBuf>,
    /// Maximum number of threads that sort at once.
    pub slots: u32,
    /// Write every run to disk, so that it outlives the process.
    pub keep: bool,
    /// True if other nodes can recompute data that the disks here cannot take: that data is lost, and everything else
    /// continues. Otherwise the first such failure ends all work here.
    pub elsewhere: bool,
    /// Set when the job is cancelled: threads that wait for memory give up.
    pub cancelled: Arc<AtomicBool>,
}

/// Bytes processed so far, for progress displays.
#[derive(Debug, Default)]
pub struct Progress {
    pub appended_bytes: AtomicU64,
    pub sorted_bytes: AtomicU64,
}

struct Shared {
    config: Config,
    arena: Arena,
    disks: Disks,
    sort_scratch_bytes: u64,
    /// Bytes of each buffer of a run being written.
    write_buffer_bytes: usize,
    /// Reads ahead of merges.
    reads: Arc<ReadPool>,
    table: Mutex<ChunkTable>,
    /// Signalled when memory was freed, a chunk was sorted, or something failed.
    changed: Condvar,
    /// Signalled when there is work for sorters.
    work: Condvar,
    /// Signalled when a run needs a copy.
    to_copy: Condvar,
    progress: Arc<Progress>,
    readers: Arc<readers::Readers>,
    parked: receiving::ParkedSlabs,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ChunkTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cancelled(&self) -> bool {
        self.config.cancelled.load(Ordering::Relaxed)
    }

    /// Records a failure. The first one stays, and every later caller gets it.
    fn fail(&self, error: ChunkServerError) {
        let mut table = self.lock();
        table.failure.get_or_insert(Arc::new(error));
        drop(table);
        self.changed.notify_all();
        self.work.notify_all();
    }
}

/// The chunkserver of one job on one node.
///
/// The three calls of an I-file (Sailfish, section 4) in one example: it is created by its first append, records are
/// appended through an [`iappender::IAppender`], and a scan is a [`RunCursor`] for each of its runs:
///
/// ```
/// use chunkserver::{ChunkServer, Config, RunCursor};
/// use ids::{AttemptNumber, IfileIndex, JobId, Source, TaskIndex};
/// use ifile::KeyShape;
/// use imerger::{Groups, Merge, Winners};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mib = 1 << 20;
/// # let layout = api::Layout { ifile_count: 1, chunk_bytes: 4 * mib, frame_bytes: 16 << 10, block_bytes: 16 << 10,
/// #     record_bytes_max: mib, combine_window_bytes: 0, split_bytes: mib, chunk_share_bytes: 16 * mib,
/// #     sort_share_bytes: 8 * mib, io_share_bytes: mib };
/// # let dir = tempfile::tempdir()?;
/// let server = ChunkServer::start(Config {
///     job: JobId(1), node: ids::NodeId(0), layout, codec: api::Codec::Lz4, key_shape: KeyShape::Whole,
///     disk_dirs: vec![dir.path().to_path_buf()], slots: 1, keep: true, elsewhere: false,
///     cancelled: Default::default(),
/// })?;
/// let (map_task, attempt) = (TaskIndex(0), AttemptNumber(0));
/// let mut slabs = iappender::WorkerSlabs::default();
/// let source = Source { map_task, attempt };
/// let mut appender = iappender::IAppender::new(server.service(), &mut slabs, source, KeyShape::Whole, 1);
/// for (key, value) in [(b"pear", b"1"), (b"fig_", b"2"), (b"pear", b"3"), (b"plum", b"4")] {
///     appender.append(IfileIndex(0), key, value, key.len())?;
/// }
/// let commits = appender.finish()?.commits;
/// assert_eq!(commits[0].sum.records, 4);
///
/// server.seal(&[]).map_err(|failure| failure.to_string())?;
/// let runs = server.runs_of(&[IfileIndex(0)]);
/// let (lower, upper) = (Some(&b"pear"[..]), Some(&b"plum"[..]));
/// let cursors = runs.iter().map(|run| RunCursor::open(run, lower, upper, 64 << 10)).collect::<Result<_, _>>()?;
/// let winners = Winners::new([(map_task, attempt)], []);
/// let valid = runs.iter().map(|run| winners.valid_rows(run.ifile, &run.sources)).collect();
/// let mut groups = Groups::new(Merge::new(cursors)?, valid);
/// let mut values = Vec::new();
/// while let Some(record) = groups.advance()? {
///     values.extend_from_slice(record.value);
/// }
/// assert_eq!(values, b"13");
/// # Ok(())
/// # }
/// ```
pub struct ChunkServer {
    shared: Arc<Shared>,
    sorters: Vec<JoinHandle<()>>,
}

impl ChunkServer {
    /// Maps the memory for frames and starts the sorters.
    pub fn start(config: Config) -> Result<Self, ChunkServerError> {
        let layout = config.layout;
        let arena = Arena::new(layout.chunk_share_bytes, layout.frame_bytes.max(4096))
            .map_err(ChunkServerError::Memory)?;
        // Each sorter gets a chunk's worth of the share, so that the order of the smallest records fits.
        let sorter_count =
            (layout.sort_share_bytes / layout.chunk_bytes).clamp(1, u64::from(config.slots.max(1)));
        let disks = Disks::new(config.disk_dirs.clone());
        let reads = Arc::new(ReadPool::new(READ_THREADS).map_err(ChunkServerError::Thread)?);
        let shared = Arc::new(Shared {
            sort_scratch_bytes: layout.sort_share_bytes / sorter_count,
            write_buffer_bytes: write_buffer_bytes(&layout, sorter_count, config.slots),
            reads,
            table: Mutex::new(ChunkTable::new(config.node, layout, config.disk_dirs.len())),
            config,
            arena,
            disks,
            changed: Condvar::new(),
            work: Condvar::new(),
            to_copy: Condvar::new(),
            progress: Arc::new(Progress::default()),
            readers: Arc::default(),
            parked: receiving::ParkedSlabs::default(),
        });
        shared.take_in_found();
        let mut server = Self { shared, sorters: Vec::new() };
        for index in 0..sorter_count {
            let shared = Arc::clone(&server.shared);
            let sorter = std::thread::Builder::new()
                .name(format!("sorter-{index}"))
                .spawn(move || sorting::sorter_loop(&shared))
                .map_err(ChunkServerError::Thread)?;
            server.sorters.push(sorter);
        }
        Ok(server)
    }

    /// Returns the service for appenders.
    pub fn service(&self) -> &dyn iappender::ChunkService {
        &*self.shared
    }

    /// Returns the sizes of the job.
    pub fn layout(&self) -> &Layout {
        &self.shared.config.layout
    }

    /// Returns the shape of stored keys, which defines their partition keys.
    pub fn key_shape(&self) -> KeyShape {
        self.shared.config.key_shape
    }

    /// Returns counters for progress displays.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.shared.progress)
    }

    /// Returns the maximum of bytes of frames and orders in memory so far.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.arena.peak_bytes()
    }

    /// Returns unused memory of the job to the system.
    pub fn give_back_idle(&self) {
        self.shared.arena.give_back_idle();
    }

    /// Sets which of the disks can take new files, in their order; the others keep their state. Rejecting disks are
    /// tried last.
    pub fn use_disks(&self, usable: &[bool]) {
        self.shared.disks.set_usable(usable);
    }

    /// Returns a run by its number, or a copy of another node's; None if it was merged or never existed.
    pub fn run(&self, run: RunId) -> Option<Arc<Run>> {
        self.shared.lock().run(run).cloned()
    }

    /// Returns the runs whose files cannot be opened: if one was lost with its disk, so were they. Copies are included
    /// only if they were promoted: the originals of the others are not lost with them.
    pub fn unreadable_runs(&self) -> Vec<RunId> {
        let runs: Vec<Arc<Run>> = {
            let table = self.shared.lock();
            let standing = table.standing.iter().filter_map(|run| table.copies.get(run));
            table.runs.values().chain(standing.map(|(run, _)| run)).cloned().collect()
        };
        let is_gone = |run: &&Arc<Run>| {
            run.path().is_some_and(|path| DiskFile::open(path).is_err_and(|error| is_of_the_file(&error)))
        };
        runs.iter().filter(is_gone).map(|run| run.id).collect()
    }

    /// Returns the own runs of some I-files, in order of their numbers.
    pub fn runs_of(&self, ifiles: &[IfileIndex]) -> Vec<Arc<Run>> {
        self.shared.lock().runs.values().filter(|run| ifiles.contains(&run.ifile)).cloned().collect()
    }
}

impl Drop for ChunkServer {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
        self.shared.to_copy.notify_all();
        for sorter in self.sorters.drain(..) {
            // A sorter that panicked has already recorded its failure in the table.
            let _ = sorter.join();
        }
    }
}
