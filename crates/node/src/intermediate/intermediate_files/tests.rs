use super::{IntermediateFiles, Placed, SentFile, lock, place};
use api::intermediate::{HeldIntermediate, IntermediateAnswer, IntermediateNote};
use dataport::{IntermediateFileError, IntermediateFileService as _, StageFileName, StatedContent};
use ids::{IntermediateId, NodeId};
use proptest::prelude::*;
use stagefile::verify;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FILE: IntermediateId = IntermediateId(7);
const LONG: Duration = Duration::from_secs(3600);

type Notes = Arc<Mutex<Vec<IntermediateNote>>>;

/// Makes files below a directory, with a server that does not know `unknown`.
fn files(dir: &Path, unknown: Option<IntermediateId>) -> (IntermediateFiles, Notes) {
    let notes = Notes::default();
    let told = Arc::clone(&notes);
    let files = IntermediateFiles::new(vec![dir.join("a"), dir.join("b")], move |new| {
        lock(&told).extend(new);
        Ok(IntermediateAnswer { dropped: unknown.into_iter().collect(), ..IntermediateAnswer::default() })
    });
    (files, notes)
}

fn files_on_disk(dir: &Path) -> usize {
    let disks = ["a", "b"].iter().filter_map(|disk| std::fs::read_dir(dir.join(disk)).ok());
    disks.map(Iterator::count).sum()
}

#[test]
fn a_write_goes_on_or_repeats() {
    let check = |written, offset, bytes, expected: &str| {
        let found = match place(FILE, written, offset, bytes) {
            Ok(Placed::Appends) => "appends",
            Ok(Placed::Repeats) => "repeats",
            Err(IntermediateFileError::Gap { .. }) => "gap",
            Err(IntermediateFileError::Overlap { .. }) => "overlap",
            Err(error) => panic!("{error}"),
        };
        assert_eq!(found, expected, "{bytes} bytes at {offset} of {written}");
    };
    check(0, 0, 5, "appends");
    check(0, 0, 0, "appends");
    check(5, 5, 1, "appends");
    check(5, 0, 0, "repeats");
    check(5, 0, 5, "repeats");
    check(5, 4, 1, "repeats");
    check(5, 4, 2, "overlap");
    check(5, 0, 6, "overlap");
    check(5, 6, 0, "gap");
    check(5, u64::MAX, 1, "gap");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Compares any writes with a `Vec<u8>`.
    #[test]
    fn writes_make_the_file_that_a_model_makes(
        writes in prop::collection::vec((0..4_usize, 0..200_000_usize, any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, notes) = files(dir.path(), None);
        files.begin(FILE, LONG);
        let mut model: Vec<u8> = Vec::new();
        for (kind, count, at, byte) in writes {
            let (offset, bytes) = match kind {
                0 => (at.index(model.len() + 1), vec![byte; count % 300]),
                1 => {
                    let begin = at.index(model.len() + 1);
                    (begin, model[begin..(begin + count).min(model.len())].to_vec())
                }
                _ => (model.len(), (0..count).map(|place| (place * 7) as u8 ^ byte).collect()),
            };
            let end = offset + bytes.len();
            let expected = match model.get(offset..end) {
                Some(held) => held == bytes,
                None => offset == model.len(),
            };
            let written = files.write(FILE, offset as u64, &bytes, LONG);
            prop_assert_eq!(written.is_ok(), expected, "{:?}", written);
            if expected && end > model.len() {
                model.extend_from_slice(&bytes);
            }
            prop_assert!(written.is_err() || written.ok() == Some(model.len() as u64));
        }
        let told = StatedContent { bytes: Some(model.len() as u64), crc32c: Some(crc32c::crc32c(&model)) };
        let payload = files.close(FILE, told).expect("closed");
        let here = dataport::StageFileService::find(&files, &StageFileName::of_user_file(FILE)).expect("complete");
        prop_assert_eq!(verify(&here.path).expect("intact").payload(), payload);
        prop_assert_eq!((payload.bytes, Some(payload.crc32c)), (model.len() as u64, told.crc32c));
        let closed = IntermediateNote::Closed { file: FILE, bytes: payload.bytes, crc32c: payload.crc32c };
        prop_assert_eq!(&*lock(&notes), &[closed]);
    }
}

#[test]
fn closed_file_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (files, notes) = files(dir.path(), None);
    files.write(FILE, 0, b"abc", LONG).unwrap();
    for told in
        [StatedContent { bytes: Some(4), crc32c: None }, StatedContent { bytes: None, crc32c: Some(1) }]
    {
        assert!(matches!(files.close(FILE, told), Err(IntermediateFileError::NotAsTold { written: 3, .. })));
    }
    let payload = files.close(FILE, StatedContent::default()).unwrap();
    // The answer was lost.
    assert_eq!(files.close(FILE, StatedContent::default()).unwrap(), payload);
    assert_eq!(lock(&notes).len(), 2);
    assert!(matches!(files.write(FILE, 3, b"d", LONG), Err(IntermediateFileError::Complete(FILE))));
    assert!(matches!(files.abandon(FILE, "no"), Err(IntermediateFileError::Complete(FILE))));
    files.drop_files(&[FILE]);
    assert!(matches!(
        files.close(FILE, StatedContent::default()),
        Err(IntermediateFileError::NotWriting(FILE))
    ));
    assert_eq!(files_on_disk(dir.path()), 0);
}

#[test]
fn an_empty_file_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = files(dir.path(), None);
    let payload = files.close(FILE, StatedContent { bytes: Some(0), crc32c: Some(0) }).unwrap();
    assert_eq!((payload.bytes, files_on_disk(dir.path())), (0, 1));
}

#[test]
fn abandoned_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (files, notes) = files(dir.path(), None);
    files.write(FILE, 0, b"abc", Duration::ZERO).unwrap();
    files.begin(IntermediateId(8), Duration::ZERO);
    files.begin(IntermediateId(9), LONG);
    assert_eq!(files_on_disk(dir.path()), 1);
    files.look_after_writers();
    let given_up: Vec<_> = lock(&notes).drain(..).collect();
    assert!(
        matches!(&given_up[..], [
            IntermediateNote::Abandoned { file: FILE, reason },
            IntermediateNote::Abandoned { file: IntermediateId(8), .. },
        ] if reason.contains("nothing was heard")),
        "{given_up:?}"
    );
    assert_eq!(files_on_disk(dir.path()), 0);
    assert!(matches!(files.write(FILE, 3, b"d", LONG), Err(IntermediateFileError::NotWriting(FILE))));
    assert!(matches!(
        files.close(FILE, StatedContent::default()),
        Err(IntermediateFileError::NotWriting(FILE))
    ));
    files.abandon(IntermediateId(9), &"x".repeat(5000)).unwrap();
    files.look_after_writers();
    assert!(
        matches!(&lock(&notes)[..], [IntermediateNote::Abandoned { reason, .. }] if reason.len() == 1000)
    );
}

#[test]
fn forgotten_file_is_removed_when_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = files(dir.path(), Some(FILE));
    files.write(FILE, 0, b"abc", LONG).unwrap();
    assert!(matches!(
        files.close(FILE, StatedContent::default()),
        Err(IntermediateFileError::Forgotten(FILE))
    ));
    assert_eq!(files_on_disk(dir.path()), 0);
}

#[test]
fn file_is_single_until_and_after_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (files, notes) = files(dir.path(), None);
    files.write(FILE, 0, b"abc", LONG).unwrap();
    let single = |lives: bool| files.single(|_| lives).into_iter().map(|(file, _)| file).collect::<Vec<_>>();
    assert!(single(true).is_empty());
    files.close(FILE, StatedContent::default()).unwrap();
    assert_eq!(single(true), [FILE]);
    files.was_sent(FILE, SentFile { to: NodeId(2), bytes: 83, single_ns: 5 });
    assert!(single(true).is_empty());
    lock(&notes).clear();
    files.tell_all();
    let replicated = IntermediateNote::Replicated { file: FILE, to: NodeId(2), bytes: 83, single_ns: 5 };
    let held = HeldIntermediate { file: FILE, bytes: 3, crc32c: crc32c::crc32c(b"abc"), stored_bytes: 83 };
    let holds = IntermediateNote::Holds { files: vec![held], writing: Vec::new() };
    assert_eq!(*lock(&notes), [holds, replicated]);
    assert_eq!(single(false), [FILE]);
    // A node that came back has it.
    files.were_copied(&[FILE, IntermediateId(8)], NodeId(3));
    assert!(single(true).is_empty());
}

#[test]
fn next_process_lists_files_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let (before, _) = files(dir.path(), None);
    for file in [FILE, IntermediateId(8)] {
        before.write(file, 0, b"abc", LONG).unwrap();
        before.close(file, StatedContent::default()).unwrap();
    }
    let (after, notes) = files(dir.path(), Some(IntermediateId(8)));
    after.tell_all();
    let listed = lock(&notes).clone();
    assert!(
        matches!(&listed[..], [IntermediateNote::Holds { files, writing }] if files.len() == 2 && writing.is_empty()),
        "{listed:?}"
    );
    // The server does not want the other.
    assert!(after.knows(FILE) && files_on_disk(dir.path()) == 1);
    // Only the holder of the first copy makes another one.
    let single = |files: &IntermediateFiles| files.single(|_| true).len();
    assert_eq!(single(&after), 0);
    after.adopt(&[FILE]);
    assert_eq!(single(&after), 1);
}

#[test]
fn draining_node_begins_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = files(dir.path(), None);
    files.write(FILE, 0, b"abc", LONG).unwrap();
    files.drain();
    assert!(matches!(files.write(IntermediateId(8), 0, b"x", LONG), Err(IntermediateFileError::Draining)));
    assert_eq!(files.write(FILE, 3, b"d", LONG).unwrap(), 4);
    files.end();
    assert!(matches!(files.write(FILE, 4, b"e", LONG), Err(IntermediateFileError::NotWriting(FILE))));
}
