//! Reader of a concrete file: every block is verified before a byte of it is returned.

use crate::Content;
use crate::directory::sums_path;
use crate::error::{ConcreteDamage, ConcreteError};
use crate::sums::{BLOCK_BYTES, BlockSums};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Blocks that are read at once.
const BLOCKS_AT_ONCE: u64 = 16;

/// An open concrete file.
#[derive(Debug)]
pub struct ConcreteReader {
    path: PathBuf,
    file: File,
    content: Content,
    sums: BlockSums,
    /// The last blocks that were read and verified, and the number of the first of them.
    held: Vec<u8>,
    held_block: u64,
}

impl ConcreteReader {
    /// Opens a file of an expected content.
    pub(crate) fn open(path: PathBuf, content: Content) -> Result<Self, ConcreteError> {
        let file = File::open(&path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => ConcreteError::damaged(&path, ConcreteDamage::Missing),
            _ => ConcreteError::Io { action: "open", path: path.clone(), source },
        })?;
        let present = file.metadata().map_err(ConcreteError::io("open", &path))?.len();
        if present != content.bytes {
            let expected = content.bytes;
            return Err(ConcreteError::damaged(&path, ConcreteDamage::Length { present, expected }));
        }
        let sums = match content.bytes > BLOCK_BYTES {
            true => read_sums(&path, content)?,
            false => BlockSums::of_block(content),
        };
        Ok(Self { path, file, content, sums, held: Vec::new(), held_block: 0 })
    }

    /// Returns the content that the file should have.
    pub fn content(&self) -> Content {
        self.content
    }

    /// Returns a reader of the same open file for another thread.
    pub fn another(&self) -> Result<Self, ConcreteError> {
        let file = self.file.try_clone().map_err(ConcreteError::io("open", &self.path))?;
        let (path, sums) = (self.path.clone(), self.sums.clone());
        Ok(Self { path, file, content: self.content, sums, held: Vec::new(), held_block: 0 })
    }

    /// Returns the open file. Nothing of it is verified.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Returns the checksums of its blocks. They are those that were stored with the file: a reader on another machine
    /// checks them against the content.
    pub fn sums(&self) -> &BlockSums {
        &self.sums
    }

    /// Returns verified bytes from `offset` on: at least one, at most `bytes_max`; none at the end of the file.
    pub fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], ConcreteError> {
        if offset >= self.content.bytes || bytes_max == 0 {
            return Ok(&[]);
        }
        let first = self.held_block * BLOCK_BYTES;
        if offset < first || offset >= first + self.held.len() as u64 {
            let wanted = (offset % BLOCK_BYTES).saturating_add(bytes_max as u64).div_ceil(BLOCK_BYTES);
            self.hold(offset / BLOCK_BYTES, wanted.min(BLOCKS_AT_ONCE))?;
        }
        let within = (offset - self.held_block * BLOCK_BYTES) as usize;
        let end = within.saturating_add(bytes_max).min(self.held.len());
        Ok(&self.held[within..end])
    }

    /// Reads and verifies blocks.
    fn hold(&mut self, first_block: u64, blocks: u64) -> Result<(), ConcreteError> {
        let offset = first_block * BLOCK_BYTES;
        let bytes = (blocks * BLOCK_BYTES).min(self.content.bytes - offset);
        let mut held = std::mem::take(&mut self.held);
        held.resize(bytes as usize, 0);
        self.file.read_exact_at(&mut held, offset).map_err(ConcreteError::io("read", &self.path))?;
        for (block, payload) in (first_block..).zip(held.chunks(BLOCK_BYTES as usize)) {
            let (stored, computed) = (self.sums.blocks[block as usize], crc32c::crc32c(payload));
            if stored != computed {
                let damage = ConcreteDamage::Block { block, stored, computed };
                return Err(ConcreteError::damaged(&self.path, damage));
            }
        }
        (self.held, self.held_block) = (held, first_block);
        Ok(())
    }
}

fn read_sums(path: &Path, content: Content) -> Result<BlockSums, ConcreteError> {
    let beside = sums_path(path);
    let missing = || ConcreteError::damaged(path, ConcreteDamage::Sums("their file does not exist"));
    let file = File::open(&beside).map_err(|source| match source.kind() {
        ErrorKind::NotFound => missing(),
        _ => ConcreteError::Io { action: "open", path: beside.clone(), source },
    })?;
    // A longer file is damaged, whatever its length.
    let bytes_max = BlockSums::encoded_bytes(content.bytes) + 1;
    let mut bytes = Vec::with_capacity(bytes_max as usize);
    file.take(bytes_max).read_to_end(&mut bytes).map_err(ConcreteError::io("read", &beside))?;
    BlockSums::decode(&bytes, content).map_err(|damage| ConcreteError::damaged(path, damage))
}

/// Reads a whole file, and verifies its blocks and its checksum.
pub fn verify(mut reader: ConcreteReader) -> Result<(), ConcreteError> {
    let (mut offset, mut computed) = (0, 0);
    while offset < reader.content.bytes {
        let piece = reader.read(offset, (BLOCKS_AT_ONCE * BLOCK_BYTES) as usize)?;
        computed = crc32c::crc32c_append(computed, piece);
        offset += piece.len() as u64;
    }
    let expected = reader.content.crc32c;
    match computed == expected {
        true => Ok(()),
        false => Err(ConcreteError::damaged(&reader.path, ConcreteDamage::Whole { expected, computed })),
    }
}
