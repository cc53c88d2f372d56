//! Reading: entries, versions, and the bytes of files, under a lease of the version that is read.

use crate::ClusterFiles;
use crate::connection::of_transfer;
use crate::lease::Lease;
use crate::places::{Places, ReadFile};
use crate::read_parts::{NO_REPLICA_MAX, PartReads, part_of};
use api::StoredPart;
use api::stored::MakingJob;
use api::stored::cluster::{
    CommitsOfStored, FindStored, FoundStored, ListStored, PlacedPart, STORED_COMMITS_MAX, STORED_PAGE_MAX,
    StoredEntry, StoredItem, StoredPage,
};
use filestore::{EntryPage, FileEntry, FilesError, PartWithReplicas, ReplicaOfPart, TakeEntry};
use filetransfer::{FileToGet, GetPlan, Target, TransferError, Watch, get};
use filetree::{TreeError, TreeName, TreePath};
use ids::{ContentId, DirectoryId, FileVersion};
use rows::{ConcreteRow, FileCommitRow, FileGroups, FileItem, FileNameRow};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns a path as messages have it: the root is empty.
pub(crate) fn text_of(path: &TreePath) -> String {
    if path.is_root() { String::new() } else { path.to_string() }
}

pub(crate) fn row_of(entry: StoredEntry) -> FileNameRow {
    FileNameRow {
        directory: entry.directory,
        name: entry.name,
        since: entry.since,
        until: None,
        item: match entry.item {
            StoredItem::Directory(directory) => FileItem::Directory(directory),
            StoredItem::File(content) => FileItem::File(content),
        },
        user: entry.user,
        bytes: entry.bytes,
        parts: entry.parts,
        created_ns: entry.created_ns,
        keep_versions: entry.keep_versions,
        expires_ns: entry.expires_ns,
        groups: FileGroups { read: entry.groups.read, write: entry.groups.write },
        hashed: entry.hashed,
    }
}

fn concrete_row(placed: &PlacedPart) -> ConcreteRow {
    ConcreteRow {
        concrete: placed.file.concrete,
        content: placed.content,
        part: placed.part,
        bytes: placed.file.bytes,
        crc32c: placed.file.crc32c,
    }
}

/// Returns the directory that was found; None if it is a file.
pub(crate) fn directory_of(found: &FoundStored) -> Option<DirectoryId> {
    match &found.entry {
        None => Some(found.root),
        Some(entry) => match entry.item {
            StoredItem::Directory(directory) => Some(directory),
            StoredItem::File(_) => None,
        },
    }
}

/// Makes an entry with the groups that count for it, also those of directories above it.
fn file_entry(found: FoundStored, path: &TreePath) -> FileEntry {
    let FoundStored { entry, groups, .. } = found;
    let row = entry.map(|entry| row_of(StoredEntry { groups, ..entry }));
    FileEntry { name: text_of(path), row }
}

/// A file of a page with its parts, in their order.
pub(crate) struct PlacedFile {
    pub row: FileNameRow,
    pub parts: Vec<PlacedPart>,
}

/// An entry of a page.
pub(crate) enum PlacedEntry {
    Directory(FileNameRow),
    File(PlacedFile),
}

/// Returns the entries of a page with their parts. Several entries may share a content.
pub(crate) fn entries_of(page: StoredPage) -> Vec<PlacedEntry> {
    let mut parts: HashMap<ContentId, Vec<PlacedPart>> = HashMap::new();
    for part in page.parts {
        parts.entry(part.content).or_default().push(part);
    }
    for all in parts.values_mut() {
        all.sort_by_key(|part| part.part);
        all.dedup_by_key(|part| part.part);
    }
    let entry = |entry| {
        let row = row_of(entry);
        match row.item {
            FileItem::Directory(_) => PlacedEntry::Directory(row),
            FileItem::File(content) => {
                let parts = parts.get(&content).cloned().unwrap_or_default();
                PlacedEntry::File(PlacedFile { row, parts })
            }
        }
    };
    page.entries.into_iter().map(entry).collect()
}

/// A version under a lease, and what was found in it.
pub(crate) struct Leased {
    pub found: FoundStored,
    pub lease: Arc<Lease>,
}

impl ClusterFiles {
    pub(crate) fn find(&self, name: &TreeName) -> Result<FoundStored, FilesError> {
        let find = FindStored { path: text_of(&name.path), version: name.version, ..FindStored::default() };
        self.connection.ask(async |client| client.find_stored(&find).await)
    }

    /// Returns the job that made a file, or a directory.
    pub(crate) fn making_job(&self, name: &TreeName) -> Result<Option<MakingJob>, FilesError> {
        let find = FindStored { path: text_of(&name.path), version: name.version, maker: true, reads: false };
        Ok(self.connection.ask(async |client| client.find_stored(&find).await)?.job)
    }

    /// Finds a name, and keeps its version for a reader.
    pub(crate) fn leased(&self, name: &TreeName) -> Result<Leased, FilesError> {
        let find = FindStored { path: text_of(&name.path), version: name.version, reads: true, maker: false };
        let found = self.connection.ask(async |client| client.find_stored(&find).await)?;
        let lease = Arc::new(Lease::of(&self.connection, &found)?);
        Ok(Leased { found, lease })
    }

    /// Gives the pages of a directory to `take`.
    fn pages(
        &self,
        mut list: ListStored,
        take: &mut dyn FnMut(StoredPage) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        loop {
            let page = self.connection.ask(async |client| client.list_stored(&list).await)?;
            let last = page.entries.last().map(|entry| entry.name.clone());
            let more = page.more;
            take(page)?;
            match last.filter(|_| more) {
                Some(last) => list.after = last,
                None => return Ok(()),
            }
        }
    }

    pub(crate) fn found_entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        Ok(file_entry(self.find(name)?, &name.path))
    }

    pub(crate) fn list_entries(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        let found = self.find(name)?;
        let Some(directory) = directory_of(&found) else { return take(file_entry(found, &name.path)) };
        let list =
            ListStored { directory, version: name.version, limit: STORED_PAGE_MAX, ..ListStored::default() };
        self.pages(list, &mut |page| {
            let entry = |entry: StoredEntry| FileEntry { name: entry.name.clone(), row: Some(row_of(entry)) };
            page.entries.into_iter().map(entry).try_for_each(&mut *take)
        })
    }

    /// Returns the entries of a directory whose names follow `after`.
    pub(crate) fn page_after(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError> {
        let found = self.find(name)?;
        let Some(directory) = directory_of(&found) else {
            return Err(TreeError::NotADirectory(name.path.clone()).into());
        };
        let (after, limit) = (after.to_string(), STORED_PAGE_MAX);
        let list = ListStored { directory, version: name.version, after, limit, ..ListStored::default() };
        let page = self.connection.ask(async |client| client.list_stored(&list).await)?;
        let entry = |entry: StoredEntry| FileEntry { name: entry.name.clone(), row: Some(row_of(entry)) };
        Ok(EntryPage { entries: page.entries.into_iter().map(entry).collect(), more: page.more })
    }

    pub(crate) fn walk_entries(&self, name: &TreeName, take: TakeEntry<'_>) -> Result<(), FilesError> {
        let Leased { found, lease } = self.leased(name)?;
        let Some(directory) = directory_of(&found) else { return take(file_entry(found, &name.path)) };
        let mut list = ListStored {
            version: Some(lease.version),
            limit: STORED_PAGE_MAX,
            lease: lease.number,
            ..ListStored::default()
        };
        let mut pending = vec![(String::new(), directory)];
        while let Some((prefix, directory)) = pending.pop() {
            let mut below = Vec::new();
            (list.directory, list.after) = (directory, String::new());
            self.pages(list.clone(), &mut |page| {
                for entry in page.entries {
                    let name = format!("{prefix}{}", entry.name);
                    if let StoredItem::Directory(next) = entry.item {
                        below.push((format!("{name}/"), next));
                    }
                    take(FileEntry { name, row: Some(row_of(entry)) })?;
                }
                Ok(())
            })?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Gives the pages of everything below a directory to `take`, with parts. Names are relative to it, and end with `/`
    /// if they are not empty.
    pub(crate) fn placed_pages(
        &self,
        directory: DirectoryId,
        lease: &Lease,
        take: &mut dyn FnMut(&str, StoredPage) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        let mut pending = vec![(String::new(), directory)];
        while let Some((prefix, directory)) = pending.pop() {
            let mut below = Vec::new();
            let list = ListStored {
                directory,
                version: Some(lease.version),
                limit: STORED_PAGE_MAX,
                parts: true,
                lease: lease.number,
                ..ListStored::default()
            };
            self.pages(list, &mut |page| {
                for entry in &page.entries {
                    if let StoredItem::Directory(next) = entry.item {
                        below.push((format!("{prefix}{}/", entry.name), next));
                    }
                }
                take(&prefix, page)
            })?;
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Returns the page of one entry with its parts.
    pub(crate) fn placed_entry(
        &self,
        row: &FileNameRow,
        at: Option<FileVersion>,
        lease: Option<u64>,
    ) -> Result<StoredPage, FilesError> {
        let list = ListStored {
            directory: row.directory,
            version: at,
            only: Some(row.name.clone()),
            limit: 1,
            parts: true,
            lease,
            ..ListStored::default()
        };
        self.connection.ask(async |client| client.list_stored(&list).await)
    }

    pub(crate) fn parts_of(
        &self,
        row: &FileNameRow,
        at: Option<FileVersion>,
    ) -> Result<Vec<PartWithReplicas>, FilesError> {
        if matches!(row.item, FileItem::Directory(_)) {
            return Ok(Vec::new());
        }
        let mut page = self.placed_entry(row, at, None)?;
        let mut places = Places::default();
        places.add_page(&mut page);
        let mut parts = std::mem::take(&mut page.parts);
        parts.sort_by_key(|part| part.part);
        let part = |placed: PlacedPart| PartWithReplicas {
            row: concrete_row(&placed),
            wanted: placed.replicas,
            replicas: placed
                .disks
                .iter()
                .map(|disk| ReplicaOfPart { disk: *disk, node: places.node_name(*disk) })
                .collect(),
        };
        Ok(parts.into_iter().map(part).collect())
    }

    pub(crate) fn commits(&self, path: &TreePath, limit: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        let of = CommitsOfStored { path: text_of(path), limit: limit.min(STORED_COMMITS_MAX) };
        let found = self.connection.ask(async |client| client.stored_commits(&of).await)?;
        let row = |commit: api::stored::cluster::StoredCommit| FileCommitRow {
            version: commit.version,
            user: commit.user,
            verb: commit.verb,
            path: commit.path,
            files: commit.files,
            bytes: commit.bytes,
            created_ns: commit.created_ns,
            job: commit.job,
        };
        Ok(found.commits.into_iter().map(row).collect())
    }

    /// Gets a file or a directory into the file system of this machine. Returns the files and bytes.
    pub(crate) fn get_below(
        &self,
        name: &TreeName,
        target: &Target,
        threads: usize,
        watch: &Watch,
    ) -> Result<[u64; 2], FilesError> {
        let (plan, reads) = self.planned(name)?;
        get(&plan, &reads, target, threads, watch).map_err(of_transfer)?;
        Ok([plan.files.len() as u64, plan.files.iter().map(|file| file.bytes).sum()])
    }

    /// Plans a read of a file, or of all files below a directory, at one version.
    pub(crate) fn planned(&self, name: &TreeName) -> Result<(GetPlan, PartReads), FilesError> {
        let Leased { found, lease } = self.leased(name)?;
        let mut plan = GetPlan {
            name: name.clone(),
            version: lease.version,
            is_directory: directory_of(&found).is_some(),
            ..GetPlan::default()
        };
        let mut places = Places::default();
        match directory_of(&found) {
            Some(directory) => self.placed_pages(directory, &lease, &mut |prefix, page| {
                add_page(&mut plan, &mut places, prefix, page)
            })?,
            None => {
                let row = row_of(found.entry.ok_or_else(|| FilesError::Missing(name.clone()))?);
                let page = self.placed_entry(&row, Some(lease.version), lease.number)?;
                let above = text_of(&name.path);
                let prefix = above.rfind('/').map_or("", |end| &above[..=end]);
                add_page(&mut plan, &mut places, prefix, page)?;
                plan.files.iter_mut().for_each(|file| file.name.clear());
            }
        }
        let order: Vec<StoredPart> =
            plan.files.iter().flat_map(|file| file.parts.iter().map(part_of)).collect();
        let reads = PartReads::new(Arc::clone(&self.connection), lease, places, order, NO_REPLICA_MAX);
        Ok((plan, reads))
    }
}

/// Adds a page to a plan. `prefix`: the name of its directory below the target.
fn add_page(
    plan: &mut GetPlan,
    places: &mut Places,
    prefix: &str,
    mut page: StoredPage,
) -> Result<(), FilesError> {
    places.add_page(&mut page);
    for entry in entries_of(page) {
        match entry {
            PlacedEntry::Directory(row) => plan.directories.push(format!("{prefix}{}", row.name)),
            PlacedEntry::File(file) => {
                let name = format!("{prefix}{}", file.row.name);
                check_parts(&name, &file)?;
                add_file(places, &name, &file);
                let parts = file.parts.iter().map(concrete_row).collect();
                let (bytes, hashed) = (file.row.bytes, file.row.hashed);
                plan.files.push(FileToGet { name, bytes, parts, hashed });
            }
        }
    }
    Ok(())
}

pub(crate) fn add_file(places: &mut Places, name: &str, file: &PlacedFile) {
    let index = places.files.len();
    places.files.push(ReadFile { directory: file.row.directory, name: name.to_string() });
    file.parts.iter().for_each(|placed| places.add_part(index, placed));
}

/// Returns an error if rows of parts are missing, so that no shorter file looks whole.
pub(crate) fn check_parts(name: &str, file: &PlacedFile) -> Result<(), FilesError> {
    let bytes: u64 = file.parts.iter().map(|part| part.file.bytes).sum();
    match file.parts.len() == file.row.parts as usize && bytes == file.row.bytes {
        true => Ok(()),
        false => {
            let text = format!("the server has {} of {} parts of {name}", file.parts.len(), file.row.parts);
            Err(TransferError::Store(text).into())
        }
    }
}
