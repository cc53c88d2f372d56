//! Writing of files from their parts, by several threads. A file gets its name when all its bytes are there, and the
//! target when all its files are.

use crate::error::TransferError;
use crate::watch::Watch;
use crate::{PIECE_BYTES, PartStore, RecordSum};
use api::DataSum;
use api::stored::HashedFile;
use concretefile::Content;
use filetree::TreeName;
use ids::FileVersion;
use rows::ConcreteRow;
use std::collections::HashMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// In the directory of an unfinished get: the tree that gets the name of the target, and files without all their bytes.
const TREE: &str = "tree";
const INCOMPLETE: &str = "incomplete";

/// A file of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToGet {
    /// Name below the target; empty if the target is this file.
    pub name: String,
    pub bytes: u64,
    pub parts: Vec<ConcreteRow>,
    /// Set if its records are distributed by their keys.
    pub hashed: Option<HashedFile>,
}

impl FileToGet {
    /// Returns an error if records are not those that were put. `name`: of the file, for the error.
    pub fn check_records(&self, name: &str, found: &DataSum) -> Result<(), TransferError> {
        self.hashed.as_ref().map_or(Ok(()), |hashed| check_records(name, hashed, found))
    }
}

/// Returns an error if the records of a file are not those that were put.
pub fn check_records(name: &str, hashed: &HashedFile, found: &DataSum) -> Result<(), TransferError> {
    let expected = &hashed.sum;
    match expected == found {
        true => Ok(()),
        false => Err(TransferError::WrongRecords {
            name: name.to_string(),
            expected: expected.records,
            found: found.records,
        }),
    }
}

/// The files of a get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetPlan {
    pub name: TreeName,
    /// The version that is read.
    pub version: FileVersion,
    pub is_directory: bool,
    /// Directories below the target, each after the directory that it lies in.
    pub directories: Vec<String>,
    pub files: Vec<FileToGet>,
}

/// The target of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    /// True if an existing file may be replaced.
    pub overwrite: bool,
}

struct Work<'a> {
    plan: &'a GetPlan,
    store: &'a dyn PartStore,
    watch: &'a Watch,
    /// The directory beside the target in which it is made.
    unfinished: PathBuf,
    next: Mutex<(usize, usize)>,
    missing: Vec<AtomicU32>,
    /// Sums of the records of files that have them, as far as their parts are there.
    sums: Mutex<HashMap<usize, DataSum>>,
    failure: Mutex<Option<TransferError>>,
}

/// Gets the files of a plan with so many threads. A get that was interrupted goes on behind the files and parts that it
/// has: the same version continues in the unfinished target beside the real one.
pub fn get(
    plan: &GetPlan,
    store: &dyn PartStore,
    target: &Target,
    threads: usize,
    watch: &Watch,
) -> Result<(), TransferError> {
    check_target(plan, target)?;
    watch.expect(plan.files.len() as u64, plan.files.iter().map(|file| file.bytes).sum());
    let work = Work {
        plan,
        store,
        watch,
        unfinished: unfinished_target(&target.path, plan.version),
        next: Mutex::default(),
        missing: plan.files.iter().map(|file| AtomicU32::new(file.parts.len() as u32)).collect(),
        sums: Mutex::default(),
        failure: Mutex::default(),
    };
    // Held until the target has its name.
    let _alone = work.make_directories()?;
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                if let Err(error) = work.run() {
                    watch.stop();
                    work.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    });
    let failure = work.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failure {
        Some(failure) => return Err(failure),
        None if watch.is_stopped() => return Err(TransferError::Interrupted),
        None => {}
    }
    check_target(plan, target)?;
    let tree = work.unfinished.join(TREE);
    std::fs::rename(&tree, &target.path).map_err(TransferError::io("rename", &tree))?;
    std::fs::remove_dir_all(&work.unfinished).map_err(TransferError::io("remove", &work.unfinished))
}

/// Returns an error if the target exists and may not be replaced. A directory is never replaced.
fn check_target(plan: &GetPlan, target: &Target) -> Result<(), TransferError> {
    let refuse = |kind: ErrorKind, text: &str| {
        let source = std::io::Error::new(kind, text);
        Err(TransferError::Io { action: "create", path: target.path.clone(), source })
    };
    match std::fs::symlink_metadata(&target.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(TransferError::Io { action: "read", path: target.path.clone(), source: error }),
        Ok(data) if data.is_dir() => {
            refuse(ErrorKind::AlreadyExists, "it is a directory that exists already")
        }
        Ok(_) if plan.is_directory => refuse(ErrorKind::AlreadyExists, "it exists already"),
        Ok(_) if target.overwrite => Ok(()),
        Ok(_) => refuse(ErrorKind::AlreadyExists, "it exists already (see --overwrite)"),
    }
}

/// Returns the directory beside the target in which it is made: `.NAME.sailfish-get-VERSION`.
fn unfinished_target(target: &Path, version: FileVersion) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    target.with_file_name(format!(".{name}.sailfish-get-{version}"))
}

impl Work<'_> {
    /// Makes the directory beside the target, or goes on with the one of an interrupted get, and all others in it.
    /// Returns its lock. What others made in its place is refused: they could have put anything there.
    fn make_directories(&self) -> Result<File, TransferError> {
        let dir = &self.unfinished;
        let refused = |text: &str| TransferError::Io {
            action: "use",
            path: dir.clone(),
            source: std::io::Error::new(ErrorKind::AlreadyExists, text),
        };
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let data = std::fs::symlink_metadata(dir).map_err(TransferError::io("read", dir))?;
                if !data.is_dir() || data.uid() != rustix::process::geteuid().as_raw() {
                    return Err(refused(
                        "it is not the directory of an interrupted get of this user: remove it",
                    ));
                }
            }
            made => made.map_err(TransferError::io("create", dir))?,
        }
        let lock = File::open(dir).map_err(TransferError::io("open", dir))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused("another get of the same version writes there"));
            }
            Err(TryLockError::Error(source)) => {
                return Err(TransferError::Io { action: "lock", path: dir.clone(), source });
            }
        }
        let tree = dir.join(TREE);
        let mut dirs = vec![self.unfinished.join(INCOMPLETE)];
        if self.plan.is_directory {
            dirs.push(tree.clone());
            dirs.extend(self.plan.directories.iter().map(|name| tree.join(name)));
        }
        for dir in dirs {
            std::fs::create_dir_all(&dir).map_err(TransferError::io("create", &dir))?;
        }
        Ok(lock)
    }

    fn run(&self) -> Result<(), TransferError> {
        while let Some((file, part)) = self.take() {
            let to_get = &self.plan.files[file];
            let real = self.path(to_get);
            if has_bytes(&real, to_get.bytes) {
                // Its name says that it is complete. All its parts are skipped, each in its turn.
                let bytes = to_get.parts.get(part).map_or(0, |part| part.bytes);
                self.watch.add_bytes(bytes);
                self.count(file, part);
                continue;
            }
            let path = self.unfinished.join(INCOMPLETE).join(file.to_string());
            let sum = self.write_part(to_get, part, &path)?;
            if let Some(sum) = sum {
                self.lock_sums().entry(file).or_default().add(&sum);
            }
            if self.count(file, part) {
                let found = self.lock_sums().remove(&file).unwrap_or_default();
                to_get.check_records(&self.name_of(to_get), &found)?;
                std::fs::rename(&path, &real).map_err(TransferError::io("rename", &path))?;
            }
        }
        Ok(())
    }

    fn lock_sums(&self) -> MutexGuard<'_, HashMap<usize, DataSum>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name_of(&self, file: &FileToGet) -> String {
        if file.name.is_empty() { self.plan.name.to_string() } else { file.name.clone() }
    }

    fn path(&self, file: &FileToGet) -> PathBuf {
        let tree = self.unfinished.join(TREE);
        if file.name.is_empty() { tree } else { tree.join(&file.name) }
    }

    /// Counts a part; true if it was the last one of its file.
    fn count(&self, file: usize, part: usize) -> bool {
        let is_last = match self.plan.files[file].parts.is_empty() {
            true => part == 0,
            false => self.missing[file].fetch_sub(1, Ordering::AcqRel) == 1,
        };
        self.watch.add_files(u64::from(is_last));
        is_last
    }

    fn take(&self) -> Option<(usize, usize)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if self.watch.is_stopped() {
            return None;
        }
        let taken = *next;
        let parts = self.plan.files.get(taken.0)?.parts.len();
        *next = if taken.1 + 1 < parts { (taken.0, taken.1 + 1) } else { (taken.0 + 1, 0) };
        Some(taken)
    }

    /// Writes a part, and returns the sum of its records if the file has one.
    fn write_part(
        &self,
        file: &FileToGet,
        part: usize,
        path: &Path,
    ) -> Result<Option<DataSum>, TransferError> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let target = opened.map_err(TransferError::io("create", path))?;
        let Some(row) = file.parts.get(part) else {
            return target.set_len(0).map(|()| None).map_err(TransferError::io("write", path));
        };
        let sum = || file.hashed.as_ref().map(RecordSum::new);
        let begin: u64 = file.parts[..part].iter().map(|before| before.bytes).sum();
        let content = Content { bytes: row.bytes, crc32c: row.crc32c };
        if part + 1 == file.parts.len() {
            // What an interrupted get left behind cannot be longer than the file.
            let present = target.metadata().map_err(TransferError::io("read", path))?.len();
            if present > file.bytes {
                target.set_len(file.bytes).map_err(TransferError::io("write", path))?;
            }
        }
        let mut present = sum();
        if holds(&target, begin, content, present.as_mut()) {
            self.watch.add_bytes(row.bytes);
            return Ok(present.map(RecordSum::finish));
        }
        let mut sum = sum();
        let mut reader = self.store.open(row)?;
        let (mut offset, mut computed) = (0, 0);
        while offset < row.bytes {
            if self.watch.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            let piece = reader.read(offset, PIECE_BYTES)?;
            target.write_all_at(piece, begin + offset).map_err(TransferError::io("write", path))?;
            computed = crc32c::crc32c_append(computed, piece);
            if let Some(sum) = &mut sum {
                sum.add(piece);
            }
            offset += piece.len() as u64;
            self.watch.add_bytes(piece.len() as u64);
        }
        match computed == row.crc32c {
            true => Ok(sum.map(RecordSum::finish)),
            false => Err(TransferError::WrongBytes {
                name: self.name_of(file),
                part,
                expected: row.crc32c,
                computed,
            }),
        }
    }
}

fn has_bytes(path: &Path, bytes: u64) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file() && data.len() == bytes)
}

/// Returns whether a file has a content at a place already, from an interrupted get. Adds its records to `sum`.
fn holds(file: &File, begin: u64, content: Content, mut sum: Option<&mut RecordSum>) -> bool {
    let present = file.metadata().map_or(0, |data| data.len());
    if present < begin.saturating_add(content.bytes) {
        return false;
    }
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut offset, mut computed) = (0, 0);
    while offset < content.bytes {
        let wanted = buffer.len().min((content.bytes - offset) as usize);
        match file.read_at(&mut buffer[..wanted], begin + offset) {
            Ok(read) if read > 0 => {
                computed = crc32c::crc32c_append(computed, &buffer[..read]);
                if let Some(sum) = &mut sum {
                    sum.add(&buffer[..read]);
                }
                offset += read as u64;
            }
            _ => return false,
        }
    }
    computed == content.crc32c
}
