//! Header, blocks and footer as bytes. Byte tables: `docs/formats/stage-file.md`.

use crate::Payload;
use crate::error::{DamageKind, DamagePlace, StageFileDamage};
use crate::layout::{BLOCK_PAYLOAD_BYTES, BlockLayout, PAYLOAD_BYTES_MAX};

/// The version that this program writes, and the only one that it reads.
pub const VERSION: u16 = 1;
/// Encoded size of the file header.
pub const HEADER_BYTES: usize = 32;
/// Encoded size of the header before the payload of each block.
pub const BLOCK_HEADER_BYTES: usize = 8;
/// Encoded size of the footer.
pub const FOOTER_BYTES: usize = 40;

const MAGIC: [u8; 8] = *b"SFISHSTG";
const END_MAGIC: [u8; 8] = *b"SFSTGEND";
const CRC_BYTES: usize = 4;

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(field(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(field(bytes, offset))
}

/// Checks the length of a structure of fixed size, and its checksum, which is in its last bytes.
fn check_whole(place: DamagePlace, bytes: &[u8], expected_bytes: usize) -> Result<(), StageFileDamage> {
    check_length(place, bytes, expected_bytes)?;
    let (covered, _) = bytes.split_at(expected_bytes - CRC_BYTES);
    let (stored, computed) = (u32_at(bytes, covered.len()), crc32c::crc32c(covered));
    if stored == computed {
        Ok(())
    } else {
        Err(StageFileDamage::at(place, DamageKind::Checksum { stored, computed }))
    }
}

fn check_length(place: DamagePlace, bytes: &[u8], expected_bytes: usize) -> Result<(), StageFileDamage> {
    let (present_bytes, expected_bytes) = (bytes.len() as u64, expected_bytes as u64);
    match present_bytes == expected_bytes {
        true => Ok(()),
        false => Err(StageFileDamage::at(place, DamageKind::Length { present_bytes, expected_bytes })),
    }
}

/// Checks that reserved bytes are zero, so that everything has one spelling and a later version may give them a
/// meaning.
fn check_reserved(place: DamagePlace, reserved: &[u8]) -> Result<(), StageFileDamage> {
    match reserved.iter().find(|byte| **byte != 0) {
        None => Ok(()),
        Some(byte) => {
            let problem = DamageKind::Field { what: "a reserved byte", value: (*byte).into() };
            Err(StageFileDamage::at(place, problem))
        }
    }
}

/// Encodes the start of every file.
pub fn encode_header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&BLOCK_PAYLOAD_BYTES.to_le_bytes());
    let crc32c = crc32c::crc32c(&bytes[..HEADER_BYTES - CRC_BYTES]);
    bytes[HEADER_BYTES - CRC_BYTES..].copy_from_slice(&crc32c.to_le_bytes());
    bytes
}

/// Checks the start of a file.
pub fn check_header(bytes: &[u8]) -> Result<(), StageFileDamage> {
    let place = DamagePlace::Header;
    check_length(place, bytes, HEADER_BYTES)?;
    if bytes[..8] != MAGIC {
        return Err(StageFileDamage::at(place, DamageKind::Foreign));
    }
    check_whole(place, bytes, HEADER_BYTES)?;
    let version = u16::from_le_bytes(field(bytes, 8));
    if version != VERSION {
        return Err(StageFileDamage::at(place, DamageKind::Version(version)));
    }
    check_reserved(place, &bytes[10..12])?;
    check_reserved(place, &bytes[16..28])?;
    let value = u32_at(bytes, 12);
    if value != BLOCK_PAYLOAD_BYTES {
        let problem = DamageKind::Field { what: "the payload of a block", value: value.into() };
        return Err(StageFileDamage::at(place, problem));
    }
    Ok(())
}

/// Returns the checksum of a block. It covers the block's number, which is not stored: this finds a block in the place
/// of another one.
fn block_crc32c(number: u64, payload: &[u8]) -> u32 {
    let mut front = [0; 12];
    front[..8].copy_from_slice(&number.to_le_bytes());
    front[8..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&front), payload)
}

/// Returns the header of block `number`, which precedes its payload. Panics if the payload is larger than a block can
/// hold.
pub fn block_header(number: u64, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
    assert!(payload.len() <= BLOCK_PAYLOAD_BYTES as usize, "a block of {} bytes", payload.len());
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&block_crc32c(number, payload).to_le_bytes());
    bytes
}

/// Verifies block `number` of a file, which is the beginning of `raw`, and returns its payload. Bytes after the block
/// are ignored.
pub fn check_block(layout: BlockLayout, number: u64, raw: &[u8]) -> Result<&[u8], StageFileDamage> {
    let place = DamagePlace::Block(number);
    let expected = layout.payload_of(number);
    let expected_bytes = BLOCK_HEADER_BYTES + expected as usize;
    if expected == 0 || raw.len() < expected_bytes {
        let (present_bytes, expected_bytes) = (raw.len() as u64, expected_bytes as u64);
        return Err(StageFileDamage::at(place, DamageKind::Length { present_bytes, expected_bytes }));
    }
    let (present, stored) = (u32_at(raw, 0), u32_at(raw, 4));
    if present != expected {
        let (present, expected) = (present.into(), expected.into());
        return Err(StageFileDamage::at(
            place,
            DamageKind::Unexpected { what: "the payload", present, expected },
        ));
    }
    let payload = &raw[BLOCK_HEADER_BYTES..expected_bytes];
    let computed = block_crc32c(number, payload);
    if stored != computed {
        return Err(StageFileDamage::at(place, DamageKind::Checksum { stored, computed }));
    }
    Ok(payload)
}

/// The end of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    pub payload: Payload,
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..16].copy_from_slice(&self.payload.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&BlockLayout::of(self.payload.bytes).blocks().to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload.crc32c.to_le_bytes());
        let crc32c = crc32c::crc32c(&bytes[..FOOTER_BYTES - CRC_BYTES]);
        bytes[FOOTER_BYTES - CRC_BYTES..].copy_from_slice(&crc32c.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, StageFileDamage> {
        let place = DamagePlace::Footer;
        check_length(place, bytes, FOOTER_BYTES)?;
        if bytes[..8] != END_MAGIC {
            return Err(StageFileDamage::at(place, DamageKind::NoEndMark));
        }
        check_whole(place, bytes, FOOTER_BYTES)?;
        check_reserved(place, &bytes[28..36])?;
        let payload = Payload { bytes: u64_at(bytes, 8), crc32c: u32_at(bytes, 24) };
        if payload.bytes > PAYLOAD_BYTES_MAX {
            let problem = DamageKind::Field { what: "the payload", value: payload.bytes };
            return Err(StageFileDamage::at(place, problem));
        }
        let (blocks, expected) = (u64_at(bytes, 16), BlockLayout::of(payload.bytes).blocks());
        if blocks != expected {
            let problem = DamageKind::Field { what: "the number of blocks", value: blocks };
            return Err(StageFileDamage::at(place, problem));
        }
        Ok(Self { payload })
    }

    /// Checks the footer of a file with the payload `expected`.
    pub(crate) fn check(bytes: &[u8], expected: Payload) -> Result<(), StageFileDamage> {
        let found = Self::decode(bytes)?.payload;
        let (crc32c, expected_crc32c) = (found.crc32c.into(), expected.crc32c.into());
        for (what, present, expected) in [
            ("the payload", found.bytes, expected.bytes),
            ("the checksum of the payload", crc32c, expected_crc32c),
        ] {
            if present != expected {
                let problem = DamageKind::Unexpected { what, present, expected };
                return Err(StageFileDamage::at(DamagePlace::Footer, problem));
            }
        }
        Ok(())
    }
}
