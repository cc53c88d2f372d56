//! # What it does
//! Stage files: what a task of one stage writes and tasks of the next one read, any bytes, in blocks of one size with
//! checksums. Writes them, reads ranges of their payload, verifies them as files, as slices and as streams. Bytes are in
//! `docs/formats/stage-file.md`.
//!
//! # Where it sits
//! reducer (the bytes of a part) -> stagefile -> mapper (a range of them), on this node; `dataport` carries its blocks
//! between nodes as they are.
//!
//! # Invariants
//! A file is written once, by one writer, and never changed; without its footer it is not complete, and a writer that is
//! dropped removes it. Nothing that was read is given out before its block is verified. Where a byte of the payload
//! lies is arithmetic: no index is needed to read from the middle. Whoever reads says which payload it expects, and a
//! file that holds another one is damage.
//!
//! # Deliberately absent
//! No knowledge of jobs, nodes or disks, no choice of a place, no compression, no threads, no second try: who has another copy
//! goes on there with the [`RangeDecoder`] of the one that failed.
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

/// Payload of a stage file, by size and checksum: the bytes that were written into it, without those that the format adds.
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
    /// Panics where no stage file can be as long.
    fn from(payload: Payload) -> Self {
        let stored_bytes = BlockLayout::of(payload.bytes).stored_bytes();
        Self { bytes: payload.bytes, crc32c: payload.crc32c, stored_bytes }
    }
}
