//! Fuzzes a whole run file, beginning with its footer: open it and walk through all records.
//!
//! Invariants:
//! - no input makes the reader panic, read outside of the input or make more room than blocks could fill;
//! - header, key index, source table and footer of a file that opens encode to the bytes that they were read from,
//!   and these and the blocks cover the file without gap or overlap;
//! - the records of a file that passes the walk are as many as the footer says, in order of their keys, and are
//!   found again through the key index by every range that holds their key.

#![no_main]

use ifile::block::{self, BLOCK_HEADER_BYTES};
use ifile::record::KeyShape;
use ifile::run_file::{FILE_HEADER_BYTES, FOOTER_BYTES};
use ifile::{RunFile, source_table, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_run(&mut mended);
    check(&mended);
});

fn check(bytes: &[u8]) {
    let Ok(run) = RunFile::open(bytes) else { return };
    check_spelling(&run, bytes);
    let mut keys = Vec::new();
    if verify::walk_run(bytes, &run, |_, record| keys.push(record.key.to_vec())).is_err() {
        return;
    }
    assert_eq!(keys.len() as u64, run.footer.sum.records);
    assert!(keys.is_sorted(), "the records of a run are in order");
    check_blocks(&run, bytes);
}

fn check_spelling(run: &RunFile, bytes: &[u8]) {
    let mut tail = Vec::new();
    run.index.encode(&mut tail);
    source_table::encode(&run.sources, &mut tail);
    tail.extend_from_slice(&run.footer.encode());
    let header = mending::of_today(&bytes[..FILE_HEADER_BYTES], 8);
    assert_eq!(header, run.identity.encode_header(), "a header has one spelling");
    assert_eq!(bytes[run.footer.index_offset as usize..], tail, "the end of a run has one spelling");
    assert_eq!(run.file_bytes(), bytes.len() as u64);
    let blocks: u64 = run.index.entries.iter().map(|entry| u64::from(entry.stored_bytes)).sum();
    assert_eq!(FILE_HEADER_BYTES as u64 + blocks, run.footer.index_offset);
    assert!(tail.len() >= FOOTER_BYTES);
}

fn check_blocks(run: &RunFile, bytes: &[u8]) {
    let mut raw = Vec::new();
    for (position, entry) in run.index.entries.iter().enumerate() {
        let header = verify::read_block(bytes, entry, &mut raw).expect("walked before");
        assert_eq!(BLOCK_HEADER_BYTES as u32 + header.stored_bytes, entry.stored_bytes);
        assert!(u64::from(header.raw_bytes) <= run.footer.block_bytes_max);
        let mut offset = 0;
        while offset < raw.len() {
            let record = block::decode_record(run.identity.key_shape, &raw[offset..]);
            let (_, record, taken) = record.expect("walked before");
            offset += taken;
            // Partition keys that are the beginning of one another are a mistake of the caller that a file cannot
            // show; ranges are right without them.
            if run.identity.key_shape == KeyShape::Whole {
                let mut after = record.key.to_vec();
                after.push(0);
                let range = run.index.blocks_in_range(Some(record.key), Some(&after));
                assert!(range.contains(&position), "the index loses a record");
            }
        }
    }
}
