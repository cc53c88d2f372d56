//! Files of each version as they were written when the version was made: what is on disk must stay readable, and a
//! change of the format must not happen by accident. `test_data/README.md` says how the files came to be.

mod samples;

use api::Codec;
use ids::IfileIndex;
use ifile::block::{self, BLOCK_HEADER_BYTES, BlockHeader};
use ifile::raw_chunk::read_frames;
use ifile::record::KeyShape;
use ifile::spool::{SpoolFrames, SpoolOf};
use ifile::{
    FORMAT_VERSION, FRAME_HEADER_BYTES, FormatError, FrameHeader, KeyIndex, ReadAt, RunFile, source_table,
    verify,
};
use samples::{
    BLOCK_BYTES, Sample, raw_chunk_identity, run_identity, sample_frames, sample_frames_of, sample_run,
    samples_of, source_rows, write_raw_chunk, write_run,
};
use std::path::PathBuf;

const RUNS: &[(&str, Codec, KeyShape)] = &[
    ("run-none.run", Codec::None, KeyShape::Whole),
    ("run-lz4.run", Codec::Lz4, KeyShape::Whole),
    ("run-zstd.run", Codec::Zstd, KeyShape::Whole),
    ("run-prefix.run", Codec::Lz4, KeyShape::Prefix),
];
const RAW_CHUNKS: &[(&str, KeyShape)] =
    &[("chunk.raw", KeyShape::Whole), ("chunk-prefix.raw", KeyShape::Prefix)];
/// Each corrupt file of version 1 and what is said about it.
const CORRUPT_1: &[(&str, &str)] = &[
    ("corrupt/empty.run", "at byte 0: truncated: 192 bytes needed, 0 present"),
    (
        "corrupt/flipped-block-header.run",
        "at byte 64: damaged block header: checksum 6cba24e8 stored, 7a9c0c57 computed",
    ),
    ("corrupt/flipped-block.run", "at byte 88: damaged block: checksum f0974cc4 stored, 9c3c1155 computed"),
    (
        "corrupt/flipped-footer.run",
        "at byte 1672: damaged footer: checksum fc4044a1 stored, 529b2e31 computed",
    ),
    (
        "corrupt/flipped-frame-header.raw",
        "at byte 64: damaged frame header: checksum 8bc2a036 stored, 9d756512 computed",
    ),
    (
        "corrupt/flipped-header.run",
        "at byte 0: damaged file header: checksum 64a7278d stored, 85986f80 computed",
    ),
    (
        "corrupt/flipped-index.run",
        "at byte 887: damaged key index: checksum c5aa51ee stored, 5e882f99 computed",
    ),
    (
        "corrupt/flipped-payload.raw",
        "at byte 144: damaged frame payload: checksum b2c2dd3b stored, e23234e6 computed",
    ),
    (
        "corrupt/flipped-sources.run",
        "at byte 1480: damaged source table: checksum d0036079 stored, 25e7718b computed",
    ),
    (
        "corrupt/flipped-trailer.raw",
        "at byte 2775: damaged trailer: checksum 42839061 stored, 828fa05f computed",
    ),
    ("corrupt/foreign.raw", "at byte 0: not an I-file (the first bytes are foreign)"),
    ("corrupt/foreign.run", "at byte 0: not an I-file (the first bytes are foreign)"),
    (
        "corrupt/frame-missing.raw",
        "at byte 2695: damaged: the number of frames is 7 here, but 6 in another place",
    ),
    ("corrupt/half.raw", "at byte 1294: truncated: 80 bytes needed, 77 present"),
    (
        "corrupt/half.run",
        "at byte 772: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    ("corrupt/header-only.run", "at byte 0: truncated: 192 bytes needed, 64 present"),
    (
        "corrupt/one-byte-more.run",
        "at byte 1673: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    (
        "corrupt/one-byte-short.run",
        "at byte 1671: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    ("corrupt/raw-chunk-named-as-a-run.run", "at byte 0: not an I-file (the first bytes are foreign)"),
];

/// The same of version 2.
const CORRUPT_2: &[(&str, &str)] = &[
    ("corrupt/empty.run", "at byte 0: truncated: 192 bytes needed, 0 present"),
    (
        "corrupt/flipped-block-header.run",
        "at byte 64: damaged block header: checksum 6cba24e8 stored, 7a9c0c57 computed",
    ),
    ("corrupt/flipped-block.run", "at byte 88: damaged block: checksum f0974cc4 stored, 9c3c1155 computed"),
    (
        "corrupt/flipped-footer.run",
        "at byte 1931: damaged footer: checksum cf49541c stored, 61923e8c computed",
    ),
    (
        "corrupt/flipped-frame-header.raw",
        "at byte 64: damaged frame header: checksum c1b6778c stored, d701b2a8 computed",
    ),
    (
        "corrupt/flipped-header.run",
        "at byte 0: damaged file header: checksum 8df84c82 stored, 6cc7048f computed",
    ),
    (
        "corrupt/flipped-index.run",
        "at byte 938: damaged key index: checksum 4a752828 stored, 07cd0cec computed",
    ),
    (
        "corrupt/flipped-payload.raw",
        "at byte 144: damaged frame payload: checksum b2c2dd3b stored, e23234e6 computed",
    ),
    (
        "corrupt/flipped-sources.run",
        "at byte 1739: damaged source table: checksum 77e34750 stored, 820756a2 computed",
    ),
    (
        "corrupt/flipped-trailer.raw",
        "at byte 2995: damaged trailer: checksum 42839061 stored, 828fa05f computed",
    ),
    ("corrupt/foreign.raw", "at byte 0: not an I-file (the first bytes are foreign)"),
    ("corrupt/foreign.run", "at byte 0: not an I-file (the first bytes are foreign)"),
    (
        "corrupt/frame-missing.raw",
        "at byte 2915: damaged: the number of frames is 7 here, but 6 in another place",
    ),
    ("corrupt/half.raw", "at byte 1390: truncated: 877 bytes needed, 91 present"),
    (
        "corrupt/half.run",
        "at byte 901: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    ("corrupt/header-only.run", "at byte 0: truncated: 192 bytes needed, 64 present"),
    ("corrupt/newer.raw", "at byte 8: format version 3 is not known to this program"),
    ("corrupt/newer.run", "at byte 8: format version 3 is not known to this program"),
    (
        "corrupt/one-byte-more.run",
        "at byte 1932: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    (
        "corrupt/one-byte-short.run",
        "at byte 1930: the end mark is missing: the file is truncated, or has bytes after its end",
    ),
    ("corrupt/raw-chunk-named-as-a-run.run", "at byte 0: not an I-file (the first bytes are foreign)"),
];

const VERSIONS: [u16; 2] = [1, FORMAT_VERSION];

fn test_data(version: u16) -> PathBuf {
    PathBuf::from(format!("test_data/v{version}"))
}

fn read(version: u16, name: &str) -> Vec<u8> {
    let path = test_data(version).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

/// The file with `change` made to it.
fn changed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    bytes
}

/// A file header of the next version, with the right checksum.
fn newer(bytes: &[u8]) -> Vec<u8> {
    changed(bytes, |bytes| {
        bytes[8] = FORMAT_VERSION as u8 + 1;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    })
}

/// All golden files as today's code writes them: (name, bytes).
fn written_today() -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    for (name, codec, shape) in RUNS {
        files.push((*name, sample_run(*codec, *shape)));
    }
    let empty = write_run(run_identity(KeyShape::Whole), Codec::Lz4, BLOCK_BYTES, source_rows(), &[]).0;
    files.push(("run-empty.run", empty));
    for (name, shape) in RAW_CHUNKS {
        files.push((*name, write_raw_chunk(raw_chunk_identity(*shape), &sample_frames(*shape))));
    }
    let run = sample_run(Codec::Lz4, KeyShape::Whole);
    let opened = RunFile::open(&run[..]).expect("just written");
    let (index, sources) = (opened.footer.index_offset as usize, opened.footer.sources_offset as usize);
    let end = run.len() - ifile::run_file::FOOTER_BYTES;
    files.push(("index.part", run[index..sources].to_vec()));
    files.push(("sources.part", run[sources..end].to_vec()));
    for (name, codec) in
        [("block-none.part", Codec::None), ("block-lz4.part", Codec::Lz4), ("block-zstd.part", Codec::Zstd)]
    {
        let mut bytes = Vec::new();
        block::encode(&block_samples().concat(), 3, codec, &mut bytes);
        files.push((name, bytes));
    }
    let (header, payload) = &sample_frames(KeyShape::Whole)[0];
    files.push(("frame.part", [&header.encode()[..], payload].concat()));
    files.push(("spool.part", spooled_samples(FORMAT_VERSION).iter().flat_map(encoded).collect()));
    files.extend(corrupt_today(&run, index, sources, end));
    files
}

fn encoded((header, payload): &(FrameHeader, Vec<u8>)) -> Vec<u8> {
    [&header.encode()[..], payload].concat()
}

/// Frames of one attempt, by turns of three I-files.
fn spooled_samples(version: u16) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut frames = sample_frames_of(version, KeyShape::Whole);
    let source = frames[0].0.source;
    for (index, (header, _)) in frames.iter_mut().enumerate() {
        (header.source, header.ifile, header.sequence) =
            (source, IfileIndex(index as u32 % 3), index as u64 / 3);
    }
    frames
}

/// Three records of a block, long enough to be compressed by every codec.
fn block_samples() -> Vec<Vec<u8>> {
    let encode = |row: u32, value: &[u8]| {
        let sample = Sample {
            row,
            key: b"key".to_vec(),
            value: value.to_vec(),
            partition_key_bytes: 3,
            is_separated: false,
        };
        let mut bytes = Vec::new();
        block::push_record(&mut bytes, row, &sample.encoded(KeyShape::Whole));
        bytes
    };
    vec![encode(0, &[b'a'; 100]), encode(1, b""), encode(300, &[b'b'; 100])]
}

fn corrupt_today(run: &[u8], index: usize, sources: usize, end: usize) -> Vec<(&'static str, Vec<u8>)> {
    let raw = write_raw_chunk(raw_chunk_identity(KeyShape::Whole), &sample_frames(KeyShape::Whole));
    let flip = |bytes: &[u8], at: usize| changed(bytes, |bytes| bytes[at] ^= 0x10);
    vec![
        ("corrupt/foreign.run", b"#!/bin/sh\necho this is not an I-file, whatever its name says\n".repeat(4)),
        ("corrupt/foreign.raw", b"#!/bin/sh\necho this is not an I-file, whatever its name says\n".repeat(4)),
        ("corrupt/raw-chunk-named-as-a-run.run", raw.clone()),
        ("corrupt/newer.run", newer(run)),
        ("corrupt/newer.raw", newer(&raw)),
        ("corrupt/empty.run", Vec::new()),
        ("corrupt/header-only.run", run[..64].to_vec()),
        ("corrupt/half.run", run[..run.len() / 2].to_vec()),
        ("corrupt/one-byte-short.run", run[..run.len() - 1].to_vec()),
        ("corrupt/half.raw", raw[..raw.len() / 2].to_vec()),
        ("corrupt/one-byte-more.run", changed(run, |bytes| bytes.push(0))),
        ("corrupt/flipped-header.run", flip(run, 20)),
        ("corrupt/flipped-block-header.run", flip(run, 64 + 4)),
        ("corrupt/flipped-block.run", flip(run, 64 + BLOCK_HEADER_BYTES + 9)),
        ("corrupt/flipped-index.run", flip(run, index + 3)),
        ("corrupt/flipped-sources.run", flip(run, sources + 5)),
        ("corrupt/flipped-footer.run", flip(run, end + 70)),
        ("corrupt/flipped-frame-header.raw", flip(&raw, 64 + 30)),
        ("corrupt/flipped-payload.raw", flip(&raw, 64 + FRAME_HEADER_BYTES + 1)),
        ("corrupt/flipped-trailer.raw", flip(&raw, raw.len() - 10)),
        (
            "corrupt/frame-missing.raw",
            changed(&raw, |bytes| {
                // The frame without records is the last, so nothing but its number is missed.
                let frame = bytes.len() - ifile::raw_chunk::TRAILER_BYTES - FRAME_HEADER_BYTES;
                bytes.drain(frame..frame + FRAME_HEADER_BYTES);
            }),
        ),
    ]
}

/// Not a test of anything: makes the files for a new version of the format when asked to.
#[test]
fn golden_files_are_written_when_asked_for() {
    let Some(directory) = std::env::var_os("IFILE_GOLDEN_DIRECTORY").map(PathBuf::from) else { return };
    std::fs::create_dir_all(directory.join("corrupt")).unwrap();
    for (name, bytes) in written_today() {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
}

fn walk<F: ReadAt + ?Sized>(file: &F, run: &RunFile) -> Vec<Sample> {
    let mut found = Vec::new();
    verify::walk_run(file, run, |row, record| {
        found.push(Sample {
            row,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
            partition_key_bytes: record.partition_key_bytes,
            is_separated: record.is_separated(),
        });
    })
    .unwrap();
    found
}

#[test]
fn golden_runs_hold_the_samples() {
    for (version, (name, codec, shape)) in in_each_version(RUNS) {
        let bytes = read(version, name);
        let run = RunFile::open(&bytes[..]).unwrap();
        assert_eq!(run.identity, run_identity(*shape), "{name}");
        assert_eq!(walk(&bytes[..], &run), samples_of(version, *shape), "{name}");
        let codecs: Vec<Codec> = run
            .index
            .entries
            .iter()
            .map(|entry| BlockHeader::decode(&bytes[entry.offset_bytes as usize..]).unwrap().codec)
            .collect();
        assert!(codecs.contains(codec) && codecs.contains(&Codec::None), "{name}: {codecs:?}");
    }
    for version in VERSIONS {
        let bytes = read(version, "run-empty.run");
        let run = RunFile::open(&bytes[..]).unwrap();
        assert_eq!((run.sources.clone(), walk(&bytes[..], &run)), (source_rows(), Vec::new()));
    }
}

fn in_each_version<T>(rows: &[T]) -> impl Iterator<Item = (u16, &T)> {
    VERSIONS.into_iter().flat_map(|version| rows.iter().map(move |row| (version, row)))
}

#[test]
fn golden_raw_chunks_hold_the_samples() {
    for (version, (name, shape)) in in_each_version(RAW_CHUNKS) {
        let mut frames = Vec::new();
        let (identity, count) =
            read_frames(&read(version, name)[..], |header, payload| frames.push((header, payload))).unwrap();
        assert_eq!((identity, count), (raw_chunk_identity(*shape), frames.len() as u64), "{name}");
        assert_eq!(frames, sample_frames_of(version, *shape), "{name}");
    }
}

#[test]
fn golden_parts_decode() {
    VERSIONS.into_iter().for_each(check_parts);
}

fn check_parts(version: u16) {
    let read = |name: &str| read(version, name);
    let run = RunFile::open(&read("run-lz4.run")[..]).unwrap();
    let entries = run.index.entries.len() as u64;
    assert_eq!(KeyIndex::decode(&read("index.part"), entries).unwrap(), run.index);
    assert_eq!(source_table::decode(&read("sources.part"), 3).unwrap(), run.sources);
    let bytes = read("frame.part");
    let header = FrameHeader::decode(&bytes).unwrap();
    header.check_payload(&bytes[FRAME_HEADER_BYTES..]).unwrap();
    header.check_records(&bytes[FRAME_HEADER_BYTES..]).unwrap();
    let (bytes, samples) = (read("spool.part"), spooled_samples(version));
    let (source, key_shape) = (samples[0].0.source, KeyShape::Whole);
    let mut frames = SpoolFrames::new(SpoolOf { source, key_shape, payload_bytes_max: 1 << 20 }, &bytes[..]);
    for (header, payload) in &samples {
        assert_eq!(frames.next_frame().unwrap(), Some((*header, &payload[..])));
    }
    assert!(frames.next_frame().unwrap().is_none());
    for (name, codec) in
        [("block-none.part", Codec::None), ("block-lz4.part", Codec::Lz4), ("block-zstd.part", Codec::Zstd)]
    {
        let bytes = read(name);
        let header = BlockHeader::decode(&bytes).unwrap();
        assert_eq!((header.codec, header.records), (codec, 3), "{name}");
        let mut raw = Vec::new();
        block::decode_into(&header, &bytes[BLOCK_HEADER_BYTES..], &mut raw).unwrap();
        assert_eq!(raw, block_samples().concat(), "{name}");
    }
}

/// Uncompressed bytes must stay the same for ever; compressed bytes may change with the compressor.
#[test]
fn the_encoders_still_write_the_golden_files() {
    for (name, bytes) in written_today() {
        let compressed = ["lz4", "zstd", "run-prefix", "index"].iter().any(|each| name.contains(each));
        if !compressed && !name.starts_with("corrupt/") {
            assert!(bytes == read(FORMAT_VERSION, name), "{name} would be written differently today");
        }
    }
}

fn opened(version: u16, name: &str) -> Result<(), FormatError> {
    let bytes = read(version, name);
    match name.ends_with(".raw") {
        true => read_frames(&bytes[..], |_, _| {}).map(|_| ()),
        false => RunFile::open(&bytes[..])
            .and_then(|run| verify::walk_run(&bytes[..], &run, |_, _| {}))
            .map(|_| ()),
    }
}

/// The message tells a person where and what is wrong. The owner of the file adds the path.
#[test]
fn corrupt_files_are_refused_with_the_offset() {
    for (version, rows) in [(1, CORRUPT_1), (2, CORRUPT_2)] {
        for (name, expected) in rows {
            let error = opened(version, name).expect_err("the file is corrupt");
            assert_eq!(error.to_string(), *expected, "{name} of version {version}");
        }
        let newer = if version == 1 { &["newer.run", "newer.raw"][..] } else { &[] };
        // The version that came next is known by now, and has all that the one before had.
        newer.iter().for_each(|name| opened(version, &format!("corrupt/{name}")).unwrap());
        let listed = std::fs::read_dir(test_data(version).join("corrupt")).unwrap().count();
        assert_eq!(listed, rows.len() + newer.len(), "each corrupt file has its row");
    }
}
