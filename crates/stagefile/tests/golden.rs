//! Files of version 1 as they were written when the version was made: what is on disk must stay readable, and a
//! change of the format must not happen by accident. `test_data/README.md` says how the files came to be.

use stagefile::{StageFileReader, StageFileWriter, Syncing, verify};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Names, and lines of which their payloads consist.
const FILES: &[(&str, usize)] = &[("empty.stage", 0), ("line.stage", 1), ("blocks.stage", 3000)];
/// Each corrupt file and what is said about it.
const CORRUPT: &[(&str, &str)] = &[
    ("cut.stage", "footer: the end mark is missing: the file is not complete, or cut off"),
    ("flipped-block.stage", "block 0: checksum 6836c75e stored, 37d21b01 computed"),
    ("flipped-footer.stage", "footer: checksum 7172febb stored, 5cdc7ab4 computed"),
    ("flipped-header.stage", "header: checksum ce539762 stored, a9dd6a63 computed"),
    ("foreign.stage", "header: not a stage file (the first bytes are foreign)"),
    ("next-version.stage", "header: format version 2 is not known to this program"),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("test_data/v1")
}

fn payload(lines: usize) -> Vec<u8> {
    (0..lines).flat_map(|line| format!("this is line {line:>8}\n").into_bytes()).collect()
}

fn write(path: &Path, payload: &[u8]) {
    let mut writer = StageFileWriter::create(path).expect("created");
    writer.write_all(payload).expect("written");
    writer.finish(Syncing::NotSynced).expect("finished");
}

#[test]
fn golden_files_are_read_and_written_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, lines) in FILES {
        let (golden, again) = (directory().join(name), dir.path().join(name));
        let payload = payload(*lines);
        let summary = verify(&golden).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let mut reader = StageFileReader::open(&golden, summary.payload(), 0, summary.bytes).expect("opened");
        let mut read = Vec::new();
        reader.read_to_end(&mut read).expect("read");
        assert!(read == payload, "{name}");
        write(&again, &payload);
        assert!(std::fs::read(&golden).expect("read") == std::fs::read(&again).expect("read"), "{name}");
    }
}

#[test]
fn corrupt_files_are_refused_with_a_reason() {
    for (name, expected) in CORRUPT {
        let error = verify(&directory().join("corrupt").join(name)).expect_err("corrupt");
        let damage = error.damage().unwrap_or_else(|| panic!("{name}: {error:?}"));
        assert_eq!(damage.to_string(), *expected, "{name}");
    }
}

/// Writes the files anew where the environment says so: for a new version.
#[test]
fn golden_files_are_written() {
    let Some(directory) = std::env::var_os("STAGEFILE_GOLDEN_DIRECTORY").map(PathBuf::from) else { return };
    std::fs::create_dir_all(directory.join("corrupt")).expect("a directory");
    for (name, lines) in FILES {
        write(&directory.join(name), &payload(*lines));
    }
    let line = std::fs::read(directory.join("line.stage")).expect("read");
    let put = |name: &str, bytes: Vec<u8>| {
        std::fs::write(directory.join("corrupt").join(name), bytes).expect("written");
    };
    let flipped = |offset: usize| {
        let mut bytes = line.clone();
        bytes[offset] ^= 1;
        bytes
    };
    put("cut.stage", [&line[..line.len() - 41], &[0; 40][..]].concat());
    put("flipped-block.stage", flipped(45));
    put("flipped-footer.stage", flipped(line.len() - 30));
    put("flipped-header.stage", flipped(13));
    put("foreign.stage", flipped(0));
    let mut next = flipped(8);
    next[8] = 2;
    let crc32c = crc32c::crc32c(&next[..28]);
    next[28..32].copy_from_slice(&crc32c.to_le_bytes());
    put("next-version.stage", next);
}
