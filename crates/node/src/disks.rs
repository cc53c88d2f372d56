//! The directories of a node in a cluster: one for each job on each disk, created for the job's first attempt. Their
//! names contain that of a lock file beside them, which is locked while the process lives. A free lock reveals the
//! remains of a killed process, which the next node on that disk removes. The lock file is read back every second: a
//! disk that returns other data has failed. It also holds the proof of the process, which the next process presents to
//! the server: so nobody without the disk can declare the process dead.

pub(crate) mod kept_checks;
pub(crate) mod kept_dirs;
pub(crate) mod left_behind;
pub(crate) mod probes;
pub(crate) mod shipped_files;

use crate::failure::file_failure;
use crate::stored::disks::DiskPlace;
use api::TaskFailure;
use api::data_access::SecretText;
use api::machine::{DiskReport, DiskState};
use chunkserver::is_of_the_file;
use diskfile::{ALIGNMENT_BYTES, AlignedBuffer, open_direct};
use faults::{IoCall, io_call};
use ids::JobId;
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Part of the name of every directory that we create, so that nothing else is ever removed.
const MARK: &str = "sailfish-";
const LOCK_SUFFIX: &str = ".lock";
/// Mode of the lock file, which contains a secret.
const LOCK_MODE: u32 = 0o600;
/// Suffix after the name of a process: the directory of the intermediate files of users.
const USER_FILES: &str = "intermediate";
/// Suffix after the name of a process: the directory of local copies of stored files.
const LOCAL_FILES: &str = "local";
/// Suffix after the name of a process, before a number: a directory that contained programs see as `/tmp`.
const PROGRAM_FILES: &str = "tmp";
/// A disk is full if less than this fraction of it, and less than [`FREE_BYTES_ENOUGH`], is free.
const FREE_PART_MIN: u64 = 50;
const FREE_BYTES_ENOUGH: u64 = 1 << 30;
/// Maximum number of tries: a task that stops late may add a file while its directory is being removed.
const REMOVE_TRIES_MAX: u32 = 200;

/// The disks of a node, as long as it lives.
#[derive(Debug)]
pub struct Disks {
    /// Name of this process.
    name: String,
    disks: Vec<Disk>,
}

/// The fate of intermediate files of users when their process no longer uses its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserFiles {
    /// The next process on the disk finds them.
    Stay,
    Go,
}

/// A dead process with remains on a disk.
#[derive(Debug)]
pub(crate) struct DeadProcess {
    pub name: String,
    /// Its proof; None if its lock file is damaged.
    pub proof: Option<SecretText>,
    /// Lock file, held from now on.
    pub lock: File,
}

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    lock_path: PathBuf,
    /// Holds the lock while it is open.
    _lock: File,
    /// Content of the lock file; empty if the disk had no room for it.
    mark: Vec<u8>,
    /// True if it does not return the written data.
    has_failed: Arc<AtomicBool>,
}

impl Disks {
    /// Takes directories into use, creates missing ones, and removes the remains of dead nodes in them. `name` must be
    /// unique among processes; the proof is kept in the lock files, which only their owner can read.
    pub fn open(paths: &[PathBuf], name: &str, proof: &SecretText) -> std::io::Result<Self> {
        let mut disks: Vec<Disk> = Vec::new();
        for path in paths {
            let made = io_call(IoCall::Create, path).and_then(|()| std::fs::create_dir_all(path));
            made.map_err(|error| named(path, error))?;
            let path = path.canonicalize().map_err(|error| named(path, error))?;
            // A --disk that is given twice is one directory.
            if disks.iter().any(|disk| disk.path == path) {
                continue;
            }
            let lock_path = path.join(format!(".{MARK}{name}{LOCK_SUFFIX}"));
            let lock = io_call(IoCall::Create, &lock_path).and_then(|()| create_lock(&lock_path));
            let lock = lock.map_err(|error| named(&lock_path, error))?;
            lock.try_lock().map_err(|error| named(&lock_path, error.into()))?;
            sweep(&path, name).map_err(|error| named(&path, error))?;
            let mark = write_mark(&lock, name, proof);
            disks.push(Disk { path, lock_path, _lock: lock, mark, has_failed: Arc::default() });
        }
        Ok(Self { name: name.to_string(), disks })
    }

    /// Returns the directories as given, without duplicates.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.disks.iter().map(|disk| disk.path.as_path())
    }

    /// Returns the disks for stored files, which stay when the process ends.
    pub(crate) fn places(&self) -> Vec<DiskPlace> {
        let place = |disk: &Disk| {
            let has_failed = Arc::clone(&disk.has_failed);
            DiskPlace { path: disk.path.clone(), has_failed }
        };
        self.disks.iter().map(place).collect()
    }

    /// Returns the free space of each disk, and whether it accepts data.
    pub(crate) fn look(&self) -> Vec<DiskReport> {
        let look = |disk: &Disk| match disk.has_failed.load(Ordering::Relaxed) {
            true => DiskReport { state: DiskState::Failed, ..look_at(&disk.path) },
            false => look_at(&disk.path),
        };
        self.disks.iter().map(look).collect()
    }

    /// Returns the number of disks.
    pub(crate) fn count(&self) -> usize {
        self.disks.len()
    }

    /// Reads from a disk, bypassing the page cache if possible. Returns whether it gives back the written data, and
    /// remembers this.
    pub(crate) fn probe(&self, index: usize) -> bool {
        let Some(disk) = self.disks.get(index) else { return false };
        let outcome = read_mark(disk);
        let has_failed = outcome.as_ref().is_err_and(is_of_the_file);
        if disk.has_failed.swap(has_failed, Ordering::Relaxed) != has_failed {
            let path = disk.path.display();
            tracing::warn!(%path, has_failed, ?outcome, "a disk has failed or works again");
        }
        !has_failed
    }

    /// Returns whether the last probe of a disk failed.
    pub(crate) fn has_failed(&self, index: usize) -> bool {
        self.disks.get(index).is_none_or(|disk| disk.has_failed.load(Ordering::Relaxed))
    }

    /// Returns the disks in the order in which to try them.
    pub(crate) fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.disks.len()).collect();
        order.sort_by_key(|index| self.has_failed(*index));
        order
    }

    /// Returns the name of this process, a part of the names of its directories.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn dirs(&self, job: JobId) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| disk.path.join(format!("{MARK}{}-job{job}", self.name))).collect()
    }

    /// Returns directories for intermediate files of users, one per disk. The first file creates them; the next process
    /// on the disk finds them.
    pub(crate) fn user_dirs(&self) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| Self::user_dir(&disk.path, &self.name)).collect()
    }

    /// Returns the directory for intermediate files of users of a process on a disk.
    pub(crate) fn user_dir(disk: &Path, name: &str) -> PathBuf {
        disk.join(format!("{MARK}{name}-{USER_FILES}"))
    }

    /// Returns directories for local copies of stored files, one per disk. The first copy creates them; they are removed
    /// with the process.
    pub(crate) fn local_dirs(&self) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| disk.path.join(format!("{MARK}{}-{LOCAL_FILES}", self.name))).collect()
    }

    /// Returns paths, one per disk, that become those of directories for temporary files of programs by a number at their
    /// end. Such directories are removed with the process.
    pub fn program_files(&self) -> Vec<PathBuf> {
        self.disks
            .iter()
            .map(|disk| disk.path.join(format!(".{MARK}{}-{PROGRAM_FILES}", self.name)))
            .collect()
    }

    /// Creates the directories of a job.
    pub(crate) fn create(&self, job: JobId) -> Result<Vec<PathBuf>, TaskFailure> {
        let dirs = self.dirs(job);
        let mut failure = None;
        let mut made = 0;
        for dir in &dirs {
            match io_call(IoCall::Create, dir).and_then(|()| std::fs::create_dir(dir)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    failure = Some(file_failure("create", dir, error));
                }
                _ => made += 1,
            }
        }
        // If one disk is not writable, another one is used, as long as there is one.
        match failure {
            Some(failure) if made == 0 => Err(failure),
            _ => Ok(dirs),
        }
    }

    /// Returns the dead processes with directories on a disk.
    pub(crate) fn dead_on(disk: &Path) -> Vec<DeadProcess> {
        let entries = std::fs::read_dir(disk).into_iter().flatten().flatten();
        let locked = entries.filter_map(|entry| {
            let name = owner_of_lock(&entry.file_name())?;
            let mut lock = File::options().read(true).write(true).open(entry.path()).ok()?;
            // A locked file means that the process lives, or that another process inspects its remains.
            lock.try_lock().ok()?;
            let proof = read_proof(&mut lock, &name);
            Some(DeadProcess { name, proof, lock })
        });
        locked.collect()
    }

    /// Returns whether any live process uses the disk.
    pub(crate) fn any_alive_on(disk: &Path) -> bool {
        let mut entries = std::fs::read_dir(disk).into_iter().flatten().flatten();
        entries.any(|entry| {
            let is_lock = owner_of_lock(&entry.file_name()).is_some();
            let opened = is_lock.then(|| File::options().write(true).open(entry.path()).ok()).flatten();
            opened.is_some_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
        })
    }

    /// Returns the directories of a process on a disk, with their jobs.
    pub(crate) fn job_dirs_of(disk: &Path, name: &str) -> Vec<(JobId, PathBuf)> {
        let prefix = format!("{MARK}{name}-job");
        let entries = std::fs::read_dir(disk).into_iter().flatten().flatten();
        let of_jobs = entries.filter_map(|entry| {
            let job = entry.file_name().to_str()?.strip_prefix(&prefix)?.parse().ok()?;
            Some((JobId(job), entry.path()))
        });
        of_jobs.collect()
    }

    /// Removes the remains of dead nodes, except those that another process inspects.
    pub(crate) fn sweep_all(&self) {
        for disk in &self.disks {
            if let Err(error) = sweep(&disk.path, &self.name) {
                tracing::warn!(disk = %disk.path.display(), %error, "cannot remove the remains of dead nodes");
            }
        }
    }

    /// Removes all remaining directories and the lock files, because this process no longer uses the disks. A lock file
    /// stays beside intermediate files of users that stay.
    pub(crate) fn release(&self, user_files: UserFiles) {
        for disk in &self.disks {
            // If the removal fails, the next node on the disk finds the lock file.
            let removed = remove_of(&disk.path, &self.name, user_files);
            if removed.is_ok() && !Self::user_dir(&disk.path, &self.name).exists() {
                let _ = std::fs::remove_file(&disk.lock_path);
            }
        }
    }

    /// Removes the directories of a job.
    pub(crate) fn remove(&self, job: JobId) {
        // Remaining files are removed by the next node on the disk.
        self.dirs(job).iter().for_each(|dir| drop(remove_tree(dir)));
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        self.release(UserFiles::Stay);
    }
}

fn create_lock(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(LOCK_MODE).open(path)
}

/// Fills a lock file with a block of its name and proof, a line each, and returns that block.
fn write_mark(mut lock: &File, name: &str, proof: &SecretText) -> Vec<u8> {
    let lines = format!("{name}\n{}\n", proof.0);
    let mark: Vec<u8> = lines.bytes().cycle().take(ALIGNMENT_BYTES).collect();
    match lock.write_all(&mark) {
        Ok(()) => mark,
        // A full disk can still be read.
        Err(_) => Vec::new(),
    }
}

/// Returns the proof of the process of that name; None if its mark is damaged.
fn read_proof(lock: &mut File, name: &str) -> Option<SecretText> {
    let mut mark = String::new();
    lock.take(ALIGNMENT_BYTES as u64).read_to_string(&mut mark).ok()?;
    let mut lines = mark.lines();
    (lines.next()? == name).then_some(())?;
    Some(SecretText(lines.next()?.to_string()))
}

fn read_mark(disk: &Disk) -> std::io::Result<()> {
    let file = open_direct(&disk.lock_path)?;
    let mut buffer = AlignedBuffer::new(ALIGNMENT_BYTES);
    let count = file.read_at(&mut buffer, 0)?;
    match disk.mark.is_empty() || buffer[..count] == disk.mark[..] {
        true => Ok(()),
        false => Err(std::io::Error::new(ErrorKind::InvalidData, "it does not return the written data")),
    }
}

fn look_at(path: &Path) -> DiskReport {
    let (total_bytes, free_bytes, state) = match rustix::fs::statvfs(path) {
        Err(_) => (0, 0, DiskState::Failed),
        Ok(told) => {
            let (total_bytes, free_bytes) = (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize);
            // The kernel reports a read-only file system before it checks permissions.
            let state = match rustix::fs::access(path, Access::WRITE_OK) {
                Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => DiskState::ReadOnly,
                Err(_) => DiskState::Failed,
                Ok(()) if free_bytes < free_bytes_min(total_bytes) => DiskState::Full,
                Ok(()) => DiskState::Usable,
            };
            (total_bytes, free_bytes, state)
        }
    };
    DiskReport { path: path.to_string_lossy().into_owned(), total_bytes, free_bytes, state }
}

/// Returns the free bytes below which a disk counts as full, because running work needs room.
fn free_bytes_min(total_bytes: u64) -> u64 {
    (total_bytes / FREE_PART_MIN).min(FREE_BYTES_ENOUGH)
}

pub(crate) fn named(path: &Path, error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes the remains of dead nodes in a directory.
fn sweep(path: &Path, own_name: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Some(name) = owner_of_lock(&entry.file_name()).filter(|name| name != own_name) else { continue };
        let Ok(lock) = File::options().write(true).open(entry.path()) else { continue };
        // A locked file means that the process lives.
        if lock.try_lock().is_ok() {
            remove_of(path, &name, UserFiles::Go)?;
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Returns the name of the process with this lock file.
fn owner_of_lock(file_name: &OsStr) -> Option<String> {
    let name = file_name.to_str()?.strip_prefix(&format!(".{MARK}"))?;
    Some(name.strip_suffix(LOCK_SUFFIX)?.to_string())
}

/// Removes the directories of a process: those of jobs and programs, of local copies, and of files of users if these go
/// or there are none.
fn remove_of(path: &Path, name: &str, user_files: UserFiles) -> std::io::Result<()> {
    let of_jobs = format!("{MARK}{name}-job");
    let of_users = Disks::user_dir(path, name);
    let of_copies = format!("{MARK}{name}-{LOCAL_FILES}");
    let of_programs = format!(".{MARK}{name}-{PROGRAM_FILES}");
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let is_of_it =
            |name: &str| name == of_copies || name.starts_with(&of_jobs) || name.starts_with(&of_programs);
        if entry.file_name().to_str().is_some_and(is_of_it) {
            remove_tree(&entry.path())?;
        }
    }
    match user_files {
        UserFiles::Go => remove_tree(&of_users),
        UserFiles::Stay => match std::fs::remove_dir(&of_users) {
            Err(error) if [ErrorKind::NotFound, ErrorKind::DirectoryNotEmpty].contains(&error.kind()) => {
                Ok(())
            }
            other => other,
        },
    }
}

pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => return Ok(()),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && tries < REMOVE_TRIES_MAX => {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Disks, FREE_BYTES_ENOUGH, free_bytes_min, look_at};
    use crate::stored::disks::STORED_FILES_DIR;
    use api::data_access::SecretText;
    use api::machine::DiskState;
    use ids::JobId;

    #[test]
    fn only_data_of_dead_nodes_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("a")];
        let living = Disks::open(&paths, "living", &SecretText::default()).unwrap();
        let kept = living.create(JobId(1)).unwrap();
        assert_eq!(kept.len(), 1);
        let left = dir.path().join("a/sailfish-dead-job7");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("run"), "x").unwrap();
        std::fs::create_dir(dir.path().join("a/sailfish-dead-intermediate")).unwrap();
        let of_users = living.user_dirs().remove(0);
        std::fs::create_dir(&of_users).unwrap();
        std::fs::write(of_users.join("file-1.stage"), "x").unwrap();
        std::fs::write(dir.path().join("a/.sailfish-dead.lock"), "").unwrap();
        std::fs::create_dir(dir.path().join("a").join(STORED_FILES_DIR)).unwrap();
        let other = Disks::open(&paths[..1], "other", &SecretText::default()).unwrap();
        assert!(!left.exists() && kept[0].is_dir() && of_users.is_dir());
        drop(living);
        assert!(!kept[0].exists() && of_users.join("file-1.stage").exists());
        assert!(dir.path().join("a/.sailfish-living.lock").exists(), "nobody would find the files of users");
        // They go when another process has taken over those that it can read.
        other.sweep_all();
        drop(other);
        // Stored files belong to the disk, and no process.
        let left: Vec<_> = std::fs::read_dir(&paths[0]).unwrap().flatten().collect();
        assert!(left.len() == 1 && left[0].file_name() == STORED_FILES_DIR, "{left:?}");
    }

    #[test]
    fn a_disk_says_whether_it_can_take_more() {
        let dir = tempfile::tempdir().unwrap();
        let looked = look_at(dir.path());
        assert!(looked.total_bytes >= looked.free_bytes && looked.total_bytes > 0, "{looked:?}");
        assert_ne!(looked.state, DiskState::ReadOnly);
        assert_eq!(look_at(&dir.path().join("gone")).state, DiskState::Failed);
        assert_eq!((free_bytes_min(100), free_bytes_min(1 << 50)), (2, FREE_BYTES_ENOUGH));
    }

    #[test]
    fn disk_that_returns_other_bytes_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        let disks = Disks::open(&paths, "here", &SecretText::default()).unwrap();
        let check = |expected: [bool; 2], order: [usize; 2]| {
            assert_eq!([disks.probe(0), disks.probe(1)], expected);
            let is_failed = |report: api::machine::DiskReport| report.state == DiskState::Failed;
            let failed: Vec<bool> = disks.look().into_iter().map(is_failed).collect();
            assert_eq!(failed, expected.map(|works| !works));
            assert_eq!(disks.in_order(), order);
        };
        check([true, true], [0, 1]);
        let lock = paths[0].join(".sailfish-here.lock");
        let mark = std::fs::read(&lock).unwrap();
        std::fs::write(&lock, "").unwrap();
        check([false, true], [1, 0]);
        std::fs::write(&lock, mark).unwrap();
        check([true, true], [0, 1]);
        std::fs::rename(&paths[1], dir.path().join("c")).unwrap();
        check([true, false], [0, 1]);
    }

    #[test]
    fn unwritable_disk_leaves_the_job_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        let disks = Disks::open(&paths, "here", &SecretText::default()).unwrap();
        // A file instead of the directory represents any obstacle.
        std::fs::write(paths[0].join("sailfish-here-job1"), "").unwrap();
        std::fs::remove_dir_all(&paths[1]).unwrap();
        assert!(disks.create(JobId(2)).is_ok());
        std::fs::remove_dir_all(&paths[0]).unwrap();
        assert!(disks.create(JobId(3)).is_err());
    }
}
