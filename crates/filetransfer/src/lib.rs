//! # What it does
//! Moves files between directories of users and concrete files: lists a source, cuts it into parts, reads and writes
//! parts in parallel, and verifies every byte at both ends.
//!
//! # Where it sits
//! files of a user -> filetransfer -> a [`PartStore`]: the disk of one machine (`filestore`).
//!
//! # Invariants
//! Nothing is sent before the whole source is listed and every name is valid. A source file that changes while it is
//! read ends the put. A file of a get gets its name when all its bytes are verified and written, and a directory when
//! all its files are. Memory: one buffer of [`PIECE_BYTES`] for each thread, and some hundred bytes for each file.
//!
//! # Deliberately absent
//! No rows, no names of logical files beyond their syntax, no choice of disks or nodes.
//!
//! # How it is tested
//! By the tests of `filestore`, and by black-box tests of `sailfish files`.

mod cut;
mod error;
mod get;
mod put;
mod source;
mod watch;

pub use cut::{PART_BYTES, RecordEnds};
pub use error::TransferError;
pub use get::{FileToGet, GetPlan, Target, get};
pub use put::{DonePart, FileToPut, PutPlan, put, put_stream};
pub use source::{Links, ListedSource, SourceFile, Unsuitable, list_source};
pub use watch::Watch;

use concretefile::{ConcreteReader, Content};
use ids::ConcreteId;

/// Bytes that a thread reads and writes at once.
pub const PIECE_BYTES: usize = 1 << 20;

/// The store that takes and gives parts; used by several threads at once.
pub trait PartStore: Sync {
    /// Begins a part.
    fn create(&self, part: ConcreteId) -> Result<concretefile::ConcreteWriter, TransferError>;

    /// Opens a part of this content.
    fn open(&self, part: ConcreteId, content: Content) -> Result<ConcreteReader, TransferError>;

    /// Makes complete files durable, and remembers them for a client that goes on after an interruption.
    fn keep(&self, files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError>;
}
