//! The end of the maps: every chunk is closed and sorted, and the inventory is handed over.

use crate::ChunkServer;
use crate::error::ChunkServerError;
use api::task::SealResult;
use std::sync::PoisonError;
use std::time::Duration;

impl ChunkServer {
    /// Closes all open chunks, waits until everything is sorted, and lists chunks and runs. Calling it again
    /// gives the same list. No appender may be at work.
    pub fn seal(&self) -> Result<SealResult, std::sync::Arc<ChunkServerError>> {
        let shared = &self.shared;
        shared.parked.clear();
        let mut books = shared.lock();
        books.sealing = true;
        books.close_all();
        shared.work.notify_all();
        loop {
            if let Some(failure) = &books.failure {
                return Err(std::sync::Arc::clone(failure));
            }
            if shared.is_cancelled() {
                return Err(std::sync::Arc::new(ChunkServerError::Cancelled));
            }
            if !books.has_stable_chunks() && books.busy_sorters == 0 {
                break;
            }
            let waited = shared.changed.wait_timeout(books, Duration::from_millis(100));
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(SealResult {
            chunks: books.chunk_summaries(),
            runs: books.summaries.values().cloned().collect(),
            raw_spills: books.figures.raw_spills,
            raw_spill_bytes: books.figures.raw_spill_bytes,
            sort_seconds: books.figures.sort_seconds,
            write_seconds: books.figures.write_seconds,
        })
    }
}
