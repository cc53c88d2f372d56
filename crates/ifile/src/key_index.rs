//! The key index of a run: the offset and first key of each block, so that a scan of a key range reads only the blocks
//! it needs (Sailfish, section 5: per-chunk index).

use crate::encoding::{FieldReader, put_varint};
use crate::error::{FormatError, Problem};
use crate::record::Record;
use crate::{BLOCK_BYTES_MAX, INDEX_KEY_BYTES_MAX};

/// One block of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the block header in the file.
    pub offset_bytes: u64,
    /// Header and stored bytes.
    pub stored_bytes: u32,
    pub raw_bytes: u32,
    pub records: u32,
    /// The partition key of the block's first record, at most its first [`INDEX_KEY_BYTES_MAX`] bytes.
    pub first_key: Vec<u8>,
    /// True if `first_key` is only a prefix of the sort key.
    pub key_is_cut: bool,
}

impl IndexEntry {
    /// Returns whether the block's first key is certainly below `bound`. A cut key that is a prefix of `bound` could be
    /// either: the answer is no, and a scan starts one block earlier than necessary.
    fn certainly_below(&self, bound: &[u8]) -> bool {
        if self.key_is_cut && bound.starts_with(&self.first_key) {
            return false;
        }
        self.first_key.as_slice() < bound
    }

    /// Returns whether the block's first key is certainly at or above `bound`.
    fn certainly_at_or_above(&self, bound: &[u8]) -> bool {
        // A cut key is a lower estimate of the key: if it is at or above the bound, the key is too.
        self.first_key.as_slice() >= bound
    }
}

/// The index of one run, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyIndex {
    pub entries: Vec<IndexEntry>,
}

impl KeyIndex {
    /// Returns the blocks that can hold keys in [lower, upper): a range of positions in `entries`.
    pub fn blocks_in_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> std::ops::Range<usize> {
        // The last block below the bound may end with keys at or above it.
        let start = match lower {
            Some(bound) => {
                self.entries.partition_point(|entry| entry.certainly_below(bound)).saturating_sub(1)
            }
            None => 0,
        };
        let end = match upper {
            Some(bound) => self.entries.partition_point(|entry| !entry.certainly_at_or_above(bound)),
            None => self.entries.len(),
        };
        start..end.max(start)
    }

    /// Returns whether every record of a block certainly has a key in [lower, upper).
    pub fn is_wholly_inside(&self, block: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
        let begins_inside = lower.is_none_or(|bound| self.entries[block].certainly_at_or_above(bound));
        // The keys of the last block have no known upper bound.
        let next_below = |bound| self.entries.get(block + 1).is_some_and(|next| next.certainly_below(bound));
        begins_inside && upper.is_none_or(next_below)
    }

    /// Appends the index to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            put_varint(out, entry.offset_bytes);
            put_varint(out, entry.stored_bytes.into());
            put_varint(out, entry.raw_bytes.into());
            put_varint(out, entry.records.into());
            put_varint(out, (entry.first_key.len() as u64) << 1 | u64::from(entry.key_is_cut));
            out.extend_from_slice(&entry.first_key);
        }
    }

    /// Reads `count` entries from all of `bytes` (the caller has checked their checksum).
    pub fn decode(bytes: &[u8], count: u64) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        // An entry takes at least five bytes, so a false count cannot allocate much.
        let mut entries = Vec::with_capacity(count.min(bytes.len() as u64 / 5) as usize);
        for _ in 0..count {
            let offset_bytes = fields.varint()?;
            let stored_bytes = narrow(&mut fields)?;
            let raw_bytes = narrow(&mut fields)?;
            let records = narrow(&mut fields)?;
            if records == 0 {
                // No writer makes an empty block, and its first key could not be checked.
                return Err(fields.problem(Problem::Field { what: "records of a block", value: 0 }));
            }
            let key = fields.varint()?;
            if key >> 1 > INDEX_KEY_BYTES_MAX as u64 {
                return Err(
                    fields.problem(Problem::Field { what: "length of an index key", value: key >> 1 })
                );
            }
            let first_key = fields.take((key >> 1) as usize)?.to_vec();
            entries.push(IndexEntry {
                offset_bytes,
                stored_bytes,
                raw_bytes,
                records,
                first_key,
                key_is_cut: key & 1 == 1,
            });
        }
        if fields.remaining() > 0 {
            let problem =
                Problem::Field { what: "bytes after the key index", value: fields.remaining() as u64 };
            return Err(fields.problem(problem));
        }
        Ok(Self { entries })
    }
}

fn narrow(fields: &mut FieldReader<'_>) -> Result<u32, FormatError> {
    let value = fields.varint()?;
    if value > BLOCK_BYTES_MAX + crate::BLOCK_HEADER_BYTES as u64 {
        return Err(fields.problem(Problem::Field { what: "size in the key index", value }));
    }
    Ok(value as u32)
}

/// Returns the part of a record's key for an index, and whether it is less than the key. Only partition keys are kept:
/// a cut of the key space between them can never split a group.
pub fn index_key(record: &Record<'_>) -> (Vec<u8>, bool) {
    let kept = record.partition_key_bytes.min(INDEX_KEY_BYTES_MAX);
    (record.key[..kept].to_vec(), kept < record.key.len())
}
