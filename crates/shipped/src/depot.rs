//! A directory of files under the hashes of their contents: `DIR/OWNER/HASH`.

use crate::ShippedError;
use crate::hashing::{hash_of, hash_pieces};
use api::ContentHash;
use faults::{IoCall, io_call};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tempfile::NamedTempFile;

/// Prefix of the name of a file that is not whole yet.
const INCOMING_PREFIX: &str = ".incoming-";
/// Age at which a file that is not whole counts as abandoned.
const INCOMING_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of the hash of an owner's name that name the directory.
const OWNER_BYTES: usize = 16;

/// Limits of a depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one file.
    pub file_bytes_max: u64,
    /// Most bytes of the files of one owner.
    pub owner_bytes_max: u64,
    /// Most bytes of all files.
    pub total_bytes_max: u64,
    /// A smaller file counts as one of so many bytes: the limits bound how many there are, too.
    pub counted_bytes_min: u64,
    /// Time that a file stays after it came or was last used, though nobody holds it.
    pub spare: Duration,
}

/// The permissions of a copy for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    ReadOnly,
    /// Read and execute.
    Executable,
}

/// Content of a depot, and its activity since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub files: u64,
    pub bytes: u64,
    pub received_files: u64,
    pub received_bytes: u64,
    pub sent_files: u64,
}

/// Key of a file: first its content, so that all owners of one content stand together.
type Key = (ContentHash, String);

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    used: SystemTime,
    /// Jobs that need it.
    holds: u32,
    /// Its content was compared with its hash since the depot was opened.
    is_verified: bool,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Key, Entry>,
    /// Room for what is coming, by owner.
    coming: BTreeMap<String, u64>,
}

/// Keeps files. Shared by `Arc`. All methods may wait for the disk.
#[derive(Debug)]
pub struct Depot {
    dir: PathBuf,
    limits: Limits,
    inner: Mutex<Inner>,
    received_files: AtomicU64,
    received_bytes: AtomicU64,
    sent_files: AtomicU64,
}

impl Depot {
    /// Takes a directory into use; it is made when the first file comes. Others may use the same one: what they put
    /// there is found, and what they remove is missed.
    pub fn open(dir: &Path, limits: Limits) -> Result<Arc<Self>, ShippedError> {
        let mut inner = Inner::default();
        let owners = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other.map_err(ShippedError::at(dir))?),
        };
        for owner in owners.into_iter().flatten() {
            let owner = owner.map_err(ShippedError::at(dir))?;
            let name = owner.file_name().to_string_lossy().into_owned();
            if name.len() == 2 * OWNER_BYTES && owner.path().is_dir() {
                list(&owner.path(), &name, &mut inner)?;
            }
        }
        Ok(Arc::new(Self {
            dir: dir.to_path_buf(),
            limits,
            inner: Mutex::new(inner),
            received_files: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_files: AtomicU64::new(0),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(&key.1).join(key.0.to_string())
    }

    pub fn figures(&self) -> Figures {
        let inner = self.inner();
        Figures {
            files: inner.entries.len() as u64,
            bytes: inner.entries.values().map(|entry| entry.bytes).sum(),
            received_files: self.received_files.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            sent_files: self.sent_files.load(Ordering::Relaxed),
        }
    }

    /// Those of these contents that an owner has not here. What there is counts as used now; what was not looked at
    /// since the start is read through, and removed where it has changed.
    pub fn missing(&self, owner: &str, contents: &[ContentHash]) -> Vec<ContentHash> {
        let owner = directory_of(owner);
        let is_here = |content: &ContentHash| {
            let key = (*content, owner.clone());
            let known = self.inner().entries.get(&key).copied();
            known.is_some_and(|entry| entry.is_verified || self.verify(&key)) && self.touch(&key)
        };
        contents.iter().filter(|content| !is_here(content)).copied().collect()
    }

    /// Whether a file has the content it should have; one that has not is removed.
    fn verify(&self, key: &Key) -> bool {
        let path = self.path(key);
        let is_right = crate::hash_file(&path).is_ok_and(|(found, _)| found == key.0);
        let mut inner = self.inner();
        match inner.entries.get_mut(key) {
            Some(entry) if is_right => entry.is_verified = true,
            Some(_) => {
                // One that cannot be removed is not known any more, and is replaced when it comes anew.
                let _ = std::fs::remove_file(&path);
                inner.entries.remove(key);
            }
            None => {}
        }
        is_right
    }

    /// The file is used now; false where it has gone.
    fn touch(&self, key: &Key) -> bool {
        let now = SystemTime::now();
        let touched = File::open(self.path(key)).and_then(|file| file.set_modified(now));
        let mut inner = self.inner();
        match touched {
            Ok(()) => inner.entries.get_mut(key).map(|entry| entry.used = now).is_some(),
            Err(_) => {
                inner.entries.remove(key);
                false
            }
        }
    }

    /// Keeps contents of an owner from being removed until the answer is dropped. Gives those that are not here.
    pub fn hold(self: &Arc<Self>, owner: &str, contents: &[ContentHash]) -> Result<Hold, Vec<ContentHash>> {
        let owner = directory_of(owner);
        let keys: Vec<Key> = contents.iter().map(|content| (*content, owner.clone())).collect();
        let mut inner = self.inner();
        let missing: Vec<ContentHash> =
            keys.iter().filter(|key| !inner.entries.contains_key(key)).map(|key| key.0).collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        Ok(self.hold_keys(&mut inner, keys))
    }

    /// The same for whatever is here of them, whoever sent it: for a job that was taken in before the depot was opened.
    pub fn hold_what_is_here(self: &Arc<Self>, contents: &[ContentHash]) -> Hold {
        let mut inner = self.inner();
        let keys = contents.iter().flat_map(|content| inner.keys_of(*content)).collect();
        self.hold_keys(&mut inner, keys)
    }

    fn hold_keys(self: &Arc<Self>, inner: &mut Inner, keys: Vec<Key>) -> Hold {
        for key in &keys {
            if let Some(entry) = inner.entries.get_mut(key) {
                entry.holds += 1;
            }
        }
        Hold { depot: Arc::clone(self), keys }
    }

    /// Begins to take a file in. Makes room for it, by removing what was not used for the longest time.
    pub fn receive(
        self: &Arc<Self>,
        owner: &str,
        content: ContentHash,
        bytes: u64,
    ) -> Result<Incoming, ShippedError> {
        let bytes_max = self.limits.file_bytes_max;
        if bytes > bytes_max {
            return Err(ShippedError::TooLarge { bytes, bytes_max });
        }
        let key = (content, directory_of(owner));
        let counted_bytes = bytes.max(self.limits.counted_bytes_min);
        self.make_room(&key.1, counted_bytes)?;
        // From here on the room is given back when this is dropped.
        let room = Room { depot: Arc::clone(self), owner: key.1.clone(), bytes, counted_bytes };
        let dir = self.dir.join(&key.1);
        make_dir(&dir)?;
        let file = io_call(IoCall::Create, &dir)
            .and_then(|()| tempfile::Builder::new().prefix(INCOMING_PREFIX).tempfile_in(&dir));
        let file = file.map_err(ShippedError::at(&dir))?;
        Ok(Incoming { room, key, file, hasher: Sha256::new(), written: 0 })
    }

    fn make_room(&self, owner: &str, bytes: u64) -> Result<(), ShippedError> {
        let mut inner = self.inner();
        let Limits { owner_bytes_max, total_bytes_max, .. } = self.limits;
        if !self.evict(&mut inner, bytes, owner_bytes_max, Some(owner)) {
            return Err(ShippedError::OwnerFull { bytes, bytes_max: owner_bytes_max });
        }
        if !self.evict(&mut inner, bytes, total_bytes_max, None) {
            return Err(ShippedError::Full { bytes, bytes_max: total_bytes_max });
        }
        *inner.coming.entry(owner.to_string()).or_default() += bytes;
        Ok(())
    }

    /// Removes files until so many bytes more have room; false, and nothing is removed, where what must stay leaves too
    /// little.
    fn evict(&self, inner: &mut Inner, bytes: u64, bytes_max: u64, owner: Option<&str>) -> bool {
        let wanted = inner.bytes(owner, self.limits.counted_bytes_min).saturating_add(bytes);
        let mut too_many = wanted.saturating_sub(bytes_max);
        if too_many == 0 {
            return true;
        }
        let now = SystemTime::now();
        let has_rested =
            |entry: &Entry| now.duration_since(entry.used).is_ok_and(|rested| rested >= self.limits.spare);
        let is_meant = |key: &Key| owner.is_none_or(|owner| key.1 == owner);
        let free = inner
            .entries
            .iter()
            .filter(|(key, entry)| is_meant(key) && entry.holds == 0 && has_rested(entry))
            .map(|(key, entry)| (entry.used, key.clone(), entry.bytes.max(self.limits.counted_bytes_min)));
        let mut free: Vec<(SystemTime, Key, u64)> = free.collect();
        if free.iter().map(|(_, _, bytes)| bytes).sum::<u64>() < too_many {
            return false;
        }
        free.sort_unstable();
        for (_, key, bytes) in free {
            if too_many == 0 {
                break;
            }
            // What cannot be removed is not counted any more, and found when the depot is opened anew.
            let _ = std::fs::remove_file(self.path(&key));
            inner.entries.remove(&key);
            too_many = too_many.saturating_sub(bytes);
        }
        true
    }

    /// Opens a content to be sent, whoever brought it; None where it is not here.
    pub fn open_to_send(&self, content: ContentHash) -> Option<(File, u64)> {
        let keys = self.inner().keys_of(content);
        let opened = keys.iter().find_map(|key| {
            let file = File::open(self.path(key)).ok()?;
            let bytes = file.metadata().ok()?.len();
            self.touch(key).then_some((file, bytes))
        });
        self.sent_files.fetch_add(u64::from(opened.is_some()), Ordering::Relaxed);
        opened
    }

    /// Copies a content to a path at which there is nothing yet; false where it is not here. It is hashed on the way:
    /// one that has changed is removed, and was not here.
    pub fn copy_out(
        &self,
        owner: &str,
        content: ContentHash,
        to: &Path,
        mode: CopyMode,
    ) -> Result<bool, ShippedError> {
        let key = (content, directory_of(owner));
        let path = self.path(&key);
        let mut source = match File::open(&path) {
            Ok(source) => source,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.inner().entries.remove(&key);
                return Ok(false);
            }
            Err(error) => return Err(ShippedError::Io { path, source: error }),
        };
        let opened = io_call(IoCall::Create, to)
            .and_then(|()| File::options().write(true).create_new(true).mode(0o600).open(to));
        let mut copy = opened.map_err(ShippedError::at(to))?;
        let copied = hash_pieces(&mut source, |piece| {
            io_call(IoCall::Write, to)?;
            copy.write_all(piece)
        });
        let (found, bytes) = copied.map_err(ShippedError::at(to)).inspect_err(|_| remove(to))?;
        if found != content {
            remove(to);
            remove(&path);
            self.inner().entries.remove(&key);
            return Ok(false);
        }
        let bits = if mode == CopyMode::Executable { 0o555 } else { 0o444 };
        copy.set_permissions(Permissions::from_mode(bits)).map_err(ShippedError::at(to))?;
        // Another process may have put it there.
        let entry = Entry { bytes, used: SystemTime::now(), holds: 0, is_verified: true };
        self.inner().entries.entry(key.clone()).or_insert(entry);
        self.touch(&key);
        Ok(true)
    }
}

impl Inner {
    fn keys_of(&self, content: ContentHash) -> Vec<Key> {
        let from = (content, String::new());
        let same = self.entries.range(from..).take_while(|((each, _), _)| *each == content);
        same.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the bytes that lie here or are coming, of one owner or of all.
    fn bytes(&self, owner: Option<&str>, counted_bytes_min: u64) -> u64 {
        let is_meant = |each: &str| owner.is_none_or(|owner| each == owner);
        let here = self
            .entries
            .iter()
            .filter(|(key, _)| is_meant(&key.1))
            .map(|(_, entry)| entry.bytes.max(counted_bytes_min));
        let coming = self.coming.iter().filter(|(owner, _)| is_meant(owner)).map(|(_, bytes)| *bytes);
        here.chain(coming).fold(0, u64::saturating_add)
    }
}

/// Room that is taken for a file that is coming.
struct Room {
    depot: Arc<Depot>,
    owner: String,
    /// Bytes of the file.
    bytes: u64,
    counted_bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.depot.inner();
        if let Some(coming) = inner.coming.get_mut(&self.owner) {
            *coming = coming.saturating_sub(self.counted_bytes);
            if *coming == 0 {
                inner.coming.remove(&self.owner);
            }
        }
    }
}

/// A file that is coming. Nothing is left of one that is dropped before its end.
pub struct Incoming {
    room: Room,
    key: Key,
    file: NamedTempFile,
    hasher: Sha256,
    written: u64,
}

impl Incoming {
    /// Takes the next bytes.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ShippedError> {
        self.written += piece.len() as u64;
        if self.written > self.room.bytes {
            return Err(ShippedError::WrongLength { wanted: self.key.0, bytes: self.room.bytes });
        }
        self.hasher.update(piece);
        let asked = io_call(IoCall::Write, self.file.path());
        asked.and_then(|()| self.file.write_all(piece)).map_err(ShippedError::at(self.file.path()))
    }

    /// The file is whole: where it is what it should be, it stands under its hash from now on, and is on the disk.
    pub fn finish(self) -> Result<(), ShippedError> {
        let Self { room, key, file, hasher, written } = self;
        let (wanted, found) = (key.0, ContentHash(hasher.finalize().into()));
        if written != room.bytes {
            return Err(ShippedError::WrongLength { wanted, bytes: room.bytes });
        }
        if found != wanted {
            return Err(ShippedError::WrongHash { wanted, found });
        }
        let depot = Arc::clone(&room.depot);
        let asked = io_call(IoCall::Sync, file.path());
        asked.and_then(|()| file.as_file().sync_all()).map_err(ShippedError::at(file.path()))?;
        let path = depot.path(&key);
        io_call(IoCall::Rename, file.path()).map_err(ShippedError::at(&path))?;
        file.persist(&path).map_err(|error| ShippedError::Io { path: path.clone(), source: error.error })?;
        let dir = depot.dir.join(&key.1);
        let asked = io_call(IoCall::Sync, &dir);
        asked.and_then(|()| File::open(&dir)?.sync_all()).map_err(ShippedError::at(&dir))?;
        let mut inner = depot.inner();
        let entry = Entry { bytes: written, used: SystemTime::now(), holds: 0, is_verified: true };
        // Whoever holds it goes on to do so.
        let holds = inner.entries.get(&key).map_or(0, |before| before.holds);
        inner.entries.insert(key, Entry { holds, ..entry });
        drop(inner);
        depot.received_files.fetch_add(1, Ordering::Relaxed);
        depot.received_bytes.fetch_add(written, Ordering::Relaxed);
        Ok(())
    }
}

/// Files that stay as long as this is there.
#[derive(Debug)]
pub struct Hold {
    depot: Arc<Depot>,
    keys: Vec<Key>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.depot.inner();
        for key in &self.keys {
            if let Some(entry) = inner.entries.get_mut(key) {
                entry.holds = entry.holds.saturating_sub(1);
                entry.used = SystemTime::now();
            }
        }
    }
}

/// The directory of an owner, whose name may hold anything.
fn directory_of(owner: &str) -> String {
    hex::encode(&hash_of(owner.as_bytes()).0[..OWNER_BYTES])
}

/// Makes a directory that only its owner may read: programs of users consist of these files, and nobody else may read them.
fn make_dir(dir: &Path) -> Result<(), ShippedError> {
    let asked = io_call(IoCall::Create, dir);
    let made = asked.and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(dir));
    made.map_err(ShippedError::at(dir))
}

/// Removes a file, and ignores a failure: the depot does not know the file any more, so it is in nobody's way.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Finds what an owner has, and removes what was coming when a process died.
fn list(dir: &Path, owner: &str, inner: &mut Inner) -> Result<(), ShippedError> {
    for entry in std::fs::read_dir(dir).map_err(ShippedError::at(dir))? {
        let entry = entry.map_err(ShippedError::at(dir))?;
        let Ok(metadata) = entry.metadata() else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(INCOMING_PREFIX) {
            if used.elapsed().is_ok_and(|age| age > INCOMING_AGE_MAX) {
                remove(&entry.path());
            }
        } else if let Ok(content) = name.parse::<ContentHash>()
            && metadata.is_file()
        {
            let entry = Entry { bytes: metadata.len(), used, holds: 0, is_verified: false };
            inner.entries.insert((content, owner.to_string()), entry);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
