//! Extra merge passes: several runs of an I-file become one, so that a later merge opens fewer.

use crate::ChunkServer;
use crate::cursor::RunCursor;
use crate::error::ChunkServerError;
use crate::run::Run;
use api::task::MergeResult;
use ids::{DiskIndex, IfileIndex, RunId};
use imerger::{Merge, SortedRun};
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
        let mut first_row = Vec::with_capacity(opened.len());
        let mut sources = Vec::new();
        for run in &opened {
            first_row.push(sources.len() as u32);
            sources.extend_from_slice(&run.sources);
        }
        let bytes = sources.iter().map(|row| row.sum.bytes).sum();
        let (id, disk) = {
            let mut books = self.shared.lock();
            let id = books.take_run_id();
            (id, DiskIndex((id.0 % self.shared.config.disk_dirs.len() as u64) as u16))
        };
        let mut result = MergeResult {
            replaced: runs.to_vec(),
            run: api::task::RunSummary {
                run: id,
                ifile,
                chunks: Vec::new(),
                records: 0,
                record_bytes: 0,
                stored_bytes: 0,
                in_memory: false,
                disk,
                block_bytes_max: 0,
                weights: Vec::new(),
            },
            retrievals: 0,
            retrieved_bytes: 0,
        };
        let read = std::cell::Cell::new((0, 0));
        let read_failure = std::cell::Cell::new(None);
        let written = self.shared.write_run(id, ifile, disk, &sources, bytes, |writer| {
            let mut merged = || -> Result<std::io::Result<()>, ChunkServerError> {
                let cursors: Vec<RunCursor<'_>> = opened
                    .iter()
                    .map(|run| RunCursor::open(run, None, None, read_ahead_bytes))
                    .collect::<Result<_, _>>()?;
                let mut merge = Merge::new(cursors)?;
                while let Some(index) = merge.advance()? {
                    let cursor = merge.run(index);
                    if let Err(error) = writer.push(first_row[index] + cursor.source_row(), &cursor.record())
                    {
                        return Ok(Err(error));
                    }
                }
                let reports = merge.runs().iter().map(RunCursor::report);
                read.set(reports.fold((0, 0), |(count, bytes), report| {
                    (count + report.retrievals, bytes + report.retrieved_bytes)
                }));
                Ok(Ok(()))
            };
            merged().unwrap_or_else(|failure| {
                read_failure.set(Some(failure));
                Err(std::io::Error::other("a run that was to be merged could not be read"))
            })
        });
        if let Some(failure) = read_failure.take() {
            return Err(failure);
        }
        let (run, summary) = written?;
        (result.retrievals, result.retrieved_bytes) = read.get();
        result.run = summary;
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
            if let Some(path) = run.path() {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
