//! Local copies of stored files, which programs open by a path, or which are programs. A copy is a whole file without write
//! permission, verified when it is made. It is never a link to a replica, so a program that changes its input changes no replica; a changed
//! copy is found before the next attempt uses it, and is made again.
//!
//! The first attempt that needs a copy makes it, and the others wait. Copies are shared by the attempts of a user on this
//! node, and stay for later ones until their room is needed.

mod copying;
mod early;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use copying::free_bytes;
pub(crate) use early::EarlyCopies;

use crate::stored::local_files::copying::{Copy, Making};
use crate::stored::local_files::table::{Table, Turn};
use crate::stored::passed_on::PassedCopies;
use crate::tasks::map::stored_input::PartOpener;
use api::{Blame, StoredContent, TaskFailure};
use faults::{IoCall, io_call};
use ids::ConcreteId;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// On one machine: age at which the verification of a copy counts no more.
const VERIFY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Interval at which an attempt that waits for a copy looks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The use of a copy, which decides its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyUse {
    /// Input of programs: `0444`.
    Input,
    /// A program, or a file beside one: `0555`.
    Program,
}

/// The identity of a copy: attempts with equal ones share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopyKey {
    user: String,
    /// The last component of its path.
    name: String,
    parts: Vec<ConcreteId>,
    of: CopyUse,
}

/// A stored file that a program of a user needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedFile<'a> {
    pub user: &'a str,
    /// Its name with the version, `files:NAME@VERSION`.
    pub path: &'a Path,
    pub content: &'a StoredContent,
    pub of: CopyUse,
}

impl WantedFile<'_> {
    fn key(&self) -> CopyKey {
        CopyKey {
            user: self.user.to_string(),
            name: last_component(self.path),
            parts: self.content.parts.iter().map(|part| part.concrete).collect(),
            of: self.of,
        }
    }
}

/// Returns the last component of the name of a stored file, without its version.
fn last_component(path: &Path) -> String {
    // The server has checked it; no name leads out of the directory.
    api::name_beside(path).and_then(|name| name.to_str()).unwrap_or("file").to_string()
}

/// Limits of the copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalLimits {
    /// Percentage of each disk that stays free.
    pub reserve_percent: u8,
    /// Maximum bytes of copies that no attempt uses.
    pub unused_bytes_max: u64,
    /// Age at which a verification counts no more.
    pub verify_after: Duration,
}

/// The local copies of a node, or of a job on one machine.
pub(crate) struct LocalFiles {
    /// Directories, one for each disk; the first copy creates them.
    dirs: Vec<PathBuf>,
    limits: LocalLimits,
    /// The copies that other nodes read; None on one machine.
    passed_on: Option<Arc<PassedCopies>>,
    table: Mutex<Table>,
    changed: Condvar,
}

/// A copy that an attempt uses: it stays as long as this exists.
pub(crate) struct HeldFile {
    files: Arc<LocalFiles>,
    key: CopyKey,
    copy: Copy,
    shown: PathBuf,
    content: StoredContent,
}

impl HeldFile {
    pub fn path(&self) -> &Path {
        &self.copy.path
    }

    /// Returns the name of the stored file, with its version.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns an error if the copy has other bytes now: a program wrote to it, and others may have read them.
    pub fn check_unchanged(&self) -> Result<(), TaskFailure> {
        if self.copy.is_unchanged() || !self.copy.exists() || self.copy.has_content(&self.content) {
            return Ok(());
        }
        let message = format!(
            "a program changed its copy of {}: programs must not write to stored files; copy the file to the work \
             directory first",
            self.shown.display()
        );
        Err(TaskFailure::new(Blame::UserProgram, message))
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut table = self.files.table();
        table.let_go(&self.key, self.copy.number);
        let surplus = table.take_surplus(self.files.limits.unused_bytes_max);
        drop(table);
        surplus.iter().for_each(Copy::remove);
    }
}

fn is_cancelled() -> TaskFailure {
    TaskFailure::new(Blame::Cancelled, "the attempt was cancelled")
}

impl LocalFiles {
    pub fn new(dirs: Vec<PathBuf>, limits: LocalLimits) -> Self {
        Self { dirs, limits, passed_on: None, table: Mutex::default(), changed: Condvar::new() }
    }

    /// Returns the same, with copies that are passed on to other nodes.
    pub fn passed_on(self, copies: Arc<PassedCopies>) -> Self {
        Self { passed_on: Some(copies), ..self }
    }

    /// Creates those of jobs on one machine: the disks are the user's, and the copies go with their directories.
    pub fn of_one_machine(dirs: Vec<PathBuf>) -> Self {
        let limits =
            LocalLimits { reserve_percent: 0, unused_bytes_max: u64::MAX, verify_after: VERIFY_AFTER };
        Self::new(dirs, limits)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy, which is made if it is not here. Attempts that need the same one wait for the first, and get its
    /// failure.
    pub fn bring(
        self: &Arc<Self>,
        wanted: &WantedFile<'_>,
        opener: &dyn PartOpener,
        cancelled: &AtomicBool,
    ) -> Result<HeldFile, TaskFailure> {
        let key = wanted.key();
        let mut round = None;
        let mut table = self.table();
        let present = loop {
            if cancelled.load(Ordering::Relaxed) {
                table.stop_waiting(&key, round);
                return Err(is_cancelled());
            }
            match table.turn(&key, &mut round) {
                Turn::Make(present) => break present,
                Turn::Failed(failure) => return Err(failure),
                Turn::Wait => {
                    let waited = self.changed.wait_timeout(table, LOOK_EVERY);
                    table = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        drop(table);
        self.hold(wanted, key, || self.ready(wanted, present, opener, cancelled))
    }

    /// Makes a copy before an attempt needs it, unless it is here or being made, or is too large to stay unused. Attempts
    /// that wait for it do not get its failure: one of them makes the copy.
    pub fn bring_early(
        self: &Arc<Self>,
        wanted: &WantedFile<'_>,
        opener: &dyn PartOpener,
    ) -> Result<(), TaskFailure> {
        if wanted.content.bytes() > self.limits.unused_bytes_max {
            return Ok(());
        }
        let key = wanted.key();
        if !self.table().begins_early(&key) {
            return Ok(());
        }
        let uncounted = |failure: TaskFailure| TaskFailure { blame: Blame::Cancelled, ..failure };
        let make = || self.ready(wanted, None, opener, &AtomicBool::new(false)).map_err(uncounted);
        self.hold(wanted, key, make).map(drop)
    }

    /// Ends the turn for a copy with the outcome of `make`.
    fn hold(
        self: &Arc<Self>,
        wanted: &WantedFile<'_>,
        key: CopyKey,
        make: impl FnOnce() -> Result<Copy, TaskFailure>,
    ) -> Result<HeldFile, TaskFailure> {
        let mut unfinished = Unfinished { files: self, key: &key, is_over: false };
        let made = make();
        unfinished.is_over = true;
        let mut table = self.table();
        table.end_round(&key, &made);
        drop((table, unfinished));
        self.changed.notify_all();
        let (shown, content) = (wanted.path.to_path_buf(), wanted.content.clone());
        Ok(HeldFile { files: Arc::clone(self), key, copy: made?, shown, content })
    }

    /// Returns the present copy if it is intact, else a new one.
    fn ready(
        &self,
        wanted: &WantedFile<'_>,
        present: Option<Copy>,
        opener: &dyn PartOpener,
        cancelled: &AtomicBool,
    ) -> Result<Copy, TaskFailure> {
        if let Some(copy) = present {
            let is_fresh = copy.verified.elapsed() < self.limits.verify_after;
            if copy.is_unchanged() && (is_fresh || copy.has_content(wanted.content)) {
                return Ok(if is_fresh { copy } else { copy.verified_now() });
            }
            copy.remove();
        }
        let (dir, number) = self.room_for(wanted)?;
        let passed_on = self.passed_on.as_ref();
        let made = Making { wanted, opener, cancelled, dir: &dir, number, passed_on }.run();
        self.table().has_arrived(number);
        made
    }

    /// Returns whether a copy is here, or a disk would have room for it.
    pub fn have_room(&self, wanted: &WantedFile<'_>) -> bool {
        let table = self.table();
        let has_room = |dir: &PathBuf| {
            let made = std::fs::create_dir_all(dir);
            let free_bytes = made.and_then(|()| copying::free_bytes(dir, self.limits.reserve_percent));
            let free_bytes = free_bytes.map_or(0, |free| free.saturating_sub(table.coming_bytes(dir)));
            free_bytes.saturating_add(table.unused_bytes(dir)) >= wanted.content.bytes()
        };
        table.has(&wanted.key()) || self.dirs.iter().any(has_room)
    }

    /// Reserves room on the disk with the most of it. Copies that nothing uses make room if there is too little.
    fn room_for(&self, wanted: &WantedFile<'_>) -> Result<(PathBuf, u64), TaskFailure> {
        let bytes = wanted.content.bytes();
        loop {
            let mut table = self.table();
            let room = |dir: &PathBuf| {
                let made = io_call(IoCall::Create, dir).and_then(|()| std::fs::create_dir_all(dir));
                let free_bytes = made.and_then(|()| copying::free_bytes(dir, self.limits.reserve_percent));
                Some((free_bytes.ok()?.saturating_sub(table.coming_bytes(dir)), dir.clone()))
            };
            let Some((room_bytes, dir)) = self.dirs.iter().filter_map(room).max() else {
                let message = format!("no disk of this node takes a copy of {}", wanted.path.display());
                return Err(TaskFailure::new(Blame::Environment, message));
            };
            if bytes <= room_bytes {
                let number = table.promise(dir.clone(), bytes);
                return Ok((dir, number));
            }
            let Some(unused) = table.take_least_used() else {
                let message = format!(
                    "cannot copy {} for a program: it has {bytes} bytes, and {} has room for {room_bytes}, because \
                     {} % of the disk stay free",
                    wanted.path.display(),
                    dir.display(),
                    self.limits.reserve_percent
                );
                return Err(TaskFailure::new(Blame::Environment, message));
            };
            drop(table);
            unused.remove();
        }
    }
}

/// The making of a copy. If it panics, another attempt takes over.
struct Unfinished<'a> {
    files: &'a LocalFiles,
    key: &'a CopyKey,
    is_over: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.files.table().end_round(self.key, &Err(is_cancelled()));
            self.files.changed.notify_all();
        }
    }
}
