//! Fuzzes the checksums beside a concrete file, and names of stored files.
//!
//! Invariants:
//! - no input makes a decoder panic or make room for more than its own length;
//! - accepted checksums, encoded again, are the same bytes;
//! - a name that is accepted is within its limits, is shown as it was given, and parses to itself.

#![no_main]

use concretefile::{BlockSums, Content};
use filetree::{NAME_BYTES_MAX, PATH_BYTES_MAX, TreeName};
use libfuzzer_sys::fuzz_target;

/// Place of the bytes and the checksum of the content in a file of checksums.
const CONTENT_AT: usize = 16;

fuzz_target!(|data: &[u8]| {
    check_sums(data);
    if let Ok(text) = std::str::from_utf8(data) {
        check_name(text);
    }
});

fn check_sums(data: &[u8]) {
    let number =
        |at: usize| data.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().expect("four bytes")));
    let (Some(low), Some(high), Some(crc32c)) =
        (number(CONTENT_AT), number(CONTENT_AT + 4), number(CONTENT_AT + 8))
    else {
        return;
    };
    let content = Content { bytes: u64::from(high) << 32 | u64::from(low), crc32c };
    // Both with the checksum as it is, and with one that matches.
    let mut mended = data[..data.len() - 4].to_vec();
    mended.extend(crc32c::crc32c(&mended).to_le_bytes());
    for bytes in [data, &mended] {
        if let Ok(sums) = BlockSums::decode(bytes, content) {
            assert!(sums.encode(content) == bytes, "checksums have one spelling");
        }
    }
}

fn check_name(text: &str) {
    let Ok(name) = TreeName::parse(text) else { return };
    let shown = name.to_string();
    assert!(name.path.components().iter().all(|part| (1..=NAME_BYTES_MAX).contains(&part.len())));
    assert!(name.path.to_string().len() <= PATH_BYTES_MAX);
    assert_eq!(TreeName::parse(&shown).as_ref(), Ok(&name), "{shown:?}");
}
