//! Puts by the hash of keys: each record lies in the partition of `run`, and readers compare the records.

use api::{FieldSplit, KeyRules, KeyStretch, PartitionRule, RecordFormat};
use filestore::{FileStore, FilesError, PutOptions, PutSource};
use filetransfer::{HashBy, Links, RecordEnds, Target, TransferError, Watch};
use filetree::{TreeName, TreePath};
use keys::{KeyEncoder, parse_partition_options};
use std::path::Path;

fn options(hash_by: HashBy) -> PutOptions {
    PutOptions {
        parts: None,
        records: RecordEnds::Bytes,
        hash_by: Some(hash_by),
        links: Links::Refused,
        skip_unsuitable: false,
        keep_versions: 1,
        ttl: None,
        replicas: None,
        threads: 3,
    }
}

fn hash_by(records: RecordFormat, count: u32, key_fields: u32, stretches: Vec<KeyStretch>) -> HashBy {
    let keys = FieldSplit { separator: b",".to_vec(), key_fields };
    HashBy { records, keys, partitions: PartitionRule { count, stretches } }
}

fn put(store: &FileStore, source: PutSource<'_>, by: &HashBy) -> Result<(), FilesError> {
    let name = TreePath::parse("f").unwrap();
    store.put(source, &name, &options(by.clone()), &Watch::default(), &mut |_| {}).map(drop)
}

fn name() -> TreeName {
    TreeName { path: TreePath::parse("f").unwrap(), version: None }
}

/// Returns the partition of a record, from the rules of a job.
fn partition(by: &HashBy, record: &[u8]) -> u32 {
    let key = match by.records {
        RecordFormat::Fixed { key_bytes, .. } => &record[..key_bytes as usize],
        _ => {
            let mut ends = record.iter().enumerate().filter(|(_, byte)| **byte == b',').map(|(end, _)| end);
            let end = ends.nth(by.keys.key_fields as usize - 1).unwrap_or(record.len());
            &record[..end]
        }
    };
    let (separator, partitions) = (by.keys.separator.clone(), Some(by.partitions.clone()));
    let rules = KeyRules { separator, partitions, ..KeyRules::default() };
    KeyEncoder::new(&rules).unwrap().encode(key, b"").unwrap().partition.unwrap()
}

fn records_of<'a>(by: &HashBy, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    match by.records {
        RecordFormat::Fixed { record_bytes, .. } => bytes.chunks(record_bytes as usize).collect(),
        _ => bytes.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]).collect(),
    }
}

/// Puts records, and compares the parts, a copy and the stored figures with them.
fn check(dir: &Path, by: &HashBy, bytes: &[u8]) {
    let store = FileStore::open(&dir.join("state"), "ann").unwrap();
    put(&store, PutSource::Stream(&mut { bytes }), by).unwrap();
    let row = store.entry(&name()).unwrap().row.unwrap();
    let hashed = row.hashed.clone().unwrap();
    let mut expected = records_of(by, bytes);
    assert_eq!(hashed.sum.records, expected.len() as u64);
    let partitions = (0..by.partitions.count).filter(|partition| !hashed.empty.contains(partition));
    let (mut found, mut offset) = (Vec::new(), 0);
    for (part, number) in store.parts(&row).unwrap().iter().zip(partitions) {
        let mut stored = Vec::new();
        store.cat(&name(), offset, part.bytes, &mut stored).unwrap();
        offset += part.bytes;
        for record in records_of(by, &stored) {
            assert_eq!(partition(by, record), number, "{record:?}");
            found.push(record.to_vec());
        }
    }
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    let target = Target { path: dir.join("copy"), overwrite: true };
    let got = store.get(&name(), &target, 3, &Watch::default()).unwrap();
    assert_eq!(got, [1, bytes.len() as u64]);
    assert_eq!(store.check(&name()).unwrap().problems, []);
}

#[test]
fn records_lie_in_the_partitions_of_run() {
    let mut random = fastrand::Rng::with_seed(27);
    for case in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let count_max = random.u32(1..=300);
        let count = random.u32(1..=count_max);
        let stretches = match random.bool() {
            true => Vec::new(),
            false => parse_partition_options("-k2,2 -k1.1,1.1").unwrap(),
        };
        let mut bytes = Vec::new();
        let records = match random.bool() {
            true => RecordFormat::TEXT,
            false => {
                let record_bytes = random.u32(1..40);
                RecordFormat::Fixed { record_bytes, key_bytes: random.u32(1..=record_bytes) }
            }
        };
        for _ in 0..random.usize(0..1000) {
            match records {
                RecordFormat::Fixed { record_bytes, .. } => {
                    bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(record_bytes as usize));
                }
                _ => {
                    let length = random.usize(0..if case == 0 { 5000 } else { 12 });
                    bytes.extend(
                        std::iter::repeat_with(|| *random.choice(b"ab,\0\xff").unwrap()).take(length),
                    );
                    bytes.push(b'\n');
                }
            }
        }
        check(dir.path(), &hash_by(records, count, random.u32(1..3), stretches), &bytes);
    }
}

#[test]
fn last_line_gets_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(&dir.path().join("state"), "ann").unwrap();
    let by = hash_by(RecordFormat::TEXT, 1, 1, Vec::new());
    put(&store, PutSource::Stream(&mut { b"b\na".as_slice() }), &by).unwrap();
    let mut stored = Vec::new();
    store.cat(&name(), 0, u64::MAX, &mut stored).unwrap();
    assert_eq!(stored, b"b\na\n");
    let cut = hash_by(RecordFormat::Fixed { record_bytes: 4, key_bytes: 1 }, 3, 1, Vec::new());
    let error = put(&store, PutSource::Stream(&mut { b"123456".as_slice() }), &cut).unwrap_err();
    assert!(matches!(
        error,
        FilesError::Transfer(TransferError::RaggedRecords { bytes: 6, record_bytes: 4, .. })
    ));
    let error = put(&store, PutSource::Path(dir.path()), &by).unwrap_err();
    assert!(matches!(error, FilesError::HashedDirectory));
    // Nothing of the failed puts is left.
    let root = TreeName { path: TreePath::default(), version: None };
    let checked = store.check(&root).unwrap();
    assert_eq!((checked.files, checked.problems.len(), checked.unfinished.len()), (1, 0, 0));
}
