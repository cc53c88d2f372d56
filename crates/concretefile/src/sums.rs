//! Checksums of the blocks of a file, as a value and as bytes.

use crate::Content;
use crate::error::ConcreteDamage;
use std::sync::LazyLock;

/// Bytes of each block except the last, which has the rest.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// The version that this program writes, and the only one that it reads.
pub const SUMS_VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"SFISHSUM";
const HEADER_BYTES: usize = 32;
const CRC_BYTES: usize = 4;

/// The checksums of one bit each, as they become when a whole block of zeros follows. The change is linear, so that it
/// is computed once and not for each block.
static BITS_BEFORE_BLOCK: LazyLock<[u32; 32]> =
    LazyLock::new(|| std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, BLOCK_BYTES as usize)));

/// Returns the checksum of bytes and a following block from their checksums.
fn with_block(before: u32, block: u32, block_bytes: u64) -> u32 {
    if block_bytes != BLOCK_BYTES {
        return crc32c::crc32c_combine(before, block, block_bytes as usize);
    }
    let moved = BITS_BEFORE_BLOCK
        .iter()
        .enumerate()
        .fold(0, |sum, (bit, moved)| if before >> bit & 1 == 1 { sum ^ moved } else { sum });
    moved ^ block
}

/// CRC-32C of each block of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    pub(crate) blocks: Vec<u32>,
}

/// Computes checksums over bytes as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summing {
    whole: u32,
    bytes: u64,
    /// Checksum of the block that is not complete.
    open: u32,
    complete: Vec<u32>,
}

impl Summing {
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = self.bytes % BLOCK_BYTES;
            let room = (BLOCK_BYTES - within) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open = crc32c::crc32c_append(self.open, now);
            self.bytes += now.len() as u64;
            if now.len() == room {
                self.close_block(BLOCK_BYTES);
            }
            bytes = later;
        }
    }

    fn close_block(&mut self, bytes: u64) {
        self.whole = match self.complete.is_empty() {
            true => self.open,
            false => with_block(self.whole, self.open, bytes),
        };
        self.complete.push(std::mem::take(&mut self.open));
    }

    /// Returns the content and the checksums of its blocks.
    pub fn finish(mut self) -> (Content, BlockSums) {
        let rest = self.bytes % BLOCK_BYTES;
        if rest > 0 {
            self.close_block(rest);
        }
        (Content { bytes: self.bytes, crc32c: self.whole }, BlockSums { blocks: self.complete })
    }
}

impl BlockSums {
    /// Returns checksums that came from elsewhere. Whether they belong to a content is checked by [`Self::whole`].
    pub fn new(blocks: Vec<u32>) -> Self {
        Self { blocks }
    }

    /// Returns the checksums of a content of at most one block, which has no others.
    pub fn of_block(content: Content) -> Self {
        Self { blocks: (content.bytes > 0).then_some(content.crc32c).into_iter().collect() }
    }

    /// Returns the checksums, in the order of the blocks.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Returns the checksum of a whole file of this length whose blocks have these checksums. The number of blocks must
    /// be that of the length.
    pub fn whole(&self, bytes: u64) -> u32 {
        let mut left = bytes;
        self.blocks.iter().fold(0, |before, block| {
            let block_bytes = left.min(BLOCK_BYTES);
            left -= block_bytes;
            with_block(before, *block, block_bytes)
        })
    }

    /// Returns the bytes of the file with the checksums of this content.
    pub fn encode(&self, content: Content) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + (self.blocks.len() + 1) * CRC_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&SUMS_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes.extend_from_slice(&content.bytes.to_le_bytes());
        bytes.extend_from_slice(&content.crc32c.to_le_bytes());
        let header = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&header.to_le_bytes());
        self.blocks.iter().for_each(|block| bytes.extend_from_slice(&block.to_le_bytes()));
        let all = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&all.to_le_bytes());
        bytes
    }

    /// Returns the bytes of the file with the checksums of a content of this length.
    pub fn encoded_bytes(content_bytes: u64) -> u64 {
        (HEADER_BYTES + CRC_BYTES) as u64 + content_bytes.div_ceil(BLOCK_BYTES) * CRC_BYTES as u64
    }

    /// Decodes the checksums of an expected content. Anything else is refused, and every byte is covered.
    pub fn decode(bytes: &[u8], expected: Content) -> Result<Self, ConcreteDamage> {
        let wrong = |reason| Err(ConcreteDamage::Sums(reason));
        if bytes.len() as u64 != Self::encoded_bytes(expected.bytes) {
            return wrong("their file has another length");
        }
        let (covered, crc) = bytes.split_at(bytes.len() - CRC_BYTES);
        let number = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(four)
        };
        if crc32c::crc32c(covered).to_le_bytes() != crc {
            return wrong("their own checksum does not match");
        }
        let blocks: Vec<u32> = (HEADER_BYTES..covered.len()).step_by(CRC_BYTES).map(number).collect();
        let sums = Self { blocks };
        // The header has one spelling.
        match sums.encode(expected) == bytes {
            true => Ok(sums),
            false => wrong("they belong to another content or have another version"),
        }
    }
}
