//! `--output -`: the job publishes its output into a private directory, from which the front end prints it. No byte is
//! printed until the proof agrees and everything is published.

use anyhow::{Context, bail};
use faults::{IoCall, io_call};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The argument for standard output.
pub const ARGUMENT: &str = "-";
/// Prefix of all private directories, so that nothing else is ever removed.
const DIR_PREFIX: &str = "sailfish-stdout-";
const OUTPUT_NAME: &str = "output";
/// Maximum number of tries: a sweep may remove a new directory before it is locked.
const CREATE_TRIES_MAX: u32 = 10;

/// A private output directory, removed when this value is dropped. If the process is killed, its lock becomes free, and
/// the next run removes the directory.
#[derive(Debug)]
pub struct PrivateOutput {
    dir: TempDir,
    _lock: File,
}

impl PrivateOutput {
    /// Creates a private directory on a disk of the job.
    pub fn create(disk: &Path) -> anyhow::Result<PrivateOutput> {
        let making = || format!("--output -: cannot make a directory in {}", disk.display());
        let made = io_call(IoCall::Create, disk).and_then(|()| std::fs::create_dir_all(disk));
        made.with_context(making)?;
        for _ in 0..CREATE_TRIES_MAX {
            let dir = tempfile::Builder::new().prefix(DIR_PREFIX).tempdir_in(disk).with_context(making)?;
            if let Some(lock) = locked(dir.path()) {
                return Ok(PrivateOutput { dir, _lock: lock });
            }
        }
        bail!("--output -: another process removes files from {}", disk.display())
    }

    /// Returns the private directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory to which the job publishes its output.
    pub fn output(&self) -> PathBuf {
        self.dir.path().join(OUTPUT_NAME)
    }
}

/// Returns the named output directory of a job, otherwise a private one on a disk of the job.
pub fn unless_named(named: Option<PathBuf>, disk: &Path) -> anyhow::Result<(PathBuf, Option<PrivateOutput>)> {
    if let Some(output) = named {
        return Ok((output, None));
    }
    let private = PrivateOutput::create(disk)?;
    Ok((private.output(), Some(private)))
}

/// Returns whether an output is a private directory for standard output.
pub fn is_private(output: &Path) -> bool {
    let parent = output.parent().and_then(Path::file_name);
    parent.is_some_and(|name| name.to_string_lossy().starts_with(DIR_PREFIX))
}

/// Returns the name of an output for messages: its path, or `standard output` for a private one, whose path means
/// nothing to users.
pub fn shown(output: &Path) -> String {
    if is_private(output) { "standard output".to_string() } else { output.display().to_string() }
}

/// Returns the default name of a job: the last component of the result of [`shown`].
pub fn name_of(output: &Path) -> String {
    if is_private(output) { shown(output) } else { crate::paths::name_of(output) }
}

/// Removes private directories of killed processes from the disks. A directory that cannot be removed is left to the
/// next run.
pub fn sweep(disks: &[PathBuf]) {
    for disk in disks {
        let Ok(entries) = std::fs::read_dir(disk) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(DIR_PREFIX)
                && let Some(_lock) = locked(&entry.path())
            {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Locks a directory that still has its name; None if another process holds the lock.
fn locked(dir: &Path) -> Option<File> {
    let file = File::open(dir).ok()?;
    file.try_lock().ok()?;
    let (named, opened) = (std::fs::metadata(dir).ok()?, file.metadata().ok()?);
    (named.ino() == opened.ino() && named.dev() == opened.dev()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::{PrivateOutput, is_private, sweep};
    use std::fs;

    #[test]
    fn only_unlocked_outputs_are_swept() {
        let disk = tempfile::tempdir().unwrap();
        let disks = [disk.path().to_path_buf()];
        let held = PrivateOutput::create(disk.path()).unwrap();
        let left = disk.path().join("sailfish-stdout-killed/output");
        fs::create_dir_all(&left).unwrap();
        fs::create_dir_all(disk.path().join("other")).unwrap();
        sweep(&disks);
        assert!(held.dir().exists() && !left.exists() && disk.path().join("other").exists());
        assert!(is_private(&held.output()) && !is_private(&disk.path().join("out")));
        drop(held);
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1);
    }
}
