//! # What it does
//! Writes an output part: pairs become lines or plain bytes, compressed on request; bytes, records and checksum are
//! counted on the way to a file, an intermediate file, a stored file or an upload. Defines the content of an output directory, and
//! whether it may be replaced.
//!
//! # Where it sits
//! map and reduce functions (pairs) -> **output** -> `diskfile`, `stagefile`, `objects`.
//!
//! # Invariants
//! An unfinished part is removed, or its upload aborted. The checksum covers the stored bytes, after the compressor.
//!
//! # Deliberately absent
//! No publishing: the commit renames parts, or completes their uploads. No choice of nodes for stored files: the node
//! passes their destination in. No functions and no programs.
//!
//! # How it is tested
//! Unit tests beside each type, over every format, codec and several sizes of the buffer.

mod codec;
pub mod output_dir;
mod part;
mod part_file;
mod stored;

pub use part::{PartPlace, PartWriter};
pub use stored::{StoredPartFile, StoredParts};
