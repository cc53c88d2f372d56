//! # What it does
//! Concrete files: plain bytes on a disk, with the checksums of their blocks in a file beside them. Writes them, reads
//! ranges of them, verifies them, and keeps the directory of them on a disk. The byte tables are in
//! `docs/formats/concrete-file.md`.
//!
//! # Where it sits
//! filetransfer (the parts of a logical file) -> filestore -> concretefile -> a disk.
//!
//! # Invariants
//! A file is written once, by one writer, and never changed; a dropped writer removes it. No byte is returned before its
//! block is verified. A reader names the expected content: a file with another length or other checksums is damaged. A
//! file of one block has no file beside it, because its checksum is that of its content.
//!
//! # Deliberately absent
//! No names, users or versions; no choice of a disk; no threads. It does not know which files should exist: its caller
//! has the rows.
//!
//! # How it is tested
//! Against a model, and by flipping and cutting everything (`tests/`); the decoder of the checksums is fuzzed.
//!
//! Source: Clustera, section 3.4: a concrete file is one file of the operating system, with a checksum.

mod directory;
mod error;
mod reader;
mod sums;
mod writer;

pub use directory::{ConcreteDirectory, PutLock};
pub use error::{ConcreteDamage, ConcreteError};
pub use reader::{ConcreteReader, verify};
pub use sums::{BLOCK_BYTES, BlockSums, SUMS_VERSION};
pub use writer::ConcreteWriter;

/// Content of a concrete file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}
