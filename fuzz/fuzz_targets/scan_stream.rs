//! Fuzzes the stream that answers a scan. The first byte says in what pieces it comes.
//!
//! Invariants:
//! - no input makes the decoder panic or make much more room than has arrived;
//! - the entries are the same in whatever pieces the stream comes;
//! - an accepted entry's head encodes to the bytes that it was read from, entries are numbered without a gap, and
//!   nothing follows the end entry.

#![no_main]

use dataport::wire::scan::{ENTRY_HEAD_BYTES, Entry, EntryDecoder, EntryKind, LostRuns, RunEnd, RunSources};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((piece_bytes, stream)) = data.split_first() else { return };
    check(stream, usize::from(*piece_bytes) + 1);
    let mut mended = stream.to_vec();
    mending::mend_scan_stream(&mut mended);
    check(&mended, usize::from(*piece_bytes) + 1);
});

/// The entries before the first that is refused, and whether one was.
fn read(stream: &[u8], piece_bytes: usize) -> (Vec<Entry>, bool) {
    let mut decoder = EntryDecoder::default();
    let mut entries = Vec::new();
    for mut piece in stream.chunks(piece_bytes) {
        loop {
            match decoder.take(&mut piece) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(_) => return (entries, true),
            }
        }
    }
    (entries, false)
}

fn check(stream: &[u8], piece_bytes: usize) {
    let whole = read(stream, stream.len().max(1));
    assert_eq!(read(stream, piece_bytes), whole);
    let mut offset = 0;
    for (ordinal, entry) in whole.0.iter().enumerate() {
        assert_eq!(entry.head.ordinal as usize, ordinal);
        assert_eq!(entry.head.encode(), stream[offset..offset + ENTRY_HEAD_BYTES]);
        offset += ENTRY_HEAD_BYTES;
        assert_eq!(entry.body, stream[offset..offset + entry.head.body_bytes as usize]);
        offset += entry.body.len();
        let is_last = ordinal + 1 == whole.0.len();
        assert!(entry.head.kind != EntryKind::End || is_last, "an entry behind the end");
        match entry.head.kind {
            EntryKind::Sources => drop(RunSources::decode(&entry.body)),
            EntryKind::RunEnd => {
                if let Ok(end) = RunEnd::decode(&entry.body) {
                    assert_eq!(end.encode()[..], entry.body);
                }
            }
            EntryKind::Lost => drop(LostRuns::decode(&entry.body)),
            EntryKind::Block | EntryKind::End | EntryKind::Failed => {}
        }
    }
}
