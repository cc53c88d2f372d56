//! Fuzzes one block: header, decompression, records.
//!
//! Invariants:
//! - no input makes the decoder panic, read outside of the input or make more room than the codec could fill;
//! - accepted blocks have exactly the decompressed bytes that their header says;
//! - a block that is stored raw encodes to the bytes that it was read from; the bytes of a compressed one survive
//!   being compressed again by each codec;
//! - each record in it, with the row of its source, encodes to the bytes that it was read from.

#![no_main]

use api::Codec;
use ifile::block::{self, BLOCK_HEADER_BYTES, BlockHeader};
use ifile::record::KeyShape;
use libfuzzer_sys::fuzz_target;

/// Growth that no codec of ours exceeds; written down again so that the decoder does not judge itself.
const GROWTH_MAX: u64 = 32 << 10;
/// Compressing again is slow, so it is tried on small blocks only.
const AGAIN_BYTES_MAX: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_block(&mut mended);
    check(&mended);
});

fn check(bytes: &[u8]) {
    let Ok(header) = BlockHeader::decode(bytes) else { return };
    assert!(u64::from(header.raw_bytes) <= GROWTH_MAX * u64::from(header.stored_bytes));
    let mut raw = Vec::new();
    if block::decode_into(&header, &bytes[BLOCK_HEADER_BYTES..], &mut raw).is_err() {
        return;
    }
    assert_eq!(raw.len(), header.raw_bytes as usize);
    if header.codec == Codec::None {
        let mut again = Vec::new();
        assert_eq!(block::encode(&raw, header.records, Codec::None, &mut again), header);
        assert_eq!(again, bytes, "a raw block has one spelling");
    } else if raw.len() <= AGAIN_BYTES_MAX {
        check_again(&raw, header.records);
    }
    for shape in [KeyShape::Whole, KeyShape::Prefix] {
        check_records(shape, &raw);
    }
}

fn check_again(raw: &[u8], records: u32) {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut again = Vec::new();
        block::encode(raw, records, codec, &mut again);
        let header = BlockHeader::decode(&again).expect("our own block");
        let mut raw_again = Vec::new();
        block::decode_into(&header, &again[BLOCK_HEADER_BYTES..], &mut raw_again).expect("our own block");
        assert_eq!(raw, raw_again);
    }
}

fn check_records(shape: KeyShape, raw: &[u8]) {
    let mut offset = 0;
    while let Some((row, found, taken)) = block::decode_record(shape, &raw[offset..]) {
        let encoded = mending::encoded_again(shape, &found);
        let mut again = Vec::new();
        block::push_record(&mut again, row, &encoded);
        assert_eq!(again, &raw[offset..offset + taken], "a record of a block has one spelling");
        offset += taken;
    }
}
