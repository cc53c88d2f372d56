//! Directories on disks for temporary files of programs, and those that are kept for later programs.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mode of the directory that contained programs see as `/tmp`.
pub(super) const MODE_OF_TMP: u32 = 0o1777;
/// Mode of directories that only the engine and its programs use.
pub(super) const MODE_OF_PRIVATE: u32 = 0o700;
/// Bits of the mode of a kept folder, of which its user has all and the others do not matter.
const RIGHTS_OF_USER: u32 = 0o7700;
const ALL_OF_USER: u32 = 0o700;
/// Maximum number of directories that are kept for later programs.
const SPARE_MAX: usize = 16;
/// Names that are tried for a directory, beyond the first.
const TRIES_MAX: u32 = 1000;

/// A directory on a disk for temporary files of programs, which is removed with its owner.
#[derive(Debug)]
pub struct TemporaryDir(PathBuf);

impl TemporaryDir {
    /// Makes one where the machine keeps temporary files.
    pub(super) fn of_machine(mode: u32) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut tries = 0;
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("sailfish-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // A killed process with the same number may have left one.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < TRIES_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes one with this path.
    pub(super) fn at(path: PathBuf, mode: u32) -> std::io::Result<Self> {
        std::fs::DirBuilder::new().mode(mode).create(&path)?;
        let dir = Self(path);
        if mode == MODE_OF_TMP {
            // The mask of this process does not apply.
            std::fs::set_permissions(&dir.0, Permissions::from_mode(mode))?;
        }
        Ok(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes everything in it except these folders. Errors: it or one of them is not as it was made, as a program may have
    /// changed it.
    pub(super) fn empty(&self, folders: &BTreeSet<PathBuf>) -> std::io::Result<()> {
        if self.0.symlink_metadata()?.mode() & 0o7777 != MODE_OF_PRIVATE {
            return Err(ErrorKind::InvalidData.into());
        }
        self.empty_folder(Path::new(""), folders)
    }

    fn empty_folder(&self, below: &Path, folders: &BTreeSet<PathBuf>) -> std::io::Result<()> {
        let path = self.0.join(below);
        let facts = path.symlink_metadata()?;
        let has_own_rules = || rustix::fs::listxattr(&path, &mut [0; 0]).map_or(true, |bytes| bytes > 0);
        if !facts.is_dir() || facts.mode() & RIGHTS_OF_USER != ALL_OF_USER || has_own_rules() {
            return Err(ErrorKind::InvalidData.into());
        }
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let name = below.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true if folders.contains(&name) => self.empty_folder(&name, folders)?,
                true => std::fs::remove_dir_all(entry.path())?,
                false => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // If this fails, only unused files are left, in a directory of the node.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Directories for later programs: private ones, which have no more than some folders.
#[derive(Debug, Default)]
pub(super) struct SpareDirs(Vec<(BTreeSet<PathBuf>, TemporaryDir)>);

impl SpareDirs {
    /// Takes a directory that has no other folders than these; None if there is none.
    pub fn take(&mut self, folders: &BTreeSet<PathBuf>) -> Option<TemporaryDir> {
        match self.0.iter().rposition(|(kept, _)| kept == folders) {
            Some(same) => Some(self.0.swap_remove(same).1),
            None => self.0.pop().map(|(_, dir)| dir).filter(|dir| dir.empty(&BTreeSet::new()).is_ok()),
        }
    }

    /// Keeps an emptied directory, unless there are enough.
    pub fn add(&mut self, folders: BTreeSet<PathBuf>, dir: TemporaryDir) {
        if self.0.len() < SPARE_MAX {
            self.0.push((folders, dir));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MODE_OF_PRIVATE, TemporaryDir};
    use crate::slots::Slots;
    use containment::Containment;
    use std::collections::BTreeSet;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    #[test]
    fn left_directories_are_passed_over() {
        let first = TemporaryDir::of_machine(MODE_OF_PRIVATE).unwrap();
        let path = first.path().to_str().unwrap();
        let (before, number) = path.rsplit_once('-').unwrap();
        let left = format!("{before}-{}", number.parse::<u64>().unwrap() + 1);
        std::fs::create_dir(&left).unwrap();
        let second = TemporaryDir::of_machine(MODE_OF_PRIVATE);
        std::fs::remove_dir(&left).unwrap();
        assert!(![path, &left].contains(&second.unwrap().path().to_str().unwrap()));
    }

    #[test]
    fn directories_are_given_back_empty() {
        let slots = Slots::new(Containment::Subreaper);
        let dir = slots.spare_directory(&BTreeSet::new()).unwrap();
        let path = dir.path().to_path_buf();
        std::fs::create_dir(path.join("a")).unwrap();
        std::fs::write(path.join("a/b"), "").unwrap();
        symlink("/usr", path.join("link")).unwrap();
        slots.give_back(dir, BTreeSet::new());
        let again = slots.spare_directory(&BTreeSet::new()).unwrap();
        assert_eq!((again.path(), path.read_dir().unwrap().count()), (&*path, 0));
        // One that its program changed is no good for the next.
        std::fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        slots.give_back(again, BTreeSet::new());
        let other = slots.spare_directory(&BTreeSet::new()).unwrap();
        assert!(other.path() != path && !path.exists());
        std::fs::remove_dir(other.path()).unwrap();
        symlink("/usr", other.path()).unwrap();
        let place = other.path().to_path_buf();
        slots.give_back(other, BTreeSet::new());
        assert!(slots.spare_directory(&BTreeSet::new()).unwrap().path() != place);
        let _ = std::fs::remove_file(place);
        slots.close();
    }

    #[test]
    fn declared_folders_stay_for_the_next() {
        let slots = Slots::new(Containment::Subreaper);
        let folders = |names: &[&str]| names.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let two = folders(&["a", "a/b"]);
        let dir = slots.spare_directory(&two).unwrap();
        let path = dir.path().to_path_buf();
        std::fs::create_dir_all(path.join("a/b/other")).unwrap();
        std::fs::write(path.join("a/b/file"), "").unwrap();
        slots.give_back(dir, two.clone());
        let again = slots.spare_directory(&two).unwrap();
        assert_eq!((again.path(), path.join("a/b").read_dir().unwrap().count()), (&*path, 0));
        slots.give_back(again, two.clone());
        // A program that does not declare them does not see them.
        let without = slots.spare_directory(&folders(&["a"])).unwrap();
        assert_eq!((without.path(), path.read_dir().unwrap().count()), (&*path, 0));
        // One that its program changed is no good for the next.
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::set_permissions(path.join("a"), Permissions::from_mode(0o500)).unwrap();
        slots.give_back(without, two.clone());
        let other = slots.spare_directory(&two).unwrap();
        assert!(other.path() != path && !path.exists());
        slots.close();
    }
}
