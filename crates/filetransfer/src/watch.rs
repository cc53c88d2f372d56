//! Progress of a transfer, and the request to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters that another thread shows, and a flag that it sets.
#[derive(Debug, Default)]
pub struct Watch {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    done_files: AtomicU64,
    total_files: AtomicU64,
    is_stopped: AtomicBool,
}

impl Watch {
    /// Asks the transfer to end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are done, and all bytes.
    pub fn bytes(&self) -> [u64; 2] {
        [&self.done_bytes, &self.total_bytes].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Returns the files that are done, and all files.
    pub fn files(&self) -> [u64; 2] {
        [&self.done_files, &self.total_files].map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn expect(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Ordering::Relaxed);
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes back that will be transferred again.
    pub(crate) fn take_back_bytes(&self, bytes: u64) {
        self.done_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_files(&self, files: u64) {
        self.done_files.fetch_add(files, Ordering::Relaxed);
    }
}
