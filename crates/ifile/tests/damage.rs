//! Nothing that happens to the bytes of a file goes unnoticed: each single bit, each cut, each byte too many.

mod samples;

use api::Codec;
use ifile::raw_chunk::read_frames;
use ifile::record::KeyShape;
use ifile::{FormatError, RunFile, verify};
use proptest::prelude::*;
use samples::{raw_chunk_identity, sample_frames, sample_run, write_raw_chunk};

/// Opens a run and reads all of it, as `sailfish ifile verify` does.
fn read_run(bytes: &[u8]) -> Result<u64, FormatError> {
    let run = RunFile::open(bytes)?;
    let mut records = 0;
    verify::walk_run(bytes, &run, |_, _| records += 1)?;
    Ok(records)
}

fn read_raw_chunk(bytes: &[u8]) -> Result<u64, FormatError> {
    read_frames(bytes, |_, _| {}).map(|(_, frames)| frames)
}

type Read = fn(&[u8]) -> Result<u64, FormatError>;

/// Small files of every kind, each with what reads it: (name, bytes, read).
fn files() -> Vec<(String, Vec<u8>, Read)> {
    let mut files: Vec<(String, Vec<u8>, Read)> = Vec::new();
    for shape in [KeyShape::Whole, KeyShape::Prefix] {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            files.push((format!("run {codec:?} {shape:?}"), sample_run(codec, shape), read_run));
        }
        let raw = write_raw_chunk(raw_chunk_identity(shape), &sample_frames(shape));
        files.push((format!("raw chunk {shape:?}"), raw, read_raw_chunk));
    }
    files
}

#[test]
fn undamaged_files_are_read() {
    for (name, bytes, read) in files() {
        assert!(read(&bytes).unwrap() > 5, "{name}");
        assert!(bytes.len() > 1500, "{name} has several blocks or frames");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for (name, mut bytes, read) in files() {
        for offset in 0..bytes.len() {
            for bit in 0..8 {
                bytes[offset] ^= 1 << bit;
                let found = read(&bytes);
                assert!(found.is_err(), "{name}: bit {bit} of byte {offset} was flipped unseen");
                bytes[offset] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn every_cut_is_found() {
    for (name, bytes, read) in files() {
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{name}: cut to {length} bytes unseen");
            assert!(
                read(&bytes[bytes.len() - length..]).is_err(),
                "{name}: the last {length} bytes are a file"
            );
        }
    }
}

#[test]
fn every_byte_too_many_is_found() {
    for (name, bytes, read) in files() {
        for added in 0..=u8::MAX {
            let longer = [&bytes[..], &[added]].concat();
            assert!(read(&longer).is_err(), "{name}: byte {added} behind the end unseen");
            let longer = [&[added], &bytes[..]].concat();
            assert!(read(&longer).is_err(), "{name}: byte {added} before the beginning unseen");
        }
        let twice = [&bytes[..], &bytes[..]].concat();
        assert!(read(&twice).is_err(), "{name}: twice the file is a file");
    }
}

#[test]
fn every_missing_or_doubled_byte_is_found() {
    for (name, bytes, read) in files() {
        for offset in 0..bytes.len() {
            let mut shorter = bytes.clone();
            shorter.remove(offset);
            assert!(read(&shorter).is_err(), "{name}: byte {offset} taken out unseen");
            let mut longer = bytes.clone();
            longer.insert(offset, bytes[offset]);
            assert!(read(&longer).is_err(), "{name}: byte {offset} doubled unseen");
        }
    }
}

/// The offset of an error must lie within the file, or a person looks in the wrong place.
#[test]
fn errors_name_an_offset_of_the_file() {
    for (name, bytes, read) in files() {
        for offset in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 0x81;
            let error = read(&damaged).unwrap_err();
            assert!(error.offset < bytes.len() as u64, "{name}: byte {offset} gives {error}");
        }
    }
}

proptest! {
    /// Damage larger than a bit: a stretch is overwritten, as a lost or misplaced write does.
    #[test]
    fn overwritten_stretches_are_found(
        file in 0_usize..8, at in any::<prop::sample::Index>(), stretch in prop::collection::vec(any::<u8>(), 1..600),
    ) {
        let (name, bytes, read) = files().swap_remove(file);
        let mut damaged = bytes.clone();
        let start = at.index(bytes.len());
        let end = (start + stretch.len()).min(bytes.len());
        damaged[start..end].copy_from_slice(&stretch[..end - start]);
        prop_assume!(damaged != bytes);
        prop_assert!(read(&damaged).is_err(), "{}: bytes {}..{} overwritten unseen", name, start, end);
    }

    /// Any bytes at all: an error, not a panic.
    #[test]
    fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read_run(&bytes).is_err());
        prop_assert!(read_raw_chunk(&bytes).is_err());
    }
}
