//! Outputs of jobs as stored files: the parts of a published output move into the store.

use crate::FileStore;
use crate::changes::CommittedChange;
use crate::error::{FilesError, RemoteFault};
use crate::puts::ReadyPut;
use api::stored::MakingJob;
use concretefile::Content;
use faults::{CrashPoint, crash_point};
use filetransfer::{DonePart, TransferError, Watch};
use filetree::{TreeError, TreeName, TreePath};
use ids::{ConcreteId, ContentId, DirectoryId, PutId};
use rows::{ConcreteRow, FileItem, FileSpace};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    /// Name of the part, for an output that becomes a directory.
    pub name: String,
    pub path: PathBuf,
    pub content: Content,
}

/// A file that a job made, and its new name.
pub struct MadeFile<'a> {
    pub name: TreePath,
    pub bytes: &'a mut (dyn Read + Send),
}

/// The form in which an output is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// One file of all parts.
    File,
    /// A directory with a file for each part.
    Directory,
}

impl FileStore {
    /// Returns the directory for private outputs of jobs, on the file system of the store.
    pub fn outputs_dir(state_dir: &Path) -> PathBuf {
        state_dir.join("files").join("outputs")
    }

    /// Checks that an output can get a name.
    pub fn check_output(&self, name: &TreePath, form: OutputForm) -> Result<(), FilesError> {
        if name.is_root() {
            return Err(TreeError::Root.into());
        }
        let item = match form {
            OutputForm::File => FileItem::File(ContentId(0)),
            OutputForm::Directory => FileItem::Directory(DirectoryId(0)),
        };
        self.check_place(name, item)
    }

    /// Stores the parts of an output of a job under a name, as one version. Their files move into the store. The name
    /// keeps as many versions as before.
    pub fn store_output(
        &self,
        name: &TreePath,
        parts: &[OutputPart],
        form: OutputForm,
        job: &MakingJob,
    ) -> Result<CommittedChange, FilesError> {
        self.sweep()?;
        self.check_output(name, form)?;
        let (put, lock) = self.begin(None, name)?;
        crash_point(CrashPoint::FilesBegun);
        let stored = self.adopt(put, parts, form).and_then(|ready| {
            crash_point(CrashPoint::FilesWritten);
            self.disk.sync(&ready.parts)?;
            crash_point(CrashPoint::FilesSynced);
            let ready = ReadyPut { job: Some(job.clone()), ..ready };
            self.commit(ready, name, self.kept_versions(name)?, None)
        });
        if stored.is_err() {
            // The first error is the one to report.
            let _ = self.abandon(put, &lock);
        }
        let stored = stored?;
        crash_point(CrashPoint::FilesCommitted);
        self.retire()?;
        Ok(stored)
    }

    /// Stores files that a job made as new versions of their names, all written before the first is visible. A version that
    /// the same job has stored before stays. Names keep as many versions as before.
    pub fn store_made(
        &self,
        files: &mut [MadeFile<'_>],
        job: &MakingJob,
        watch: &Watch,
    ) -> Result<(), FilesError> {
        self.sweep()?;
        let (mut begun, mut ready) = (Vec::new(), Vec::new());
        let written = files.iter_mut().try_for_each(|file| {
            self.check_output(&file.name, OutputForm::File)?;
            if is_made_by(self.maker(&TreeName { path: file.name.clone(), version: None }), job)? {
                return Ok(());
            }
            let (put, lock) = self.begin(None, &file.name)?;
            begun.push((put, lock));
            let written = self.write_stream(put, file.bytes, watch)?;
            self.disk.sync(&written.parts)?;
            ready.push((file.name.clone(), ReadyPut { job: Some(job.clone()), ..written }));
            Ok(())
        });
        let committed = written.and_then(|()| {
            ready.into_iter().try_for_each(|(name, ready)| {
                self.commit(ready, &name, self.kept_versions(&name)?, None).map(drop)
            })
        });
        if committed.is_err() {
            // The first error is the one to report. A put that was committed is none any more.
            begun.iter().for_each(|(put, lock)| drop(self.abandon(*put, lock)));
        }
        committed?;
        self.retire()
    }

    fn adopt(&self, put: PutId, parts: &[OutputPart], form: OutputForm) -> Result<ReadyPut, FilesError> {
        let mut done = Vec::with_capacity(parts.len());
        for (number, part) in (0..).zip(parts) {
            let concrete = ConcreteId::of(put, number).ok_or(TransferError::TooMany)?;
            if part.content.bytes > 0 {
                self.disk.adopt(&part.path, concrete, part.content)?;
            }
            done.push(DonePart { concrete, content: part.content });
        }
        let written = done.iter().filter(|part| part.content.bytes > 0).map(|part| part.concrete).collect();
        let bytes = parts.iter().map(|part| part.content.bytes).sum();
        let content = |part: &DonePart| ContentId::of(put, part.concrete.number());
        let is_full = |part: &DonePart| part.content.bytes > 0;
        let files: Vec<(String, ContentId, Vec<DonePart>)> = match form {
            OutputForm::File => {
                let content = ContentId::of(put, 0).ok_or(TransferError::TooMany)?;
                vec![(String::new(), content, done.into_iter().filter(is_full).collect())]
            }
            OutputForm::Directory => {
                let file = |(part, done): (&OutputPart, DonePart)| {
                    let parts = Some(done).filter(is_full).into_iter().collect();
                    Some((part.name.clone(), content(&done)?, parts))
                };
                parts.iter().zip(done).filter_map(file).collect()
            }
        };
        Ok(ReadyPut {
            put,
            is_directory: form == OutputForm::Directory,
            directories: Vec::new(),
            files_count: files.len() as u64,
            files: Box::new(files.into_iter()),
            bytes,
            hashed: None,
            job: None,
            parts: written,
        })
    }

    /// Returns the job that made a file, or the directory of its output.
    pub fn maker(&self, name: &TreeName) -> Result<Option<MakingJob>, FilesError> {
        match self.entry(name)?.row {
            Some(row) => self.maker_of(row.item.put()),
            None => Ok(None),
        }
    }

    pub(crate) fn maker_of(&self, put: PutId) -> Result<Option<MakingJob>, FilesError> {
        Ok(self.run(self.store.commit_of_job_put(put))?.and_then(|commit| commit.job))
    }

    /// Adds the job that made a damaged file to the error of its reader. Files of several puts are left alone: the error
    /// does not say which of them it means.
    pub(crate) fn with_maker<'a>(
        &self,
        error: FilesError,
        parts: impl IntoIterator<Item = &'a ConcreteRow>,
    ) -> FilesError {
        let mut puts = parts.into_iter().map(|part| part.concrete.put());
        match puts.next() {
            Some(first) if error.is_damage() && puts.all(|put| put == first) => {
                error.of_job(self.maker_of(first).ok().flatten().as_ref())
            }
            _ => error,
        }
    }

    /// Returns the number of versions that a name keeps; 1 for a new one.
    fn kept_versions(&self, name: &TreePath) -> Result<u32, FilesError> {
        let found = self.run(self.store.found_names(FileSpace::Machine, name.components(), None))?;
        let is_there = found.rows.len() == name.components().len();
        Ok(found.rows.last().filter(|_| is_there).map_or(1, |row| row.keep_versions))
    }
}

/// Returns whether a job made a file, from the answer to that question.
pub fn is_made_by(maker: Result<Option<MakingJob>, FilesError>, job: &MakingJob) -> Result<bool, FilesError> {
    match maker {
        Ok(maker) => Ok(maker.is_some_and(|maker| maker.job == job.job)),
        Err(FilesError::Missing(_) | FilesError::Remote { fault: RemoteFault::Missing, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
