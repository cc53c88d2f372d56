//! Reading and writing the fields of the format: little-endian integers, varints, checked bytes.

use crate::error::{FormatError, Problem};

/// Longest varint of a 64-bit number.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as a varint: seven bits a byte, low bits first, high bit set on all but the last.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a varint into a small array; returns it and its length.
#[inline]
pub fn varint_bytes(mut value: u64) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

/// Reads a varint at the front of `bytes`: the value and its bytes; None if it is truncated, too long, or longer than
/// needed (each value has one spelling).
#[inline]
pub fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX).skip(1) {
        if index == 9 && *byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return if *byte == 0 { None } else { Some((value, index + 1)) };
        }
    }
    None
}

/// Reads a varint whose last group of bits may be followed by a zero byte: a mark. Returns the value, its bytes, and
/// whether it has the mark. Each value has one spelling with the mark and one without.
#[inline]
pub fn get_marked_varint(bytes: &[u8]) -> Option<(u64, usize, bool)> {
    if let Some((value, taken)) = get_varint(bytes) {
        return Some((value, taken, false));
    }
    let last = bytes.iter().take(VARINT_BYTES_MAX).position(|byte| *byte < 0x80)?;
    let (mark, groups) = bytes[..=last].split_last()?;
    if *mark != 0 || groups.is_empty() {
        return None;
    }
    let mut canonical = [0; VARINT_BYTES_MAX];
    canonical[..groups.len()].copy_from_slice(groups);
    canonical[groups.len() - 1] &= 0x7f;
    let (value, taken) = get_varint(&canonical[..groups.len()])?;
    (taken == groups.len()).then_some((value, taken + 1, true))
}

/// A cursor over bytes whose fields are read in order; errors carry the offset.
pub struct FieldReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> FieldReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the offset of the next field.
    pub fn offset(&self) -> u64 {
        self.position as u64
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Returns the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        if self.remaining() < len {
            return Err(self.truncated(len as u64));
        }
        let taken = &self.bytes[self.position..self.position + len];
        self.position += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn u128(&mut self) -> Result<u128, FormatError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// Reads reserved bytes. They must be zero, so that everything has one spelling and a later version may give them a
    /// meaning.
    pub fn reserved(&mut self, len: usize) -> Result<(), FormatError> {
        let offset = self.offset();
        for (index, byte) in self.take(len)?.iter().enumerate() {
            if *byte != 0 {
                let problem = Problem::Field { what: "a reserved byte", value: (*byte).into() };
                return Err(FormatError::at(offset + index as u64, problem));
            }
        }
        Ok(())
    }

    pub fn varint(&mut self) -> Result<u64, FormatError> {
        match get_varint(&self.bytes[self.position..]) {
            Some((value, len)) => {
                self.position += len;
                Ok(value)
            }
            None => Err(self.problem(Problem::Field { what: "a variable-length number", value: 0 })),
        }
    }

    /// Makes an error for a problem at the current offset.
    pub fn problem(&self, problem: Problem) -> FormatError {
        FormatError::at(self.offset(), problem)
    }

    fn truncated(&self, needed_bytes: u64) -> FormatError {
        self.problem(Problem::Truncated { needed_bytes, present_bytes: self.remaining() as u64 })
    }
}

/// Checks a CRC32C that follows the covered bytes.
pub fn check_crc(what: &'static str, offset: u64, covered: &[u8], stored: u32) -> Result<(), FormatError> {
    let computed = crc32c::crc32c(covered);
    if computed == stored {
        return Ok(());
    }
    Err(FormatError::at(offset, Problem::Checksum { what, stored, computed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_one_spelling() {
        for value in [0, 1, 127, 128, 300, 1 << 14, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(get_varint(&bytes), Some((value, bytes.len())));
            let (array, len) = varint_bytes(value);
            assert_eq!(&array[..len], &bytes[..]);
            assert_eq!(get_varint(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(get_varint(&[0x80, 0x00]), None);
        assert_eq!(get_varint(&[0xff; 11]), None);
    }
}
