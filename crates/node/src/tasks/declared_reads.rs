//! Files that a remembered program may read: its inputs, and those beside them that its step names.

use crate::failure::named_failure;
use api::task::{RunTask, StepCaching};
use api::{Blame, TaskFailure};
use program::DeclaredReads;
use roots::{JobPaths, is_below_system};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checks that the files beside the inputs exist. Those of the system may lie outside of the node's roots.
pub(super) fn check_named(task: &RunTask, paths: &JobPaths) -> Result<(), TaskFailure> {
    let Some(StepCaching { reads, environment }) = task.caching.as_deref() else { return Ok(()) };
    for path in reads.iter().filter(|path| !is_of_system(path)) {
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

/// Returns whether an existing path lies below a folder of programs, also with all links followed.
pub(super) fn is_of_system(path: &Path) -> bool {
    is_below_system(path) && path.canonicalize().is_ok_and(|real| is_below_system(&real))
}

/// Returns the files beside the inputs that only a rule makes readable in a sandbox.
pub(super) fn named(task: &RunTask) -> impl Iterator<Item = &PathBuf> {
    let caching = task.caching.as_deref();
    let reads = caching.into_iter().flat_map(|caching| &caching.reads);
    let environment = caching.into_iter().flat_map(|caching| &caching.environment);
    reads.filter(|path| !is_of_system(path)).chain(environment)
}

/// Returns the limit of the reads of a program that runs in this directory without a sandbox; None if it may read
/// everything, and is never skipped, or if the kernel cannot limit it.
pub(super) fn limit(task: &RunTask, work_dir: &Path) -> Option<Arc<DeclaredReads>> {
    if !task.is_remembered() {
        return None;
    }
    // The links there lead also to files that other programs of the pipeline wrote.
    let inputs = task.inputs.iter().map(|input| work_dir.join(&input.name));
    // The directory of the workflow may lie below a system folder.
    let declared = task.caching.iter().flat_map(|caching| caching.reads.iter().chain(&caching.environment));
    DeclaredReads::new(&task.directory, inputs.chain(declared.cloned()).collect()).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::is_of_system;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn only_real_system_paths_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("/usr", &link).unwrap();
        let up = format!("/usr/..{}", dir.path().display());
        let paths = [
            ("/usr/bin", true),
            ("/bin", true),
            ("/usr/missing", false),
            (up.as_str(), false),
            ("/user", false),
            (link.to_str().unwrap(), false),
            ("/etc/passwd", false),
        ];
        for (path, expected) in paths {
            assert_eq!(is_of_system(Path::new(path)), expected, "{path}");
        }
    }
}
