//! The share of memory for merging, assigned to attempts. An attempt takes all it needs at once and waits for nothing
//! while it holds the memory, so there is no deadlock.

use api::{Blame, TaskFailure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

pub(crate) struct MergeGate {
    share_bytes: u64,
    free_bytes: Mutex<u64>,
    freed: Condvar,
}

impl MergeGate {
    pub fn new(share_bytes: u64) -> Self {
        Self { share_bytes, free_bytes: Mutex::new(share_bytes), freed: Condvar::new() }
    }

    /// Takes `bytes` of the share, or all of it if `bytes` is larger (a merge alone is always possible).
    pub fn enter(&self, bytes: u64, cancelled: &AtomicBool) -> Result<MergePass<'_>, TaskFailure> {
        let bytes = bytes.min(self.share_bytes);
        let mut free_bytes = self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *free_bytes < bytes {
            if cancelled.load(Ordering::Relaxed) {
                return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
            }
            // A cancel does not signal this gate, so waiters check the flag.
            let waited = self.freed.wait_timeout(free_bytes, Duration::from_millis(50));
            free_bytes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *free_bytes -= bytes;
        Ok(MergePass { gate: self, bytes })
    }
}

/// Memory of a merge; released when dropped.
pub(crate) struct MergePass<'a> {
    gate: &'a MergeGate,
    bytes: u64,
}

impl MergePass<'_> {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MergePass<'_> {
    fn drop(&mut self) {
        *self.gate.free_bytes.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.gate.freed.notify_all();
    }
}
