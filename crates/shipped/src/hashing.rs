//! The hash of a content.

use api::ContentHash;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of one read.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Returns the hash of bytes in memory.
pub fn hash_of(bytes: &[u8]) -> ContentHash {
    ContentHash(Sha256::digest(bytes).into())
}

/// The hash of a content that comes piece by piece.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn hash(self) -> ContentHash {
        ContentHash(self.0.finalize().into())
    }
}

/// Returns the hash of a file, and its length.
pub fn hash_file(path: &Path) -> std::io::Result<(ContentHash, u64)> {
    hash_pieces(&mut File::open(path)?, |_| Ok(()))
}

/// Returns the hash and the length of a reader's bytes, read piece by piece to the end.
pub(crate) fn hash_pieces(
    source: &mut impl Read,
    mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<(ContentHash, u64)> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match source.read(&mut piece) {
            Ok(0) => return Ok((ContentHash(hasher.finalize().into()), bytes)),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..read]);
        each(&piece[..read])?;
        bytes += read as u64;
    }
}
