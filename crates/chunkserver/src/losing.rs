//! Lost data of chunks: it could not be written, or the disk returned it damaged. The chunkserver continues without it
//! and reports it when it is sealed; its appenders recompute it.

use crate::chunk_table::{ChunkState, ChunkTable};
use crate::error::ChunkServerError;
use crate::run::Run;
use crate::{ChunkServer, Shared};
use ids::{ChunkId, DiskIndex, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Data of a disk that cannot be read any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostOnDisk {
    /// Runs of this node, and promoted copies.
    pub runs: BTreeSet<RunId>,
    /// Chunks in these runs.
    pub chunks: BTreeSet<ChunkId>,
}

impl ChunkServer {
    /// Checks the files of runs on a failing disk, and returns the unreadable runs. Before the seal begins they are
    /// removed, and the chunks in them are lost (a seal reports them).
    pub fn look_for_losses(&self, disk: DiskIndex) -> LostOnDisk {
        let there: Vec<(Arc<Run>, DiskIndex)> = {
            let table = self.shared.lock();
            let disk_of = |run: &RunId| table.summaries.get(run).map(|summary| summary.disk);
            let own = table.runs.iter().filter_map(|(id, run)| Some((Arc::clone(run), disk_of(id)?)));
            let standing = table.standing.iter().filter_map(|run| table.copies.get(run));
            own.chain(standing.map(|(run, summary)| (Arc::clone(run), summary.disk))).collect()
        };
        let on_disk = there.iter().filter(|(_, place)| *place == disk).map(|(run, _)| run);
        let lost: Vec<&Arc<Run>> = on_disk.filter(|run| run.is_gone()).collect();
        let runs: BTreeSet<RunId> = lost.iter().map(|run| run.id).collect();
        let chunks: BTreeSet<ChunkId> = lost.iter().flat_map(|run| run.chunks()).collect();
        let mut table = self.shared.lock();
        if !table.sealing && !runs.is_empty() {
            table.lost.extend(&chunks);
            table.lost_because.get_or_insert_with(|| "the disk that they were on failed".to_string());
            let own: Vec<RunId> = runs.iter().filter(|run| table.runs.contains_key(run)).copied().collect();
            table.forget_runs(&own);
        }
        LostOnDisk { runs, chunks }
    }
}

impl Shared {
    /// Abandons chunks that met an error; returns an error that does not concern them.
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
        let mut table = self.lock();
        for chunk in chunks {
            table.lose(*chunk);
        }
        table.lost_because.get_or_insert(error.to_failure().message);
        drop(table);
        self.changed.notify_all();
        Ok(())
    }

    /// Abandons a run that is only in memory and cannot be written.
    pub(crate) fn give_up_run(&self, run: &Run, error: ChunkServerError) -> Result<(), ChunkServerError> {
        self.give_up(&run.chunks(), error)?;
        self.lock().forget_runs(&[run.id]);
        Ok(())
    }
}

impl ChunkTable {
    /// Discards the data of a chunk. It takes no more frames, and is in no inventory.
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
            // Files that a broken disk cannot remove are removed with the directory.
            let _ = std::fs::remove_file(raw.path);
        }
        self.lost.insert(id);
    }
}
