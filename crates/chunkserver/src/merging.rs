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

/// Reason why runs could not be merged.
#[derive(Debug)]
pub enum MergeFailure<E> {
    /// A failure to read one of them.
    Read(E),
    /// A failure to write the merged one.
    Write(ChunkServerError),
}

impl ChunkServer {
    /// Merges runs of this chunkserver into a new one on disk and removes the old ones. Records of losing attempts stay
    /// in: the plan that reads the run decides which win. A failure changes nothing.
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
        let open = || -> Result<Vec<RunCursor<'_>>, ChunkServerError> {
            opened.iter().map(|run| RunCursor::open(run, None, None, read_ahead_bytes)).collect()
        };
        self.merge_opened(ifile, runs, open, RunCursor::report).map_err(|failure| match failure {
            MergeFailure::Read(error) | MergeFailure::Write(error) => error,
        })
    }

    /// Merges runs that may be on other nodes, and so moves them here. `open` makes cursors over all of each run, in
    /// their order, and is called again if the target disk fails. Runs of other nodes are not removed, but copies of
    /// them here are.
    pub fn merge_opened<R: SortedRun>(
        &self,
        ifile: IfileIndex,
        runs: &[RunId],
        open: impl Fn() -> Result<Vec<R>, R::Error>,
        report_of: fn(&R) -> CursorReport,
    ) -> Result<MergeResult, MergeFailure<R::Error>> {
        let first = open().map_err(MergeFailure::Read)?;
        let sources: Vec<SourceRow> = first.iter().flat_map(|run| run.sources().iter().copied()).collect();
        let bytes = sources.iter().map(|row| row.sum.bytes).sum();
        let id = self.shared.lock().take_run_id();
        let disk = DiskIndex((id.0 % self.shared.config.disk_dirs.len() as u64) as u16);
        let (read, failure) = (Cell::new(CursorReport::default()), Cell::new(None));
        let first = Cell::new(Some(first));
        let written = self.shared.write_run(id, ifile, disk, &sources, bytes, |writer| {
            let opened = first.take().map_or_else(&open, Ok).map_err(MergeError::Read);
            match opened.and_then(|cursors| copy_merged(cursors, writer, report_of)) {
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
        // An unreadable run is not the fault of the target disk.
        if let Some(failure) = failure.take() {
            return Err(MergeFailure::Read(failure));
        }
        let (run, summary) = written.map_err(MergeFailure::Write)?;
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
        let mut table = self.shared.lock();
        let removed = table.forget_runs(old);
        table.register(new, result.run.clone());
        drop(table);
        self.shared.to_copy.notify_all();
        for run in removed {
            // An adopted run belongs to another job.
            if let Some(path) = run.path().filter(|path| self.owns(path)) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

enum MergeError<E> {
    Read(E),
    Write(std::io::Error),
}

impl<E> From<E> for MergeError<E> {
    fn from(error: E) -> Self {
        Self::Read(error)
    }
}

/// Writes the merged records of the runs; the rows of each run follow those of the previous runs.
fn copy_merged<R: SortedRun>(
    cursors: Vec<R>,
    writer: &mut RunWriter<NewFile>,
    report_of: fn(&R) -> CursorReport,
) -> Result<CursorReport, MergeError<R::Error>> {
    let mut first_row = Vec::with_capacity(cursors.len());
    let mut rows = 0;
    for run in &cursors {
        first_row.push(rows);
        rows += run.sources().len() as u32;
    }
    let mut merge = Merge::new(cursors)?;
    while let Some(index) = merge.advance()? {
        let cursor = merge.run(index);
        writer.push(first_row[index] + cursor.source_row(), &cursor.record()).map_err(MergeError::Write)?;
    }
    let mut total = CursorReport::default();
    for report in merge.runs().iter().map(report_of) {
        total.retrievals += report.retrievals;
        total.retrieved_bytes += report.retrieved_bytes;
    }
    Ok(total)
}
