//! Memory for the files of a program: its directory there may not take more.

use crate::process::disk_usage::disk_usage;
use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Free bytes of the file system below which a write may have been refused.
const LEAST_FREE_BYTES: u64 = 1 << 20;

/// A directory in memory, in which a program runs.
#[derive(Debug)]
pub struct FileMemory {
    dir: PathBuf,
    bytes: u64,
    is_outgrown: AtomicBool,
}

impl FileMemory {
    /// Makes the limit of a directory.
    pub fn new(dir: &Path, bytes: u64) -> Self {
        Self { dir: dir.to_path_buf(), bytes, is_outgrown: AtomicBool::new(false) }
    }

    /// Returns whether the program needed more: its failure, if it failed, says nothing about it.
    pub fn is_outgrown(&self) -> bool {
        self.is_outgrown.load(Ordering::Relaxed)
    }

    /// Measures the directory. Returns whether it takes too much.
    pub(crate) fn measure(&self) -> bool {
        if disk_usage(std::slice::from_ref(&self.dir)) > self.bytes {
            self.is_outgrown.store(true, Ordering::Relaxed);
        }
        self.is_outgrown()
    }

    /// Measures the directory after its program has failed: a write may have been refused there.
    pub(crate) fn measure_failed(&self) -> bool {
        let is_full = |system: rustix::fs::StatVfs| system.f_bavail * system.f_frsize < LEAST_FREE_BYTES;
        if statvfs(&self.dir).is_ok_and(is_full) {
            self.is_outgrown.store(true, Ordering::Relaxed);
        }
        self.measure()
    }
}
