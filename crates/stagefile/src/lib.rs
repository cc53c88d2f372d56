//! # What it does
//! Stage files: the output of a task of one stage that tasks of the next one read, any bytes, in blocks of one size
//! with checksums. Writes them, reads ranges of their payload, verifies them as files, as slices and as streams. The
//! byte tables are in `docs/formats/stage-file.md`.
//!
//! # Where it sits
//! reducer (the bytes of a part) -> stagefile -> mapper (a range of them), on this node; `dataport` carries its blocks
//! unchanged between nodes.
//!
//! # Invariants
//! A file is written once, by one writer, and never changed; without its footer it is incomplete, and a dropped writer
//! removes it. No bytes are returned before their block is verified. The place of a byte of the payload is arithmetic:
//! reading from the middle needs no index. A reader gives the expected payload, and a file with another one is damaged.
//!
//! # Deliberately absent
//! No knowledge of jobs, nodes or disks, no choice of a place, no compression, no threads, no retry: a caller with
//! another copy continues there with the [`RangeDecoder`] of the failed one.
//!
//! # How it is tested
//! Against a model (`tests/model.rs`); by flipping and cutting everything (`tests/damage.rs`); golden files of each
//! version; the decoders are fuzzed.
//!
//! Source: the intermediate files of the Intermediate Storage System (ISS), section 6.1 (one writer, immutable); its
//! readers wait for the first complete copy.

mod copying;
mod error;
mod format;
mod layout;
mod range;
mod reader;
mod receiving;
mod verifier;
mod writer;

pub use copying::RawPieces;
pub use diskfile::Syncing;
pub use error::{DamageKind, DamagePlace, StageFileDamage, StageFileError};
pub use format::{
    BLOCK_HEADER_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, VERSION, block_header, check_block, check_header,
    encode_header,
};
pub use layout::{BLOCK_PAYLOAD_BYTES, BlockLayout, PAYLOAD_BYTES_MAX, RawRange, STORED_BLOCK_BYTES};
pub use range::{Decoded, RangeDecoder};
pub use reader::{RawFile, StageFileReader, verify};
pub use receiving::RawWriter;
pub use verifier::RawVerifier;
pub use writer::StageFileWriter;

/// Payload of a stage file, by size and checksum: the written bytes, without those that the format adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}

/// A complete stage file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageFileSummary {
    /// Bytes of the payload.
    pub bytes: u64,
    /// CRC-32C of the payload.
    pub crc32c: u32,
    /// Bytes of the file.
    pub stored_bytes: u64,
}

impl StageFileSummary {
    /// Returns the payload of the file.
    pub fn payload(&self) -> Payload {
        Payload { bytes: self.bytes, crc32c: self.crc32c }
    }
}

impl From<Payload> for StageFileSummary {
    /// Panics if the file would be too long for a stage file.
    fn from(payload: Payload) -> Self {
        let stored_bytes = BlockLayout::of(payload.bytes).stored_bytes();
        Self { bytes: payload.bytes, crc32c: payload.crc32c, stored_bytes }
    }
}
