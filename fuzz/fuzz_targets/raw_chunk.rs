//! Fuzzes a raw chunk file: header, frames, trailer.
//!
//! Invariants:
//! - no input makes the reader panic, read outside of the input or allocate more than its size;
//! - every frame of an accepted file belongs to the chunk's I-file and has its shape of keys;
//! - an accepted file is, byte for byte, what writing its header, its frames in order and its trailer gives.

#![no_main]

use ifile::raw_chunk::{encode_trailer, read_frames};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_raw_chunk(&mut mended);
    check(&mended);
});

fn check(bytes: &[u8]) {
    let mut frames = Vec::new();
    let Ok((identity, count)) = read_frames(bytes, |header, payload| frames.push((header, payload))) else {
        return;
    };
    assert_eq!(count, frames.len() as u64);
    let mut again = identity.encode_header().to_vec();
    for (header, payload) in &frames {
        assert_eq!((header.ifile, header.key_shape), (identity.ifile, identity.key_shape));
        again.extend_from_slice(&header.encode());
        again.extend_from_slice(payload);
    }
    again.extend_from_slice(&encode_trailer(identity.chunk, count));
    assert_eq!(again, bytes, "a raw chunk has one spelling");
}
