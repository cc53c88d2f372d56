//! A target that must fail, within seconds: if it does not, the other targets' silence means nothing.
//!
//! It holds the mistake that all others look for, behind the wall that all others must get through: a decoder that
//! believes a length, after a checksum that a fuzzer cannot guess and that mending makes right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut mended = data.to_vec();
    mending::mend_last_crc(&mut mended);
    believe_a_length(&mended);
});

fn believe_a_length(bytes: &[u8]) {
    let Some((body, stored)) = bytes.split_last_chunk::<4>() else { return };
    if crc32c::crc32c(body) != u32::from_le_bytes(*stored) {
        return;
    }
    if let [b'c', b'y', length, rest @ ..] = body {
        // The planted mistake.
        assert!(rest[..usize::from(*length)].len() < 256);
    }
}
