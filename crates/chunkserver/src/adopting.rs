//! Runs of an earlier job, opened in place: its I-files can be reduced again without running its maps.

use crate::ChunkServer;
use crate::disks::{DiskFile, run_file_name};
use crate::error::ChunkServerError;
use crate::run::{DiskRun, Place, Run, summarize_disk};
use crate::sealing::chunks_of;
use api::DataSum;
use api::task::{AdoptResult, AdoptTask, AdoptedCopy, ChunkSummary, KeptRun, RunSummary};
use diskfile::ReadPool;
use ids::{ChunkId, IfileIndex, JobId, Source};
use ifile::{FormatError, Problem, RunFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sum of each source in each chunk.
type Books = BTreeMap<(IfileIndex, ChunkId), BTreeMap<Source, DataSum>>;

impl ChunkServer {
    /// Opens kept runs and checks everything except the blocks, which are checked when they are read: header, footer,
    /// key index, source table, and that each is the run in the store. The files stay in place and this server never
    /// changes or removes them. The call is idempotent.
    ///
    /// The error is the first unusable run without a replica on another node. Unusable replicas here are omitted.
    pub fn adopt(&self, task: &AdoptTask) -> Result<AdoptResult, ChunkServerError> {
        let mut books = Books::new();
        let mut adopted = Vec::with_capacity(task.runs.len());
        let (mut missing, mut missing_because) = (Vec::new(), None);
        for kept in &task.runs {
            let (run, summary) = match open_kept(task, kept, &self.shared.reads) {
                Ok(opened) => opened,
                Err(error) if kept.has_copy => {
                    missing.push(kept.number());
                    missing_because.get_or_insert_with(|| error.to_failure().message);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for row in &run.sources {
                let sums = books.entry((run.ifile, row.chunk)).or_default();
                sums.entry(row.source).or_default().add(&row.sum);
            }
            adopted.push((run, summary));
        }
        let runs: Vec<RunSummary> = adopted.iter().map(|(_, summary)| summary.clone()).collect();
        self.take_in(adopted);
        let with_books = |chunk: &ChunkSummary| ChunkSummary {
            sources: books.remove(&(chunk.ifile, chunk.chunk)).unwrap_or_default().into_iter().collect(),
            ..chunk.clone()
        };
        let chunks = task.chunks.iter().map(with_books).collect();
        Ok(AdoptResult { chunks, runs, copies: self.adopt_copies(task), missing, missing_because })
    }

    /// Opens replicas of runs that are read on another node as long as they can be.
    fn adopt_copies(&self, task: &AdoptTask) -> Vec<AdoptedCopy> {
        let mut copies = Vec::with_capacity(task.copies.len());
        for kept in &task.copies {
            // A missing replica matters only if the file itself is missing: then the job reports it.
            let Ok((run, summary)) = open_kept(task, kept, &self.shared.reads) else { continue };
            let chunks = chunks_of(&run, &summary, &self.shared.config.layout);
            copies.push(AdoptedCopy { run: summary.clone(), chunks });
            self.shared.lock().copies.insert(run.id, (Arc::new(run), summary));
        }
        copies
    }

    fn take_in(&self, adopted: Vec<(Run, RunSummary)>) {
        let progress = &self.shared.progress;
        let mut books = self.shared.lock();
        for (run, summary) in adopted {
            books.keep_run_ids_above(run.id);
            if books.runs.contains_key(&run.id) {
                // An earlier attempt adopted it.
                continue;
            }
            progress.appended_bytes.fetch_add(summary.record_bytes, Ordering::Relaxed);
            progress.sorted_bytes.fetch_add(summary.record_bytes, Ordering::Relaxed);
            books.summaries.insert(run.id, summary);
            books.runs.insert(run.id, Arc::new(run));
        }
    }

    /// Returns whether a file lies in this job's own directories.
    pub(crate) fn owns(&self, path: &Path) -> bool {
        self.shared.config.disk_dirs.iter().any(|dir| path.parent() == Some(dir.as_path()))
    }
}

/// Returns the expected path of a run's file, or its path on another disk: a replica of a lost run may be on any disk.
pub(crate) fn kept_path(dirs: &[PathBuf], kept: &KeptRun) -> PathBuf {
    let name = run_file_name(kept.run);
    let expected = dirs.get(usize::from(kept.disk.0)).cloned().unwrap_or_default().join(&name);
    let elsewhere = || {
        let dirs = dirs.iter().filter(|dir| !dir.as_os_str().is_empty());
        dirs.map(|dir| dir.join(&name)).find(|path| path.exists())
    };
    if expected.exists() { expected } else { elsewhere().unwrap_or(expected) }
}

fn open_kept(
    task: &AdoptTask,
    kept: &KeptRun,
    reads: &Arc<ReadPool>,
) -> Result<(Run, RunSummary), ChunkServerError> {
    let path = kept_path(&task.dirs, kept);
    let file = match DiskFile::open(&path) {
        Ok(file) => file,
        Err(source) => return Err(ChunkServerError::Kept { path, job: task.source, source }),
    };
    let damaged = |source| ChunkServerError::Damaged { path: path.clone(), source };
    let opened = RunFile::open(&file).map_err(damaged)?;
    check_identity(task.source, kept, &opened).map_err(damaged)?;
    let run = Run {
        id: kept.number(),
        ifile: kept.ifile,
        key_shape: opened.identity.key_shape,
        sources: opened.sources.clone(),
        place: Place::Disk(DiskRun::new(path.clone(), &opened, Arc::clone(reads))),
    };
    let summary = summarize_disk(&run, &opened, kept.disk);
    Ok((run, summary))
}

/// Checks that the file is the run in the store: a complete file of another run would be read without an error.
pub(crate) fn check_identity(source: JobId, kept: &KeptRun, file: &RunFile) -> Result<(), FormatError> {
    let (identity, footer) = (&file.identity, &file.footer);
    for (what, here, there) in [
        ("the job's number", identity.job.0 as u64, source.0 as u64),
        ("the run's number", identity.run.0, kept.run.0),
        ("the I-file's number", identity.ifile.0.into(), kept.ifile.0.into()),
        ("number of records", footer.sum.records, kept.records),
        ("number of record bytes", footer.sum.bytes, kept.record_bytes),
        ("size of the file", file.file_bytes(), kept.stored_bytes),
    ] {
        if here != there {
            return Err(FormatError::at(0, Problem::Disagreement { what, here, there }));
        }
    }
    Ok(())
}
