//! Generator of the benchmark's input: 100-byte text records, the same on every machine.
//!
//! A record is 10 key characters, TAB, 88 value characters, LF, so that line tools and Sailfish read the same key.
//! Characters come from 64 printable ones, six bits each, which leaves little for a compressor. Among 20 million
//! records the probability of two equal keys is one in several thousand, so GNU sort's order by whole line is the order
//! by key.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Bytes of a record, line end included.
pub const RECORD_BYTES: usize = 100;
const KEY_BYTES: usize = 10;
const BATCH_RECORDS: usize = 10_000;
const ALPHABET: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/";

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixer, so record i needs no earlier record.
pub fn mix(counter: u64) -> u64 {
    let mut value = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Writes record number `index` into `record`.
pub fn fill(index: u64, record: &mut [u8; RECORD_BYTES]) {
    for (group, bytes) in record.chunks_mut(10).enumerate() {
        let mut bits = mix(index * 10 + group as u64 + 1);
        for byte in bytes {
            *byte = ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    record[KEY_BYTES] = b'\t';
    record[RECORD_BYTES - 1] = b'\n';
}

/// Writes as many whole records as fit in `bytes`.
pub fn generate(bytes: u64, out: &Path) -> Result<()> {
    let mut file = File::create(out).with_context(|| format!("create {}", out.display()))?;
    let record_count = bytes / RECORD_BYTES as u64;
    let mut batch = Vec::with_capacity(BATCH_RECORDS * RECORD_BYTES);
    let mut record = [0; RECORD_BYTES];
    for index in 0..record_count {
        fill(index, &mut record);
        batch.extend_from_slice(&record);
        if batch.len() == BATCH_RECORDS * RECORD_BYTES {
            file.write_all(&batch).with_context(|| format!("write {}", out.display()))?;
            batch.clear();
        }
    }
    file.write_all(&batch).with_context(|| format!("write {}", out.display()))
}

#[cfg(test)]
mod tests {
    use super::{RECORD_BYTES, fill};
    use std::collections::HashSet;

    #[test]
    fn records_are_lines_with_a_ten_byte_key() {
        let mut record = [0; RECORD_BYTES];
        for index in [0, 1, 19_999_999] {
            fill(index, &mut record);
            assert_eq!(record.iter().position(|byte| *byte == b'\t'), Some(10));
            assert_eq!(record.iter().position(|byte| *byte == b'\n'), Some(99));
            assert!(record[..10].iter().chain(&record[11..99]).all(u8::is_ascii_graphic));
        }
    }

    #[test]
    fn records_are_reproducible_and_keys_differ() {
        let mut record = [0; RECORD_BYTES];
        let mut keys = HashSet::new();
        for index in 0..10_000 {
            fill(index, &mut record);
            assert!(keys.insert(record[..10].to_vec()));
        }
        fill(0, &mut record);
        assert_eq!(&record[..11], EXPECTED_START);
    }

    /// Pinned: figures of different days are comparable only on the same bytes.
    const EXPECTED_START: &[u8; 11] = b"lsS7xb3gW8\t";
}
