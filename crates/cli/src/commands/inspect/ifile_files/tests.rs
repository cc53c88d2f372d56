use super::{KeyRange, inspect, scan, verify};
use crate::exit::sentence;
use api::{Codec, DataSum};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, RunId, Source, TaskIndex};
use ifile::raw_chunk::{RawChunkIdentity, encode_trailer};
use ifile::run_file::RunIdentity;
use ifile::{FrameHeader, KeyShape, RunWriter, SourceRow, record, record_hash};
use std::path::Path;

fn source(map_task: u32) -> Source {
    Source { map_task: TaskIndex(map_task), attempt: AttemptNumber(0) }
}

/// Encodes records, and sums them.
fn encode(pairs: &[(&str, &str)]) -> (Vec<u8>, DataSum) {
    let (mut bytes, mut sum) = (Vec::new(), DataSum::default());
    for (key, value) in pairs {
        let start = bytes.len();
        record::encode(KeyShape::Whole, key.as_bytes(), value.as_bytes(), key.len(), &mut bytes);
        sum.add_record((bytes.len() - start) as u64, record_hash(&bytes[start..]));
    }
    (bytes, sum)
}

/// Writes a run of small blocks, so that a scan can skip some.
fn write_run(path: &Path) {
    let pairs: Vec<(String, String)> = (0..500).map(|n| (format!("k{n:03}"), format!("v{n}"))).collect();
    let borrowed: Vec<(&str, &str)> =
        pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (bytes, sum) = encode(&borrowed);
    let rows = vec![SourceRow { chunk: ChunkId(4), source: source(2), first_sequence: 0, sum }];
    let identity =
        RunIdentity { job: JobId(9), run: RunId(7), ifile: IfileIndex(3), key_shape: KeyShape::Whole };
    let file = std::fs::File::create(path).unwrap();
    let mut writer = RunWriter::new(file, identity, Codec::Lz4, 256, rows).unwrap();
    let mut offset = 0;
    while offset < bytes.len() {
        let record = record::decode(KeyShape::Whole, &bytes[offset..]).unwrap();
        writer.push(0, &record).unwrap();
        offset += record.encoded.len();
    }
    writer.finish().unwrap();
}

/// Writes frames of two sources, the later one first, as appends may arrive.
fn write_raw(path: &Path) {
    let identity = RawChunkIdentity {
        job: JobId(9),
        chunk: ChunkId(5),
        ifile: IfileIndex(3),
        key_shape: KeyShape::Whole,
    };
    let mut file = identity.encode_header().to_vec();
    let frames =
        [(1, 0, vec![("b", "4"), ("a", "3")]), (0, 0, vec![("b", "1")]), (0, 1, vec![("b", "2"), ("", "")])];
    for (map_task, sequence, pairs) in frames {
        let (payload, sum) = encode(&pairs);
        let header = FrameHeader {
            ifile: IfileIndex(3),
            source: source(map_task),
            sequence,
            key_shape: KeyShape::Whole,
            sum,
            payload_crc32c: crc32c::crc32c(&payload),
        };
        file.extend_from_slice(&header.encode());
        file.extend_from_slice(&payload);
    }
    file.extend_from_slice(&encode_trailer(ChunkId(5), 3));
    std::fs::write(path, file).unwrap();
}

fn scanned(path: &Path, lower: Option<&str>, upper: Option<&str>) -> String {
    let range = KeyRange { lower: lower.map(Into::into), upper: upper.map(Into::into) };
    let mut output = Vec::new();
    scan(path, &range, &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

#[test]
fn runs_are_shown_checked_and_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.ifile");
    write_run(&path);
    let text = inspect(&path).unwrap();
    for expected in ["sorted run 7 of ifile-3, job 9", "500, ", " lz4", "chunk-4", "k000"] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(verify(&path).unwrap().contains("run-7 is whole"));
    assert_eq!(scanned(&path, None, None).lines().count(), 500);
    assert_eq!(scanned(&path, Some("k100"), Some("k102")), "k100\tv100\nk101\tv101\n");
    assert_eq!(scanned(&path, Some("k4985"), None), "k499\tv499\n");
    assert_eq!(scanned(&path, Some("x"), Some("a")), "");
}

#[test]
fn raw_chunks_are_shown_checked_and_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chunk.raw");
    write_raw(&path);
    let text = inspect(&path).unwrap();
    for expected in ["raw chunk-5 of ifile-3, job 9", "frames    3", "records   5"] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(verify(&path).unwrap().contains("raw chunk-5 is whole: 3 frames, 5 records"));
    assert_eq!(scanned(&path, None, None), "\t\na\t3\nb\t1\nb\t2\nb\t4\n");
    assert_eq!(scanned(&path, Some("b"), None), "b\t1\nb\t2\nb\t4\n");
}

#[test]
fn damage_is_named_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for write in [write_run, write_raw] {
        write(&path);
        let whole = std::fs::read(&path).unwrap();
        for offset in (0..whole.len()).step_by(97) {
            let mut damaged = whole.clone();
            damaged[offset] ^= 4;
            std::fs::write(&path, damaged).unwrap();
            let error = sentence(&verify(&path).unwrap_err());
            assert!(error.contains("at byte "), "{offset}: {error}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(verify(&path).is_err() && inspect(&path).is_err());
    }
    std::fs::write(&path, "not ours, and long enough to hold a header and a footer".repeat(9)).unwrap();
    assert!(sentence(&inspect(&path).unwrap_err()).contains("at byte 0: not an I-file"));
}
