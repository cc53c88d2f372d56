//! Layout of a stage file: the position of each byte of its payload.

use crate::error::StageFileError;
use crate::format::{BLOCK_HEADER_BYTES, FOOTER_BYTES, HEADER_BYTES};
use std::ops::Range;

/// Payload of each block except the last, which has the rest. Version 1 has no other size.
pub const BLOCK_PAYLOAD_BYTES: u32 = 64 << 10;
/// Stored bytes of a full block.
pub const STORED_BLOCK_BYTES: usize = BLOCK_HEADER_BYTES + BLOCK_PAYLOAD_BYTES as usize;
/// Maximum payload, so that no sum below overflows.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 48;

/// The arithmetic of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    bytes: u64,
}

/// Consecutive whole blocks of a file, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRange {
    pub first_block: u64,
    pub blocks: u64,
    /// Range of these blocks within the file's bytes.
    pub stored: Range<u64>,
}

impl BlockLayout {
    /// Returns the layout of a file with this many bytes of payload. Panics beyond [`PAYLOAD_BYTES_MAX`].
    pub fn of(bytes: u64) -> Self {
        assert!(bytes <= PAYLOAD_BYTES_MAX, "no stage file has {bytes} bytes");
        Self { bytes }
    }

    /// Returns the bytes of the payload.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    pub fn blocks(self) -> u64 {
        self.bytes.div_ceil(BLOCK_PAYLOAD_BYTES.into())
    }

    /// Returns the bytes of the file.
    pub fn stored_bytes(self) -> u64 {
        self.footer_offset() + FOOTER_BYTES as u64
    }

    /// Returns the offset of the footer, where the blocks end.
    pub fn footer_offset(self) -> u64 {
        HEADER_BYTES as u64 + self.bytes + self.blocks() * BLOCK_HEADER_BYTES as u64
    }

    /// Returns the bytes of payload in a block; 0 if there is no such block.
    pub fn payload_of(self, block: u64) -> u32 {
        let before = block.saturating_mul(BLOCK_PAYLOAD_BYTES.into());
        let left = self.bytes.saturating_sub(before);
        left.min(BLOCK_PAYLOAD_BYTES.into()) as u32
    }

    /// Returns this many blocks from `first_block` on, or fewer at the end.
    pub fn raw_blocks(self, first_block: u64, blocks: u64) -> RawRange {
        let first_block = first_block.min(self.blocks());
        let end_block = first_block.saturating_add(blocks).min(self.blocks());
        let offset = |block: u64| {
            let payload = (block * u64::from(BLOCK_PAYLOAD_BYTES)).min(self.bytes);
            HEADER_BYTES as u64 + payload + block * BLOCK_HEADER_BYTES as u64
        };
        RawRange {
            first_block,
            blocks: end_block - first_block,
            stored: offset(first_block)..offset(end_block),
        }
    }

    /// Returns the blocks of a range of the payload; none for an empty one.
    pub fn raw_range(self, offset: u64, length: u64) -> Result<RawRange, StageFileError> {
        let end = self.end_of(offset, length)?;
        let size = u64::from(BLOCK_PAYLOAD_BYTES);
        let first_block = offset / size;
        Ok(match length {
            0 => self.raw_blocks(first_block, 0),
            _ => self.raw_blocks(first_block, end.div_ceil(size) - first_block),
        })
    }

    /// Returns the end of a range of the payload.
    pub(crate) fn end_of(self, offset: u64, length: u64) -> Result<u64, StageFileError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes);
        end.ok_or(StageFileError::OutOfRange { bytes: self.bytes, offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_PAYLOAD_BYTES, BlockLayout};

    const BLOCK: u64 = BLOCK_PAYLOAD_BYTES as u64;

    #[test]
    fn blocks_follow_each_other() {
        let check = |bytes: u64, blocks: u64, stored_bytes: u64, last: u64| {
            let layout = BlockLayout::of(bytes);
            let found =
                (layout.blocks(), layout.stored_bytes(), u64::from(layout.payload_of(blocks.max(1) - 1)));
            assert_eq!(found, (blocks, stored_bytes, last), "{bytes}");
            assert_eq!(layout.payload_of(blocks), 0);
            assert_eq!(layout.raw_blocks(0, u64::MAX).stored, 32..layout.footer_offset());
        };
        check(0, 0, 72, 0);
        check(1, 1, 81, 1);
        check(BLOCK, 1, 80 + BLOCK, BLOCK);
        check(BLOCK + 1, 2, 89 + BLOCK, 1);
        check(10 * BLOCK, 10, 152 + 10 * BLOCK, BLOCK);
        check(1 << 48, 1 << 32, 72 + (1 << 48) + (8 << 32), BLOCK);
    }

    #[test]
    fn range_lies_in_the_blocks_it_touches() {
        let layout = BlockLayout::of(2 * BLOCK + 5);
        let check = |offset: u64, length: u64, expected: Option<(u64, u64)>| {
            let found = layout.raw_range(offset, length).ok();
            assert_eq!(found.map(|raw| (raw.first_block, raw.blocks)), expected, "{offset} {length}");
        };
        check(0, 0, Some((0, 0)));
        check(0, 1, Some((0, 1)));
        check(BLOCK - 1, 1, Some((0, 1)));
        check(BLOCK - 1, 2, Some((0, 2)));
        check(BLOCK, BLOCK, Some((1, 1)));
        check(1, 2 * BLOCK + 4, Some((0, 3)));
        check(2 * BLOCK + 5, 0, Some((2, 0)));
        check(2 * BLOCK + 5, 1, None);
        check(u64::MAX, 2, None);
    }
}
