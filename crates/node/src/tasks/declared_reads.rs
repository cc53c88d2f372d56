//! Files that a remembered program may read: its inputs, and those beside them that its step names.

use crate::failure::named_failure;
use api::task::{RunTask, StepCaching};
use api::{Blame, TaskFailure};
use program::DeclaredReads;
use roots::JobPaths;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checks that the files beside the inputs exist.
pub(super) fn check_named(task: &RunTask, paths: &JobPaths) -> Result<(), TaskFailure> {
    let Some(StepCaching { reads, environment }) = task.caching.as_deref() else { return Ok(()) };
    for path in reads {
        paths.open_place(path).map_err(|error| missing("reads", path, error))?;
    }
    for path in environment {
        let metadata = paths.open_file(path).and_then(|file| file.metadata());
        let metadata = metadata.map_err(|error| missing("environment", path, error))?;
        if !metadata.is_file() {
            let message = format!("{} in `environment` is no plain file", path.display());
            return Err(TaskFailure::new(Blame::UserData, message));
        }
    }
    Ok(())
}

fn missing(key: &str, path: &Path, error: std::io::Error) -> TaskFailure {
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("the file {} in `{key}` does not exist", path.display());
            TaskFailure::new(Blame::UserData, message)
        }
        _ => named_failure("read", path, error),
    }
}

/// Returns the files beside the inputs.
pub(super) fn named(task: &RunTask) -> impl Iterator<Item = &PathBuf> {
    task.caching.iter().flat_map(|caching| caching.reads.iter().chain(&caching.environment))
}

/// Returns the limit of the reads of a program that runs in this directory without a sandbox; None if it may read
/// everything, and is never skipped, or if the kernel cannot limit it.
pub(super) fn limit(task: &RunTask, work_dir: &Path) -> Option<Arc<DeclaredReads>> {
    if !task.is_remembered() {
        return None;
    }
    // The links there lead also to files that other programs of the pipeline wrote.
    let inputs = task.inputs.iter().map(|input| work_dir.join(&input.name));
    DeclaredReads::new(&task.directory, inputs.chain(named(task).cloned()).collect()).map(Arc::new)
}
