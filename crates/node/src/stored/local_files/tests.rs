use super::{CopyUse, HeldFile, LocalFiles, LocalLimits, WantedFile};
use crate::tasks::map::stored_input::PartOpener;
use api::{Blame, StoredContent, StoredPart, TaskFailure};
use ids::ConcreteId;
use std::fs::{File, Permissions, read, set_permissions, write};
use std::io::{Error, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const BYTES: &[u8] = b"the bytes of a part";

/// A source of parts that counts its calls, fails on request, and waits at a gate if it has one.
#[derive(Default)]
struct Source {
    opened: AtomicUsize,
    fails: AtomicBool,
    gate: Option<(SyncSender<()>, Mutex<Receiver<()>>)>,
}

impl PartOpener for Arc<Source> {
    fn open_part(&self, _part: StoredPart, _offset: u64) -> std::io::Result<Box<dyn Read + Send>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        if let Some((came, go)) = &self.gate {
            came.send(()).unwrap();
            go.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap();
        }
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::other("no replica")),
            false => Ok(Box::new(BYTES)),
        }
    }

    fn replica_here(&self, _part: StoredPart) -> Option<File> {
        None
    }
}

fn content(concrete: i64) -> StoredContent {
    let part = |concrete| StoredPart {
        concrete: ConcreteId(concrete),
        bytes: BYTES.len() as u64,
        crc32c: crc32c::crc32c(BYTES),
    };
    StoredContent { parts: vec![part(2 * concrete), part(2 * concrete + 1)] }
}

fn files(dir: &Path, unused_bytes_max: u64, verify_after: Duration) -> Arc<LocalFiles> {
    let limits = LocalLimits { reserve_percent: 0, unused_bytes_max, verify_after };
    Arc::new(LocalFiles::new(vec![dir.join("copies")], limits))
}

const LONG: Duration = Duration::from_secs(1000);

fn bring(files: &Arc<LocalFiles>, source: &Arc<Source>, number: i64) -> Result<HeldFile, TaskFailure> {
    let content = content(number);
    let path = Path::new("files:dir/na@me@7");
    let wanted = WantedFile { user: "ann", path, content: &content, of: CopyUse::Input };
    files.bring(&wanted, source, &AtomicBool::new(false))
}

/// Returns a source with a gate: a message when the source is asked, and the end by which it goes on.
fn gated() -> (Arc<Source>, Receiver<()>, SyncSender<()>) {
    let ((came_in, came), (go, go_out)) = (sync_channel(8), sync_channel(8));
    let source = Source { gate: Some((came_in, Mutex::new(go_out))), ..Source::default() };
    (Arc::new(source), came, go)
}

#[test]
fn one_fetch_serves_all() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), u64::MAX, LONG);
    for fails in [false, true] {
        let (source, came, go) = gated();
        source.fails.store(fails, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let ask = || {
                scope.spawn(|| bring(&files, &source, fails.into()).map(|held| read(held.path()).unwrap()))
            };
            let first = ask();
            came.recv().unwrap();
            let others: Vec<_> = (0..5).map(|_| ask()).collect();
            // All of them wait before the first goes on.
            while files.table().waiters() < 5 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            // The second part.
            if !fails {
                came.recv().unwrap();
                go.send(()).unwrap();
            }
            for thread in [first].into_iter().chain(others) {
                match thread.join().unwrap() {
                    Ok(bytes) => assert_eq!((bytes, fails), (BYTES.repeat(2), false)),
                    Err(failure) => assert_eq!((failure.blame, fails), (Blame::Environment, true)),
                }
            }
        });
        assert_eq!(source.opened.load(Ordering::SeqCst), if fails { 1 } else { 2 });
    }
    assert_eq!(files.table().waiters(), 0);
}

#[test]
fn early_copies_serve_attempts_and_fail_none() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), 2 * BYTES.len() as u64, LONG);
    let path = Path::new("files:dir/na@me@7");
    let early = |source: &Arc<Source>, number| {
        let content = content(number);
        let wanted = WantedFile { user: "ann", path, content: &content, of: CopyUse::Input };
        files.bring_early(&wanted, source)
    };
    let source = Arc::<Source>::default();
    early(&source, 1).unwrap();
    early(&source, 1).unwrap();
    assert!(bring(&files, &source, 1).unwrap().path().exists());
    assert_eq!(source.opened.load(Ordering::SeqCst), 2);
    // An attempt that waits for a failing one makes the copy itself.
    let (failing, came, go) = gated();
    failing.fails.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| early(&failing, 2));
        came.recv().unwrap();
        let second = scope.spawn(|| bring(&files, &source, 2).is_ok());
        while files.table().waiters() < 1 {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert!(first.join().unwrap().is_err());
        assert!(second.join().unwrap());
    });
}

#[test]
fn cancelled_attempts_hand_over_and_stop_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path(), u64::MAX, LONG);
    let (source, came, go) = gated();
    let content = content(1);
    let path = Path::new("files:a@1");
    let wanted = WantedFile { user: "ann", path, content: &content, of: CopyUse::Input };
    let flags: [AtomicBool; 3] = Default::default();
    std::thread::scope(|scope| {
        let ask = |flag| {
            let (files, wanted, source) = (&files, &wanted, &source);
            scope.spawn(move || files.bring(wanted, source, flag).map(|held| held.path().exists()))
        };
        let first = ask(&flags[0]);
        came.recv().unwrap();
        let (second, third) = (ask(&flags[1]), ask(&flags[2]));
        while files.table().waiters() < 2 {
            std::thread::yield_now();
        }
        flags[1].store(true, Ordering::SeqCst);
        assert_eq!(second.join().unwrap().unwrap_err().blame, Blame::Cancelled);
        flags[0].store(true, Ordering::SeqCst);
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap_err().blame, Blame::Cancelled);
        for _ in 0..2 {
            came.recv().unwrap();
            go.send(()).unwrap();
        }
        assert!(third.join().unwrap().unwrap());
    });
}

#[test]
fn changed_copies_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (files, source) = (files(dir.path(), u64::MAX, LONG), Arc::<Source>::default());
    let held = bring(&files, &source, 1).unwrap();
    let path = held.path().to_path_buf();
    assert_eq!(path.file_name().unwrap(), "na@me");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(held.check_unchanged(), Ok(()));
    write(&path, BYTES).unwrap();
    assert_eq!(held.check_unchanged().unwrap_err().blame, Blame::UserProgram);
    let again = bring(&files, &source, 1).unwrap();
    assert_eq!(read(again.path()).unwrap(), BYTES.repeat(2));
    drop(held);
    assert_eq!((read(again.path()).unwrap().len(), path.exists()), (2 * BYTES.len(), false));
    std::fs::remove_file(again.path()).unwrap();
    assert_eq!(again.check_unchanged(), Ok(()));
    assert!(bring(&files, &source, 1).unwrap().path().exists());
}

#[test]
fn copies_of_programs_can_be_executed() {
    let dir = tempfile::tempdir().unwrap();
    let (files, source) = (files(dir.path(), u64::MAX, LONG), Arc::<Source>::default());
    let content = content(1);
    let path = Path::new("files:bin/run@7");
    let mode = |of| {
        let wanted = WantedFile { user: "ann", path, content: &content, of };
        let held = files.bring(&wanted, &source, &AtomicBool::new(false)).unwrap();
        let mode = std::fs::metadata(held.path()).unwrap().permissions().mode() & 0o777;
        (held, mode)
    };
    let ((input, of_input), (program, of_program)) = (mode(CopyUse::Input), mode(CopyUse::Program));
    assert_eq!((of_input, of_program), (0o444, 0o555));
    assert_ne!(input.path(), program.path());
    assert_eq!(read(program.path()).unwrap(), BYTES.repeat(2));
}

#[test]
fn unused_copies_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = 2 * BYTES.len() as u64;
    let (files, source) = (files(dir.path(), 2 * bytes, Duration::ZERO), Arc::<Source>::default());
    let paths: Vec<_> =
        (0..4).map(|number| bring(&files, &source, number).unwrap().path().to_path_buf()).collect();
    let there: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
    assert_eq!(there, [false, false, true, true]);
    // It is verified, and not made again.
    assert_eq!(bring(&files, &source, 3).unwrap().path(), paths[3]);
    assert_eq!(source.opened.load(Ordering::SeqCst), 8);
}

#[test]
fn unused_copies_count_as_room() {
    let dir = tempfile::tempdir().unwrap();
    let (files, source) = (files(dir.path(), u64::MAX, LONG), Arc::<Source>::default());
    let has_room = |content: &StoredContent| {
        let path = Path::new("files:a@1");
        files.have_room(&WantedFile { user: "ann", path, content, of: CopyUse::Input })
    };
    let part = |bytes| StoredPart { concrete: ConcreteId(99), bytes, crc32c: 0 };
    let of = |bytes| StoredContent { parts: vec![part(bytes)] };
    assert!(has_room(&content(1)) && has_room(&of(1)) && !has_room(&of(u64::MAX)));
    let held = bring(&files, &source, 1).unwrap();
    let copies = dir.path().join("copies");
    assert_eq!(files.table().unused_bytes(&copies), 0);
    drop(held);
    assert_eq!(files.table().unused_bytes(&copies), 2 * BYTES.len() as u64);
    assert_eq!(files.table().unused_bytes(&dir.path().join("other")), 0);
}
