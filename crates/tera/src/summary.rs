//! The figures of valsort over a stretch of rows.

use crate::{KEY_BYTES, Key, ROW_BYTES, Row};
use std::fmt;

/// Bytes of an encoded [`Summary`].
pub const SUMMARY_BYTES: usize = 80;

const MAGIC: [u8; 4] = *b"TSUM";
const VERSION: u16 = 1;
/// Maximum rows of an encoded summary (28 petabytes). The sum of 65536 such still fits into 64 bits.
const ROWS_MAX: u64 = 1 << 48;
/// Rows whose checksums are added in 64 bits before they go into the 128 of the whole.
const BLOCK_ROWS: usize = 4096;

/// The sum, modulo 2^128, of the CRC-32 (zlib's) of each row. It does not depend on the order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checksum(pub u128);

/// Lower-case hexadecimal without leading zeros, like valsort.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:x}", self.0))
    }
}

/// Summary of a stretch of consecutive rows, like valsort's: their number, their checksum, and the order of their keys.
/// A row is compared only with the previous one. The default is the summary of no rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    records: u64,
    checksum: Checksum,
    duplicates: u64,
    unordered: u64,
    /// 0 if there is none: the first row of a stretch has no predecessor.
    first_unordered: u64,
    /// Zeros if there is no row, as is the last key.
    first_key: Key,
    last_key: Key,
}

/// Error: the bytes end within a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes_left} bytes are left after {rows} whole rows: a row has {ROW_BYTES} bytes and nothing between rows"
)]
pub struct PartialRow {
    /// Whole rows before them.
    pub rows: u64,
    /// Bytes of the partial row: 1 to 99.
    pub bytes_left: usize,
}

/// Reason why bytes are not an encoded [`Summary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The length is wrong.
    #[error("a summary of rows has {SUMMARY_BYTES} bytes, not {found}")]
    Length {
        /// The actual length.
        found: usize,
    },
    /// The first bytes are different.
    #[error("this is no summary of rows")]
    Foreign,
    /// Another version of this crate made it.
    #[error("this summary of rows has version {found}, and only version {VERSION} can be read")]
    Version {
        /// The version in the bytes.
        found: u16,
    },
    /// The CRC-32 at the end disagrees.
    #[error("this summary of rows is damaged: its CRC-32 does not match")]
    Damaged,
    /// No rows can have these figures.
    #[error("this summary of rows contradicts itself: no rows have such figures")]
    Contradiction,
}

impl Summary {
    /// Makes the summary of no rows.
    pub fn new() -> Summary {
        Summary::default()
    }

    /// Adds the rows that follow those added so far.
    ///
    /// # Errors
    /// The bytes are not whole rows; then nothing is added.
    pub fn add_rows(&mut self, rows: &[u8]) -> Result<(), PartialRow> {
        let (rows, rest) = rows.as_chunks::<ROW_BYTES>();
        if !rest.is_empty() {
            return Err(PartialRow { rows: rows.len() as u64, bytes_left: rest.len() });
        }
        for block in rows.chunks(BLOCK_ROWS) {
            let next = Summary::of_block(block);
            self.append(&next);
        }
        Ok(())
    }

    /// Summarizes at least one row. Rows may be in any order, so there is no branch on the comparison of two keys.
    fn of_block(rows: &[Row]) -> Summary {
        let mut checksum = 0;
        let (mut duplicates, mut unordered) = (0, 0);
        // The first row is compared with itself and counts as its own duplicate, which is corrected below.
        let mut previous = SortKey::of(&rows[0]);
        for row in rows {
            let key = SortKey::of(row);
            checksum += u64::from(crc32fast::hash(row));
            duplicates += u64::from(key.equals(previous));
            unordered += u64::from(key.is_before(previous));
            previous = key;
        }
        let descends = |pair: &[Row]| SortKey::of(&pair[1]).is_before(SortKey::of(&pair[0]));
        let first_unordered = match unordered {
            0 => 0,
            _ => 1 + rows.windows(2).position(descends).expect("it was counted") as u64,
        };
        Summary {
            records: rows.len() as u64,
            checksum: Checksum(u128::from(checksum)),
            duplicates: duplicates - 1,
            unordered,
            first_unordered,
            first_key: key_of(&rows[0]),
            last_key: key_of(&rows[rows.len() - 1]),
        }
    }

    /// Appends the summary of the directly following rows: the border between the two is compared as well, and rows of
    /// `next` are counted on from ours. Appending is associative, and no rows change nothing.
    pub fn append(&mut self, next: &Summary) {
        if next.records == 0 {
            return;
        }
        if self.records == 0 {
            *self = *next;
            return;
        }
        let border_descends = next.first_key < self.last_key;
        if self.unordered == 0 {
            self.first_unordered = match (border_descends, next.unordered) {
                (true, _) => self.records,
                (false, 0) => 0,
                (false, _) => self.records + next.first_unordered,
            };
        }
        self.unordered += next.unordered + u64::from(border_descends);
        self.duplicates += next.duplicates + u64::from(next.first_key == self.last_key);
        self.records += next.records;
        self.checksum.0 = self.checksum.0.wrapping_add(next.checksum.0);
        self.last_key = next.last_key;
    }

    /// Returns the number of rows.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the sum of the CRC-32 of all rows.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Returns the number of rows with the same key as the previous row. valsort prints this only if all rows are in
    /// order.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the number of rows with a smaller key than the previous row.
    pub fn unordered(&self) -> u64 {
        self.unordered
    }

    /// Returns the first row with a smaller key than the previous row, counted from 0 at the start of the stretch.
    pub fn first_unordered(&self) -> Option<u64> {
        (self.unordered > 0).then_some(self.first_unordered)
    }

    /// Returns whether no row is smaller than the previous one.
    pub fn is_ordered(&self) -> bool {
        self.unordered == 0
    }

    /// Returns the key of the first row; `None` without rows.
    pub fn first_key(&self) -> Option<Key> {
        (self.records > 0).then_some(self.first_key)
    }

    /// Returns the key of the last row; `None` without rows.
    pub fn last_key(&self) -> Option<Key> {
        (self.records > 0).then_some(self.last_key)
    }

    /// Encodes it. Byte table: `docs/formats/tera-rows.md`.
    pub fn to_bytes(&self) -> [u8; SUMMARY_BYTES] {
        let mut bytes = [0; SUMMARY_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.checksum.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.duplicates.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.unordered.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.first_unordered.to_le_bytes());
        bytes[56..66].copy_from_slice(&self.first_key);
        bytes[66..76].copy_from_slice(&self.last_key);
        let crc = crc32fast::hash(&bytes[..76]);
        bytes[76..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes only the output of [`Summary::to_bytes`].
    ///
    /// # Errors
    /// The bytes are something else, are damaged, or claim what no rows can have.
    pub fn from_bytes(bytes: &[u8]) -> Result<Summary, SummaryError> {
        let bytes: &[u8; SUMMARY_BYTES] =
            bytes.try_into().map_err(|_| SummaryError::Length { found: bytes.len() })?;
        if bytes[..4] != MAGIC {
            return Err(SummaryError::Foreign);
        }
        if crc32fast::hash(&bytes[..76]) != u32::from_le_bytes(field(bytes, 76)) {
            return Err(SummaryError::Damaged);
        }
        let version = u16::from_le_bytes(field(bytes, 4));
        if version != VERSION {
            return Err(SummaryError::Version { found: version });
        }
        let summary = Summary {
            records: u64::from_le_bytes(field(bytes, 8)),
            checksum: Checksum(u128::from_le_bytes(field(bytes, 16))),
            duplicates: u64::from_le_bytes(field(bytes, 32)),
            unordered: u64::from_le_bytes(field(bytes, 40)),
            first_unordered: u64::from_le_bytes(field(bytes, 48)),
            first_key: field(bytes, 56),
            last_key: field(bytes, 66),
        };
        if bytes[6..8] != [0; 2] || !summary.is_possible() {
            return Err(SummaryError::Contradiction);
        }
        Ok(summary)
    }

    /// Returns whether some rows may have these figures, by cheap checks; it bounds every figure by the number of rows,
    /// and that number by [`ROWS_MAX`].
    fn is_possible(&self) -> bool {
        if self.records == 0 {
            return *self == Summary::default();
        }
        let pairs = self.records - 1;
        let counted =
            self.records <= ROWS_MAX && self.duplicates <= pairs && self.unordered <= pairs - self.duplicates;
        let summed = self.checksum.0 <= u128::from(self.records) * u128::from(u32::MAX);
        let ordered = self.unordered == 0 && self.first_unordered == 0 && self.first_key <= self.last_key;
        // The first unordered row and all others are at or after its position.
        let unordered = self.unordered > 0
            && (1..=pairs).contains(&self.first_unordered)
            && self.unordered <= self.records - self.first_unordered;
        let all_equal = self.duplicates < pairs || self.first_key == self.last_key;
        counted && summed && (ordered || unordered) && all_equal
    }
}

fn key_of(row: &Row) -> Key {
    *row.first_chunk().expect("a row is longer than its key")
}

fn field<const BYTES: usize>(bytes: &[u8; SUMMARY_BYTES], offset: usize) -> [u8; BYTES] {
    *bytes[offset..].first_chunk().expect("fields lie within a summary")
}

/// A key as numbers with the same order.
#[derive(Clone, Copy)]
struct SortKey {
    high: u64,
    low: u16,
}

impl SortKey {
    #[inline]
    fn of(row: &Row) -> SortKey {
        let (high, rest) = row.split_first_chunk().expect("a row is longer than eight bytes");
        let low = rest.first_chunk().expect("a row is longer than its key");
        SortKey { high: u64::from_be_bytes(*high), low: u16::from_be_bytes(*low) }
    }

    #[inline]
    fn equals(self, other: SortKey) -> bool {
        (self.high == other.high) & (self.low == other.low)
    }

    #[inline]
    fn is_before(self, other: SortKey) -> bool {
        (self.high < other.high) | ((self.high == other.high) & (self.low < other.low))
    }
}

const _: () = assert!(KEY_BYTES == size_of::<u64>() + size_of::<u16>(), "a sort key holds a whole key");

#[cfg(test)]
mod tests;
