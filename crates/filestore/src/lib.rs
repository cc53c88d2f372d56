//! # What it does
//! The files of one machine: a tree of logical files in a state directory, with their concrete files below it. Put,
//! get, list, read, remove, move, copy, versions and a check.
//!
//! # Where it sits
//! cli -> filestore -> filetree (decisions), metastore (rows), filetransfer (bytes), concretefile (the disk).
//!
//! # Invariants
//! A name is visible when all its bytes are synced. A put whose process dies leaves nothing visible; its files stay for
//! [`UNFINISHED_KEPT`], so that the same put goes on behind them, and are removed after that. A version that a
//! process reads keeps its files until it has read them.
//!
//! # Deliberately absent
//! No replicas, nodes or network. No permissions: whoever can read the state directory can read its files.
//!
//! # How it is tested
//! `tests/` compares it with a model after random commands, and kills puts at every step.

mod changes;
mod check;
mod error;
mod expiry;
mod opened;
mod outputs;
mod puts;
mod reading;
mod sweep;
mod tree;

pub use changes::{CommittedChange, TreeChange};
pub use check::{CheckedFiles, Problem};
pub use error::{FilesError, RemoteFault};
pub use outputs::{MadeFile, OutputForm, OutputPart, is_made_by};
pub use puts::{PutOptions, PutSource, single_file};
pub use reading::{FileEntry, ReadPin};
pub use sweep::UNFINISHED_KEPT;
pub use tree::{EntryPage, FileReader, OpenedFile, PartWithReplicas, ReplicaOfPart, StoredTree, TakeEntry};

use concretefile::{ConcreteDirectory, Content};
use filetransfer::{DonePart, FileToPut, PartSink, PartSource, PartStore, TransferError};
use ids::{ConcreteId, ContentId, PutId};
use metastore::Metastore;
use rows::{ConcreteRow, PutFileRow};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The files of a state directory. Used by several threads and processes at once.
pub struct FileStore {
    root: PathBuf,
    disk: ConcreteDirectory,
    store: Metastore,
    runtime: tokio::runtime::Runtime,
    user: String,
}

impl FileStore {
    /// Opens the files of a state directory, and creates both if they are missing. `user` owns everything that is made.
    /// Names whose time is over are removed.
    ///
    /// Must not be called from async code; nor may its methods.
    pub fn open(state_dir: &Path, user: &str) -> Result<Self, FilesError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(FilesError::Thread)?;
        let store = runtime.block_on(Metastore::open(state_dir))?;
        let root = state_dir.join("files");
        let disk = ConcreteDirectory::open(Self::data_dir(state_dir))?;
        let files = Self { root, disk, store, runtime, user: user.to_string() };
        if files.expire().is_ok_and(|any| any) {
            // A change that cannot be written, on a full disk for instance, keeps nobody from reading.
            let _ = files.retire();
        }
        Ok(files)
    }

    /// Returns the directory of the concrete files of a state directory.
    pub fn data_dir(state_dir: &Path) -> PathBuf {
        state_dir.join("files").join("data")
    }

    /// Returns whether a state directory has files.
    pub fn exists(state_dir: &Path) -> bool {
        state_dir.join("files").is_dir()
    }

    fn run<T, E: Into<FilesError>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, FilesError> {
        self.runtime.block_on(work).map_err(Into::into)
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The parts of one put, or of a get, which has no put.
struct Parts<'a> {
    files: &'a FileStore,
    put: PutId,
}

impl PartStore for Parts<'_> {
    fn create(&self, part: ConcreteId, _bytes: Option<u64>) -> Result<Box<dyn PartSink + '_>, TransferError> {
        Ok(Box::new(self.files.disk.create(part)?))
    }

    fn open(&self, part: &ConcreteRow) -> Result<Box<dyn PartSource + '_>, TransferError> {
        Ok(Box::new(self.files.disk.read(part.concrete, content_of(part))?))
    }

    /// The commit writes the rows of files that were not kept.
    fn keeps_all(&self) -> bool {
        false
    }

    fn keep(&self, files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError> {
        let written: Vec<ConcreteId> =
            files.iter().flat_map(|(_, parts)| parts.iter().map(|part| part.concrete)).collect();
        self.files.disk.sync(&written)?;
        let rows: Vec<(PutFileRow, Vec<ConcreteRow>)> =
            files.iter().filter_map(|(file, parts)| self.row(file, parts)).collect();
        let recorded = self.files.runtime.block_on(self.files.store.record_put_files(self.put, &rows));
        recorded.map_err(|error| TransferError::Store(error.to_string()))
    }
}

impl Parts<'_> {
    fn row(&self, file: &FileToPut, parts: &[DonePart]) -> Option<(PutFileRow, Vec<ConcreteRow>)> {
        let content = ContentId::of(self.put, file.first_number)?;
        let row = PutFileRow {
            name: file.source.name.clone(),
            content,
            parts: parts.len() as u32,
            bytes: file.source.bytes,
            modified_ns: file.source.modified_ns,
            hashed: None,
        };
        Some((row, concrete_rows(content, parts)))
    }
}

/// Returns the content of a part.
fn content_of(part: &ConcreteRow) -> Content {
    Content { bytes: part.bytes, crc32c: part.crc32c }
}

fn concrete_rows(content: ContentId, parts: &[DonePart]) -> Vec<ConcreteRow> {
    let row = |(part, done): (u32, &DonePart)| ConcreteRow {
        concrete: done.concrete,
        content,
        part,
        bytes: done.content.bytes,
        crc32c: done.content.crc32c,
    };
    (0..).zip(parts).map(row).collect()
}
