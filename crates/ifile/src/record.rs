//! One record: a key and a value, any bytes, after their lengths.
//!
//! A record can be *separated*: its line had a separator with nothing after it. A non-empty value implies the
//! separator. The mark does not affect order, groups or equality; it is in the length of the value
//! ([`get_marked_varint`]), so that other records are as long as without it, and in the hash.

use crate::ENCODED_RECORD_BYTES_MAX;
use crate::encoding::{get_marked_varint, get_varint, varint_bytes};
use xxhash_rust::xxh3::xxh3_128;

/// Extent of the partition key of a record: the whole sort key, or a prefix of it whose length is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyShape {
    #[default]
    Whole,
    /// No partition key may be a prefix of another, so that a group is one stretch of the sort order.
    Prefix,
}

/// A decoded record, borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The first bytes of `key` that are the partition key.
    pub partition_key_bytes: usize,
    /// The encoded record: lengths, key, value; the input of sums and hashes.
    pub encoded: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the bytes that decide the group.
    #[inline]
    pub fn partition_key(&self) -> &'a [u8] {
        &self.key[..self.partition_key_bytes]
    }

    /// Returns whether the record has the mark.
    #[inline]
    pub fn is_separated(&self) -> bool {
        // Two lengths in two bytes leave no room for the mark. The lengths are at hand; the bytes need not be read.
        let header_bytes = self.encoded.len() - self.key.len() - self.value.len();
        header_bytes > 2 && self.has_mark()
    }

    fn has_mark(&self) -> bool {
        let value_length =
            get_varint(self.encoded).and_then(|(_, taken)| get_marked_varint(&self.encoded[taken..]));
        value_length.is_some_and(|(_, _, is_marked)| is_marked)
    }
}

/// The encoded lengths before a record. In one number, so that they go from register to memory at once.
#[derive(Clone, Copy)]
pub struct RecordHeader {
    /// The first byte is the lowest one; zeros follow the last.
    bytes: u128,
    len: usize,
}

impl RecordHeader {
    /// Room for three lengths of records that fit [`ENCODED_RECORD_BYTES_MAX`], and one more byte.
    pub const BYTES_MAX: usize = size_of::<u128>();

    /// Encodes the lengths. `partition_key_bytes` is stored for [`KeyShape::Prefix`] only. Panics if a length takes
    /// more than five bytes: no record is so large.
    #[inline]
    pub fn new(shape: KeyShape, key_len: usize, value_len: usize, partition_key_bytes: usize) -> Self {
        if shape == KeyShape::Whole && key_len < 0x80 && value_len < 0x80 {
            return Self { bytes: key_len as u128 | (value_len as u128) << 8, len: 2 };
        }
        let mut header = Self { bytes: 0, len: 0 };
        header.push(key_len as u64);
        header.push(value_len as u64);
        if shape == KeyShape::Prefix {
            header.push(partition_key_bytes as u64);
        }
        header
    }

    /// Encodes the lengths with the mark of a separated record.
    #[cold]
    pub fn separated(shape: KeyShape, key_len: usize, value_len: usize, partition_key_bytes: usize) -> Self {
        let mut header = Self { bytes: 0, len: 0 };
        header.push(key_len as u64);
        header.push(value_len as u64);
        header.bytes |= 0x80 << (8 * (header.len - 1));
        header.len += 1;
        if shape == KeyShape::Prefix {
            header.push(partition_key_bytes as u64);
        }
        header
    }

    fn push(&mut self, value: u64) {
        let (bytes, len) = varint_bytes(value);
        assert!(len <= 5, "a length of {value} bytes");
        for byte in &bytes[..len] {
            self.bytes |= u128::from(*byte) << (8 * self.len);
            self.len += 1;
        }
    }

    /// Returns the bytes of the encoded lengths.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there are always lengths")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the encoded lengths, with zeros after them.
    #[inline]
    pub fn padded(&self) -> [u8; Self::BYTES_MAX] {
        self.bytes.to_le_bytes()
    }
}

/// Decodes the record at the front of `bytes`. None if the bytes are not a record: lengths beyond the end, a partition
/// key longer than the key, more than [`ENCODED_RECORD_BYTES_MAX`] bytes.
#[inline]
pub fn decode(shape: KeyShape, bytes: &[u8]) -> Option<Record<'_>> {
    if let (KeyShape::Whole, [key_len, value_len, rest @ ..]) = (shape, bytes)
        && (*key_len | *value_len) < 0x80
    {
        let (key_len, value_len) = (usize::from(*key_len), usize::from(*value_len));
        let body = rest.get(..key_len + value_len)?;
        let (key, value) = body.split_at(key_len);
        return Some(Record {
            key,
            value,
            partition_key_bytes: key_len,
            encoded: &bytes[..2 + key_len + value_len],
        });
    }
    decode_long(shape, bytes)
}

fn decode_long(shape: KeyShape, bytes: &[u8]) -> Option<Record<'_>> {
    let (key_len, first) = get_varint(bytes)?;
    let (value_len, second, _) = get_marked_varint(&bytes[first..])?;
    let mut header = first + second;
    let mut partition_key_bytes = key_len;
    if shape == KeyShape::Prefix {
        let (length, third) = get_varint(&bytes[header..])?;
        header += third;
        partition_key_bytes = length;
    }
    if key_len > ENCODED_RECORD_BYTES_MAX
        || value_len > ENCODED_RECORD_BYTES_MAX
        || header as u64 + key_len + value_len > ENCODED_RECORD_BYTES_MAX
        || partition_key_bytes > key_len
    {
        return None;
    }
    let total = header + (key_len + value_len) as usize;
    let encoded = bytes.get(..total)?;
    let (key, value) = encoded[header..].split_at(key_len as usize);
    Some(Record { key, value, partition_key_bytes: partition_key_bytes as usize, encoded })
}

/// Appends an encoded record to `out`.
pub fn encode(shape: KeyShape, key: &[u8], value: &[u8], partition_key_bytes: usize, out: &mut Vec<u8>) {
    let header = RecordHeader::new(shape, key.len(), value.len(), partition_key_bytes);
    out.extend_from_slice(&header.padded()[..header.len()]);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Appends an encoded separated record to `out`.
pub fn encode_separated(
    shape: KeyShape,
    key: &[u8],
    value: &[u8],
    partition_key_bytes: usize,
    out: &mut Vec<u8>,
) {
    let header = RecordHeader::separated(shape, key.len(), value.len(), partition_key_bytes);
    out.extend_from_slice(&header.padded()[..header.len()]);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Returns the first eight bytes of a key as a number, zero padded: keys with different prefixes compare like these.
#[inline]
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Returns the [`key_prefix`] of the key of `record`, read in one piece if more bytes of the record follow the key.
#[inline]
pub fn record_key_prefix(record: &Record<'_>) -> u64 {
    let from_key = &record.encoded[record.encoded.len() - record.value.len() - record.key.len()..];
    match from_key.first_chunk::<8>() {
        Some(first) => {
            let kept_bits = 8 * record.key.len().min(8) as u32;
            u64::from_be_bytes(*first) & !u64::MAX.checked_shr(kept_bits).unwrap_or(0)
        }
        None => key_prefix(record.key),
    }
}

/// Returns the 128-bit hash of one encoded record. The proof adds these up (wrapping), so order does not matter and a
/// lost, doubled or altered record changes the sum. XXH3 was chosen for its known collision quality; the lengths are
/// included, so (key, value) boundaries count.
#[inline]
pub fn record_hash(encoded: &[u8]) -> u128 {
    xxh3_128(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: KeyShape, key: &[u8], value: &[u8], partition_key_bytes: usize) {
        let mut bytes = Vec::new();
        encode(shape, key, value, partition_key_bytes, &mut bytes);
        let plain_len = bytes.len();
        check_encoded(shape, key, value, partition_key_bytes, (bytes, false));
        let mut bytes = Vec::new();
        encode_separated(shape, key, value, partition_key_bytes, &mut bytes);
        assert_eq!(bytes.len(), plain_len + 1);
        check_encoded(shape, key, value, partition_key_bytes, (bytes, true));
    }

    fn check_encoded(
        shape: KeyShape,
        key: &[u8],
        value: &[u8],
        partition_key_bytes: usize,
        (mut bytes, is_separated): (Vec<u8>, bool),
    ) {
        let len = bytes.len();
        bytes.push(0xee);
        let record = decode(shape, &bytes).unwrap();
        assert_eq!((record.key, record.value, record.is_separated()), (key, value, is_separated));
        assert_eq!(record.partition_key(), &key[..partition_key_bytes]);
        assert_eq!(record.encoded.len(), len);
        assert_eq!(record_key_prefix(&record), key_prefix(key));
        for cut in 0..len {
            assert!(decode(shape, &bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn records_round_trip_and_cut_ones_are_refused() {
        check(KeyShape::Whole, b"", b"", 0);
        check(KeyShape::Whole, b"key", b"value", 3);
        check(KeyShape::Whole, &[7; 200], &[8; 3], 200);
        check(KeyShape::Whole, b"k", &[8; 200], 1);
        check(KeyShape::Whole, b"k", &[8; 128], 1);
        check(KeyShape::Whole, &[7; 20000], &[8; 20000], 20000);
        check(KeyShape::Prefix, b"groupsort", b"v", 5);
        check(KeyShape::Prefix, b"", b"v", 0);
    }

    #[test]
    fn length_has_one_spelling_for_each_mark() {
        for (bytes, is_record) in [
            (&[1, 0x80, 0, b'k'][..], true),
            (&[1, 0x81, 0, b'k', b'v'], true),
            (&[1, 0x80, 0x80, 0, b'k'], false),
            (&[1, 0x81, 0x80, 0, b'k', b'v'], false),
            (&[0x81, 0, 0, b'k'], false),
        ] {
            assert_eq!(decode(KeyShape::Whole, bytes).is_some(), is_record, "{bytes:?}");
        }
        assert!(decode(KeyShape::Prefix, &[1, 0, 0x81, 0, b'k']).is_none());
    }

    #[test]
    fn partition_key_longer_than_key_is_refused() {
        assert!(decode(KeyShape::Prefix, &[1, 0, 2, b'x']).is_none());
    }
}
