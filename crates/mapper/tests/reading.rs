//! Splits and the reader against a model: any cut of any text, with any line ends, plain or compressed,
//! gives each line exactly once and in order.

use api::{Blame, Compression, InputFile, RecordFormat, TaskFailure};
use functions::{BlockPlace, RecordInput};
use mapper::{ReaderLimits, SplitReader, input};
use mapreduce::splits as split;
use proptest::prelude::*;
use std::io::Write;
use std::path::Path;

const LIMITS: ReaderLimits =
    ReaderLimits { buffer_bytes: 256 << 10, record_bytes_max: 1 << 20, object_buffer_bytes: 0 };

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    // As the command line tool writes it: without the checksum damage to literals cannot be seen.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(text: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

const COMPRESSED: [Option<Compression>; 4] =
    [Some(Compression::Gzip), Some(Compression::Zstd), Some(Compression::Bzip2), Some(Compression::Xz)];

/// A text as stored; `pieces` become members or frames of their own.
fn stored(format: Option<Compression>, pieces: &[&[u8]]) -> Vec<u8> {
    let encode = match format {
        None => |piece: &[u8]| piece.to_vec(),
        Some(Compression::Gzip) => gzip,
        Some(Compression::Zstd) => zstd,
        Some(Compression::Bzip2) => bzip2,
        Some(Compression::Xz) => xz,
    };
    pieces.iter().flat_map(|piece| encode(piece)).collect()
}

fn list_one(path: &Path) -> Vec<InputFile> {
    input::list(&[path.to_str().unwrap().to_string()]).unwrap()
}

fn open(inputs: &[InputFile], split: &api::Split, limits: ReaderLimits) -> SplitReader {
    SplitReader::open(inputs, split, RecordFormat::TEXT, limits).unwrap()
}

/// Reads every split; returns the text and checks counts and block shape on the way.
fn read_all(inputs: &[InputFile], split_bytes: u64, limits: ReaderLimits) -> Result<Vec<u8>, TaskFailure> {
    read_lines(inputs, split_bytes, limits, b'\n')
}

fn read_lines(
    inputs: &[InputFile],
    split_bytes: u64,
    limits: ReaderLimits,
    terminator: u8,
) -> Result<Vec<u8>, TaskFailure> {
    let mut text = Vec::new();
    let format = RecordFormat::Lines { terminator };
    for split in split::plan(inputs, split_bytes, format) {
        let mut reader = SplitReader::open(inputs, &split, format, limits)?;
        assert_eq!(reader.format(), format);
        let (mut lines, start) = (0, text.len());
        while let Some(block) = reader.next_block()? {
            assert!(block.ends_with(&[terminator]));
            lines += block.iter().filter(|byte| **byte == terminator).count() as u64;
            text.extend_from_slice(block);
        }
        assert!(reader.next_block()?.is_none(), "the end stays the end");
        assert_eq!(reader.records(), lines);
        let added = (text.len() - start) as u64 - reader.bytes();
        assert!(added <= split.segments.len() as u64);
    }
    Ok(text)
}

/// The model: every file ends its last line.
fn joined(texts: &[Vec<u8>], terminator: u8) -> Vec<u8> {
    let mut all = Vec::new();
    for text in texts {
        all.extend_from_slice(text);
        if !text.is_empty() && !text.ends_with(&[terminator]) {
            all.push(terminator);
        }
    }
    all
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\n'), Just(b'a'), Just(b'\r'), Just(0u8), Just(0xff), Just(b'\t')];
    prop_oneof![
        proptest::collection::vec(byte, 0..60),
        proptest::collection::vec(prop_oneof![1 => Just(b'\n'), 30 => Just(b'x')], 0..300),
    ]
}

fn any_format() -> impl Strategy<Value = Option<Compression>> {
    prop_oneof![3 => Just(None), 3 => proptest::sample::select(&COMPRESSED[..])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_line_is_read_once_and_in_order(
        files in proptest::collection::vec((any_text(), any_format(), 0usize..60), 0..4),
        split_bytes in 1u64..80,
        buffer_bytes in 1usize..40,
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (index, (text, format, cut)) in files.iter().enumerate() {
            let (left, right) = text.split_at((*cut).min(text.len()));
            let bytes = stored(*format, &[left, right]);
            std::fs::write(directory.path().join(format!("{index}")), bytes).unwrap();
        }
        let inputs = list_one(directory.path());
        let texts: Vec<Vec<u8>> = files.into_iter().map(|file| file.0).collect();
        let limits = ReaderLimits { buffer_bytes, record_bytes_max: 400, object_buffer_bytes: 0 };
        for terminator in [b'\n', 0] {
            let text = read_lines(&inputs, split_bytes, limits, terminator).unwrap();
            let expected = joined(&texts, terminator);
            prop_assert_eq!(text.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }

    #[test]
    fn each_fixed_record_is_read_once_in_order(
        files in proptest::collection::vec((0usize..30, any_format(), 0usize..60), 0..4),
        record_bytes in 1u32..9,
        split_bytes in 1u64..80,
        buffer_bytes in 1usize..40,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut texts = Vec::new();
        for (index, (records, format, cut)) in files.iter().enumerate() {
            let text: Vec<u8> = (0..records * record_bytes as usize).map(|byte| (byte * 7 + index) as u8).collect();
            let (left, right) = text.split_at((*cut).min(text.len()));
            // What was not compressed is not to be taken for something that was.
            let bytes = stored(*format, &[left, right]);
            std::fs::write(directory.path().join(format!("{index}")), bytes).unwrap();
            texts.push(text);
        }
        let inputs = list_one(directory.path());
        let format = RecordFormat::Fixed { record_bytes, key_bytes: 1 };
        input::check_whole_records(&inputs, format).unwrap();
        let limits = ReaderLimits { buffer_bytes, record_bytes_max: 400, object_buffer_bytes: 0 };
        let mut found = vec![Vec::new(); texts.len()];
        for split in split::plan(&inputs, split_bytes, format) {
            let mut reader = SplitReader::open(&inputs, &split, format, limits).unwrap();
            let mut bytes = 0;
            while let Some(block) = reader.next_block().unwrap() {
                let block = block.to_vec();
                prop_assert!(block.len() % record_bytes as usize == 0 && !block.is_empty());
                prop_assert!(block.len() <= buffer_bytes.max(record_bytes as usize));
                let place = reader.place();
                let file = &mut found[place.file_index as usize];
                prop_assert_eq!(place.offset_bytes, file.len() as u64);
                file.extend_from_slice(&block);
                bytes += block.len() as u64;
            }
            prop_assert!(reader.next_block().unwrap().is_none());
            prop_assert_eq!((reader.bytes(), reader.records()), (bytes, bytes / u64::from(record_bytes)));
        }
        prop_assert_eq!(found, texts);
    }

    #[test]
    fn splits_partition_every_file(
        sizes in proptest::collection::vec((0u64..200, any_format()), 0..20),
        split_bytes in 1u64..100,
    ) {
        let file = |(size_bytes, format): &(u64, Option<Compression>)| InputFile {
            path: "/f".into(), size_bytes: *size_bytes, mtime_ns: 0, compression: *format, named: 0, object: None,
            stage_file: None, stored: None, content: None, seen: None,
        };
        let inputs: Vec<InputFile> = sizes.iter().map(file).collect();
        let splits = split::plan(&inputs, split_bytes, RecordFormat::TEXT);
        let mut covered = vec![0; inputs.len()];
        let mut last_file = 0;
        for split in &splits {
            prop_assert!(!split.segments.is_empty());
            let bytes: u64 = split.segments.iter().map(|segment| segment.length_bytes).sum();
            prop_assert!(bytes <= split_bytes || split.segments.len() == 1);
            for segment in &split.segments {
                let index = segment.file_index as usize;
                prop_assert!(index >= last_file && segment.length_bytes > 0);
                prop_assert_eq!(segment.offset_bytes, covered[index]);
                covered[index] += segment.length_bytes;
                last_file = index;
            }
        }
        prop_assert_eq!(covered, inputs.iter().map(|input| input.size_bytes).collect::<Vec<_>>());
    }
}

#[test]
fn large_files_come_in_blocks_of_the_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let line = |number: u32| format!("line {number} {}\n", "x".repeat((number % 200) as usize));
    let text: String = (0..60_000).map(line).collect();
    for format in [&[None], &COMPRESSED[..]].concat() {
        let path = directory.path().join("text");
        std::fs::write(&path, stored(format, &[text.as_bytes()])).unwrap();
        let inputs = list_one(&path);
        assert_eq!(read_all(&inputs, 1 << 20, LIMITS).unwrap(), text.as_bytes());
        let split = split::plan(&inputs, u64::MAX, RecordFormat::TEXT).remove(0);
        let mut reader = open(&inputs, &split, LIMITS);
        let block = reader.next_block().unwrap().unwrap().len();
        assert!(block > LIMITS.buffer_bytes - 300 && block <= LIMITS.buffer_bytes, "{block}");
    }
}

fn failure_of(path: &Path, split_bytes: u64, limits: ReaderLimits) -> TaskFailure {
    read_all(&list_one(path), split_bytes, limits).map(|text| text.len()).unwrap_err()
}

#[test]
fn a_line_longer_than_memory_allows_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.txt");
    for (format, line_end) in [(None, "\nshort\n"), (None, ""), (Some(Compression::Zstd), "\n")] {
        let text = format!("first\n{}{line_end}", "x".repeat(3 << 20));
        std::fs::write(&path, stored(format, &[text.as_bytes()])).unwrap();
        let failure = failure_of(&path, 1 << 19, LIMITS);
        assert_eq!(failure.blame, Blame::UserData);
        assert!(failure.message.contains("long.txt at byte 6"), "{}", failure.message);
        assert!(failure.message.contains("has 3145728 bytes"), "{}", failure.message);
        assert!(failure.message.contains("--memory 12M"), "{}", failure.message);
    }
    std::fs::write(&path, format!("{}\n", "x".repeat(1 << 20))).unwrap();
    assert_eq!(read_all(&list_one(&path), 1 << 19, LIMITS).unwrap().len(), (1 << 20) + 1);
}

#[test]
fn a_limit_below_the_buffer_is_kept_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.txt");
    let limits = ReaderLimits { buffer_bytes: 1000, record_bytes_max: 5, object_buffer_bytes: 0 };
    for (text, fits) in [("12345\n12345", true), ("123456\n", false), ("123456", false), ("1\n123456", false)]
    {
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_all(&list_one(&path), 3, limits).is_ok(), fits, "{text:?}");
    }
}

#[test]
fn truncated_and_corrupt_files_are_named_by_offset() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.gz");
    let text: String =
        (0..5000).map(|number: u32| format!("{}\n", number.wrapping_mul(2_654_435_761))).collect();
    for format in COMPRESSED {
        let whole = stored(format, &[text.as_bytes(), b"second\n"]);
        for kept in [10, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..kept]).unwrap();
            let failure = failure_of(&path, 1 << 20, LIMITS);
            assert_eq!(failure.blame, Blame::UserData);
            let expected = format!("breaks off at byte {kept}");
            assert!(failure.message.contains("bad.gz is truncated"), "{kept}: {}", failure.message);
            assert!(failure.message.contains(&expected), "{kept}: {}", failure.message);
        }
        let mut corrupt = whole.clone();
        let middle = corrupt.len() / 2;
        corrupt[middle..middle + 16].fill(0xff);
        std::fs::write(&path, &corrupt).unwrap();
        let message = failure_of(&path, 1 << 20, LIMITS).message;
        assert!(message.contains("bad.gz is corrupt") && message.contains("bad at byte"), "{message}");
        let mut garbage = whole.clone();
        garbage.extend_from_slice(b"garbage after the end");
        std::fs::write(&path, &garbage).unwrap();
        match format {
            // As `gzip` does.
            Some(Compression::Gzip) => assert!(read_all(&list_one(&path), 1 << 20, LIMITS).is_ok()),
            _ => assert!(failure_of(&path, 1 << 20, LIMITS).message.contains("bad.gz is ")),
        }
    }
}

#[test]
fn a_partial_last_record_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    let format = RecordFormat::Fixed { record_bytes: 100, key_bytes: 10 };
    std::fs::write(&path, [b'x'; 1030]).unwrap();
    let inputs = list_one(&path);
    let refused = input::check_whole_records(&inputs, format).unwrap_err().to_string();
    for text in ["/rows has a partial last record", "1030 bytes", "record length 100"] {
        assert!(refused.contains(text), "{refused}");
    }
    input::check_whole_records(&inputs, RecordFormat::TEXT).unwrap();
    for stored_as in [&[None], &COMPRESSED[..]].concat() {
        std::fs::write(&path, stored(stored_as, &[&[b'x'; 1030]])).unwrap();
        let inputs = list_one(&path);
        let mut last = Ok(());
        for split in split::plan(&inputs, 400, format) {
            let mut reader = SplitReader::open(&inputs, &split, format, LIMITS).unwrap();
            last = loop {
                match reader.next_block() {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(failure) => break Err(failure),
                }
            };
        }
        let failure = last.unwrap_err();
        assert_eq!(failure.blame, Blame::UserData);
        for text in ["/rows has a partial last record", "1030 bytes", "length 100", "30 are left over"] {
            assert!(failure.message.contains(text), "{stored_as:?}: {}", failure.message);
        }
    }
    let limits = ReaderLimits { buffer_bytes: 1000, record_bytes_max: 99, object_buffer_bytes: 0 };
    let split = split::plan(&inputs, u64::MAX, format).remove(0);
    let failure = SplitReader::open(&inputs, &split, format, limits).unwrap().next_block().unwrap_err();
    assert!(failure.message.contains("it has 100 bytes"), "{}", failure.message);
}

#[test]
fn a_file_that_changes_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("input.txt");
    let text = "line\n".repeat(100_000);
    let changes: [fn(&Path); 4] = [
        |path| std::fs::File::options().append(true).open(path).unwrap().write_all(b"more\n").unwrap(),
        |path| std::fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap(),
        |path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        },
        |path| std::fs::remove_file(path).unwrap(),
    ];
    for (index, change) in changes.iter().enumerate() {
        std::fs::write(&path, &text).unwrap();
        let inputs = list_one(&path);
        let split = split::plan(&inputs, u64::MAX, RecordFormat::TEXT).remove(0);
        let read_rest = |mut reader: SplitReader| -> Result<(), TaskFailure> {
            while reader.next_block()?.is_some() {}
            Ok(())
        };
        // Changed while it is open; a file that is only unlinked stays readable.
        let mut reader = open(&inputs, &split, LIMITS);
        reader.next_block().unwrap();
        change(&path);
        if index < 3 {
            let failure = read_rest(reader).unwrap_err();
            assert!(
                failure.message.contains("input.txt: file changed during the run"),
                "{}",
                failure.message
            );
        }
        // Changed before it is opened.
        let reader = open(&inputs, &split, LIMITS);
        let failure = read_rest(reader).unwrap_err();
        assert_eq!(failure.blame, Blame::UserData);
        let expected =
            if index < 3 { "file changed during the run" } else { "the file was removed during the run" };
        assert!(failure.message.contains(&format!("input.txt: {expected}")), "{}", failure.message);
    }
}

#[test]
fn positions_name_file_and_byte() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "one\ntwo\nthree\n").unwrap();
    std::fs::write(directory.path().join("b"), gzip(b"four\n")).unwrap();
    let inputs = list_one(directory.path());
    let split = split::plan(&inputs, 1000, RecordFormat::TEXT).remove(0);
    let limits = ReaderLimits { buffer_bytes: 5, record_bytes_max: 100, object_buffer_bytes: 0 };
    let mut reader = open(&inputs, &split, limits);
    assert_eq!(reader.next_block().unwrap().unwrap(), b"one\n");
    assert_eq!(reader.next_block().unwrap().unwrap(), b"two\n");
    assert_eq!(reader.place(), BlockPlace { offset_bytes: 4, ..BlockPlace::default() });
    assert!(reader.position(1).ends_with("/a at byte 5"), "{}", reader.position(1));
    assert_eq!(reader.next_block().unwrap().unwrap(), b"three\n");
    assert!(reader.position(0).ends_with("/a at byte 8"), "{}", reader.position(0));
    assert_eq!(reader.next_block().unwrap().unwrap(), b"four\n");
    assert_eq!(reader.place(), BlockPlace { file_index: 1, ..BlockPlace::default() });
    assert!(reader.position(0).ends_with("/b at byte 0 of the decompressed text"), "{}", reader.position(0));
    assert_eq!((reader.bytes(), reader.records()), (19, 4));
}
