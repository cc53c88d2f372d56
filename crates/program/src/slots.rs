//! The inits of the threads that run attempts: one each, made for its first program.

use crate::spec::ProgramSpec;
use crate::visible;
use api::{Blame, TaskFailure};
use containment::{Containment, ContainmentError, JobFiles, SlotInit, Space, Spawner};
use ids::JobId;
use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The inits of all threads.
#[derive(Debug)]
pub(crate) struct Slots {
    containment: Mutex<Containment>,
    /// Paths that are followed by a number in those of directories for `/tmp`, in the order in which they are tried.
    temporary: Mutex<Vec<PathBuf>>,
    spawner: Mutex<Option<Spawner>>,
    by_thread: Mutex<HashMap<ThreadId, Arc<Mutex<Slot>>>>,
    temporary_count: AtomicU64,
    /// Empty private directories.
    spare: Mutex<Vec<TemporaryDir>>,
}

/// The init of a thread.
#[derive(Debug, Default)]
struct Slot {
    /// None until the first program.
    init: Option<Arc<SlotInit>>,
    /// Job of the thread's attempt.
    job: Option<JobId>,
    /// Job for which the init was prepared; None: for none yet.
    prepared_for: Option<Option<JobId>>,
    /// A program has been started since all were ended.
    is_used: bool,
    /// An attempt runs.
    is_busy: bool,
    /// Processor time of the init's programs that an attempt has been told, and that of its attempt so far.
    seen_cpu_us: u64,
    attempt_cpu_us: u64,
    temporary: Option<TemporaryDir>,
    /// Directory for sockets of the engine.
    sockets: Option<TemporaryDir>,
}

/// A directory on a disk for temporary files of programs, which is removed with its owner.
#[derive(Debug)]
pub struct TemporaryDir(PathBuf);

/// Mode of the directory that contained programs see as `/tmp`.
const MODE_OF_TMP: u32 = 0o1777;
/// Maximum number of empty directories that are kept for later programs.
const SPARE_DIRECTORIES_MAX: usize = 16;
/// Mode of directories that only the engine and its programs use.
const MODE_OF_PRIVATE: u32 = 0o700;

impl TemporaryDir {
    /// Makes one where the machine keeps temporary files.
    fn of_machine(mode: u32) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sailfish-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(mode).create(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes everything in it. Errors: it is not as it was made, as a program may have changed it.
    fn empty(&self) -> std::io::Result<()> {
        let facts = self.0.symlink_metadata()?;
        let has_own_rules = || rustix::fs::listxattr(&self.0, &mut [0; 0]).map_or(true, |bytes| bytes > 0);
        if !facts.is_dir() || facts.mode() & 0o7777 != MODE_OF_PRIVATE || has_own_rules() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
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

impl Slot {
    /// Adds the processor time since the last call to that of the attempt.
    fn count_cpu(&mut self) {
        let Some(total_us) = self.init.as_ref().map(|init| init.cpu_us()) else { return };
        self.attempt_cpu_us += total_us.saturating_sub(self.seen_cpu_us);
        self.seen_cpu_us = total_us;
    }
}

impl Slots {
    pub fn new(containment: Containment) -> Self {
        let (temporary, spawner, by_thread) = (Mutex::default(), Mutex::default(), Mutex::default());
        let containment = Mutex::new(containment);
        let (temporary_count, spare) = (AtomicU64::new(0), Mutex::default());
        Self { containment, temporary, spawner, by_thread, temporary_count, spare }
    }

    pub fn containment(&self) -> Containment {
        *lock(&self.containment)
    }

    pub fn set_containment(&self, containment: Containment) {
        *lock(&self.containment) = containment;
    }

    pub fn set_temporary(&self, prefixes: Vec<PathBuf>) {
        *lock(&self.temporary) = prefixes;
    }

    /// Starts the spawner, if it does not run.
    pub fn prepare(&self) -> Result<(), ContainmentError> {
        let mut spawner = lock(&self.spawner);
        if !spawner.as_ref().is_some_and(Spawner::is_alive) {
            *spawner = Some(Spawner::start()?);
        }
        Ok(())
    }

    /// Makes an init, only to see whether that is possible.
    pub fn check(&self) -> Result<(), ContainmentError> {
        let visible = visible::under_own_directories(std::iter::empty());
        self.new_init()?.new_job(JobFiles { temporary: None, visible }).map(|_| ())
    }

    fn new_init(&self) -> Result<SlotInit, ContainmentError> {
        self.prepare()?;
        let containment = self.containment();
        let mut spawner = lock(&self.spawner);
        match spawner.as_ref().ok_or(ContainmentError::SpawnerEnded)?.new_init(containment) {
            // It was killed, and has not quite ended. A new one is as good.
            Err(ContainmentError::SpawnerEnded) => spawner.insert(Spawner::start()?).new_init(containment),
            other => other,
        }
    }

    /// Records the job of this thread's next attempts.
    pub fn begin_attempt(&self, job: Option<JobId>) {
        let slot = self.here();
        let mut slot = lock(&slot);
        (slot.job, slot.is_busy) = (job, true);
    }

    /// Ends everything that the attempt on this thread has started, except a program that waits for the next one.
    /// Returns false if processes remain that cannot be killed.
    pub fn end_attempt(&self, kept: Option<i32>) -> bool {
        let slot = self.here();
        let mut slot = lock(&slot);
        slot.is_busy = false;
        let Some(init) = slot.init.clone().filter(|_| slot.is_used) else { return true };
        slot.is_used = kept.is_some();
        let ended = init.end_others(kept).unwrap_or_else(|error| {
            tracing::warn!(%error, "the programs of a slot are ended with its init");
            (slot.init, slot.prepared_for, slot.seen_cpu_us) = (None, None, 0);
            true
        });
        slot.count_cpu();
        if !ended {
            tracing::warn!("a slot has processes that cannot be killed: they wait for a device");
        }
        ended
    }

    /// Returns the processor time of programs of this thread's last attempt, which has ended, in microseconds; each
    /// once.
    pub fn take_cpu_us(&self) -> u64 {
        let slot = self.here();
        std::mem::take(&mut lock(&slot).attempt_cpu_us)
    }

    /// Ends the init of this thread, and everything below it.
    pub fn leave(&self) {
        let slot = lock(&self.by_thread).remove(&std::thread::current().id());
        // Its end is waited for: when the slot has ended, nothing of it is left.
        if let Some(init) = slot.and_then(|slot| lock(&slot).init.take()) {
            let _ = init.end_others(None);
        }
    }

    /// Removes the temporary files of a finished job from slots that run nothing of it any more.
    pub fn forget(&self, job: JobId) {
        for slot in lock(&self.by_thread).values() {
            // A slot that is being prepared or ended removes them itself.
            let Ok(mut slot) = slot.try_lock() else { continue };
            if slot.prepared_for == Some(Some(job)) && !slot.is_busy {
                (slot.temporary, slot.prepared_for) = (None, None);
            }
        }
    }

    /// Returns the directory that is `/tmp` for the contained programs of this thread.
    pub fn temporary_here(&self) -> Option<PathBuf> {
        let slot = self.here();
        let slot = lock(&slot);
        slot.temporary.as_ref().map(|dir| dir.0.clone())
    }

    /// Returns the private directory of this thread for sockets.
    pub fn sockets_here(&self) -> std::io::Result<PathBuf> {
        let slot = self.here();
        let mut slot = lock(&slot);
        if let Some(dir) = slot.sockets.as_ref().filter(|dir| dir.0.is_dir()) {
            return Ok(dir.0.clone());
        }
        let dir = self.private_directory()?;
        Ok(slot.sockets.insert(dir).0.clone())
    }

    /// Makes a private directory on one of the disks, or, without any, where the machine keeps temporary files.
    pub fn private_directory(&self) -> std::io::Result<TemporaryDir> {
        match self.new_temporary(MODE_OF_PRIVATE) {
            Some(dir) => Ok(dir),
            None => TemporaryDir::of_machine(MODE_OF_PRIVATE),
        }
    }

    /// Makes such a directory, or returns one that was given back.
    pub fn spare_directory(&self) -> std::io::Result<TemporaryDir> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(|| self.private_directory(), Ok)
    }

    /// Takes a private directory for a later program of the same user, whose processes could reach it anyway. All other
    /// processes that used it must have ended.
    pub fn give_back(&self, dir: TemporaryDir) {
        if dir.empty().is_ok() {
            let mut spare = lock(&self.spare);
            if spare.len() < SPARE_DIRECTORIES_MAX {
                spare.push(dir);
            }
        }
    }

    /// Ends all inits and the spawner.
    pub fn close(&self) {
        lock(&self.by_thread).clear();
        lock(&self.spare).clear();
        drop(lock(&self.spawner).take());
    }

    /// Returns the inits of all threads.
    pub fn inits(&self) -> Vec<Arc<SlotInit>> {
        let slots: Vec<Arc<Mutex<Slot>>> = lock(&self.by_thread).values().cloned().collect();
        slots.iter().filter_map(|slot| slot.try_lock().ok()?.init.clone()).collect()
    }

    fn here(&self) -> Arc<Mutex<Slot>> {
        Arc::clone(lock(&self.by_thread).entry(std::thread::current().id()).or_default())
    }

    /// Returns the init of this thread, ready for a program of its job. `named`: files that the job names.
    pub fn init_for(
        &self,
        named: &[PathBuf],
        spec: &ProgramSpec,
        executable: &Path,
    ) -> Result<Arc<SlotInit>, TaskFailure> {
        let slot = self.here();
        let mut slot = lock(&slot);
        if self.containment() == Containment::Namespaces {
            visible::check_work_dir(&spec.work_dir)?;
        }
        let visible = || {
            let of_program = spec.named_paths();
            let all = named.iter().chain(&of_program).map(PathBuf::as_path);
            visible::under_own_directories(all.chain([executable]))
        };
        let outcome = match self.ready(&mut slot, visible) {
            // It was killed. A new one is as good.
            Err(ContainmentError::InitEnded | ContainmentError::Silent) => {
                (slot.init, slot.prepared_for, slot.seen_cpu_us) = (None, None, 0);
                self.ready(&mut slot, visible)
            }
            other => other,
        };
        slot.is_used = true;
        outcome.map_err(|error| {
            (slot.init, slot.prepared_for, slot.seen_cpu_us) = (None, None, 0);
            environment(&error)
        })
    }

    fn ready(
        &self,
        slot: &mut Slot,
        visible: impl Fn() -> Vec<Vec<u8>>,
    ) -> Result<Arc<SlotInit>, ContainmentError> {
        let init = match &slot.init {
            Some(init) => Arc::clone(init),
            None => {
                slot.prepared_for = None;
                Arc::clone(slot.init.insert(Arc::new(self.new_init()?)))
            }
        };
        if slot.prepared_for != Some(slot.job) {
            match self.containment() {
                Containment::Subreaper => drop(init.end_others(None)?),
                Containment::Namespaces => self.give_space(slot, &init, visible())?,
            }
            slot.prepared_for = Some(slot.job);
        }
        Ok(init)
    }

    /// Gives an init the namespaces of a new job.
    fn give_space(
        &self,
        slot: &mut Slot,
        init: &SlotInit,
        visible: Vec<Vec<u8>>,
    ) -> Result<(), ContainmentError> {
        let before = slot.temporary.take();
        let is_clean =
            |dir: &TemporaryDir| std::fs::read_dir(&dir.0).is_ok_and(|mut entries| entries.next().is_none());
        let (clean, used) = match before {
            Some(dir) if is_clean(&dir) => (Some(dir), None),
            other => (None, other),
        };
        slot.temporary = clean.or_else(|| self.new_temporary(MODE_OF_TMP));
        let temporary = slot.temporary.as_ref().map(|dir| dir.0.as_os_str().as_bytes().to_vec());
        let space = init.new_job(JobFiles { temporary, visible })?;
        // Nothing uses it any more.
        drop(used.filter(|_| space == Space::New));
        Ok(())
    }

    /// Makes a directory with this mode on the first disk that takes one; None: there is no such disk.
    fn new_temporary(&self, mode: u32) -> Option<TemporaryDir> {
        let number = self.temporary_count.fetch_add(1, Ordering::Relaxed);
        let make = |prefix: &PathBuf| {
            let mut path = prefix.clone().into_os_string();
            path.push(number.to_string());
            std::fs::DirBuilder::new().mode(mode).create(&path).ok()?;
            let dir = TemporaryDir(path.into());
            if mode == MODE_OF_TMP {
                // The mask of this process does not apply.
                std::fs::set_permissions(&dir.0, Permissions::from_mode(mode)).ok()?;
            }
            Some(dir)
        };
        lock(&self.temporary).iter().find_map(make)
    }
}

/// Returns the failure of an attempt whose program could not be contained: another node may do better.
pub(crate) fn environment(error: &ContainmentError) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("containing a program: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Slots;
    use containment::Containment;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn directories_are_given_back_empty() {
        let slots = Slots::new(Containment::Subreaper);
        let dir = slots.spare_directory().unwrap();
        let path = dir.path().to_path_buf();
        std::fs::create_dir(path.join("a")).unwrap();
        std::fs::write(path.join("a/b"), "").unwrap();
        symlink("/usr", path.join("link")).unwrap();
        slots.give_back(dir);
        let again = slots.spare_directory().unwrap();
        assert_eq!((again.path(), path.read_dir().unwrap().count()), (&*path, 0));
        // One that its program changed is no good for the next.
        std::fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        slots.give_back(again);
        let other = slots.spare_directory().unwrap();
        assert!(other.path() != path && !path.exists());
        std::fs::remove_dir(other.path()).unwrap();
        symlink("/usr", other.path()).unwrap();
        let place = other.path().to_path_buf();
        slots.give_back(other);
        assert!(slots.spare_directory().unwrap().path() != place);
        let _ = std::fs::remove_file(place);
        slots.close();
    }
}
