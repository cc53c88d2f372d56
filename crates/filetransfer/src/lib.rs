//! # What it does
//! Moves files between directories of users and concrete files: lists a source, cuts it into parts, reads and writes
//! parts in parallel, and verifies every byte at both ends.
//!
//! # Where it sits
//! files of a user -> filetransfer -> a [`PartStore`]: the disk of one machine (`filestore`), or the nodes of a cluster
//! (`clusterfiles`).
//!
//! # Invariants
//! Nothing is sent before the whole source is listed and every name is valid. A source file that changes while it is
//! read ends the put. A file of a get gets its name when all its bytes are verified and written, and a directory when
//! all its files are. Memory: one buffer of [`PIECE_BYTES`] for each thread, and some hundred bytes for each file; a put by
//! the hash of keys has 32 MiB of buffers, and the rest of its records in a temporary file.
//!
//! # Deliberately absent
//! No rows, no names of logical files beyond their syntax, no choice of disks or nodes.
//!
//! # How it is tested
//! By the tests of `filestore`, and by black-box tests of `sailfish files`.

mod cut;
mod error;
mod get;
mod hash_by;
mod put;
mod put_hashed;
mod source;
mod spool;
mod store;
mod watch;

pub use cut::{Cut, PART_BYTES, PART_BYTES_OF_ONE_DISK, RecordEnds};
pub use error::TransferError;
pub use get::{FileToGet, GetPlan, Target, check_records, get};
pub use hash_by::{HashBy, RECORD_BYTES_MAX, RecordSum};
pub use put::{DonePart, FileToPut, PutPlan, put, put_stream};
pub use put_hashed::{HashedParts, HashedPut, HashedSource};
pub use source::{Links, ListedSource, SourceFile, Unsuitable, list_source};
pub use store::{PartSink, PartSource, PartStore};
pub use watch::Watch;

/// Bytes that a thread reads and writes at once.
pub const PIECE_BYTES: usize = 1 << 20;
