//! Nothing that happens to the bytes of a stage file goes unnoticed, and nothing that is wrong is given out.

use stagefile::{
    BLOCK_HEADER_BYTES, BLOCK_PAYLOAD_BYTES, BlockLayout, DamageKind, DamagePlace, FOOTER_BYTES,
    HEADER_BYTES, Payload, RawPieces, RawVerifier, StageFileDamage, StageFileError, StageFileReader,
    StageFileWriter, Syncing, verify,
};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BLOCK: usize = BLOCK_PAYLOAD_BYTES as usize;
const STORED_BLOCK: usize = BLOCK_HEADER_BYTES + BLOCK;
/// Flips, cuts and overwritten stretches at random places of each file, besides those at all places that matter.
const DRAWS: u64 = 1500;

/// A number below `end` (splitmix64 over a counter).
fn draw(count: u64, end: u64) -> u64 {
    let mut mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % end
}

struct Sample {
    _dir: tempfile::TempDir,
    path: PathBuf,
    payload: Vec<u8>,
    stored: Vec<u8>,
    expected: Payload,
}

impl Sample {
    fn of(bytes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("part-00000.attempt-0.stage");
        let payload: Vec<u8> = (0..bytes as u64).map(|at| draw(at, 256) as u8).collect();
        let mut writer = StageFileWriter::create(&path).expect("created");
        writer.write_all(&payload).expect("written");
        let expected = writer.finish(Syncing::NotSynced).expect("finished").payload();
        let stored = std::fs::read(&path).expect("a file");
        Self { _dir: dir, path, payload, stored, expected }
    }

    fn samples() -> Vec<Self> {
        [0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 100].map(Self::of).into()
    }

    fn file(&self) -> File {
        File::options().write(true).open(&self.path).expect("opened")
    }

    /// Puts other bytes at an offset, looks whether that is found, and puts back what was there.
    fn check_overwritten(&self, offset: usize, bytes: &[u8]) {
        let file = self.file();
        file.write_all_at(bytes, offset as u64).expect("written");
        self.check_found(&format!("{} bytes at {offset}", bytes.len()));
        file.write_all_at(&self.stored[offset..offset + bytes.len()], offset as u64).expect("written");
    }

    fn check_length(&self, length: usize) {
        let file = self.file();
        file.set_len(length as u64).expect("cut");
        self.check_found(&format!("cut to {length}"));
        if length < self.stored.len() {
            file.write_all_at(&self.stored[length..], length as u64).expect("written");
        }
        file.set_len(self.stored.len() as u64).expect("as long as it was");
    }

    /// Each way to read the file says that it is damaged, and gives out nothing that is wrong before that.
    fn check_found(&self, what: &str) {
        let what = format!("{what} of a payload of {}", self.payload.len());
        let found = verify(&self.path);
        assert!(found.as_ref().is_err_and(|error| error.damage().is_some()), "{what}: {found:?}");
        let read = read_whole(&self.path, self.expected, |read| {
            assert!(read == &self.payload[..read.len()], "{what}");
        });
        assert!(read.as_ref().is_err_and(|error| error.damage().is_some()), "{what}: {read:?}");
        let mut verifier = RawVerifier::new(self.expected);
        let bytes = std::fs::read(&self.path).expect("a file");
        let pushed = bytes.chunks(10_000).try_for_each(|piece| verifier.push(piece));
        assert!(pushed.and_then(|()| verifier.finish()).is_err(), "{what}");
        let copied = copy_whole(&self.path, self.expected);
        assert!(copied.as_ref().is_err_and(|error| error.damage().is_some()), "{what}: {copied:?}");
    }
}

fn read_whole(path: &Path, expected: Payload, given: impl Fn(&[u8])) -> Result<(), StageFileError> {
    let mut reader = StageFileReader::open(path, expected, 0, expected.bytes)?;
    let mut all = Vec::new();
    loop {
        let some = reader.fill().inspect_err(|_| given(&all))?;
        let count = some.len();
        all.extend_from_slice(some);
        if count == 0 {
            given(&all);
            return Ok(());
        }
        reader.consume(count);
    }
}

fn copy_whole(path: &Path, expected: Payload) -> Result<(), StageFileError> {
    let mut pieces = RawPieces::open(path, expected)?;
    while pieces.next_piece()?.is_some() {}
    Ok(())
}

#[test]
fn flipped_bits_are_found() {
    for sample in Sample::samples() {
        let size = sample.stored.len();
        let footer = size - FOOTER_BYTES;
        // All bits but those of payloads, and of these some.
        let headers = (0..sample.payload.len().div_ceil(BLOCK)).flat_map(|block| {
            let offset = HEADER_BYTES + block * STORED_BLOCK;
            offset..offset + BLOCK_HEADER_BYTES
        });
        for offset in (0..HEADER_BYTES).chain(headers).chain(footer..size) {
            for bit in 0..8 {
                sample.check_overwritten(offset, &[sample.stored[offset] ^ 1 << bit]);
            }
        }
        for count in 0..DRAWS {
            let offset = draw(2 * count, size as u64) as usize;
            let bit = draw(2 * count + 1, 8);
            sample.check_overwritten(offset, &[sample.stored[offset] ^ 1 << bit]);
        }
        assert!(verify(&sample.path).is_ok());
    }
}

#[test]
fn cuts_and_additions_are_found() {
    for sample in Sample::samples() {
        let size = sample.stored.len();
        for length in (0..size.min(400)).chain(size.saturating_sub(400)..size) {
            sample.check_length(length);
        }
        for count in 0..DRAWS / 10 {
            sample.check_length(draw(count, size as u64) as usize);
            sample.check_length(size + 1 + draw(count, 100_000) as usize);
        }
        assert!(verify(&sample.path).is_ok());
    }
}

#[test]
fn overwritten_stretches_are_found() {
    for sample in Sample::samples() {
        let size = sample.stored.len() as u64;
        for count in 0..DRAWS / 10 {
            let start = draw(2 * count, size);
            let end = start + 1 + draw(2 * count + 1, size - start);
            let stretch = vec![0; (end - start) as usize];
            // A byte may be zero as it is.
            if sample.stored[start as usize..end as usize] != stretch {
                sample.check_overwritten(start as usize, &stretch);
            }
        }
    }
}

#[test]
fn misplaced_block_is_found() {
    let sample = Sample::of(3 * BLOCK);
    let block =
        |number: usize| HEADER_BYTES + number * STORED_BLOCK..HEADER_BYTES + (number + 1) * STORED_BLOCK;
    let swapped = [&sample.stored[block(1)], &sample.stored[block(0)]].concat();
    sample.check_overwritten(HEADER_BYTES, &swapped);
    sample.check_overwritten(block(2).start, &sample.stored[block(1)]);
}

#[test]
fn error_names_file_block_and_difference() {
    let sample = Sample::of(2 * BLOCK + 100);
    let check = |path: &Path, expected: Payload, text: &str| {
        let found = StageFileReader::open(path, expected, 0, expected.bytes)
            .map_err(std::io::Error::from)
            .and_then(|mut reader| std::io::copy(&mut reader, &mut std::io::sink()));
        let error = found.expect_err("refused");
        let text = text.replace("PATH", &path.display().to_string());
        assert_eq!(error.to_string(), text);
        let error = StageFileError::of(&error).expect("ours");
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        assert_eq!(format!("{error}: {cause}"), text);
    };
    let other = Payload { crc32c: sample.expected.crc32c ^ 1, ..sample.expected };
    let (present, wanted) = (sample.expected.crc32c, other.crc32c);
    let text = format!(
        "PATH is damaged: footer: the checksum of the payload is {present}, and {wanted} was expected"
    );
    check(&sample.path, other, &text);
    let longer = Payload { bytes: sample.expected.bytes + 1, ..sample.expected };
    let size = sample.stored.len();
    check(&sample.path, longer, &format!("PATH is damaged: file: {size} bytes where {} should be", size + 1));
    let offset = HEADER_BYTES + STORED_BLOCK;
    sample.file().write_all_at(&[!sample.stored[offset + 4], 0, 0, 0], offset as u64 + 4).expect("written");
    let error = read_whole(&sample.path, sample.expected, |_| {}).expect_err("damaged");
    let damage = error.damage().expect("damage");
    assert!(
        matches!(
            damage,
            StageFileDamage { place: DamagePlace::Block(1), problem: DamageKind::Checksum { .. } }
        ),
        "{damage}"
    );
    // The blocks around it are read.
    for (offset, length, is_read) in [(0, BLOCK, true), (BLOCK - 1, 2, false), (2 * BLOCK, 100, true)] {
        let read = StageFileReader::open(&sample.path, sample.expected, offset as u64, length as u64)
            .expect("opened")
            .read_to_end(&mut Vec::new());
        assert_eq!(read.is_ok(), is_read, "{offset}");
    }
    let gone = sample.path.with_file_name("gone");
    let error = verify(&gone).expect_err("it is not there");
    let StageFileError::Io { action: "open", source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert!(error.damage().is_none());
}

/// Blocks that are all right by themselves, of another payload of the same length: only all of them together show it.
#[test]
fn another_payload_is_found_in_the_end() {
    let (sample, other) = (Sample::of(BLOCK + 500), Sample::of(BLOCK + 500));
    let bytes: Vec<u8> = other.payload.iter().map(|byte| !byte).collect();
    let mut writer = StageFileWriter::create(&other.path).expect("created");
    writer.write_all(&bytes).expect("written");
    writer.finish(Syncing::NotSynced).expect("finished");
    let stored = std::fs::read(&other.path).expect("a file");
    let blocks = HEADER_BYTES..BlockLayout::of(sample.expected.bytes).footer_offset() as usize;
    sample.file().write_all_at(&stored[blocks.clone()], blocks.start as u64).expect("written");
    let error = read_whole(&sample.path, sample.expected, |_| {}).expect_err("another payload");
    assert!(matches!(error.damage(), Some(StageFileDamage { place: DamagePlace::Payload, .. })), "{error}");
    let error = verify(&sample.path).expect_err("another payload");
    assert!(matches!(error.damage(), Some(StageFileDamage { place: DamagePlace::Payload, .. })), "{error}");
}
