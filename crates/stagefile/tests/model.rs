//! A stage file against a `Vec<u8>`: any payload, written and read in pieces of any size, any range of it.

use proptest::prelude::*;
use stagefile::{
    BLOCK_PAYLOAD_BYTES, BlockLayout, Payload, RangeDecoder, RawPieces, RawVerifier, RawWriter,
    StageFileError, StageFileReader, StageFileSummary, StageFileWriter, Syncing, verify,
};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const BLOCK: usize = BLOCK_PAYLOAD_BYTES as usize;

fn payload(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(next).collect()
}

/// Any size, and those at the edges of blocks.
fn sizes() -> impl Strategy<Value = usize> {
    let edges = (0..6_usize, 0..3_usize).prop_map(|(blocks, step)| (blocks * BLOCK + step).saturating_sub(1));
    prop_oneof![0..200_usize, 0..6 * BLOCK, edges]
}

fn write(path: &Path, bytes: &[u8], piece_bytes: usize) -> StageFileSummary {
    let mut writer = StageFileWriter::create(path).expect("created");
    for piece in bytes.chunks(piece_bytes) {
        writer.write_all(piece).expect("written");
    }
    assert_eq!(writer.written_bytes(), bytes.len() as u64);
    let syncing = if bytes.len().is_multiple_of(2) { Syncing::Synced } else { Syncing::NotSynced };
    writer.finish(syncing).expect("finished")
}

fn read(reader: &mut StageFileReader, buffer_bytes: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; buffer_bytes]);
    loop {
        match reader.read(&mut buffer).expect("read") {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The same range from the stored bytes, so many of them at a time.
fn decode(stored: &[u8], decoder: &mut RangeDecoder, window_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(raw) = decoder.next_raw(window_bytes) {
        let after = decoder.raw_after(&raw, window_bytes);
        let mut window = &stored[raw.stored.start as usize..raw.stored.end as usize];
        for _ in 0..raw.blocks {
            let decoded = decoder.decode(window).expect("verified");
            all.extend_from_slice(&window[decoded.wanted]);
            window = &window[decoded.stored_bytes..];
        }
        assert!(window.is_empty());
        assert_eq!(decoder.next_raw(window_bytes), after);
    }
    assert_eq!(decoder.left(), 0);
    all
}

fn raw_pieces(path: &Path, expected: Payload) -> Vec<u8> {
    let mut pieces = RawPieces::open(path, expected).expect("opened");
    let mut all = Vec::new();
    while let Some(piece) = pieces.next_piece().expect("intact") {
        all.extend_from_slice(&piece);
    }
    assert_eq!(pieces.stored_bytes(), all.len() as u64);
    all
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("part-00003.attempt-0.stage");
    (dir, path)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn written_bytes_are_read_back(
        (size, seed) in (sizes(), any::<u64>()),
        ranges in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
        (write_bytes, read_bytes) in (1..200_000_usize, 1..200_000_usize),
        window_bytes in 0..5 * BLOCK,
    ) {
        let (_dir, path) = file();
        let bytes = payload(size, seed);
        let summary = write(&path, &bytes, write_bytes);
        let expected = Payload { bytes: size as u64, crc32c: crc32c::crc32c(&bytes) };
        prop_assert_eq!(summary.payload(), expected);
        prop_assert_eq!(verify(&path).expect("intact"), summary);
        let stored = std::fs::read(&path).expect("a file");
        prop_assert_eq!(stored.len() as u64, summary.stored_bytes);
        prop_assert_eq!(BlockLayout::of(size as u64).stored_bytes(), summary.stored_bytes);
        let mut whole = StageFileReader::open(&path, expected, 0, size as u64).expect("opened");
        prop_assert!(read(&mut whole, read_bytes) == bytes);
        for (offset, length) in ranges {
            let offset = offset.index(size + 1);
            let length = length.index(size - offset + 1);
            let mut reader = StageFileReader::open(&path, expected, offset as u64, length as u64).expect("opened");
            prop_assert!(read(&mut reader, read_bytes) == bytes[offset..offset + length]);
            let mut decoder = RangeDecoder::new(expected, offset as u64, length as u64).expect("within");
            prop_assert!(decode(&stored, &mut decoder, window_bytes) == bytes[offset..offset + length]);
            let beyond = (size - offset) as u64 + 1;
            let refused = StageFileReader::open(&path, expected, offset as u64, beyond);
            let is_refused = matches!(refused, Err(StageFileError::OutOfRange { .. }));
            prop_assert!(is_refused);
        }
        let mut verifier = RawVerifier::new(expected);
        for piece in stored.chunks(write_bytes) {
            prop_assert_eq!(verifier.push(piece), Ok(()));
        }
        prop_assert_eq!(verifier.finish(), Ok(()));
        prop_assert!(raw_pieces(&path, expected) == stored);
        let copy = path.with_file_name("copy");
        let mut writer = RawWriter::create(&copy, expected).expect("created");
        stored.chunks(write_bytes).for_each(|piece| writer.write(piece).expect("taken"));
        prop_assert_eq!(writer.finish().expect("all of it"), summary);
        prop_assert!(std::fs::read(&copy).expect("a file") == stored);
    }

    /// Whoever goes on with another copy has each byte once.
    #[test]
    fn a_range_goes_on_at_another_copy(size in sizes(), seed: u64, at: prop::sample::Index) {
        let (_dir, path) = file();
        let bytes = payload(size, seed);
        let expected = write(&path, &bytes, BLOCK).payload();
        let mut reader = StageFileReader::open(&path, expected, 0, size as u64).expect("opened");
        let mut all = Vec::new();
        for _ in 0..at.index(7) {
            let count = reader.fill().inspect(|some| all.extend_from_slice(some)).expect("read").len();
            reader.consume(count);
        }
        let mut rest = StageFileReader::resume(&path, reader.into_rest()).expect("opened again");
        all.extend_from_slice(&read(&mut rest, 1000));
        prop_assert!(all == bytes);
    }
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let (dir, path) = file();
    let mut writer = StageFileWriter::create(&path).expect("created");
    writer.write_all(&payload(3 * BLOCK, 1)).expect("written");
    assert!(path.exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    let nowhere = StageFileWriter::create(&dir.path().join("gone/file"));
    assert!(matches!(nowhere, Err(StageFileError::Io { action: "create", .. })));
}

#[test]
fn damaged_or_truncated_copy_leaves_nothing() {
    let (dir, path) = file();
    let expected = write(&path, &payload(BLOCK + 9, 1), BLOCK).payload();
    let stored = std::fs::read(&path).expect("a file");
    let check = |what: &str, bytes: &[u8]| {
        let mut writer = RawWriter::create(&path, expected).expect("created");
        let taken = bytes.chunks(1000).try_for_each(|piece| writer.write(piece));
        let finished = taken.and_then(|()| writer.finish());
        assert!(finished.as_ref().is_err_and(|error| error.damage().is_some()), "{what}: {finished:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "{what}");
    };
    for offset in (0..stored.len()).step_by(4999) {
        let mut flipped = stored.clone();
        flipped[offset] ^= 1;
        check("a flipped bit", &flipped);
        check("cut off", &stored[..offset]);
    }
    check("too long", &[&stored[..], &[0]].concat());
}

#[test]
fn replaced_file_is_unchanged_for_its_readers() {
    let (_dir, path) = file();
    let (first, second) = (payload(BLOCK + 9, 1), payload(BLOCK + 9, 2));
    let old = write(&path, &first, BLOCK).payload();
    let mut reader = StageFileReader::open(&path, old, 0, old.bytes).expect("opened");
    let new = write(&path, &second, BLOCK).payload();
    assert!(read(&mut reader, 1 << 20) == first);
    let mut reader = StageFileReader::open(&path, new, 0, new.bytes).expect("opened");
    assert!(read(&mut reader, 1 << 20) == second);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn writer_knows_its_content(
        bytes in sizes(),
        piece_bytes in 1..3 * BLOCK,
        (from, count, flip) in (0..6 * BLOCK, 0..3 * BLOCK, any::<prop::sample::Index>()),
    ) {
        let (_dir, path) = file();
        let all = payload(bytes, 3);
        let mut writer = StageFileWriter::create(&path).expect("created");
        for piece in all.chunks(piece_bytes) {
            writer.write_all(piece).expect("written");
        }
        let (begin, end) = (from.min(bytes), (from + count).min(bytes));
        let held = &all[begin.min(end)..end];
        prop_assert!(writer.holds(begin as u64, held).expect("read back"));
        let longer = [&all[begin..], &[0]].concat();
        prop_assert!(!writer.holds(begin as u64, &longer).expect("read back"));
        prop_assert!(!writer.holds(u64::MAX, &[0]).expect("read back"));
        if !held.is_empty() {
            let mut other = held.to_vec();
            other[flip.index(held.len())] ^= 1;
            prop_assert!(!writer.holds(begin as u64, &other).expect("read back"));
        }
        // To look changes nothing.
        let summary = writer.finish(Syncing::NotSynced).expect("finished");
        prop_assert_eq!(verify(&path).expect("intact"), summary);
    }
}
