//! Fuzzes a raw chunk file: header, frames, trailer.
//!
//! Invariants:
//! - no input makes the reader panic, read outside of the input or allocate more than its size;
//! - every frame of an accepted file belongs to the chunk's I-file and has its shape of keys;
//! - an accepted file is, byte for byte, what writing its header, its frames in order and its trailer gives.

#![no_main]

use ifile::FRAME_HEADER_BYTES;
use ifile::raw_chunk::{encode_trailer, read_frames};
use ifile::run_file::FILE_HEADER_BYTES;
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
    let header = &bytes[..FILE_HEADER_BYTES];
    assert_eq!(identity.encode_header()[..], mending::of_today(header, 8), "a header has one spelling");
    let mut rest = &bytes[FILE_HEADER_BYTES..];
    for (header, payload) in &frames {
        assert_eq!((header.ifile, header.key_shape), (identity.ifile, identity.key_shape));
        mending::assert_same_frame(header, rest);
        let (found, behind) = rest[FRAME_HEADER_BYTES..].split_at(payload.len());
        assert_eq!(found, payload);
        rest = behind;
    }
    assert_eq!(encode_trailer(identity.chunk, count), rest, "a trailer has one spelling");
}
