//! Hashes of files, each read once: a hash is remembered by the stamp of its file, if no later write could leave that
//! stamp as it is.

use crate::clock::now_ns;
use api::ContentHash;
use api::task::FileStamp;
use rustix::fs::fstatfs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered hashes; beyond it those of the lowest stamps are forgotten.
const REMEMBERED_MAX: usize = 200_000;
/// A write in the same tick of the clock leaves the times as they are: a younger file is not remembered.
const CERTAIN_AFTER_NS: i64 = 2_000_000_000;
/// File systems of this machine, whose times and numbers are its own: ext4, XFS, Btrfs, overlay, ZFS, F2FS and bcachefs.
/// Writes through a mapping leave no trace on tmpfs.
const LOCAL_FILE_SYSTEMS: [u32; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e];

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub sha256: ContentHash,
    pub stamp: FileStamp,
    /// True if each later write changes the stamp.
    pub is_certain: bool,
}

impl Content {
    /// Returns the stamp if it is certain.
    pub fn certain_stamp(&self) -> Option<FileStamp> {
        Some(self.stamp).filter(|_| self.is_certain)
    }
}

/// Hashes of files of this machine.
#[derive(Default)]
pub(crate) struct Contents {
    state: Mutex<State>,
    hashed: Condvar,
}

#[derive(Default)]
struct State {
    known: BTreeMap<FileStamp, ContentHash>,
    /// Files that are being hashed: other threads wait for the result.
    busy: BTreeSet<FileStamp>,
}

/// Returns the stamp of an open file.
pub(crate) fn stamp(file: &File) -> std::io::Result<FileStamp> {
    file.metadata().map(|facts| FileStamp::of(&facts))
}

fn is_local(file: &File) -> bool {
    fstatfs(file).is_ok_and(|system| LOCAL_FILE_SYSTEMS.contains(&(system.f_type as u32)))
}

impl Contents {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content of a file that was just opened.
    ///
    /// Errors: the file cannot be read; it changed meanwhile ([`ErrorKind::InvalidData`]); the job was stopped
    /// ([`ErrorKind::Interrupted`]).
    pub fn of(&self, file: &File, cancelled: &AtomicBool) -> std::io::Result<Content> {
        let stamp = stamp(file)?;
        let mut state = self.state();
        loop {
            if let Some(sha256) = state.known.get(&stamp).copied() {
                return Ok(Content { sha256, stamp, is_certain: true });
            }
            if state.busy.insert(stamp) {
                break;
            }
            state = self.hashed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let is_certain = now_ns() as i64 - stamp.changed_ns >= CERTAIN_AFTER_NS && is_local(file);
        let hashed = hash(file, stamp, cancelled);
        let mut state = self.state();
        state.busy.remove(&stamp);
        if let Ok(sha256) = &hashed
            && is_certain
        {
            state.known.insert(stamp, *sha256);
            if state.known.len() > REMEMBERED_MAX {
                state.known.pop_first();
            }
        }
        drop(state);
        self.hashed.notify_all();
        Ok(Content { sha256: hashed?, stamp, is_certain })
    }
}

fn hash(mut file: &File, before: FileStamp, cancelled: &AtomicBool) -> std::io::Result<ContentHash> {
    let mut hasher = shipped::Hasher::default();
    let mut piece = vec![0; 256 << 10];
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Interrupted, "the job was stopped"));
        }
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => hasher.add(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    match stamp(file)? == before {
        true => Ok(hasher.hash()),
        false => Err(Error::new(ErrorKind::InvalidData, "it changed while it was read")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, stamp};
    use std::fs::File;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn young_files_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, contents, cancelled) =
            (dir.path().join("file"), Contents::default(), AtomicBool::new(false));
        std::fs::write(&path, "one").unwrap();
        let first = contents.of(&File::open(&path).unwrap(), &cancelled).unwrap();
        assert_eq!(first.sha256, shipped::hash_of(b"one"));
        assert!(!first.is_certain && first.certain_stamp().is_none());
        // As a write in the same tick of the clock, which no stamp shows.
        std::fs::write(&path, "two").unwrap();
        let second = contents.of(&File::open(&path).unwrap(), &cancelled).unwrap();
        assert_eq!(second.sha256, shipped::hash_of(b"two"));
        assert!(contents.state().known.is_empty());
    }

    #[test]
    fn old_files_are_read_once() {
        let old = std::path::Path::new("/bin/sh");
        let (contents, cancelled) = (Contents::default(), AtomicBool::new(false));
        let file = File::open(old).unwrap();
        let content = contents.of(&file, &cancelled).unwrap();
        assert_eq!(content.stamp, stamp(&file).unwrap());
        if content.is_certain {
            // The file is at its end: a second read would find nothing.
            assert_eq!(contents.of(&file, &cancelled).unwrap(), content);
        }
    }
}
