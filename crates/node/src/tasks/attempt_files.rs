//! The stored files that programs of an attempt open by a path: their copies are here before a program starts, and stay
//! until the attempt is over.

use crate::attempt::JobRun;
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::stored::local_files::{HeldFile, LocalFiles, WantedFile};
use crate::tasks::map::stored_input::{PartOpener, PartsHere, StoredReads};
use api::{JobSpec, RecordFormat, Split, Task, TaskFailure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The copies of an attempt.
#[derive(Default)]
pub(crate) struct AttemptFiles {
    /// Copies of inputs, by their positions in the specification.
    inputs: Arc<BTreeMap<u32, PathBuf>>,
    held: Vec<HeldFile>,
    reads: Arc<StoredReads>,
}

/// Local copies, and the parts that they are made from.
pub struct LocalSource {
    pub(crate) files: Arc<LocalFiles>,
    pub(crate) opener: Box<dyn PartOpener>,
}

impl AttemptFiles {
    /// Brings the files of a task of a MapReduce job.
    pub fn bring(shared: &Shared, job: &AttemptData, task: &Task) -> Result<Self, TaskFailure> {
        let mut files = Self::default();
        let spec = &job.run.spec;
        let Task::Map(task) = task else { return Ok(files) };
        if spec.formats.input == RecordFormat::Stretches {
            files.bring_inputs(shared, job, &task.split)?;
        }
        Ok(files)
    }

    fn bring_inputs(&mut self, shared: &Shared, job: &AttemptData, split: &Split) -> Result<(), TaskFailure> {
        let spec: &JobSpec = &job.run.spec;
        let mut inputs = BTreeMap::new();
        for segment in &split.segments {
            let Some(input) = spec.inputs.get(segment.file_index as usize) else { continue };
            let Some(content) = &input.stored else { continue };
            if inputs.contains_key(&segment.file_index) {
                continue;
            }
            let (user, path) = (job.run.user.as_str(), input.path.as_path());
            let wanted = WantedFile { user, path, content };
            let held = self.bring_one(shared, &job.run, job, &wanted)?;
            inputs.insert(segment.file_index, held);
        }
        self.inputs = Arc::new(inputs);
        Ok(())
    }

    fn bring_one(
        &mut self,
        shared: &Shared,
        run: &JobRun,
        job: &AttemptData,
        wanted: &WantedFile<'_>,
    ) -> Result<PathBuf, TaskFailure> {
        let source = match &shared.options.stored_files {
            Some(dir) => {
                let files = job.local_files(&run.disk_dirs);
                Some(LocalSource { files, opener: Box::new(PartsHere { dir: dir.clone() }) })
            }
            None => shared.record_data.get().and_then(|data| data.local_source(job.job, &self.reads)),
        };
        self.hold(source, wanted, &job.cancelled)
    }

    fn hold(
        &mut self,
        source: Option<LocalSource>,
        wanted: &WantedFile<'_>,
        cancelled: &AtomicBool,
    ) -> Result<PathBuf, TaskFailure> {
        let Some(source) = source else {
            let message = format!("this process has no stored files, and not {}", wanted.path.display());
            return Err(TaskFailure::new(api::Blame::Engine, message));
        };
        let held = source.files.bring(wanted, &*source.opener, cancelled)?;
        let path = held.path().to_path_buf();
        self.held.push(held);
        Ok(path)
    }

    /// Returns the copies of inputs, by their positions in the specification.
    pub fn inputs(&self) -> Arc<BTreeMap<u32, PathBuf>> {
        Arc::clone(&self.inputs)
    }

    /// Returns the paths of all copies.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.held.iter().map(HeldFile::path)
    }

    /// Returns the counters of bytes of stored files that the attempt reads; those for its copies are counted.
    pub fn reads(&self) -> Arc<StoredReads> {
        Arc::clone(&self.reads)
    }

    /// Returns an error if a program wrote to a copy: the results of the attempt are not those of the stored file.
    pub fn check_unchanged(&self) -> Result<(), TaskFailure> {
        self.held.iter().try_for_each(HeldFile::check_unchanged)
    }
}
