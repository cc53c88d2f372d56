use super::{CopyMode, Depot, Limits};
use crate::{ShippedError, hash_of};
use api::ContentHash;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const LIMITS: Limits = Limits {
    file_bytes_max: 100,
    owner_bytes_max: 200,
    total_bytes_max: 300,
    counted_bytes_min: 0,
    spare: Duration::ZERO,
};

fn put(depot: &Arc<Depot>, owner: &str, bytes: &[u8]) -> Result<ContentHash, ShippedError> {
    let content = hash_of(bytes);
    let mut incoming = depot.receive(owner, content, bytes.len() as u64)?;
    incoming.write(bytes)?;
    incoming.finish()?;
    // The order of use is told by the clock: the next use is later than this one.
    let used = SystemTime::now();
    while SystemTime::now() <= used {
        std::thread::yield_now();
    }
    Ok(content)
}

fn file_of(dir: &Path, content: ContentHash) -> PathBuf {
    let owners = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    owners.map(|owner| owner.join(content.to_string())).find(|path| path.exists()).unwrap()
}

fn names_in(dir: &Path) -> usize {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap().count())
        .sum()
}

#[test]
fn file_exists_once_it_is_whole_and_right() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), LIMITS).unwrap();
    let content = hash_of(b"abc");
    let mut incoming = depot.receive("ann", content, 3).unwrap();
    incoming.write(b"ab").unwrap();
    assert_eq!(depot.missing("ann", &[content]), [content]);
    drop(incoming);
    let mut short = depot.receive("ann", content, 3).unwrap();
    short.write(b"ab").unwrap();
    assert!(matches!(short.finish(), Err(ShippedError::WrongLength { bytes: 3, .. })));
    let mut long = depot.receive("ann", content, 3).unwrap();
    assert!(matches!(long.write(b"abcd"), Err(ShippedError::WrongLength { .. })));
    drop(long);
    let mut other = depot.receive("ann", content, 3).unwrap();
    other.write(b"abd").unwrap();
    assert!(matches!(other.finish(), Err(ShippedError::WrongHash { .. })));
    assert_eq!((names_in(dir.path()), depot.inner().bytes(None, 0)), (0, 0));
    put(&depot, "ann", b"abc").unwrap();
    assert!(depot.missing("ann", &[content]).is_empty());
    // What one has brought is not another's, though nodes get it by its hash alone.
    assert_eq!(depot.missing("bob", &[content]), [content]);
    assert_eq!(depot.hold("bob", &[content]).unwrap_err(), [content]);
    assert_eq!(depot.open_to_send(content).unwrap().1, 3);
    assert!(depot.open_to_send(hash_of(b"x")).is_none());
    let figures = depot.figures();
    assert_eq!((figures.files, figures.bytes, figures.received_files, figures.sent_files), (1, 3, 1, 1));
}

#[test]
fn room_is_bounded_and_held_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), LIMITS).unwrap();
    assert!(matches!(put(&depot, "ann", &[0; 101]), Err(ShippedError::TooLarge { bytes_max: 100, .. })));
    let [a, b, c] = [1, 2, 3].map(|byte| [byte; 100]);
    let first = put(&depot, "ann", &a).unwrap();
    let second = put(&depot, "ann", &b).unwrap();
    let hold = depot.hold("ann", &[first]).unwrap();
    // The older one is held, so the other goes.
    let third = put(&depot, "ann", &c).unwrap();
    assert_eq!(depot.missing("ann", &[first, second, third]), [second]);
    let all = depot.hold("ann", &[third, first]).unwrap();
    let full = put(&depot, "ann", &b).unwrap_err();
    assert!(matches!(full, ShippedError::OwnerFull { bytes_max: 200, .. }), "{full}");
    // Others have room until all is full.
    put(&depot, "bob", &a).unwrap();
    let bobs = depot.hold("bob", &[first]).unwrap();
    assert!(matches!(put(&depot, "eve", &a), Err(ShippedError::Full { bytes_max: 300, .. })));
    drop((hold, all, bobs));
    put(&depot, "eve", &a).unwrap();
    assert_eq!(depot.figures().bytes, 300);
    // What was used a moment ago is spared.
    let limits = Limits { spare: Duration::from_secs(60), ..LIMITS };
    let careful = Depot::open(dir.path(), limits).unwrap();
    assert!(matches!(put(&careful, "eve", &[9; 100]), Err(ShippedError::Full { .. })));
}

#[test]
fn small_files_count_with_a_minimum_size() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), Limits { counted_bytes_min: 90, ..LIMITS }).unwrap();
    let small = [1_u8, 2, 3].map(|byte| put(&depot, "ann", &[byte]).unwrap());
    assert_eq!(depot.missing("ann", &small), small[..1]);
    let held = depot.hold("ann", &small[1..]).unwrap();
    let coming = depot.receive("bob", hash_of(&[4]), 1).unwrap();
    // Nothing is removed where that would not be enough.
    assert!(matches!(depot.receive("bob", hash_of(&[5; 100]), 100), Err(ShippedError::Full { .. })));
    drop(coming);
    put(&depot, "bob", &[5; 100]).unwrap();
    drop(held);
}

#[test]
fn arriving_files_take_room() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), LIMITS).unwrap();
    let coming = [1_u8, 2].map(|byte| depot.receive("ann", hash_of(&[byte]), 100).unwrap());
    assert!(matches!(depot.receive("ann", hash_of(&[3]), 1), Err(ShippedError::OwnerFull { .. })));
    drop(coming);
    assert!(depot.receive("ann", hash_of(&[3]), 1).is_ok());
}

#[test]
fn a_file_that_changed_was_never_there() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), LIMITS).unwrap();
    let [first, second] = [b"one", b"two"].map(|bytes| put(&depot, "", bytes).unwrap());
    let to = |name: &str| dir.path().join(name);
    assert!(depot.copy_out("", first, &to("copy"), CopyMode::Executable).unwrap());
    assert_eq!(std::fs::read(to("copy")).unwrap(), b"one");
    assert_eq!(std::fs::metadata(to("copy")).unwrap().permissions().mode() & 0o777, 0o555);
    assert!(
        depot.copy_out("", first, &to("copy"), CopyMode::Executable).is_err(),
        "there is something already"
    );
    let damaged = file_of(dir.path(), first);
    std::fs::write(&damaged, "oNe").unwrap();
    assert!(!depot.copy_out("", first, &to("again"), CopyMode::ReadOnly).unwrap());
    assert!(!to("again").exists() && !damaged.exists());
    put(&depot, "", b"one").unwrap();
    assert!(depot.copy_out("", first, &to("again"), CopyMode::ReadOnly).unwrap());
    // After a start everything is looked at before it counts as there.
    std::fs::write(file_of(dir.path(), second), "tw0").unwrap();
    let anew = Depot::open(dir.path(), LIMITS).unwrap();
    assert_eq!(anew.missing("", &[first, second]), [second]);
    // Another process removed one, and brought one.
    std::fs::remove_file(file_of(dir.path(), first)).unwrap();
    assert!(!anew.copy_out("", first, &to("third"), CopyMode::ReadOnly).unwrap());
    put(&depot, "", b"two").unwrap();
    assert!(anew.copy_out("", second, &to("third"), CopyMode::ReadOnly).unwrap());
    assert_eq!(anew.figures().files, 1);
}

#[test]
fn present_files_are_held_for_earlier_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let depot = Depot::open(dir.path(), LIMITS).unwrap();
    let content = put(&depot, "ann", &[1; 100]).unwrap();
    let anew = Depot::open(dir.path(), LIMITS).unwrap();
    let hold = anew.hold_what_is_here(&[content, hash_of(b"gone")]);
    put(&anew, "ann", &[2; 100]).unwrap();
    put(&anew, "ann", &[3; 100]).unwrap();
    assert!(anew.missing("ann", &[content]).is_empty());
    drop(hold);
}
