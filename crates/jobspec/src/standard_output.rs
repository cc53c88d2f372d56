//! `--output -` and `--output files:NAME`: the job publishes its output into a private directory, from which the front end
//! prints or stores it. No byte is printed or stored until the proof agrees and everything is published.

use anyhow::{Context, bail};
use api::STORED_PREFIX;
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
/// The same for an output that is stored; the output in it has the escaped name of the stored file.
const STORED_DIR_PREFIX: &str = "sailfish-stored-";
/// Longest escaped name, in bytes.
const ESCAPED_BYTES_MAX: usize = 200;
/// Maximum number of tries: a sweep may remove a new directory before it is locked.
const CREATE_TRIES_MAX: u32 = 10;

/// A private output directory, removed when this value is dropped. If the process is killed, its lock becomes free, and
/// the next run removes the directory.
#[derive(Debug)]
pub struct PrivateOutput {
    dir: TempDir,
    name: String,
    _lock: File,
}

impl PrivateOutput {
    /// Creates a private directory on a disk of the job, for an output that is printed.
    pub fn create(disk: &Path) -> anyhow::Result<PrivateOutput> {
        Self::create_with(disk, DIR_PREFIX, OUTPUT_NAME.to_string(), ARGUMENT)
    }

    /// Creates a private directory below a directory of stored files, for an output that is stored under `argument`.
    pub fn create_stored(dir: &Path, argument: &str) -> anyhow::Result<PrivateOutput> {
        let name = escaped(argument.strip_prefix(STORED_PREFIX).unwrap_or(argument));
        Self::create_with(dir, STORED_DIR_PREFIX, name, argument)
    }

    fn create_with(disk: &Path, prefix: &str, name: String, argument: &str) -> anyhow::Result<PrivateOutput> {
        let making = || format!("--output {argument}: cannot make a directory in {}", disk.display());
        let made = io_call(IoCall::Create, disk).and_then(|()| std::fs::create_dir_all(disk));
        made.with_context(making)?;
        for _ in 0..CREATE_TRIES_MAX {
            let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(disk).with_context(making)?;
            if let Some(lock) = locked(dir.path()) {
                return Ok(PrivateOutput { dir, name, _lock: lock });
            }
        }
        bail!("--output {argument}: another process removes files from {}", disk.display())
    }

    /// Returns the private directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory to which the job publishes its output.
    pub fn output(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }
}

/// Escapes a name, so that it is one component of a path.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for character in name.chars() {
        match character {
            '/' => escaped.push_str("%2F"),
            '%' => escaped.push_str("%25"),
            other => escaped.push(other),
        }
        if escaped.len() > ESCAPED_BYTES_MAX {
            escaped.push('…');
            break;
        }
    }
    escaped
}

/// The kinds of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputKind {
    Printed,
    Stored,
    Named,
}

fn kind_of(output: &Path) -> OutputKind {
    let parent = output.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match parent {
        Some(name) if name.starts_with(DIR_PREFIX) => OutputKind::Printed,
        Some(name) if name.starts_with(STORED_DIR_PREFIX) => OutputKind::Stored,
        _ => OutputKind::Named,
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

/// Returns the name of an output for messages: its path, or `standard output` or `files:NAME` for a private one, whose
/// path means nothing to users.
pub fn shown(output: &Path) -> String {
    match kind_of(output) {
        OutputKind::Printed => "standard output".to_string(),
        OutputKind::Stored => {
            let name = output.file_name().unwrap_or_default().to_string_lossy();
            format!("{STORED_PREFIX}{}", name.replace("%2F", "/").replace("%25", "%"))
        }
        OutputKind::Named => output.display().to_string(),
    }
}

/// Returns the default name of a job: the last component of the result of [`shown`].
pub fn name_of(output: &Path) -> String {
    match kind_of(output) {
        OutputKind::Named => crate::paths::name_of(output),
        OutputKind::Printed | OutputKind::Stored => shown(output),
    }
}

/// Removes private directories of killed processes from the disks. A directory that cannot be removed is left to the
/// next run.
pub fn sweep(disks: &[PathBuf]) {
    for disk in disks {
        let Ok(entries) = std::fs::read_dir(disk) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if [DIR_PREFIX, STORED_DIR_PREFIX].iter().any(|prefix| name.starts_with(prefix))
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
    use super::{PrivateOutput, shown, sweep};
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
        assert_eq!(shown(&held.output()), "standard output");
        assert_eq!(shown(std::path::Path::new("/d/out")), "/d/out");
        let stored = PrivateOutput::create_stored(disk.path(), "files:a/50%/b").unwrap();
        assert_eq!(shown(&stored.output()), "files:a/50%/b");
        drop(stored);
        drop(held);
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1);
    }
}
