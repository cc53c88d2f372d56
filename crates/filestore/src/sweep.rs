//! Removal of everything that nobody needs: puts that were given up, and versions that are no longer kept.

use crate::error::FilesError;
use crate::{FileStore, now_ns};
use concretefile::PutLock;
use faults::{CrashPoint, crash_point};
use ids::PutId;
use metastore::RetirePins;
use rows::FileSpace;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// How long the files of an interrupted put are kept for the same put.
pub const UNFINISHED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Concrete files that are removed before their rows are.
const REMOVED_AT_ONCE: u32 = 1000;

impl FileStore {
    /// Removes names whose time is over, and interrupted puts that cannot go on: they are too old, or their source was a
    /// stream.
    pub(crate) fn sweep(&self) -> Result<(), FilesError> {
        if self.expire()? {
            self.retire()?;
        }
        let kept_ns = UNFINISHED_KEPT.as_nanos() as u64;
        for row in self.run(self.store.file_puts())? {
            let is_over = row.source.is_empty() || row.created_ns.saturating_add(kept_ns) < now_ns();
            if is_over && let Some(lock) = self.lock_interrupted(row.put)? {
                self.abandon(row.put, &lock)?;
            }
        }
        Ok(())
    }

    /// Locks a put whose process is gone; None if a process has it, or if it ended before the lock was taken.
    pub(crate) fn lock_interrupted(&self, put: PutId) -> Result<Option<PutLock>, FilesError> {
        let Some(lock) = self.disk.lock(put)? else { return Ok(None) };
        if self.run(self.store.file_puts())?.iter().any(|row| row.put == put) {
            return Ok(Some(lock));
        }
        // The lock made a directory for it again.
        self.disk.remove_empty(put)?;
        Ok(None)
    }

    /// Gives up a put: removes its rows and all its files. The lock is held, and whoever takes it next finds no row.
    pub(crate) fn abandon(&self, put: PutId, _lock: &PutLock) -> Result<(), FilesError> {
        self.run(self.store.abandon_put(put))?;
        self.remove_marked()?;
        self.remove_unknown(put)?;
        Ok(self.disk.remove_empty(put)?)
    }

    /// Removes files of a put that have no row.
    pub(crate) fn remove_unknown(&self, put: PutId) -> Result<(), FilesError> {
        let rows = self.run(self.store.concrete_files_of_put(put))?;
        let known: HashSet<_> = rows.iter().map(|row| row.concrete).collect();
        for file in self.disk.files(put)? {
            if !known.contains(&file) {
                self.disk.remove(file)?;
            }
        }
        Ok(())
    }

    /// Removes names and files that no version needs.
    pub(crate) fn retire(&self) -> Result<(), FilesError> {
        loop {
            let pins = RetirePins { versions: self.pinned()? };
            let retired = self.run(self.store.retire_file_names(FileSpace::Machine, &pins))?;
            if !retired.more {
                break;
            }
        }
        self.remove_marked()
    }

    /// Removes concrete files that are marked, and then their rows.
    fn remove_marked(&self) -> Result<(), FilesError> {
        loop {
            let files = self.run(self.store.removed_concrete_files(REMOVED_AT_ONCE))?;
            if files.is_empty() {
                return Ok(());
            }
            crash_point(CrashPoint::FilesRetired);
            let mut puts = BTreeSet::new();
            for file in &files {
                self.disk.remove(*file)?;
                puts.insert(file.put());
            }
            crash_point(CrashPoint::FilesRemoved);
            self.run(self.store.forget_removed_files(&files))?;
            for put in puts {
                self.disk.remove_empty(put)?;
            }
        }
    }
}
