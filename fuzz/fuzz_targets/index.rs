//! Fuzzes the key index and the source table of a run. Their checksums stand in the footer, so nothing needs mending.
//!
//! Invariants:
//! - no input makes the decoders panic, read outside of the input or allocate more than a few times its size;
//! - bytes are an index of one number of blocks only, and a source table of one number of rows only;
//! - what is accepted encodes to the bytes that it was read from;
//! - the blocks of a key range lie within the index, and agree with a linear search where no key is cut.

#![no_main]

use ifile::encoding::FieldReader;
use ifile::{KeyIndex, source_table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check_index(data);
    check_sources(data);
});

/// Counts the entries by the byte table alone; None when the bytes end within one.
fn count_entries(bytes: &[u8]) -> Option<u64> {
    let mut fields = FieldReader::new(bytes);
    let mut count = 0;
    while fields.remaining() > 0 {
        for _ in 0..4 {
            fields.varint().ok()?;
        }
        let key_bytes = fields.varint().ok()? >> 1;
        fields.take(usize::try_from(key_bytes).ok()?).ok()?;
        count += 1;
    }
    Some(count)
}

fn check_index(bytes: &[u8]) {
    for impossible in [u64::MAX, u64::MAX / 2, bytes.len() as u64 + 1] {
        assert!(KeyIndex::decode(bytes, impossible).is_err());
    }
    let Some(count) = count_entries(bytes) else { return };
    assert!(KeyIndex::decode(bytes, count + 1).is_err());
    if let Some(fewer) = count.checked_sub(1) {
        assert!(KeyIndex::decode(bytes, fewer).is_err());
    }
    let Ok(index) = KeyIndex::decode(bytes, count) else { return };
    let mut encoded = Vec::new();
    index.encode(&mut encoded);
    assert_eq!(encoded, bytes, "an index has one spelling");
    check_ranges(&index, bytes);
}

fn check_ranges(index: &KeyIndex, bytes: &[u8]) {
    let entries = &index.entries;
    let plain = entries.iter().all(|entry| !entry.key_is_cut)
        && entries.windows(2).all(|pair| pair[0].first_key <= pair[1].first_key);
    let mut bounds: Vec<&[u8]> = entries.iter().take(8).map(|entry| entry.first_key.as_slice()).collect();
    bounds.push(&bytes[..bytes.len().min(3)]);
    bounds.push(b"");
    for lower in &bounds {
        for upper in &bounds {
            let range = index.blocks_in_range(Some(lower), Some(upper));
            assert!(range.start <= range.end && range.end <= entries.len());
            if plain {
                let below = |bound: &[u8]| entries.iter().filter(|e| e.first_key.as_slice() < bound).count();
                let start = below(lower).saturating_sub(1);
                assert_eq!(range, start..below(upper).max(start));
            }
        }
    }
    assert_eq!(index.blocks_in_range(None, None), 0..entries.len());
}

fn check_sources(bytes: &[u8]) {
    let count = (bytes.len() / source_table::SOURCE_ROW_BYTES) as u64;
    assert!(source_table::decode(bytes, count + 1).is_err());
    assert!(source_table::decode(bytes, u64::MAX).is_err());
    let Ok(rows) = source_table::decode(bytes, count) else { return };
    let mut encoded = Vec::new();
    source_table::encode(&rows, &mut encoded);
    assert_eq!(encoded, bytes, "a source table has one spelling");
}
