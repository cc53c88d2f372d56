//! The inits of the threads that run attempts: one each, made for its first program.

mod temporary_dir;

use crate::spec::ProgramSpec;
use crate::visible;
use api::{Blame, TaskFailure};
use containment::{Containment, ContainmentError, JobFiles, SlotInit, Space, Spawner};
use ids::JobId;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
pub use temporary_dir::TemporaryDir;
use temporary_dir::{MODE_OF_PRIVATE, MODE_OF_TMP, SpareDirs};

/// The inits of all threads.
#[derive(Debug)]
pub(crate) struct Slots {
    containment: Mutex<Containment>,
    /// Paths that are followed by a number in those of directories for `/tmp`, in the order in which they are tried.
    temporary: Mutex<Vec<PathBuf>>,
    spawner: Mutex<Option<Spawner>>,
    by_thread: Mutex<HashMap<ThreadId, Arc<Mutex<Slot>>>>,
    temporary_count: AtomicU64,
    /// Number of times that something was mounted for programs.
    mounts: AtomicU64,
    spare: Mutex<SpareDirs>,
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
    /// No program of the attempt, nor one that waited for it, runs below the init.
    is_free: bool,
    /// Mounts that the init has seen.
    seen_mounts: u64,
    /// Processor time of the init's programs that an attempt has been told, and that of its attempt so far.
    seen_cpu_us: u64,
    attempt_cpu_us: u64,
    temporary: Option<TemporaryDir>,
    /// Directory for sockets of the engine.
    sockets: Option<TemporaryDir>,
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
        let mounts = AtomicU64::new(0);
        Self { containment, temporary, spawner, by_thread, temporary_count, mounts, spare }
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

    /// Records the job of this thread's next attempts. `kept`: a program that waits for it.
    pub fn begin_attempt(&self, job: Option<JobId>, kept: Option<i32>) {
        let slot = self.here();
        let mut slot = lock(&slot);
        (slot.job, slot.is_busy, slot.is_free) = (job, true, kept.is_none());
    }

    /// Records that something was mounted. An init sees what was mounted before it was made, so that slots replace theirs
    /// before the next program of an attempt that has none.
    pub fn see_mounts(&self) {
        self.mounts.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the init of a slot that has not seen all mounts, if nothing runs below it.
    fn replace_blind(&self, slot: &mut Slot) {
        let mounts = self.mounts.load(Ordering::Relaxed);
        if slot.is_free && slot.seen_mounts < mounts && self.containment() == Containment::Namespaces {
            slot.count_cpu();
            if let Some(init) = slot.init.take() {
                // An init that has ended has ended everything.
                let _ = init.end_others(None);
            }
            (slot.prepared_for, slot.seen_cpu_us) = (None, 0);
        }
        slot.is_free = false;
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
        slot.temporary.as_ref().map(|dir| dir.path().to_path_buf())
    }

    /// Returns the private directory of this thread for sockets.
    pub fn sockets_here(&self) -> std::io::Result<PathBuf> {
        let slot = self.here();
        let mut slot = lock(&slot);
        if let Some(dir) = slot.sockets.as_ref().filter(|dir| dir.path().is_dir()) {
            return Ok(dir.path().to_path_buf());
        }
        let dir = self.private_directory()?;
        Ok(slot.sockets.insert(dir).path().to_path_buf())
    }

    /// Makes a private directory on one of the disks, or, without any, where the machine keeps temporary files.
    pub fn private_directory(&self) -> std::io::Result<TemporaryDir> {
        match self.new_temporary(MODE_OF_PRIVATE) {
            Some(dir) => Ok(dir),
            None => TemporaryDir::of_machine(MODE_OF_PRIVATE),
        }
    }

    /// Makes such a directory, or returns one that was given back, which has no more than these folders.
    pub fn spare_directory(&self, folders: &BTreeSet<PathBuf>) -> std::io::Result<TemporaryDir> {
        let spare = lock(&self.spare).take(folders);
        spare.map_or_else(|| self.private_directory(), Ok)
    }

    /// Takes a private directory for a later program of the same user, whose processes could reach it anyway. All other
    /// processes that used it must have ended. These folders stay in it.
    pub fn give_back(&self, dir: TemporaryDir, folders: BTreeSet<PathBuf>) {
        if dir.empty(&folders).is_ok() {
            lock(&self.spare).add(folders, dir);
        }
    }

    /// Ends all inits and the spawner.
    pub fn close(&self) {
        lock(&self.by_thread).clear();
        *lock(&self.spare) = SpareDirs::default();
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
        self.replace_blind(&mut slot);
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
                slot.seen_mounts = self.mounts.load(Ordering::Relaxed);
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
        let is_clean = |dir: &TemporaryDir| {
            std::fs::read_dir(dir.path()).is_ok_and(|mut entries| entries.next().is_none())
        };
        let (clean, used) = match before {
            Some(dir) if is_clean(&dir) => (Some(dir), None),
            other => (None, other),
        };
        slot.temporary = clean.or_else(|| self.new_temporary(MODE_OF_TMP));
        let temporary = slot.temporary.as_ref().map(|dir| dir.path().as_os_str().as_bytes().to_vec());
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
            TemporaryDir::at(path.into(), mode).ok()
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
