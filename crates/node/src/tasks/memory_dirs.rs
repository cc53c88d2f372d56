//! Directories in memory for the files of programs, below `/dev/shm` where that is a tmpfs. A process has one directory
//! there, which it keeps locked: what a process that was killed has left there goes with the next start of one.

use procfs::{Current, Meminfo};
use rustix::fs::{Mode, OFlags, fstatfs, open};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Directory of files in memory.
const MEMORY: &str = "/dev/shm";
/// Type of its file system.
const TMPFS: u32 = 0x0102_1994;
/// Begin of the names of our directories there.
const MARK: &str = "sailfish-files-";
/// Mode of directories that only the engine and its programs use.
const MODE: u32 = 0o700;
/// Tries to make a directory that another process takes for a left one.
const TRIES: u32 = 8;

/// The memory of a process for files of programs.
#[derive(Debug, Default)]
pub(crate) struct MemoryDirs {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Directory of this process, once one was needed.
    home: Option<Home>,
    taken_bytes: u64,
    count: u64,
}

#[derive(Debug)]
struct Home {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// A directory in memory. It is removed with its owner, and its memory is free again.
#[derive(Debug)]
pub(crate) struct MemoryDir {
    path: PathBuf,
    bytes: u64,
    of: Arc<MemoryDirs>,
}

impl MemoryDirs {
    /// Makes an empty memory of so many bytes, and removes the directories of processes that have ended.
    pub fn new(bytes_max: u64) -> Self {
        remove_left(Path::new(MEMORY));
        Self { bytes_max, state: Mutex::default() }
    }

    /// Returns a directory for so many bytes; None: there is no room, or no such memory.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<MemoryDir> {
        let mut state = self.state();
        let taken_bytes = state.taken_bytes.checked_add(bytes)?;
        if taken_bytes > self.bytes_max || free_bytes()? / 2 < taken_bytes {
            return None;
        }
        if state.home.as_ref().is_none_or(|home| !home.path.is_dir()) {
            state.home = new_home(Path::new(MEMORY)).ok();
        }
        let path = state.home.as_ref()?.path.join(state.count.to_string());
        state.count += 1;
        DirBuilder::new().mode(MODE).create(&path).ok()?;
        state.taken_bytes = taken_bytes;
        Some(MemoryDir { path, bytes, of: Arc::clone(self) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryDirs {
    fn drop(&mut self) {
        if let Some(home) = self.state().home.take() {
            // If this fails, the next start of a process removes it.
            let _ = std::fs::remove_dir_all(home.path);
        }
    }
}

impl MemoryDir {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        self.of.state().taken_bytes -= self.bytes;
    }
}

/// Returns the bytes that files there, and the machine, have left; None if files there are not in memory.
fn free_bytes() -> Option<u64> {
    let dir = File::open(MEMORY).ok()?;
    let is_memory = fstatfs(&dir).is_ok_and(|system| system.f_type as u32 == TMPFS);
    let system = rustix::fs::fstatvfs(&dir).ok().filter(|_| is_memory)?;
    let machine_bytes = Meminfo::current().ok()?.mem_available?;
    Some((system.f_bavail * system.f_frsize).min(machine_bytes))
}

/// Makes the directory of this process, and locks it.
fn new_home(memory: &Path) -> std::io::Result<Home> {
    for number in 0..TRIES {
        let path = memory.join(format!("{MARK}{}-{number}", std::process::id()));
        match DirBuilder::new().mode(MODE).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        // Another process that starts now may have taken it for a left one.
        if let Ok(Some(lock)) = locked(&path)
            && path
                .symlink_metadata()
                .is_ok_and(|facts| lock.metadata().is_ok_and(|own| own.ino() == facts.ino()))
        {
            return Ok(Home { path, _lock: lock });
        }
    }
    Err(Error::new(ErrorKind::AlreadyExists, "all names are taken"))
}

/// Opens and locks a directory; None while another process holds the lock.
fn locked(path: &Path) -> std::io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(open(path, flags, Mode::empty())?);
    match dir.try_lock() {
        Ok(()) => Ok(Some(dir)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the directories of this user whose processes have ended.
fn remove_left(memory: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(MARK);
        if !is_ours || entry.metadata().map_or(true, |facts| facts.uid() != user) {
            continue;
        }
        if let Ok(Some(_lock)) = locked(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MARK, new_home, remove_left};

    #[test]
    fn only_directories_of_ended_processes_are_removed() {
        let memory = tempfile::tempdir().unwrap();
        let home = new_home(memory.path()).unwrap();
        std::fs::write(home.path.join("file"), "text").unwrap();
        let left = memory.path().join(format!("{MARK}1-0"));
        std::fs::create_dir_all(left.join("0")).unwrap();
        let foreign = memory.path().join("other");
        std::fs::create_dir(&foreign).unwrap();
        remove_left(memory.path());
        assert!(home.path.join("file").exists() && !left.exists() && foreign.exists());
        let path = home.path.clone();
        drop(home);
        remove_left(memory.path());
        assert!(!path.exists());
    }
}
