//! The disks of a node with concrete files: `DISK/sailfish-files/` has the identity of the disk (`name`, `secret`), a
//! lock that is held while a process uses it, and the concrete files (`data`). It belongs to no process: it stays when
//! the node ends, and the next node on the disk finds it.

use crate::stored::marked::{MarkedLine, read_line, write_line};
use api::data_access::SecretText;
use concretefile::{ConcreteDirectory, ConcreteError, Content};
use faults::{IoCall, io_call};
use ids::{ConcreteId, DiskId};
use rustix::fs::Access;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trust::{Secret, TrustError};

/// Directory on each disk; no cleaning of left-behind directories touches it.
pub(crate) const STORED_FILES_DIR: &str = "sailfish-files";
const NAME: &str = "name";
const SECRET: &str = "secret";
const LOCK: &str = "lock";
const DATA: &str = "data";
const SCRUB: &str = "scrub";
/// Age from which measured space is outdated: the disk hangs.
const SPACE_FRESH: Duration = Duration::from_secs(30);

/// A `--disk` of this node.
#[derive(Clone, Debug)]
pub(crate) struct DiskPlace {
    pub path: PathBuf,
    /// True while probes of the disk fail.
    pub has_failed: Arc<AtomicBool>,
}

/// Reason why a disk has no concrete files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredDiskError {
    #[error("{path} is in use by another process: give each node its own --disk", path = .0.display())]
    InUse(PathBuf),
    #[error(
        "{path} is damaged: restore it, or remove the directory around it if no concrete file there is needed",
        path = .0.display()
    )]
    Damaged(PathBuf),
    #[error(
        "{path} is missing, but there are concrete files beside it: restore it, or remove the directory around it",
        path = .0.display()
    )]
    Nameless(PathBuf),
    #[error("cannot {action} {path}", path = path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Concrete(#[from] ConcreteError),
}

/// Bytes of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// False if the disk is read-only.
    pub is_writable: bool,
}

impl DiskSpace {
    /// Returns the bytes above the reserve.
    pub fn above(self, reserve_percent: u8) -> u64 {
        let reserve = u128::from(self.total_bytes) * u128::from(reserve_percent) / 100;
        self.free_bytes.saturating_sub(u64::try_from(reserve).unwrap_or(u64::MAX))
    }
}

/// A disk in use.
#[derive(Debug)]
pub(crate) struct StoredDisk {
    home: PathBuf,
    uuid: String,
    secret: SecretText,
    pub files: ConcreteDirectory,
    has_failed: Arc<AtomicBool>,
    /// Number at the server, after its first answer.
    number: Mutex<Option<DiskId>>,
    busy: Mutex<Busy>,
    /// Bytes that running requests may still write.
    promised_bytes: AtomicU64,
    /// False only if there is no concrete file.
    may_have_files: AtomicBool,
    space: Mutex<Option<(DiskSpace, Instant)>>,
    /// Holds the lock until the last request and thread on this disk has ended.
    _lock: File,
}

/// Files of requests that are not synced yet.
#[derive(Debug, Default)]
struct Busy {
    files: BTreeSet<ConcreteId>,
    /// Those that must not stay, whatever their request does.
    doomed: BTreeSet<ConcreteId>,
}

/// The origin of a file in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOrigin {
    /// Its request created it.
    New,
    /// It was there before its request.
    Present,
}

impl StoredDisk {
    /// Takes a disk into use. The first use makes its identity.
    pub fn open(place: &DiskPlace) -> Result<Self, StoredDiskError> {
        let home = place.path.join(STORED_FILES_DIR);
        trust::private_directory(&home)?;
        let lock = lock(&home.join(LOCK))?;
        let files = ConcreteDirectory::open(home.join(DATA))?;
        let (uuid, secret) = identity(&home, &files)?;
        // Also if an earlier process made it: that one may not have come this far.
        sync_dir(&place.path)?;
        let may_have_files = AtomicBool::new(true);
        let has_failed = Arc::clone(&place.has_failed);
        let disk = Self {
            home,
            uuid,
            secret,
            files,
            has_failed,
            number: Mutex::default(),
            busy: Mutex::default(),
            promised_bytes: AtomicU64::new(0),
            may_have_files,
            space: Mutex::default(),
            _lock: lock,
        };
        disk.look_for_files()?;
        disk.measure()?;
        Ok(disk)
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the path of the position of the scrub.
    pub fn scrub_path(&self) -> PathBuf {
        self.home.join(SCRUB)
    }

    /// Returns the unique name.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    pub fn secret(&self) -> &SecretText {
        &self.secret
    }

    /// Returns the number at the server; None if the server does not use the disk.
    pub fn number(&self) -> Option<DiskId> {
        *lock_of(&self.number)
    }

    /// Returns whether the server uses the disk under this unique name.
    pub fn is_used_as(&self, uuid: &str) -> bool {
        self.uuid == uuid && self.number().is_some()
    }

    pub fn set_number(&self, number: Option<DiskId>) {
        *lock_of(&self.number) = number;
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns whether the disk is mounted and readable: a missing file is lost only in this case.
    pub fn is_there(&self) -> bool {
        let line = read_line(&self.home.join(NAME));
        !self.has_failed() && line.is_ok_and(|line| line == MarkedLine::Intact(self.uuid.clone()))
    }

    pub fn is_empty(&self) -> bool {
        !self.may_have_files.load(Ordering::Relaxed)
    }

    /// Measures the space, and remembers it.
    pub fn measure(&self) -> Result<DiskSpace, ConcreteError> {
        let [free_bytes, total_bytes] = self.files.free_bytes()?;
        let is_writable = rustix::fs::access(&self.home, Access::WRITE_OK).is_ok();
        let space = DiskSpace { free_bytes, total_bytes, is_writable };
        *lock_of(&self.space) = Some((space, Instant::now()));
        Ok(space)
    }

    /// Returns the measured space; None if the disk has not answered for long.
    pub fn space(&self) -> Option<DiskSpace> {
        let measured = *lock_of(&self.space);
        measured.filter(|(_, at)| at.elapsed() < SPACE_FRESH).map(|(space, _)| space)
    }

    /// Returns the bytes that new files may take, of this space.
    pub fn room(&self, space: DiskSpace, reserve_percent: u8) -> u64 {
        space.above(reserve_percent).saturating_sub(self.promised_bytes.load(Ordering::Relaxed))
    }

    /// Promises room to a request if there is enough; None otherwise.
    pub fn promise(
        self: &Arc<Self>,
        bytes: u64,
        space: DiskSpace,
        reserve_percent: u8,
    ) -> Option<PromisedRoom> {
        let room = space.above(reserve_percent);
        let more = |promised: u64| promised.checked_add(bytes).filter(|all| *all <= room || bytes == 0);
        self.promised_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(PromisedRoom { disk: Arc::clone(self), bytes })
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoredDiskError {
    let path = path.to_path_buf();
    move |source| StoredDiskError::Io { action, path, source }
}

/// Locks the directory for this process. The kernel ends the lock with the process.
fn lock(path: &Path) -> Result<File, StoredDiskError> {
    io_call(IoCall::Create, path).map_err(io("create", path))?;
    let options = File::options().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = options.map_err(io("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let home = path.parent().unwrap_or(path);
            Err(StoredDiskError::InUse(home.to_path_buf()))
        }
        Err(TryLockError::Error(source)) => Err(io("lock", path)(source)),
    }
}

/// Reads the identity of a disk, or makes it. The name is written last: a disk with a name has a secret.
fn identity(home: &Path, files: &ConcreteDirectory) -> Result<(String, SecretText), StoredDiskError> {
    let (name, secret) = (home.join(NAME), home.join(SECRET));
    let read = |path: &Path| read_line(path).map_err(io("read", path));
    match read(&name)? {
        MarkedLine::Intact(uuid) => match read(&secret)? {
            MarkedLine::Intact(text) => Ok((uuid, SecretText(text))),
            MarkedLine::Missing | MarkedLine::Damaged => Err(StoredDiskError::Damaged(secret)),
        },
        MarkedLine::Damaged => Err(StoredDiskError::Damaged(name)),
        MarkedLine::Missing if !files.puts()?.is_empty() => Err(StoredDiskError::Nameless(name)),
        MarkedLine::Missing => {
            let (uuid, text) = (uuid::Uuid::new_v4().to_string(), Secret::random()?.text());
            write_line(&secret, &text)?;
            write_line(&name, &uuid)?;
            Ok((uuid, SecretText(text)))
        }
    }
}

/// Returns whether the disk cannot return the bytes of a file. Wrong permissions, for example, are no loss.
fn is_of_the_medium(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let of_medium = [Errno::IO, Errno::BADMSG, Errno::NODATA, Errno::UCLEAN];
    // A file that became shorter after it was opened.
    error.kind() == ErrorKind::UnexpectedEof || errno.is_some_and(|errno| of_medium.contains(&errno))
}

fn sync_dir(path: &Path) -> Result<(), StoredDiskError> {
    let sync = || {
        io_call(IoCall::Sync, path)?;
        File::open(path)?.sync_all()
    };
    sync().map_err(io("sync", path))
}

impl StoredDisk {
    fn busy(&self) -> MutexGuard<'_, Busy> {
        lock_of(&self.busy)
    }

    /// Begins to use a file in a request; false if another request uses it.
    pub fn begin_use(&self, file: ConcreteId) -> bool {
        let mut busy = self.busy();
        self.may_have_files.store(true, Ordering::Relaxed);
        busy.files.insert(file)
    }

    pub fn is_in_use(&self, file: ConcreteId) -> bool {
        self.busy().files.contains(&file)
    }

    /// Ends the use of synced files, which stay. Nothing ends if one of them must not stay; it is returned.
    pub fn end_use(&self, files: &[ConcreteId]) -> Result<(), ConcreteId> {
        let mut busy = self.busy();
        if let Some(doomed) = files.iter().find(|file| busy.doomed.contains(file)) {
            return Err(*doomed);
        }
        for file in files {
            busy.files.remove(file);
        }
        Ok(())
    }

    /// Ends the use of a file that was not synced. If its request created it, it is removed.
    pub fn abandon(&self, file: ConcreteId, origin: FileOrigin) {
        let mut busy = self.busy();
        if (busy.doomed.remove(&file) || origin == FileOrigin::New)
            && let Err(error) = self.files.remove(file)
        {
            // It has no row, so the inventory finds it.
            tracing::debug!(%error, "cannot remove a file that was not stored");
        }
        busy.files.remove(&file);
    }

    /// Removes a file. If a request uses it, the request fails and the file goes with its end.
    pub fn remove(&self, file: ConcreteId) -> Result<(), ConcreteError> {
        let mut busy = self.busy();
        if busy.files.contains(&file) {
            busy.doomed.insert(file);
            return Ok(());
        }
        self.files.remove(file)
    }

    /// Removes the empty directories of the puts of removed files.
    pub fn remove_empty(&self, files: &[ConcreteId]) -> Result<(), ConcreteError> {
        let puts: BTreeSet<_> = files.iter().map(|file| file.put()).collect();
        for put in puts {
            let busy = self.busy();
            // A request may be about to create a file there.
            if busy.files.iter().all(|file| file.put() != put) {
                self.files.remove_empty(put)?;
            }
        }
        self.look_for_files()
    }

    /// Looks whether any concrete file is left.
    fn look_for_files(&self) -> Result<(), ConcreteError> {
        let busy = self.busy();
        let mut has_files = !busy.files.is_empty();
        if !has_files {
            for put in self.files.puts()? {
                if !self.files.files(put)?.is_empty() {
                    has_files = true;
                    break;
                }
                // The end of a process may have left it.
                self.files.remove_empty(put)?;
            }
        }
        self.may_have_files.store(has_files, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the reason if a file is lost according to this error; None if it may be intact.
    pub fn loss(&self, error: &ConcreteError) -> Option<String> {
        let is_lost = match error {
            ConcreteError::Io { source, .. } => is_of_the_medium(source),
            error => error.damage().is_some(),
        };
        (is_lost && self.is_there()).then(|| dataport::with_causes(error))
    }

    /// Takes in a file that is there already although the server has no row for it. Returns true if it has this content,
    /// and is synced. A damaged one is removed.
    pub fn take_in(&self, file: ConcreteId, content: Content) -> bool {
        if !self.files.path(file).exists() || !self.begin_use(file) {
            return false;
        }
        let read = self.files.read(file, content).and_then(concretefile::verify);
        match read.and_then(|()| self.files.sync(&[file])) {
            Ok(()) if self.end_use(&[file]).is_ok() => true,
            Ok(()) => {
                self.abandon(file, FileOrigin::Present);
                false
            }
            Err(error) => {
                let is_lost = self.loss(&error).is_some();
                self.abandon(file, if is_lost { FileOrigin::New } else { FileOrigin::Present });
                false
            }
        }
    }

    /// Verifies all of a file. Returns the reason if it is lost.
    pub fn verify(&self, file: ConcreteId, content: Content) -> Option<String> {
        let verified = self.files.read(file, content).and_then(concretefile::verify);
        // A request that writes the file verifies it.
        let error = verified.err().filter(|_| !self.is_in_use(file))?;
        let loss = self.loss(&error);
        if loss.is_none() {
            tracing::debug!(%file, %error, "cannot verify a concrete file now");
        }
        loss
    }
}

/// Room of a disk for one request.
#[derive(Debug)]
pub(crate) struct PromisedRoom {
    disk: Arc<StoredDisk>,
    bytes: u64,
}

impl PromisedRoom {
    /// Takes written bytes out: the disk itself counts them from now on. Returns false if more were written than were
    /// promised.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let spent = bytes.min(self.bytes);
        self.bytes -= spent;
        self.disk.promised_bytes.fetch_sub(spent, Ordering::Relaxed);
        spent == bytes
    }
}

impl Drop for PromisedRoom {
    fn drop(&mut self) {
        self.disk.promised_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
