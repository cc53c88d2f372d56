//! Fuzzes a whole stage file: footer, header, blocks; taken in pieces, and read in a range.
//!
//! Invariants:
//! - no input makes a decoder panic or hold more than a block;
//! - an accepted file is, byte for byte, what its payload makes;
//! - each range of an accepted file is that range of its payload;
//! - where a range of it is refused, the file is refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stagefile::{
    BLOCK_PAYLOAD_BYTES, BlockLayout, FOOTER_BYTES, Footer, Payload, RangeDecoder, RawVerifier, block_header,
    encode_header,
};

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_stage_file(&mut mended);
    check(&mended);
});

fn check(bytes: &[u8]) {
    let Some(footer) = bytes.len().checked_sub(FOOTER_BYTES).map(|start| &bytes[start..]) else { return };
    let Ok(Footer { payload }) = Footer::decode(footer) else { return };
    assert_eq!(Footer { payload }.encode(), footer, "a footer has one spelling");
    let is_accepted = is_accepted(bytes, payload);
    if BlockLayout::of(payload.bytes).stored_bytes() != bytes.len() as u64 {
        assert!(!is_accepted, "a file of another length");
        return;
    }
    match read(bytes, payload, 0, payload.bytes) {
        Some(whole) => {
            assert_eq!(crc32c::crc32c(&whole), payload.crc32c);
            assert_eq!(is_accepted, encode(&whole) == bytes, "a payload has one spelling");
            let (offset, length) = (payload.bytes / 3, payload.bytes / 2);
            let range = read(bytes, payload, offset, length).expect("its blocks were read before");
            assert_eq!(range, whole[offset as usize..(offset + length) as usize]);
        }
        None => assert!(!is_accepted, "a file that cannot be read"),
    }
}

/// Whether the file is taken, in pieces whose sizes its bytes decide.
fn is_accepted(bytes: &[u8], payload: Payload) -> bool {
    let mut verifier = RawVerifier::new(payload);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let count = (1 + usize::from(*first) * 37).min(rest.len());
        if verifier.push(&rest[..count]).is_err() {
            return false;
        }
        rest = &rest[count..];
    }
    verifier.finish().is_ok()
}

/// A range of a file that is as long as it should be.
fn read(bytes: &[u8], payload: Payload, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut decoder = RangeDecoder::new(payload, offset, length).expect("within the payload");
    let mut all = Vec::new();
    while let Some(raw) = decoder.next_raw(0) {
        let stored = &bytes[raw.stored.start as usize..raw.stored.end as usize];
        let decoded = decoder.decode(stored).ok()?;
        all.extend_from_slice(&stored[decoded.wanted]);
    }
    Some(all)
}

fn encode(payload: &[u8]) -> Vec<u8> {
    let mut file = encode_header().to_vec();
    for (number, block) in payload.chunks(BLOCK_PAYLOAD_BYTES as usize).enumerate() {
        file.extend_from_slice(&block_header(number as u64, block));
        file.extend_from_slice(block);
    }
    let payload = Payload { bytes: payload.len() as u64, crc32c: crc32c::crc32c(payload) };
    file.extend_from_slice(&Footer { payload }.encode());
    file
}
