//! Fuzzes one frame: header and payload.
//!
//! Invariants:
//! - no input makes the decoder panic, read outside of the input or allocate;
//! - an accepted header encodes to the bytes that it was read from;
//! - an accepted payload is as long as its header says, its records lie one after the other without a gap, each
//!   encodes to the bytes that it was read from, and their number and hash sum are those of the header.

#![no_main]

use ifile::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameRecords};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_frame(&mut mended);
    check(&mended);
});

fn check(bytes: &[u8]) {
    let Ok(header) = FrameHeader::decode(bytes) else { return };
    mending::assert_same_frame(&header, bytes);
    let payload = &bytes[FRAME_HEADER_BYTES..];
    if header.check_payload(payload).is_err() {
        return;
    }
    assert_eq!(payload.len() as u64, header.sum.bytes);
    let accepted = header.check_records(payload).is_ok();
    let mut expected_offset = 0;
    let mut records = 0;
    for each in FrameRecords::new(header.key_shape, payload) {
        let Ok((offset, found)) = each else {
            assert!(!accepted, "a frame with a broken record was accepted");
            return;
        };
        assert_eq!(offset, expected_offset);
        assert_eq!(
            mending::encoded_again(header.key_shape, &found),
            found.encoded,
            "a record has one spelling"
        );
        expected_offset += found.encoded.len();
        records += 1;
    }
    assert_eq!(expected_offset, payload.len());
    if accepted {
        assert_eq!(records, header.sum.records);
    }
}
