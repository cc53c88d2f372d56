//! The unchanged bytes of a stage file, front to back, for a copy on another node.

use crate::Payload;
use crate::error::StageFileError;
use crate::layout::STORED_BLOCK_BYTES;
use crate::reader::RawFile;
use crate::verifier::RawVerifier;
use std::path::Path;

/// Bytes of a piece.
const PIECE_BYTES: usize = 4 * STORED_BLOCK_BYTES;

/// The file in pieces. Each is verified before it is returned: a copy of a damaged file would be worse than none.
pub struct RawPieces {
    file: RawFile,
    verifier: RawVerifier,
    offset: u64,
}

impl RawPieces {
    /// Opens a file that must have the payload `expected`.
    pub fn open(path: &Path, expected: Payload) -> Result<Self, StageFileError> {
        let file = RawFile::open(path, expected)?;
        Ok(Self { file, verifier: RawVerifier::new(expected), offset: 0 })
    }

    /// Returns the bytes of the whole file.
    pub fn stored_bytes(&self) -> u64 {
        self.file.layout().stored_bytes()
    }

    /// Returns the next bytes of the file, about 256 KiB; None at its end. If a block crosses the end of a piece, its
    /// damage is found with the next piece.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, StageFileError> {
        let count = (self.stored_bytes() - self.offset).min(PIECE_BYTES as u64) as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; count];
        self.file.read_exact(self.offset, &mut piece)?;
        self.verifier.push(&piece).map_err(|damage| self.file.damaged(damage))?;
        self.offset += count as u64;
        Ok(Some(piece))
    }
}
