//! Leftovers: files that a job must not leave when it is over.

use crate::STORED_DIR;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Part of the name of everything a job makes beside its output and on its disks.
const MARK: &str = "sailfish-";

/// Paths that should have been removed: hidden siblings of outputs in `parents`, directories of jobs on
/// `disks`, locks of dead processes in `state`. Live processes' locks are no leftovers.
pub fn leftovers(parents: &[&Path], disks: &[&Path], state: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for parent in parents {
        found.extend(entries(parent).into_iter().filter(|path| {
            let name = name_of(path);
            name.starts_with('.') && name.contains(MARK)
        }));
    }
    for disk in disks {
        let of_jobs = |name: &str| name.starts_with(MARK) && name != STORED_DIR;
        found.extend(entries(disk).into_iter().filter(|path| of_jobs(&name_of(path))));
    }
    found.extend(entries(&state.join("owners")).into_iter().filter(|path| is_free(path)));
    found.sort();
    found
}

/// All files below a directory, at any depth.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(dir) {
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found
}

fn is_free(lock: &Path) -> bool {
    let Ok(file) = File::options().write(true).open(lock) else { return false };
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The entries of a directory; none where there is no directory.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.expect("a sandbox can be listed").path()).collect()
}

/// All files of runs below a directory, in order.
pub fn run_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(dir) {
        match path.is_dir() {
            true => found.extend(run_files(&path)),
            false if path.extension().is_some_and(|extension| extension == "ifile") => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}
