//! The stored files that programs of an attempt open by a path: their copies are here before a program starts, and stay
//! until the attempt is over.

use crate::attempt::Assignment;
use crate::failure::file_failure;
use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::stored::local_files::{CopyUse, HeldFile, LocalFiles, WantedFile};
use crate::stored::views::{ShownView, ViewedFile};
use crate::tasks::map::stored_input::{PartOpener, PartsHere, StoredReads};
use crate::tasks::pinned_copies::{PinnedCopies, PinnedUse, is_wanted};
use api::task::RunTask;
use api::{Blame, Function, JobSpec, PinnedFile, RecordFormat, Split, Task, TaskFailure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Name of the directory for copies in errors.
const COPIES: &str = "the directory for copies of stored files";

/// The copies of an attempt.
#[derive(Default)]
pub(crate) struct AttemptFiles {
    /// Copies of inputs, by their positions in the specification.
    inputs: Arc<BTreeMap<u32, PathBuf>>,
    /// Copies of programs, and of files beside them.
    pinned: PinnedCopies,
    held: Vec<HeldFile>,
    /// Files without copies.
    views: Vec<(Arc<ViewedFile>, ShownView)>,
    reads: Arc<StoredReads>,
}

/// Local copies, and the parts that they are made from.
pub struct LocalSource {
    pub(crate) files: Arc<LocalFiles>,
    pub(crate) opener: Arc<dyn PartOpener>,
    /// Opens ranges of parts for views.
    pub(crate) ranges: Arc<dyn PartOpener>,
}

impl LocalSource {
    fn of_one_machine(files: Arc<LocalFiles>, dir: &Path) -> Self {
        let opener = Arc::new(PartsHere { dir: dir.to_path_buf() });
        Self { files, ranges: Arc::clone(&opener) as _, opener }
    }
}

/// Returns the local copies for a job; None in a process without stored files.
fn source_of(shared: &Shared, job: &AttemptData, reads: &Arc<StoredReads>) -> Option<LocalSource> {
    match &shared.options.stored_files {
        Some(dir) => {
            let files = job.local_files(&job.run.disk_dirs);
            Some(LocalSource::of_one_machine(files, dir))
        }
        None => shared.record_data.get().and_then(|data| data.local_source(job.job, reads)),
    }
}

impl AttemptFiles {
    /// Brings the files of a task of a MapReduce job.
    pub fn bring(shared: &Shared, job: &AttemptData, task: &Task) -> Result<Self, TaskFailure> {
        let mut files = Self::default();
        let spec: &JobSpec = &job.run.spec;
        match task {
            Task::Map(task) => {
                files.bring_pinned(shared, job, &[&spec.mapper, &spec.combiner])?;
                if spec.formats.input == RecordFormat::Stretches {
                    files.bring_inputs(shared, job, &task.split)?;
                }
            }
            Task::Reduce(_) => files.bring_pinned(shared, job, &[&spec.reducer])?,
            _ => {}
        }
        Ok(files)
    }

    fn bring_pinned(
        &mut self,
        shared: &Shared,
        job: &AttemptData,
        functions: &[&Option<Function>],
    ) -> Result<(), TaskFailure> {
        let spec: &JobSpec = &job.run.spec;
        if spec.pinned.is_empty() {
            return Ok(());
        }
        // Their bytes are no input of the job.
        let source = source_of(shared, job, &Arc::default());
        let mut wanted = spec.pinned.iter().filter(|file| is_wanted(spec, functions, &file.path));
        wanted.try_for_each(|file| self.hold_pinned(source.as_ref(), file, &job.run.user, &job.cancelled))
    }

    fn bring_inputs(&mut self, shared: &Shared, job: &AttemptData, split: &Split) -> Result<(), TaskFailure> {
        let spec: &JobSpec = &job.run.spec;
        let source = source_of(shared, job, &self.reads);
        let mut inputs = BTreeMap::new();
        for segment in &split.segments {
            let Some(input) = spec.inputs.get(segment.file_index as usize) else { continue };
            let Some(content) = &input.stored else { continue };
            if inputs.contains_key(&segment.file_index) {
                continue;
            }
            let (user, path) = (job.run.user.as_str(), input.path.as_path());
            let wanted = WantedFile { user, path, content, of: CopyUse::Input };
            let held = self.hold(source.as_ref(), &wanted, &job.cancelled)?;
            inputs.insert(segment.file_index, held);
        }
        self.inputs = Arc::new(inputs);
        Ok(())
    }

    /// Brings the files of a job of one task, and puts the paths of their copies into it.
    pub fn bring_for_program(
        shared: &Shared,
        assignment: &Assignment,
        task: &mut RunTask,
    ) -> Result<Self, TaskFailure> {
        let mut files = Self::default();
        let source = match &shared.options.stored_files {
            Some(dir) => {
                let copies = shared.copies_for_single_jobs();
                let copies = copies.map_err(|error| file_failure("create", Path::new(COPIES), error))?;
                Some(LocalSource::of_one_machine(copies, dir))
            }
            None => {
                let data = shared.record_data.get();
                data.and_then(|data| data.local_source(assignment.attempt.task.job, &files.reads))
            }
        };
        for file in &task.pinned {
            files.bring_pinned_file(shared, source.as_ref(), assignment, task, file)?;
        }
        files.pinned.put_into_task(task);
        Ok(files)
    }

    /// Brings a file of a job of one task: an input that is a view, or of which no disk has room for a copy, is shown
    /// without one, if this machine lets us.
    fn bring_pinned_file(
        &mut self,
        shared: &Shared,
        source: Option<&LocalSource>,
        assignment: &Assignment,
        task: &RunTask,
        file: &PinnedFile,
    ) -> Result<(), TaskFailure> {
        let (user, cancelled) = (assignment.job.user.as_str(), &assignment.cancelled);
        let wanted = WantedFile { user, path: &file.path, content: &file.stored, of: CopyUse::Program };
        let has_room = || source.is_none_or(|source| source.files.have_room(&wanted));
        let of = PinnedUse::of(task, &file.path);
        let is_shown = match of {
            PinnedUse::Copy => false,
            PinnedUse::View => true,
            PinnedUse::Either => !has_room(),
        };
        if is_shown && self.show(shared, source, &wanted) {
            return Ok(());
        }
        match self.hold_pinned(source, file, user, cancelled) {
            // Another copy may have taken the room.
            Err(failure)
                if of == PinnedUse::Either
                    && failure.blame == Blame::Environment
                    && !has_room()
                    && self.show(shared, source, &wanted) =>
            {
                Ok(())
            }
            held => held,
        }
    }

    /// Shows a file to the programs of the attempt. Returns false if nothing can be mounted here.
    fn show(&mut self, shared: &Shared, source: Option<&LocalSource>, wanted: &WantedFile<'_>) -> bool {
        let (Some(views), Some(source)) = (&shared.options.views, source) else { return false };
        let file = Arc::new(ViewedFile::new(wanted, Arc::clone(&source.ranges)));
        let Some(view) = views.show(&file) else { return false };
        self.pinned.insert_view(wanted.path.to_path_buf(), view.path.clone());
        self.views.push((file, view));
        true
    }

    fn hold_pinned(
        &mut self,
        source: Option<&LocalSource>,
        file: &PinnedFile,
        user: &str,
        cancelled: &AtomicBool,
    ) -> Result<(), TaskFailure> {
        let wanted = WantedFile { user, path: &file.path, content: &file.stored, of: CopyUse::Program };
        let place = self.hold(source, &wanted, cancelled)?;
        self.pinned.insert(file.path.clone(), place);
        Ok(())
    }

    fn hold(
        &mut self,
        source: Option<&LocalSource>,
        wanted: &WantedFile<'_>,
        cancelled: &AtomicBool,
    ) -> Result<PathBuf, TaskFailure> {
        let Some(source) = source else {
            let message = format!("this process has no stored files, and not {}", wanted.path.display());
            return Err(TaskFailure::new(Blame::Engine, message));
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

    /// Returns the copies of programs, and of files beside them.
    pub fn pinned(&self) -> &PinnedCopies {
        &self.pinned
    }

    /// Returns the paths of all copies and views.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.held.iter().map(HeldFile::path).chain(self.views.iter().map(|(_, view)| view.path.as_path()))
    }

    /// Returns the counters of bytes of stored files that the attempt reads; those for its copies of inputs are counted.
    pub fn reads(&self) -> Arc<StoredReads> {
        Arc::clone(&self.reads)
    }

    /// Returns an error if a program wrote to a copy, or could not read a view: the results of the attempt are not those of
    /// the stored file.
    pub fn check_unchanged(&self) -> Result<(), TaskFailure> {
        self.held.iter().try_for_each(HeldFile::check_unchanged)?;
        self.unread().map_or(Ok(()), Err)
    }

    /// Returns the failure of a read of a view.
    fn unread(&self) -> Option<TaskFailure> {
        self.views.iter().find_map(|(file, _)| file.failure())
    }

    /// Returns the failure of the attempt with the names of stored files in place of the paths of copies. A view that could
    /// not be read is the cause of a failed program.
    pub fn named_in(&self, failure: TaskFailure) -> TaskFailure {
        let failure = match self.unread().filter(|_| failure.blame != Blame::Cancelled) {
            Some(cause) => TaskFailure { said: failure.said, ..cause },
            None => failure,
        };
        let held = self.held.iter().map(|held| (held.path(), held.shown()));
        let views = self.views.iter().map(|(file, view)| (view.path.as_path(), file.path()));
        let named = |message: String, (place, name): (&Path, &Path)| match place.to_str() {
            Some(place) => message.replace(place, &name.to_string_lossy()),
            None => message,
        };
        TaskFailure { message: held.chain(views).fold(failure.message, named), ..failure }
    }
}
