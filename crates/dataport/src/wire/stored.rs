//! The messages about stored files, as bytes. Byte tables: `docs/protocol-data.md`.

pub mod answer;

use crate::wire::messages::{MESSAGE_BYTES_MAX, all_read, begin, end, limited, open};
use crate::wire::token::Token;
use api::StoredPart;
use concretefile::{BLOCK_BYTES, Content};
use ids::{ConcreteId, NodeId};
use ifile::encoding::FieldReader;
use ifile::{FormatError, Problem};
use std::ops::Range;

/// Maximum number of parts in a request.
pub const PARTS_PER_REQUEST_MAX: u32 = 10_000;
/// Maximum bytes of a part.
pub const STORED_PART_BYTES_MAX: u64 = 1 << 40;
/// Maximum bytes of a piece of a part.
pub const STORED_PIECE_BYTES_MAX: u32 = 1 << 20;
/// Maximum bytes of the text of a token.
pub const TOKEN_BYTES_MAX: u32 = 4 << 10;
/// Bytes that are gathered before they are passed to a connection, so that many small parts travel together.
pub(crate) const GATHERED_BYTES: usize = 256 << 10;

/// Instead of the number of a part: the upload is complete.
pub(crate) const UPLOAD_END: u64 = u64::MAX;

const READ: [u8; 4] = *b"SFFR";
const FETCH: [u8; 4] = *b"SFFF";
const PART_BYTES: usize = 20;
const RANGE_BYTES: usize = PART_BYTES + 16;
// The longest message.
const _: () =
    assert!(PARTS_PER_REQUEST_MAX as usize * RANGE_BYTES + TOKEN_BYTES_MAX as usize + 64 < MESSAGE_BYTES_MAX);

/// Bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRange {
    pub part: StoredPart,
    pub offset: u64,
    pub bytes: u64,
}

impl PartRange {
    /// Returns all bytes of a part.
    pub fn whole(part: StoredPart) -> Self {
        Self { part, offset: 0, bytes: part.bytes }
    }

    /// Returns the range without bytes beyond the end of its part.
    pub(crate) fn within_part(self) -> Self {
        let offset = self.offset.min(self.part.bytes);
        Self { part: self.part, offset, bytes: self.bytes.min(self.part.bytes - offset) }
    }

    /// Returns the numbers of the blocks that have these bytes.
    pub(crate) fn blocks(&self) -> Range<u64> {
        match self.bytes {
            0 => 0..0,
            bytes => self.offset / BLOCK_BYTES..(self.offset + bytes).div_ceil(BLOCK_BYTES),
        }
    }
}

/// Returns the content that a part should have.
pub(crate) fn content_of(part: &StoredPart) -> Content {
    Content { bytes: part.bytes, crc32c: part.crc32c }
}

/// Returns the number of checksums of blocks that precede the bytes of a part: none if it has one block, whose checksum
/// is that of the part.
pub(crate) fn sums_sent(part: &StoredPart) -> u64 {
    if part.bytes > BLOCK_BYTES { part.bytes.div_ceil(BLOCK_BYTES) } else { 0 }
}

/// Returns the number of a concrete file; an error for a number that no file has.
pub(crate) fn concrete_of(number: u64) -> Result<ConcreteId, FormatError> {
    limited("the number of a concrete file", number, i64::MAX as u64).map(|number| ConcreteId(number as i64))
}

fn put_part(out: &mut Vec<u8>, part: &StoredPart) {
    out.extend_from_slice(&part.concrete.0.to_le_bytes());
    out.extend_from_slice(&part.bytes.to_le_bytes());
    out.extend_from_slice(&part.crc32c.to_le_bytes());
}

fn take_part(fields: &mut FieldReader<'_>) -> Result<StoredPart, FormatError> {
    let concrete = concrete_of(fields.u64()?)?;
    let bytes = limited("the bytes of a part", fields.u64()?, STORED_PART_BYTES_MAX)?;
    Ok(StoredPart { concrete, bytes, crc32c: fields.u32()? })
}

/// A request for bytes of parts; they are answered in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReadRequest {
    pub ranges: Vec<PartRange>,
}

impl StoredReadRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(READ);
        out.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        for range in &self.ranges {
            put_part(&mut out, &range.part);
            out.extend_from_slice(&range.offset.to_le_bytes());
            out.extend_from_slice(&range.bytes.to_le_bytes());
        }
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(READ, "read of stored files", bytes)?;
        let count = limited("the number of parts", fields.u32()?.into(), PARTS_PER_REQUEST_MAX.into())?;
        let mut ranges = Vec::with_capacity((count as usize).min(fields.remaining() / RANGE_BYTES));
        for _ in 0..count {
            let part = take_part(&mut fields)?;
            let offset = limited("the offset in a part", fields.u64()?, part.bytes)?;
            let bytes = limited("the bytes of a range", fields.u64()?, part.bytes - offset)?;
            ranges.push(PartRange { part, offset, bytes });
        }
        all_read(&fields)?;
        Ok(Self { ranges })
    }
}

/// A request to fetch parts from another node. It names a node, never an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFetchRequest {
    pub from: NodeId,
    /// The token to show there.
    pub token: Token,
    pub parts: Vec<StoredPart>,
}

impl StoredFetchRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(FETCH);
        out.extend_from_slice(&self.from.0.to_le_bytes());
        out.extend_from_slice(&(self.token.text().len() as u32).to_le_bytes());
        out.extend_from_slice(self.token.text().as_bytes());
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        self.parts.iter().for_each(|part| put_part(&mut out, part));
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(FETCH, "fetch of stored files", bytes)?;
        let from = NodeId(fields.u32()?);
        let length = limited("the bytes of a token", fields.u32()?.into(), TOKEN_BYTES_MAX.into())?;
        let no_token = fields.problem(Problem::Field { what: "a token", value: length });
        let text = String::from_utf8_lossy(fields.take(length as usize)?).into_owned();
        let token = Token::new(text).ok_or(no_token)?;
        let count = limited("the number of parts", fields.u32()?.into(), PARTS_PER_REQUEST_MAX.into())?;
        let mut parts = Vec::with_capacity((count as usize).min(fields.remaining() / PART_BYTES));
        for _ in 0..count {
            parts.push(take_part(&mut fields)?);
        }
        all_read(&fields)?;
        Ok(Self { from, token, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::tests::check;

    fn part(number: i64, bytes: u64) -> StoredPart {
        StoredPart { concrete: ConcreteId(number), bytes, crc32c: 0x1234_5678 }
    }

    #[test]
    fn messages_round_trip_and_damaged_ones_are_refused() {
        for ranges in [
            vec![],
            vec![PartRange::whole(part(0, 0))],
            vec![
                PartRange { part: part(i64::MAX, 200_000), offset: 70_000, bytes: 130_000 },
                PartRange::whole(part(7, STORED_PART_BYTES_MAX)),
                PartRange { part: part(9, 5), offset: 5, bytes: 0 },
            ],
        ] {
            let read = StoredReadRequest { ranges };
            check(read.clone(), &read.encode(), StoredReadRequest::decode);
        }
        for parts in [vec![], vec![part(1, 2), part(3, 4)]] {
            let token = Token::new("stored.write.1.3.9.key.signature".into()).expect("visible");
            let fetch = StoredFetchRequest { from: NodeId(3), token, parts };
            check(fetch.clone(), &fetch.encode(), StoredFetchRequest::decode);
        }
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let check = |number: i64, part_bytes: u64, offset: u64, bytes: u64, is_one: bool| {
            let range = PartRange { part: part(number, part_bytes), offset, bytes };
            let read = StoredReadRequest { ranges: vec![range] };
            assert_eq!(StoredReadRequest::decode(&read.encode()).is_ok(), is_one, "{range:?}");
        };
        check(1, 10, 3, 7, true);
        check(1, 10, 3, 8, false);
        check(1, 10, 11, 0, false);
        check(1, 10, u64::MAX, 2, false);
        check(1, 10, 2, u64::MAX, false);
        check(-1, 10, 0, 10, false);
        check(1, STORED_PART_BYTES_MAX + 1, 0, 1, false);
    }

    #[test]
    fn requests_beyond_a_limit_are_refused() {
        let many = |count: u32| vec![part(1, 1); count as usize];
        let check = |token: usize, count: u32, is_one: bool| {
            let token = Token::new("t".repeat(token)).expect("visible");
            let fetch = StoredFetchRequest { from: NodeId(1), token, parts: many(count) };
            assert_eq!(StoredFetchRequest::decode(&fetch.encode()).is_ok(), is_one);
            let read = StoredReadRequest { ranges: many(count).into_iter().map(PartRange::whole).collect() };
            let is_short = count <= PARTS_PER_REQUEST_MAX;
            assert_eq!(StoredReadRequest::decode(&read.encode()).is_ok(), is_short);
        };
        check(TOKEN_BYTES_MAX as usize, PARTS_PER_REQUEST_MAX, true);
        check(TOKEN_BYTES_MAX as usize + 1, 1, false);
        check(1, PARTS_PER_REQUEST_MAX + 1, false);
        for text in [&b""[..], b"a b", b"a\nb", b"\xff\xfe"] {
            let mut out = begin(FETCH);
            out.extend_from_slice(&3u32.to_le_bytes());
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
            out.extend_from_slice(&0u32.to_le_bytes());
            assert!(StoredFetchRequest::decode(&end(out)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn blocks_of_a_range_cover_it() {
        let check = |offset: u64, bytes: u64, expected: Range<u64>| {
            let range = PartRange { part: part(1, 10 * BLOCK_BYTES), offset, bytes };
            assert_eq!(range.blocks(), expected, "{offset} {bytes}");
        };
        check(0, 0, 0..0);
        check(5 * BLOCK_BYTES, 0, 0..0);
        check(0, 1, 0..1);
        check(BLOCK_BYTES - 1, 2, 0..2);
        check(BLOCK_BYTES, BLOCK_BYTES, 1..2);
        check(3, 10 * BLOCK_BYTES - 3, 0..10);
    }
}
