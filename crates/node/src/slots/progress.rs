//! Counters of processed bytes, for displays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of a node's counters, over all its jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeProgress {
    pub input_bytes_read: u64,
    /// Stored bytes: with compressed input, more bytes than this are read.
    pub input_bytes_total: u64,
    pub appended_bytes: u64,
    pub sorted_bytes: u64,
    /// Key and value bytes that merges have emitted, among those appended.
    pub reduced_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub input_bytes_read: AtomicU64,
    pub input_bytes_total: AtomicU64,
    pub reduced_bytes: AtomicU64,
}

impl Counters {
    pub fn snapshot(&self, chunks: impl Iterator<Item = Arc<chunkserver::Progress>>) -> NodeProgress {
        let mut progress = NodeProgress {
            input_bytes_read: self.input_bytes_read.load(Ordering::Relaxed),
            input_bytes_total: self.input_bytes_total.load(Ordering::Relaxed),
            reduced_bytes: self.reduced_bytes.load(Ordering::Relaxed),
            ..NodeProgress::default()
        };
        for chunk in chunks {
            progress.appended_bytes += chunk.appended_bytes.load(Ordering::Relaxed);
            progress.sorted_bytes += chunk.sorted_bytes.load(Ordering::Relaxed);
        }
        progress
    }
}
