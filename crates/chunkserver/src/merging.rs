//! Extra merge passes: several runs of an I-file become one, so that a later merge opens fewer.

use crate::ChunkServer;
use crate::cursor::{CursorReport, RunCursor};
use crate::disks::NewFile;
use crate::error::ChunkServerError;
use crate::run::Run;
use api::task::MergeResult;
use ids::{DiskIndex, IfileIndex, RunId};
use ifile::{RunWriter, SourceRow};
use imerger::{Merge, SortedRun};
use std::cell::Cell;
use std::sync::Arc;

impl ChunkServer {
    /// Merges runs into a new one on disk and removes the old ones. Records of losing attempts stay in: who
    /// wins is decided by the plan that reads the run. When it fails nothing has changed.
    pub fn merge_runs(
        &self,
        ifile: IfileIndex,
        runs: &[RunId],
        read_ahead_bytes: usize,
    ) -> Result<MergeResult, ChunkServerError> {
        let opened: Vec<Arc<Run>> = runs
            .iter()
            .map(|id| self.run(*id).ok_or(ChunkServerError::UnknownRun(*id)))
            .collect::<Result<_, _>>()?;
        let sources: Vec<SourceRow> = opened.iter().flat_map(|run| run.sources.iter().copied()).collect();
        let bytes = sources.iter().map(|row| row.sum.bytes).sum();
        let id = self.shared.lock().take_run_id();
        let disk = DiskIndex((id.0 % self.shared.config.disk_dirs.len() as u64) as u16);
        let read = Cell::new(CursorReport::default());
        let failure = Cell::new(None);
        let written = self.shared.write_run(id, ifile, disk, &sources, bytes, |writer| {
            match copy_merged(&opened, read_ahead_bytes, writer) {
                Ok(report) => {
                    read.set(report);
                    failure.set(None);
                    Ok(())
                }
                Err(MergeError::Write(error)) => Err(error),
                Err(MergeError::Read(error)) => {
                    failure.set(Some(error));
                    Err(std::io::Error::other("a run that was to be merged could not be read"))
                }
            }
        });
        // A run that cannot be read is not the fault of the disk written to.
        if let Some(failure) = failure.take() {
            return Err(failure);
        }
        let (run, summary) = written?;
        let read = read.get();
        let result = MergeResult {
            replaced: runs.to_vec(),
            run: summary,
            retrievals: read.retrievals,
            retrieved_bytes: read.retrieved_bytes,
        };
        self.replace(runs, run, &result);
        Ok(result)
    }

    fn replace(&self, old: &[RunId], new: Run, result: &MergeResult) {
        let mut removed = Vec::new();
        let mut books = self.shared.lock();
        for id in old {
            books.summaries.remove(id);
            books.memory_runs.retain(|each| each != id);
            removed.extend(books.runs.remove(id));
        }
        books.summaries.insert(new.id, result.run.clone());
        books.runs.insert(new.id, Arc::new(new));
        drop(books);
        for run in removed {
            // An adopted run belongs to another job.
            if let Some(path) = run.path().filter(|path| self.owns(path)) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

enum MergeError {
    Read(ChunkServerError),
    Write(std::io::Error),
}

impl From<ChunkServerError> for MergeError {
    fn from(error: ChunkServerError) -> Self {
        Self::Read(error)
    }
}

/// Writes the merged records of the runs; the rows of each run stand behind those of the runs before it.
fn copy_merged(
    runs: &[Arc<Run>],
    read_ahead_bytes: usize,
    writer: &mut RunWriter<NewFile>,
) -> Result<CursorReport, MergeError> {
    let mut first_row = Vec::with_capacity(runs.len());
    let mut cursors = Vec::with_capacity(runs.len());
    let mut rows = 0;
    for run in runs {
        first_row.push(rows);
        rows += run.sources.len() as u32;
        cursors.push(RunCursor::open(run, None, None, read_ahead_bytes)?);
    }
    let mut merge = Merge::new(cursors)?;
    while let Some(index) = merge.advance()? {
        let cursor = merge.run(index);
        writer.push(first_row[index] + cursor.source_row(), &cursor.record()).map_err(MergeError::Write)?;
    }
    let mut total = CursorReport::default();
    for report in merge.runs().iter().map(RunCursor::report) {
        total.retrievals += report.retrievals;
        total.retrieved_bytes += report.retrieved_bytes;
    }
    Ok(total)
}
