//! A range of the payload, decoded from stored blocks of any origin.

use crate::Payload;
use crate::error::{DamageKind, DamagePlace, StageFileDamage, StageFileError};
use crate::format::{BLOCK_HEADER_BYTES, check_block};
use crate::layout::{BLOCK_PAYLOAD_BYTES, BlockLayout, RawRange, STORED_BLOCK_BYTES};
use std::ops::Range;

/// Decoder that knows the next block and the wanted part of it. It holds no bytes, so that a reader whose copy fails
/// continues with it at another one.
#[derive(Clone, Debug)]
pub struct RangeDecoder {
    layout: BlockLayout,
    expected_crc32c: u32,
    /// Offsets in the payload of the next wanted byte, and of the end of the range.
    next: u64,
    end: u64,
    /// CRC-32C of all decoded bytes; None if the range is not the whole payload.
    crc32c: Option<u32>,
}

/// A verified block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Range of wanted payload within the raw bytes of the block.
    pub wanted: Range<usize>,
    /// Raw bytes of the block: the next one follows them.
    pub stored_bytes: usize,
}

impl RangeDecoder {
    /// Creates a decoder of bytes [offset, offset + length) of a payload.
    pub fn new(payload: Payload, offset: u64, length: u64) -> Result<Self, StageFileError> {
        let layout = BlockLayout::of(payload.bytes);
        let end = layout.end_of(offset, length)?;
        let is_whole = offset == 0 && end == payload.bytes;
        let crc32c = is_whole.then_some(0);
        Ok(Self { layout, expected_crc32c: payload.crc32c, next: offset, end, crc32c })
    }

    /// Returns the payload of the file.
    pub fn payload(&self) -> Payload {
        Payload { bytes: self.layout.bytes(), crc32c: self.expected_crc32c }
    }

    /// Returns the offset in the payload of the next wanted byte.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the number of wanted bytes left.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Returns the blocks to decode next, as many as fit `stored_bytes_max` bytes but at least one; None at the end.
    pub fn next_raw(&self, stored_bytes_max: usize) -> Option<RawRange> {
        let raw = self.layout.raw_range(self.next, self.left()).ok()?;
        let blocks_max = (stored_bytes_max / STORED_BLOCK_BYTES).max(1) as u64;
        (raw.blocks > 0).then(|| self.layout.raw_blocks(raw.first_block, raw.blocks.min(blocks_max)))
    }

    /// Returns the blocks after those, for requests before those are decoded; None if the range ends with them.
    pub fn raw_after(&self, raw: &RawRange, stored_bytes_max: usize) -> Option<RawRange> {
        let all = self.layout.raw_range(self.next, self.left()).ok()?;
        let next = raw.first_block + raw.blocks;
        let left = (all.first_block + all.blocks).checked_sub(next).filter(|left| *left > 0)?;
        let blocks_max = (stored_bytes_max / STORED_BLOCK_BYTES).max(1) as u64;
        Some(self.layout.raw_blocks(next, left.min(blocks_max)))
    }

    /// Verifies the next block, at the start of `raw`, and advances past it. After an error the position is unchanged.
    pub fn decode(&mut self, raw: &[u8]) -> Result<Decoded, StageFileDamage> {
        let size = u64::from(BLOCK_PAYLOAD_BYTES);
        let number = self.next / size;
        let payload = check_block(self.layout, number, raw)?;
        let first = (self.next - number * size) as usize;
        let end = (self.end - number * size).min(payload.len() as u64) as usize;
        let next = number * size + end as u64;
        if let Some(before) = self.crc32c {
            let computed = crc32c::crc32c_append(before, &payload[first..end]);
            if next == self.end && computed != self.expected_crc32c {
                let stored = self.expected_crc32c;
                return Err(StageFileDamage::at(
                    DamagePlace::Payload,
                    DamageKind::Checksum { stored, computed },
                ));
            }
            self.crc32c = Some(computed);
        }
        self.next = next;
        let wanted = BLOCK_HEADER_BYTES + first..BLOCK_HEADER_BYTES + end;
        Ok(Decoded { wanted, stored_bytes: BLOCK_HEADER_BYTES + payload.len() })
    }
}
