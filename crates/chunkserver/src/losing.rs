//! Data of chunks that is lost: it could not be written, or did not come back from the disk as it was. The chunkserver goes on
//! without it and says so when it is sealed; whoever appended it makes it again.

use crate::Shared;
use crate::books::{Books, ChunkState};
use crate::error::ChunkServerError;
use crate::run::Run;
use ids::ChunkId;

impl Shared {
    /// Gives up chunks that met an error; an error that is not theirs comes back.
    pub(crate) fn give_up(
        &self,
        chunks: &[ChunkId],
        error: ChunkServerError,
    ) -> Result<(), ChunkServerError> {
        let is_theirs = match &error {
            ChunkServerError::Damaged { .. } | ChunkServerError::NoRecord { .. } => true,
            ChunkServerError::Disk { action, .. } => *action == "read" || self.config.elsewhere,
            _ => false,
        };
        if !is_theirs {
            return Err(error);
        }
        let mut books = self.lock();
        for chunk in chunks {
            books.lose(*chunk);
        }
        books.lost_because.get_or_insert(error.to_failure().message);
        drop(books);
        self.changed.notify_all();
        Ok(())
    }

    /// Gives up a run that is only in memory and cannot be written.
    pub(crate) fn give_up_run(&self, run: &Run, error: ChunkServerError) -> Result<(), ChunkServerError> {
        self.give_up(&run.chunks(), error)?;
        self.lock().forget_runs(&[run.id]);
        Ok(())
    }
}

impl Books {
    /// Forgets what is in a chunk. It takes nothing more, and is in no inventory.
    pub fn lose(&mut self, id: ChunkId) {
        self.close_one(id);
        for queue in &mut self.queues {
            queue.retain(|each| *each != id);
        }
        let Some(chunk) = self.chunks.get_mut(&id) else { return };
        chunk.state = ChunkState::Sorted;
        chunk.frames.clear();
        chunk.memory_bytes = 0;
        if let Some(raw) = chunk.raw.take() {
            // What a broken disk does not let go of goes with the directory.
            let _ = std::fs::remove_file(raw.path);
        }
        self.lost.insert(id);
    }
}
