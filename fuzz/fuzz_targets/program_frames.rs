//! Fuzzes what a user's program puts out in frames.
//!
//! Invariants:
//! - no input makes the reader panic or make room for more than the largest payload;
//! - the frames are the same in whatever pieces the bytes come;
//! - the frames before the first that is refused are, byte for byte, the front of the input;
//! - pairs that are accepted, with tails and without, are, written again, the same bytes;
//! - no partition key is longer than its key.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mending::Pieces;
use program_protocol::{FrameKind, FromProgram, Pairs, TailedPairs, head};
use std::io::Read;

const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let whole = frames_of(data);
    assert!(whole == frames_of(Pieces(data)));
    let mut written = Vec::new();
    for (kind, payload) in &whole {
        assert!(payload.len() as u64 <= PAYLOAD_BYTES_MAX);
        written.extend(head(*kind, payload.len()).expect("a payload that was read"));
        written.extend(payload);
        check_pairs(payload);
        check_tailed(payload);
    }
    assert!(data.starts_with(&written));
    check_pairs(data);
    check_tailed(data);
});

/// The frames before the first that is refused, or the end.
fn frames_of(source: impl Read) -> Vec<(FrameKind, Vec<u8>)> {
    let mut frames = FromProgram::new(source, PAYLOAD_BYTES_MAX, 64);
    let mut all = Vec::new();
    while let Ok(Some((kind, payload))) = frames.next_frame() {
        all.push((kind, payload.to_vec()));
    }
    all
}

fn check_pairs(payload: &[u8]) {
    let Ok(pairs) = Pairs::parse(payload) else { return };
    let length = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
    let mut written = (pairs.len() as u32).to_le_bytes().to_vec();
    pairs.iter().for_each(|(key, _)| written.extend(length(key)));
    pairs.iter().for_each(|(_, value)| written.extend(length(value)));
    pairs.iter().for_each(|(key, _)| written.extend(key));
    pairs.iter().for_each(|(_, value)| written.extend(value));
    assert!(written == payload);
}

fn check_tailed(payload: &[u8]) {
    let Ok(tailed) = TailedPairs::parse(payload) else { return };
    let length = |bytes: usize| (bytes as u32).to_le_bytes();
    let mut written = length(tailed.pairs().len()).to_vec();
    tailed.iter().for_each(|(key, ..)| written.extend(length(key.len())));
    tailed.iter().for_each(|(_, value, _)| written.extend(length(value.len())));
    for (key, _, partition_key_bytes) in tailed.iter() {
        assert!(partition_key_bytes <= key.len());
        written.extend(length(partition_key_bytes));
    }
    tailed.iter().for_each(|(key, ..)| written.extend(key));
    tailed.iter().for_each(|(_, value, _)| written.extend(value));
    assert!(written == payload);
}
