//! The programs of an attempt with their directories, on disks or in memory.

use crate::failure::file_failure;
use crate::shared::Shared;
use crate::tasks::memory_dirs::{MemoryDir, MemoryDirs};
use api::task::RunTask;
use api::{AttemptLimits, LimitKind, TaskFailure};
use ids::AttemptNumber;
use program::{FileMemory, ProgramLimits, TemporaryDir};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of directories of programs in errors.
pub(super) const TEMPORARY: &str = "the directory for temporary files of a program";

/// Makes a directory for the temporary files of a program in a sandbox or with a limit on disks, or for links to files
/// of the job.
fn temporary_dir(
    shared: &Shared,
    task: &RunTask,
    limits: &ProgramLimits,
) -> Result<Option<TemporaryDir>, TaskFailure> {
    let is_measured = limits.get(LimitKind::Disk).is_some();
    let needs_own = is_measured || shared.options.sandbox.is_some() || task.has_own_directory();
    let programs = &shared.options.programs;
    let dir = needs_own.then(|| match is_of_one_user(shared) {
        true => programs.spare_directory(&folders(task)),
        false => programs.private_directory(),
    });
    dir.transpose().map_err(|error| file_failure("create", Path::new(TEMPORARY), error))
}

/// Returns whether all programs are of one user, on one machine: they may have the same directories, one after the other.
pub(super) fn is_of_one_user(shared: &Shared) -> bool {
    shared.options.stored_files.is_some()
}

/// Keeps the directories of programs whose outputs were taken, and whose processes have ended, for later ones.
pub(super) fn give_back(shared: &Shared, members: Vec<Member<'_>>) {
    let used = members.into_iter().filter(|member| member.task.has_own_directory());
    for member in used.filter(|_| is_of_one_user(shared)) {
        if let Some(Place::Disk(dir)) = member.place {
            shared.options.programs.give_back(dir, folders(member.task));
        }
    }
}

/// Returns the folders of the declared files in the directory of a program.
fn folders(task: &RunTask) -> BTreeSet<PathBuf> {
    let files = task.inputs.iter().chain(&task.outputs).filter(|_| task.has_own_directory());
    let above = files.flat_map(|file| file.name.ancestors().skip(1));
    above.filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_path_buf).collect()
}

/// The directory of a program.
enum Place {
    Disk(TemporaryDir),
    Memory(MemoryDir, Arc<FileMemory>),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Disk(dir) => dir.path(),
            Self::Memory(dir, _) => dir.path(),
        }
    }
}

/// A program of an attempt and its directories.
pub(super) struct Member<'a> {
    pub task: &'a RunTask,
    pub limits: ProgramLimits,
    /// Directory of its own, in which it runs if it declares files.
    place: Option<Place>,
    /// Directory on a disk in place of that one, if the files of its phase outgrow memory.
    spare: Option<TemporaryDir>,
}

impl<'a> Member<'a> {
    /// Makes the directories of all programs of a pipeline.
    pub fn all(shared: &Shared, task: &'a RunTask, attempt: AttemptNumber) -> Result<Vec<Self>, TaskFailure> {
        let slots = task.slots();
        // The space of a job is as its first attempt on a slot prepared it: later ones would not see a new directory.
        // A stream of another node is read once, so its first phase cannot begin again.
        let memory = Some(&shared.memory_dirs).filter(|_| attempt.0 == 0 && task.growing.is_none());
        let members = task.programs().map(|program| Self::new(shared, program, slots, memory));
        let mut members: Vec<Self> = members.collect::<Result<_, _>>()?;
        if members.iter().any(|member| member.file_memory().is_some()) {
            for member in &mut members {
                member.spare = temporary_dir(shared, member.task, &member.limits)?;
            }
        }
        Ok(members)
    }

    fn new(
        shared: &Shared,
        task: &'a RunTask,
        slots: u32,
        memory: Option<&Arc<MemoryDirs>>,
    ) -> Result<Self, TaskFailure> {
        let limits = ProgramLimits { of_job: *task.limits, of_node: of_slots(shared.options.limits, slots) };
        let bytes = Some(task.file_memory_bytes).filter(|bytes| *bytes > 0 && task.has_own_directory());
        let place = match bytes.zip(memory).and_then(|(bytes, memory)| memory.reserve(bytes)) {
            Some(dir) => {
                let memory = Arc::new(FileMemory::new(dir.path(), dir.bytes()));
                Some(Place::Memory(dir, memory))
            }
            // The working directory belongs to the job; temporary files do not go there.
            None => temporary_dir(shared, task, &limits)?.map(Place::Disk),
        };
        Ok(Self { task, limits, place, spare: None })
    }

    /// Returns the directory in which it runs.
    pub fn work_dir(&self) -> &Path {
        let runs_there = self.place.as_ref().filter(|_| self.task.has_own_directory());
        runs_there.map_or(self.task.directory.as_path(), Place::path)
    }

    /// Returns the directory for its temporary files; None if it runs there.
    pub fn temporary(&self) -> Option<&Path> {
        self.own_path().filter(|_| !self.task.has_own_directory())
    }

    pub fn own_path(&self) -> Option<&Path> {
        self.place.as_ref().map(Place::path)
    }

    /// Returns all directories in which it may run.
    pub fn own_paths(&self) -> impl Iterator<Item = &Path> {
        self.own_path().into_iter().chain(self.spare.as_ref().map(TemporaryDir::path))
    }

    /// Returns the memory of its files, if they lie there.
    pub fn file_memory(&self) -> Option<&Arc<FileMemory>> {
        match &self.place {
            Some(Place::Memory(_, memory)) => Some(memory),
            _ => None,
        }
    }

    /// Gives it an empty directory on a disk in place of its own.
    pub fn begins_again_on_disk(&mut self) {
        if let Some(spare) = self.spare.take() {
            self.place = Some(Place::Disk(spare));
        }
    }
}

/// Returns the limits of the node for an attempt that takes several slots. Each program is measured with all others of
/// its attempt.
fn of_slots(limits: AttemptLimits, slots: u32) -> AttemptLimits {
    let times = |limit: Option<u64>| limit.map(|limit| limit.saturating_mul(u64::from(slots)));
    AttemptLimits {
        processes: times(limits.processes),
        memory_bytes: times(limits.memory_bytes),
        disk_bytes: times(limits.disk_bytes),
        ..limits
    }
}
