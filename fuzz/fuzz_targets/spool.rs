//! Fuzzes the payload of a spool: frames of one attempt, as they come from a file or another node.
//!
//! Invariants:
//! - no input makes the reader panic or make room for more than the largest payload;
//! - the frames are the same in whatever pieces the payload comes;
//! - the frames before the first that is refused are, byte for byte, the front of the input, and all of it where none
//!   is;
//! - they are of the attempt that was asked for, verified, and numbered in each I-file from 0 without a gap.

#![no_main]

use ids::{AttemptNumber, IfileIndex, Source, TaskIndex};
use ifile::spool::{SpoolFrames, SpoolOf};
use ifile::{FRAME_HEADER_BYTES, FrameHeader, KeyShape};
use libfuzzer_sys::fuzz_target;
use mending::Pieces;
use std::collections::BTreeMap;
use std::io::Read;

const PAYLOAD_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_spool(&mut mended);
    check(&mended);
});

/// The frames before the first that is refused, and whether one was.
fn read(of: SpoolOf, reader: impl Read) -> (Vec<(FrameHeader, Vec<u8>)>, bool) {
    let mut frames = SpoolFrames::new(of, reader);
    let mut all = Vec::new();
    loop {
        match frames.next_frame() {
            Ok(Some((header, payload))) => all.push((header, payload.to_vec())),
            Ok(None) => return (all, false),
            Err(_) => return (all, true),
        }
    }
}

fn check(bytes: &[u8]) {
    let unknown = (Source { map_task: TaskIndex(3), attempt: AttemptNumber(1) }, KeyShape::Whole);
    let first = FrameHeader::decode(bytes).map(|header| (header.source, header.key_shape));
    let (source, key_shape) = first.unwrap_or(unknown);
    let of = SpoolOf { source, key_shape, payload_bytes_max: PAYLOAD_BYTES_MAX };
    let (frames, is_refused) = read(of, bytes);
    assert_eq!(read(of, Pieces(bytes)), (frames.clone(), is_refused));
    let mut rest = bytes;
    let mut next: BTreeMap<IfileIndex, u64> = BTreeMap::new();
    for (header, payload) in &frames {
        assert_eq!((header.source, header.key_shape), (source, key_shape));
        let number = next.entry(header.ifile).or_default();
        assert_eq!(header.sequence, *number);
        *number += 1;
        assert!(payload.len() as u64 <= PAYLOAD_BYTES_MAX && header.check_payload(payload).is_ok());
        mending::assert_same_frame(header, rest);
        let (found, behind) = rest[FRAME_HEADER_BYTES..].split_at(payload.len());
        assert_eq!(found, payload);
        rest = behind;
    }
    assert_eq!(is_refused, !rest.is_empty());
}
