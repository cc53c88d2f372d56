//! A whole stage file, verified in transit.

use crate::Payload;
use crate::error::{DamageKind, DamagePlace, StageFileDamage};
use crate::format::{BLOCK_HEADER_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, check_block, check_header};
use crate::layout::BlockLayout;

/// Verifier that takes a file front to back, in pieces of any size. The accepted bytes are in the end, byte for byte,
/// the file that a writer makes of that payload. It holds at most one block.
#[derive(Clone, Debug)]
pub struct RawVerifier {
    expected: Payload,
    layout: BlockLayout,
    part: Part,
    /// Beginning of that part, if its end has not arrived yet.
    partial: Vec<u8>,
    /// CRC-32C of the payload of the blocks so far.
    crc32c: u32,
}

/// The next part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Block(u64),
    Footer,
    End,
}

impl RawVerifier {
    /// Creates a verifier of a file with this payload.
    pub fn new(expected: Payload) -> Self {
        let layout = BlockLayout::of(expected.bytes);
        Self { expected, layout, part: Part::Header, partial: Vec::new(), crc32c: 0 }
    }

    /// Takes the next bytes of the file. After an error it must not be used any more.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), StageFileDamage> {
        while !bytes.is_empty() {
            let needed = self.part_bytes();
            if needed == 0 {
                return Err(self.wrong_length(self.layout.stored_bytes() + bytes.len() as u64));
            }
            if self.partial.is_empty() && bytes.len() >= needed {
                let (part, rest) = bytes.split_at(needed);
                self.take(part)?;
                bytes = rest;
                continue;
            }
            let count = bytes.len().min(needed - self.partial.len());
            self.partial.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.partial.len() == needed {
                let mut part = std::mem::take(&mut self.partial);
                self.take(&part)?;
                part.clear();
                self.partial = part;
            }
        }
        Ok(())
    }

    /// Checks that the file is complete.
    pub fn finish(self) -> Result<(), StageFileDamage> {
        match self.part {
            Part::End => Ok(()),
            _ => Err(self.wrong_length(self.taken_bytes() + self.partial.len() as u64)),
        }
    }

    fn wrong_length(&self, present_bytes: u64) -> StageFileDamage {
        let expected_bytes = self.layout.stored_bytes();
        StageFileDamage::at(DamagePlace::File, DamageKind::Length { present_bytes, expected_bytes })
    }

    /// Returns the bytes of the next part.
    fn part_bytes(&self) -> usize {
        match self.part {
            Part::Header => HEADER_BYTES,
            Part::Block(number) => BLOCK_HEADER_BYTES + self.layout.payload_of(number) as usize,
            Part::Footer => FOOTER_BYTES,
            Part::End => 0,
        }
    }

    /// Returns the bytes of the parts before it.
    fn taken_bytes(&self) -> u64 {
        match self.part {
            Part::Header => 0,
            Part::Block(number) => self.layout.raw_blocks(0, number).stored.end,
            Part::Footer => self.layout.footer_offset(),
            Part::End => self.layout.stored_bytes(),
        }
    }

    fn take(&mut self, part: &[u8]) -> Result<(), StageFileDamage> {
        self.part = match self.part {
            Part::Header => {
                check_header(part)?;
                self.after_block(0)
            }
            Part::Block(number) => {
                let payload = check_block(self.layout, number, part)?;
                self.crc32c = crc32c::crc32c_append(self.crc32c, payload);
                self.after_block(number + 1)
            }
            Part::Footer => {
                Footer::check(part, self.expected)?;
                let (stored, computed) = (self.expected.crc32c, self.crc32c);
                if stored != computed {
                    return Err(StageFileDamage::at(
                        DamagePlace::Payload,
                        DamageKind::Checksum { stored, computed },
                    ));
                }
                Part::End
            }
            Part::End => return Err(self.wrong_length(self.layout.stored_bytes() + part.len() as u64)),
        };
        Ok(())
    }

    fn after_block(&self, next: u64) -> Part {
        if next < self.layout.blocks() { Part::Block(next) } else { Part::Footer }
    }
}
