//! The end of the maps: every chunk is closed and sorted, and the inventory is handed over.

use crate::ChunkServer;
use crate::error::ChunkServerError;
use api::task::{RunSummary, SealResult};
use ids::NodeId;
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
            // Runs that moved here from a node that left are told by the merge that moved them.
            runs: books.summaries.values().filter(|run| is_of(run, shared.config.node)).cloned().collect(),
            raw_spills: books.figures.raw_spills,
            raw_spill_bytes: books.figures.raw_spill_bytes,
            sort_seconds: books.figures.sort_seconds,
            write_seconds: books.figures.write_seconds,
            lost: books.lost.iter().copied().collect(),
            lost_because: books.lost_because.clone(),
        })
    }
}

/// Whether the chunks of a run were appended to on this node.
fn is_of(run: &RunSummary, node: NodeId) -> bool {
    run.chunks.iter().all(|chunk| chunk.node() == node)
}
