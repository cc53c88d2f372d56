//! Reading: entries, versions, and the bytes of files. A reader pins the version that it reads.

use crate::error::FilesError;
use crate::tree::EntryPage;
use crate::{FileStore, Parts, content_of};
use filetransfer::{FileToGet, GetPlan, Target, TransferError, Watch, get};
use filetree::{TreeError, TreeName, TreePath};
use ids::{DirectoryId, FileVersion, PutId};
use rows::{ConcreteRow, FileCommitRow, FileItem, FileNameRow, FileSpace};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a directory that are read from the store at once.
const ENTRIES_AT_ONCE: u32 = 1000;
/// Maximum number of tries to pin a version while others change the tree.
const PIN_TRIES_MAX: u32 = 100;

/// A name in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name within the listed directory, or the whole name of a file that was listed.
    pub name: String,
    /// None for the root.
    pub row: Option<FileNameRow>,
}

/// Proof that a version is being read. Its files stay while this lives.
#[derive(Debug)]
pub struct ReadPin {
    pub version: FileVersion,
    path: PathBuf,
    _file: File,
}

impl Drop for ReadPin {
    fn drop(&mut self) {
        // Whoever finds it without its lock removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl FileStore {
    fn pins_dir(&self) -> PathBuf {
        self.root.join("readers")
    }

    /// Pins a version, or the current one.
    pub fn pin(&self, at: Option<FileVersion>) -> Result<ReadPin, FilesError> {
        let dir = self.pins_dir();
        let wrong = |path: &PathBuf| {
            let path = path.clone();
            move |source| FilesError::Io { action: "create", path, source }
        };
        std::fs::create_dir_all(&dir).map_err(wrong(&dir))?;
        for _ in 0..PIN_TRIES_MAX {
            let newest = self.run(self.store.file_version())?;
            let version = at.unwrap_or(newest);
            if version > newest {
                return Err(FilesError::NoSuchVersion(version));
            }
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{version}-{}-{number}", std::process::id()));
            let file = File::create(&path).map_err(wrong(&path))?;
            if file.try_lock().is_err() {
                // A process of another namespace has this number too, or a sweep looks at it.
                continue;
            }
            let pin = ReadPin { version, path, _file: file };
            // A sweep that came before the lock may have removed the file, and names of the version.
            if pin.path.exists() && self.run(self.store.file_version())? == newest {
                return Ok(pin);
            }
        }
        Err(FilesError::Io { action: "lock", path: dir, source: std::io::ErrorKind::ResourceBusy.into() })
    }

    /// Returns the versions that processes read.
    pub(crate) fn pinned(&self) -> Result<Vec<FileVersion>, FilesError> {
        let dir = self.pins_dir();
        let Ok(entries) = std::fs::read_dir(&dir) else { return Ok(Vec::new()) };
        let mut versions = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.split('-').next()?.parse().ok());
            let (Some(version), Ok(file)) = (version, File::options().write(true).open(&path)) else {
                continue;
            };
            match file.try_lock() {
                // Its reader is gone.
                Ok(()) => drop(std::fs::remove_file(&path)),
                Err(TryLockError::WouldBlock) => versions.push(FileVersion(version)),
                Err(TryLockError::Error(source)) => {
                    return Err(FilesError::Io { action: "lock", path, source });
                }
            }
        }
        Ok(versions)
    }

    /// Returns the entry of a name.
    pub fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        if name.path.is_root() {
            return Ok(FileEntry { name: String::new(), row: None });
        }
        if let Some(version) = name.version
            && version > self.run(self.store.file_version())?
        {
            return Err(FilesError::NoSuchVersion(version));
        }
        let found =
            self.run(self.store.found_names(FileSpace::Machine, name.path.components(), name.version))?;
        match found.rows.len() == name.path.components().len() {
            true => Ok(FileEntry { name: name.path.to_string(), row: found.rows.last().cloned() }),
            false => Err(FilesError::Missing(name.clone())),
        }
    }

    /// Returns the entry of a name at the version of a pin. An error has the name as it was given.
    pub(crate) fn pinned_entry(&self, name: &TreeName, pin: &ReadPin) -> Result<FileEntry, FilesError> {
        let at = TreeName { version: Some(pin.version), ..name.clone() };
        self.entry(&at).map_err(|error| match error {
            FilesError::Missing(_) => FilesError::Missing(name.clone()),
            other => other,
        })
    }

    /// Gives the entries of a directory to `take`, in the order of their names; those of a file are the file itself.
    pub fn list(
        &self,
        name: &TreeName,
        take: &mut dyn FnMut(FileEntry) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let entry = self.entry(name)?;
        match directory_of(&entry) {
            None => take(entry),
            Some(directory) => self.each_entry(directory, name.version, &mut |rows| {
                rows.iter()
                    .try_for_each(|row| take(FileEntry { name: row.name.clone(), row: Some(row.clone()) }))
            }),
        }
    }

    /// Returns entries of a directory whose names follow `after`, a bounded number.
    pub fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError> {
        let Some(directory) = directory_of(&self.entry(name)?) else {
            return Err(TreeError::NotADirectory(name.path.clone()).into());
        };
        let (space, limit) = (FileSpace::Machine, ENTRIES_AT_ONCE);
        let rows = self.run(self.store.file_entries(space, directory, name.version, after, limit))?;
        let more = rows.len() == limit as usize;
        let entry = |row: FileNameRow| FileEntry { name: row.name.clone(), row: Some(row) };
        Ok(EntryPage { entries: rows.into_iter().map(entry).collect(), more })
    }

    /// Gives everything below a directory to `take`, under names relative to it, each directory before its entries.
    pub fn walk(
        &self,
        name: &TreeName,
        take: &mut dyn FnMut(FileEntry) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let entry = self.entry(name)?;
        let Some(directory) = directory_of(&entry) else { return take(entry) };
        let mut pending = vec![(String::new(), directory)];
        while let Some((prefix, directory)) = pending.pop() {
            let mut below = Vec::new();
            self.each_entry(directory, name.version, &mut |rows| {
                for row in rows {
                    let name = format!("{prefix}{}", row.name);
                    if let FileItem::Directory(next) = row.item {
                        below.push((format!("{name}/"), next));
                    }
                    take(FileEntry { name, row: Some(row.clone()) })?;
                }
                Ok(())
            })?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn each_entry(
        &self,
        directory: DirectoryId,
        at: Option<FileVersion>,
        take: &mut dyn FnMut(&[FileNameRow]) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let mut after = String::new();
        loop {
            let rows = self.run(self.store.file_entries(
                FileSpace::Machine,
                directory,
                at,
                &after,
                ENTRIES_AT_ONCE,
            ))?;
            let Some(last) = rows.last() else { return Ok(()) };
            after.clone_from(&last.name);
            take(&rows)?;
            if rows.len() < ENTRIES_AT_ONCE as usize {
                return Ok(());
            }
        }
    }

    /// Returns the changes of a name and of everything below it, newest first.
    pub fn versions(&self, path: &TreePath, limit: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        self.run(self.store.file_commits(FileSpace::Machine, &path.to_string(), limit))
    }

    /// Returns the concrete files of a file, in their order.
    pub fn parts(&self, row: &FileNameRow) -> Result<Vec<ConcreteRow>, FilesError> {
        match row.item {
            FileItem::File(content) => self.run(self.store.concrete_files(content)),
            FileItem::Directory(_) => Ok(Vec::new()),
        }
    }

    /// Writes the bytes of a file from `offset` on, at most `bytes_max`, verified.
    pub fn cat(
        &self,
        name: &TreeName,
        offset: u64,
        bytes_max: u64,
        out: &mut dyn Write,
    ) -> Result<(), FilesError> {
        self.open_file(name)?.read(&name.to_string(), offset, bytes_max, out)
    }

    /// Gets a file or a directory into the file system of this machine. Returns the files and bytes.
    pub fn get(
        &self,
        name: &TreeName,
        target: &Target,
        threads: usize,
        watch: &Watch,
    ) -> Result<[u64; 2], FilesError> {
        // It is held until all bytes are there.
        let (_pin, plan) = self.below(name)?;
        let got = get(&plan, &Parts { files: self, put: PutId(0) }, target, threads, watch);
        got.map_err(|error| self.with_maker(error.into(), plan.files.iter().flat_map(|file| &file.parts)))?;
        Ok([plan.files.len() as u64, plan.files.iter().map(|file| file.bytes).sum()])
    }

    /// Returns a file, or all files below a directory, with their parts, and the pin of their version.
    pub fn below(&self, name: &TreeName) -> Result<(ReadPin, GetPlan), FilesError> {
        let pin = self.pin(name.version)?;
        let entry = self.pinned_entry(name, &pin)?;
        let mut plan = GetPlan {
            name: name.clone(),
            version: pin.version,
            is_directory: directory_of(&entry).is_some(),
            ..GetPlan::default()
        };
        match directory_of(&entry) {
            Some(directory) => self.plan_directory(directory, pin.version, &mut plan)?,
            None => {
                let row = entry.row.ok_or_else(|| FilesError::Missing(name.clone()))?;
                let parts = self.parts(&row)?;
                plan.files.push(FileToGet {
                    name: String::new(),
                    bytes: row.bytes,
                    parts,
                    hashed: row.hashed,
                });
            }
        }
        Ok((pin, plan))
    }

    /// Returns the first bytes of a file, at most `bytes_max`.
    pub fn first_bytes(&self, file: &FileToGet, bytes_max: usize) -> Result<Vec<u8>, FilesError> {
        self.first_of(file, bytes_max).map_err(|error| self.with_maker(error, &file.parts))
    }

    fn first_of(&self, file: &FileToGet, bytes_max: usize) -> Result<Vec<u8>, FilesError> {
        let mut bytes = Vec::new();
        for part in &file.parts {
            let mut reader = self.disk.read(part.concrete, content_of(part))?;
            let wanted = part.bytes.min((bytes_max - bytes.len()) as u64);
            let mut offset = 0;
            while offset < wanted {
                let piece = reader.read(offset, (wanted - offset) as usize)?;
                bytes.extend_from_slice(piece);
                offset += piece.len() as u64;
            }
            if bytes.len() == bytes_max {
                break;
            }
        }
        Ok(bytes)
    }

    /// Adds everything below a directory to a plan, with one question for a thousand files.
    fn plan_directory(
        &self,
        directory: DirectoryId,
        version: FileVersion,
        plan: &mut GetPlan,
    ) -> Result<(), FilesError> {
        let mut pending = vec![(String::new(), directory)];
        while let Some((prefix, directory)) = pending.pop() {
            let mut below = Vec::new();
            self.each_entry(directory, Some(version), &mut |rows| {
                let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
                let mut parts: HashMap<_, Vec<ConcreteRow>> = HashMap::new();
                let names = [first.name.as_str(), last.name.as_str()];
                let found = self.store.concrete_files_between(directory, Some(version), names);
                for part in self.run(found)? {
                    parts.entry(part.content).or_default().push(part);
                }
                for row in rows {
                    let name = format!("{prefix}{}", row.name);
                    match row.item {
                        FileItem::Directory(next) => {
                            below.push((format!("{name}/"), next));
                            plan.directories.push(name);
                        }
                        FileItem::File(content) => {
                            let parts = shared(&mut parts, content);
                            check_parts(&name, row, &parts)?;
                            let (bytes, hashed) = (row.bytes, row.hashed.clone());
                            plan.files.push(FileToGet { name, bytes, parts, hashed });
                        }
                    }
                }
                Ok(())
            })?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }
}

/// Returns the parts of a content; several names of a directory may share it.
fn shared<K: std::hash::Hash + Eq>(parts: &mut HashMap<K, Vec<ConcreteRow>>, content: K) -> Vec<ConcreteRow> {
    let mut all = parts.get(&content).cloned().unwrap_or_default();
    all.dedup();
    all
}

/// Returns an error if rows of parts are missing, so that no shorter file looks whole.
pub(crate) fn check_parts(name: &str, row: &FileNameRow, parts: &[ConcreteRow]) -> Result<(), FilesError> {
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    match parts.len() == row.parts as usize && bytes == row.bytes {
        true => Ok(()),
        false => {
            let text = format!("the store has {} of {} parts of {name}", parts.len(), row.parts);
            Err(TransferError::Store(text).into())
        }
    }
}

pub(crate) fn directory_of(entry: &FileEntry) -> Option<DirectoryId> {
    match &entry.row {
        None => Some(DirectoryId(0)),
        Some(row) => match row.item {
            FileItem::Directory(directory) => Some(directory),
            FileItem::File(_) => None,
        },
    }
}
