//! # What it does
//! The format of I-files: record, frame, block, key index, source table, run file, raw chunk file, payload of a spool.
//! The byte tables are in `docs/formats/ifile.md`.
//!
//! # Where it sits
//! iappender (frames) -> chunkserver (raw chunks) -> chunksorter (runs) -> imerger (blocks): all use it.
//!
//! # Invariants
//! Every persisted byte has a version and a checksum over it; decoding checks bytes before it uses them and never
//! allocates more than the given bytes or a named limit allow. Numbers are little-endian. Order is bytewise.
//!
//! # Deliberately absent
//! No files, threads or clock: writers fill a `std::io::Write`, readers ask a [`ReadAt`]. No policy about memory.
//!
//! # How it is tested
//! Property tests in `tests/` (round trips, every single-bit flip found), golden and corrupt files in
//! `test_data/`, fuzz targets for all of it in `fuzz/`.

pub mod block;
pub mod encoding;
pub mod error;
pub mod frame;
pub mod key_index;
pub mod raw_chunk;
pub mod record;
pub mod run_file;
pub mod run_writer;
pub mod source_table;
pub mod spool;
pub mod verify;

pub use block::{BLOCK_HEADER_BYTES, BlockHeader};
pub use error::{FormatError, Problem};
pub use frame::{FRAME_HEADER_BYTES, FrameHeader};
pub use key_index::{IndexEntry, KeyIndex};
pub use record::{KeyShape, Record, record_hash};
pub use run_file::{ReadAt, RunFile};
pub use run_writer::RunWriter;
pub use source_table::SourceRow;
use std::ops::RangeInclusive;

/// Magic bytes at the start of a run file.
pub const RUN_MAGIC: [u8; 8] = *b"SFISHRUN";
/// Magic bytes at the start of a raw chunk file.
pub const RAW_CHUNK_MAGIC: [u8; 8] = *b"SFISHRAW";
/// Version of every part of the format that is written. Version 2 has separated records ([`record`]).
pub const FORMAT_VERSION: u16 = 2;
/// Readers refuse versions outside of this range.
const VERSIONS_READ: RangeInclusive<u16> = 1..=FORMAT_VERSION;
/// Maximum encoded record: 1 GiB of key and value plus its lengths.
pub const ENCODED_RECORD_BYTES_MAX: u64 = (1 << 30) + 32;
/// Maximum uncompressed block: one largest record with its source.
pub const BLOCK_BYTES_MAX: u64 = ENCODED_RECORD_BYTES_MAX + 16;
/// Maximum bytes of a block's first key in the key index.
pub const INDEX_KEY_BYTES_MAX: usize = 256;
