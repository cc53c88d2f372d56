//! Owner locks: a file per process, locked while the process lives. The kernel releases the lock however the process
//! dies, so a free lock proves that its owner is dead.

use crate::ServerError;
use faults::{CrashPoint, IoCall, crash_point, io_call};
use rustix::process::{Pid, test_kill_process};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK_SUFFIX: &str = "lock";
/// Suffix of a new lock file: it must be locked before it gets its real name.
const NEW_SUFFIX: &str = "new";
/// Maximum number of tries: a process that sweeps at the same moment may remove a new file as dead.
const TRIES_MAX: u32 = 16;
/// Longest wait for copies of dead processes, for all locks together. A process that dies while it starts a program
/// leaves its lock, for some milliseconds, to its forked copy that has not become the program yet.
const COPIES_WAIT_MAX: Duration = Duration::from_secs(1);
const COPIES_LOOK_EVERY: Duration = Duration::from_millis(5);

/// The lock of this process.
pub(crate) struct OwnerLock {
    pub uuid: String,
    path: PathBuf,
    /// Holds the lock while it is open.
    _file: File,
}

/// The lock of a dead owner, held while its jobs are cleaned, so that no other process cleans them.
pub(crate) struct DeadOwner {
    /// Its name; None for a file that never got its real name.
    pub uuid: Option<String>,
    path: PathBuf,
    _file: File,
}

/// Takes the lock of the only server that may serve a state directory to a cluster; held while the file is open.
pub(crate) fn serve_alone(state_dir: &Path) -> Result<File, ServerError> {
    let path = state_dir.join("server.lock");
    let lock = || -> std::io::Result<File> {
        io_call(IoCall::Create, &path)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        file.try_lock()?;
        Ok(file)
    };
    lock().map_err(|source| match source.kind() {
        std::io::ErrorKind::WouldBlock => ServerError::StateInUse { state_dir: state_dir.to_path_buf() },
        _ => ServerError::OwnerLock { path, source },
    })
}

pub(crate) fn owners_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("owners")
}

impl OwnerLock {
    /// Takes a new lock under a new name.
    pub fn take(state_dir: &Path) -> Result<Self, ServerError> {
        let dir = owners_dir(state_dir);
        let wrong = |source| ServerError::OwnerLock { path: dir.clone(), source };
        io_call(IoCall::Create, &dir).and_then(|()| std::fs::create_dir_all(&dir)).map_err(wrong)?;
        let mut last = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
        for _ in 0..TRIES_MAX {
            match Self::try_take(&dir) {
                Ok(lock) => {
                    crash_point(CrashPoint::OwnerLockTaken);
                    return Ok(lock);
                }
                Err(error) if swept_away(&error) => last = error,
                Err(error) => return Err(wrong(error)),
            }
        }
        Err(wrong(last))
    }

    fn try_take(dir: &Path) -> std::io::Result<Self> {
        let uuid = uuid::Uuid::new_v4().to_string();
        let new_path = dir.join(format!("{uuid}.{NEW_SUFFIX}"));
        let path = dir.join(format!("{uuid}.{LOCK_SUFFIX}"));
        io_call(IoCall::Create, &new_path)?;
        let file = File::options().write(true).create_new(true).open(&new_path)?;
        // A file that does not become a lock is removed.
        let file =
            lock_and_name(file, &new_path, &path).inspect_err(|_| drop(std::fs::remove_file(&new_path)))?;
        Ok(Self { uuid, path, _file: file })
    }

    /// Releases the lock; the process has no jobs any more.
    pub fn release(self) {
        // The file is removed first: a free lock with a file would be swept, which is only wasted work.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the owner lock");
        }
    }
}

/// Locks a new file, writes the holder into it for other processes, and gives it its real name.
fn lock_and_name(mut file: File, new_path: &Path, path: &Path) -> std::io::Result<File> {
    file.try_lock().map_err(std::io::Error::from)?;
    io_call(IoCall::Write, new_path)?;
    file.write_all(std::process::id().to_string().as_bytes())?;
    io_call(IoCall::Rename, new_path)?;
    std::fs::rename(new_path, path)?;
    Ok(file)
}

fn swept_away(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::WouldBlock)
}

impl DeadOwner {
    /// Removes the lock file: nothing of the owner is left.
    pub fn bury(self) {
        match std::fs::remove_file(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove a dead owner's lock");
            }
        }
    }
}

/// Returns every owner with a free lock, except this process; the locks are held while the list lives.
pub(crate) fn dead_owners(state_dir: &Path, own_uuid: &str) -> Result<Vec<DeadOwner>, ServerError> {
    let dir = owners_dir(state_dir);
    let wrong = |source| ServerError::OwnerLock { path: dir.clone(), source };
    let mut dead = Vec::new();
    let deadline = Instant::now() + COPIES_WAIT_MAX;
    for entry in std::fs::read_dir(&dir).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let uuid = match path.extension().and_then(|extension| extension.to_str()) {
            Some(LOCK_SUFFIX) => Some(stem.to_string()),
            Some(NEW_SUFFIX) => None,
            _ => continue,
        };
        if stem == own_uuid {
            continue;
        }
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            // Another process was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(wrong(error)),
        };
        if try_lock(&file, &path, deadline).map_err(wrong)? {
            dead.push(DeadOwner { uuid, path, _file: file });
        }
    }
    Ok(dead)
}

/// Takes a lock if it is free, or held only by the copy of a dead process.
fn try_lock(file: &File, path: &Path, deadline: Instant) -> std::io::Result<bool> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline && holder_is_gone(path) => {
                std::thread::sleep(COPIES_LOOK_EVERY);
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Returns whether the process that took the lock no longer exists. An unreadable file proves nothing.
fn holder_is_gone(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pid = text.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Returns whether a process holds the lock of this owner.
pub(crate) fn lives(state_dir: &Path, uuid: &str) -> bool {
    let path = owners_dir(state_dir).join(format!("{uuid}.{LOCK_SUFFIX}"));
    // A lock that cannot be opened counts as held: nothing is removed on a guess.
    match File::options().write(true).open(&path) {
        Ok(file) => file.try_lock().is_err(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Returns whether an owner has a lock file, free or not.
pub(crate) fn has_lock_file(state_dir: &Path, uuid: &str) -> bool {
    owners_dir(state_dir).join(format!("{uuid}.{LOCK_SUFFIX}")).exists()
}

#[cfg(test)]
mod tests {
    use super::{OwnerLock, dead_owners, has_lock_file};
    use std::sync::{Mutex, PoisonError};

    /// A forked child has copies of all files of this process until it runs its program, and so holds their locks.
    static STARTS_OR_LOCKS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let _alone = STARTS_OR_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (OwnerLock::take(dir.path()).unwrap(), OwnerLock::take(dir.path()).unwrap());
        let first_uuid = first.uuid.clone();
        assert!(dead_owners(dir.path(), &second.uuid).unwrap().is_empty());
        // As after a crash: the lock is free, the file stays.
        drop(first);
        let dead = dead_owners(dir.path(), &second.uuid).unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].uuid.as_ref(), Some(&first_uuid));
        // While one process sweeps, another one finds nothing to sweep.
        assert!(dead_owners(dir.path(), &second.uuid).unwrap().is_empty());
        dead.into_iter().for_each(|owner| owner.bury());
        assert!(!has_lock_file(dir.path(), &first_uuid));
        assert!(has_lock_file(dir.path(), &second.uuid));
        let uuid = second.uuid.clone();
        second.release();
        assert!(!has_lock_file(dir.path(), &uuid));
    }

    #[test]
    fn lock_held_by_a_copy_is_waited_for() {
        let _alone = STARTS_OR_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (OwnerLock::take(dir.path()).unwrap(), OwnerLock::take(dir.path()).unwrap());
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        std::fs::write(&first.path, ended.id().to_string()).unwrap();
        let copy = first._file.try_clone().unwrap();
        assert!(super::holder_is_gone(&first.path) && !super::holder_is_gone(&second.path));
        drop(first);
        let dead = std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| dead_owners(dir.path(), &second.uuid).unwrap());
            drop(copy);
            sweeping.join().unwrap()
        });
        assert_eq!(dead.len(), 1);
    }

    #[test]
    fn file_that_never_became_a_lock_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnerLock::take(dir.path()).unwrap();
        std::fs::write(dir.path().join("owners/left.new"), "").unwrap();
        let dead = dead_owners(dir.path(), &own.uuid).unwrap();
        assert!(matches!(&dead[..], [owner] if owner.uuid.is_none()));
        dead.into_iter().for_each(|owner| owner.bury());
        assert!(!dir.path().join("owners/left.new").exists());
    }
}
