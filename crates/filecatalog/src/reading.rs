//! Reading: entries of names, pages of directories, and where their concrete files are.

use crate::asked::path_of;
use crate::leases::LEASE;
use crate::nodes::orders::part_of;
use crate::{Asker, Catalog, CatalogError};
use api::stored::cluster::{
    FindStored, FoundStored, ListStored, PlacedPart, STORED_PAGE_MAX, StoredEntry, StoredItem, StoredLease,
    StoredPage, StoredRange,
};
use filetree::{TreeName, groups_of, reads, sees};
use ids::{ConcreteId, DirectoryId, FileVersion, PutId};
use rows::{FileItem, FileNameRow, FileSpace, ReplicatedFile};
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use trust::FileRight;

/// Validity of rights to read. A longer read must ask for new ones.
const GRANTED_SECONDS: u64 = 24 * 3600;

fn entry_of(row: FileNameRow) -> StoredEntry {
    StoredEntry {
        directory: row.directory,
        name: row.name,
        item: match row.item {
            FileItem::Directory(directory) => StoredItem::Directory(directory),
            FileItem::File(content) => StoredItem::File(content),
        },
        since: row.since,
        user: row.user,
        bytes: row.bytes,
        parts: row.parts,
        created_ns: row.created_ns,
        keep_versions: row.keep_versions,
        expires_ns: row.expires_ns,
        groups: row.groups.into(),
        hashed: row.hashed,
    }
}

impl Catalog {
    /// Returns the entry of a name; with a lease if its contents will be read.
    pub async fn find(&self, asker: &Asker, find: &FindStored) -> Result<FoundStored, CatalogError> {
        let path = path_of(&find.path)?;
        let mut found = FoundStored {
            root: FileSpace::Cluster.root(),
            lease_seconds: LEASE.as_secs() as u32,
            ..FoundStored::default()
        };
        {
            // No name is retired between the look at the version and the lease.
            let _alone = self.retiring.lock().await;
            let newest = self.store.file_version().await?;
            let version = find.version.unwrap_or(newest);
            if version > newest || version.0 < 0 {
                return Err(CatalogError::NoSuchVersion(version));
            }
            found.version = version;
            if find.reads {
                found.lease = Some(self.state().leases.begin(version, Instant::now()));
            }
        }
        let at = match (find.version, found.lease) {
            (None, None) => None,
            _ => Some(found.version),
        };
        if path.is_root() {
            return Ok(found);
        }
        let rows = self.store.found_names(FileSpace::Cluster, path.components(), at).await?.rows;
        found.groups = groups_of(&rows).into();
        let is_seen =
            !self.hides_from(&asker.changer) || sees(&rows, &self.with_groups(&asker.changer).await?);
        let is_whole = rows.len() == path.components().len();
        match (is_whole && is_seen, rows.into_iter().last()) {
            (true, Some(row)) => found.entry = self.dated(vec![row]).await?.pop(),
            _ => {
                if let Some(lease) = found.lease {
                    self.state().leases.end(lease);
                }
                return Err(CatalogError::Missing(TreeName { path, version: find.version }));
            }
        }
        if let Some(entry) = found.entry.as_ref().filter(|_| find.maker) {
            let put = match entry.item {
                StoredItem::Directory(directory) => directory.put(),
                StoredItem::File(content) => content.put(),
            };
            found.job = self.maker_of(put, &asker.changer).await?;
        }
        Ok(found)
    }

    /// Returns entries with their versions: names of a put get theirs some time after the commit.
    async fn dated(&self, rows: Vec<FileNameRow>) -> Result<Vec<StoredEntry>, CatalogError> {
        let mut versions: HashMap<PutId, FileVersion> = HashMap::new();
        let mut entries = Vec::with_capacity(rows.len());
        for mut row in rows {
            if row.since.0 == 0 {
                let put = row.directory.put();
                row.since = match versions.get(&put) {
                    Some(version) => *version,
                    None => {
                        let found = self.store.cluster_put(put).await?;
                        let version = found.and_then(|put| put.version).unwrap_or(FileVersion(0));
                        versions.insert(put, version);
                        version
                    }
                };
            }
            entries.push(entry_of(row));
        }
        Ok(entries)
    }

    /// Returns a page of a directory.
    pub async fn list(&self, asker: &Asker, list: &ListStored) -> Result<StoredPage, CatalogError> {
        let limit = list.limit.clamp(1, STORED_PAGE_MAX);
        if let (Some(lease), Some(version)) = (list.lease, list.version) {
            self.state().leases.renew(lease, version, Instant::now());
        }
        let (directory, at) = (list.directory, list.version);
        let (rows, more) = self.seen_entries(asker, list, limit as usize).await?;
        let mut page = StoredPage { more, ..StoredPage::default() };
        if list.parts {
            self.check_contents(asker, list, &rows).await?;
            self.add_parts(directory, at, &rows, &mut page).await?;
            self.add_makers(&mut page, &asker.changer).await?;
        }
        page.entries = self.dated(rows).await?;
        Ok(page)
    }

    /// Returns the entries that the user sees, at most `limit`, and whether there are more.
    async fn seen_entries(
        &self,
        asker: &Asker,
        list: &ListStored,
        limit: usize,
    ) -> Result<(Vec<FileNameRow>, bool), CatalogError> {
        let (space, directory, at) = (FileSpace::Cluster, list.directory, list.version);
        let sight = match self.hides_from(&asker.changer) {
            true => Some((
                groups_of(&self.store.rows_to_directory(space, directory, at).await?),
                self.with_groups(&asker.changer).await?,
            )),
            false => None,
        };
        let is_seen =
            |row: &FileNameRow| sight.as_ref().is_none_or(|(above, reader)| reads(row, above, reader));
        if let Some(name) = &list.only {
            let row = self.store.file_entry(space, directory, at, name).await?.filter(is_seen);
            return Ok((row.into_iter().collect(), false));
        }
        // A page of which little is seen is followed by others at once.
        let read_at_once = if sight.is_some() { STORED_PAGE_MAX } else { limit as u32 + 1 };
        let mut after = list.after.clone();
        let mut rows: Vec<FileNameRow> = Vec::new();
        loop {
            let page = self.store.file_entries(space, directory, at, &after, read_at_once).await?;
            let is_last = page.len() < read_at_once as usize;
            if let Some(last) = page.last() {
                after.clone_from(&last.name);
            }
            rows.extend(page.into_iter().filter(is_seen));
            if is_last || rows.len() > limit {
                break;
            }
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok((rows, more))
    }

    /// Returns an error if the user may not read the content of one of the entries.
    async fn check_contents(
        &self,
        asker: &Asker,
        list: &ListStored,
        rows: &[FileNameRow],
    ) -> Result<(), CatalogError> {
        let is_of_others =
            |row: &&FileNameRow| matches!(row.item, FileItem::File(_)) && !asker.changer.has(&row.user);
        if !rows.iter().any(|row| is_of_others(&row)) {
            return Ok(());
        }
        let reader = self.with_groups(&asker.changer).await?;
        let above = self.store.rows_to_directory(FileSpace::Cluster, list.directory, list.version).await?;
        let above = groups_of(&above);
        for row in rows.iter().filter(is_of_others) {
            if !reads(row, &above, &reader) {
                let (name, user) = (row.name.clone(), row.user.clone());
                return Err(CatalogError::ContentsOfOther { name, user });
            }
        }
        Ok(())
    }

    async fn add_parts(
        &self,
        directory: DirectoryId,
        at: Option<FileVersion>,
        rows: &[FileNameRow],
        page: &mut StoredPage,
    ) -> Result<(), CatalogError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let names = [first.name.as_str(), last.name.as_str()];
        let mut files = self.store.replicated_files_of_entries(directory, at, names).await?;
        // Entries between them may be hidden, or new.
        let contents: HashSet<FileItem> = rows.iter().map(|row| row.item).collect();
        files.retain(|file| contents.contains(&FileItem::File(file.row.content)));
        let StoredPage { parts, nodes, grants, .. } = self.page_of(&files);
        (page.parts, page.nodes, page.grants) = (parts, nodes, grants);
        // Entries that share a content have its files once.
        page.parts.dedup();
        Ok(())
    }

    /// Returns rights to read these files.
    pub(crate) fn read_grants(&self, files: &[ReplicatedFile]) -> Vec<StoredRange> {
        let mut concretes: Vec<ConcreteId> = files.iter().map(|file| file.row.concrete).collect();
        concretes.sort_unstable();
        concretes.dedup();
        let range = |[first, last]: [ConcreteId; 2]| {
            let grant = self.grant(FileRight::Read, [first, last], GRANTED_SECONDS);
            StoredRange { first, last, grant }
        };
        ranges(&concretes).into_iter().map(range).collect()
    }

    /// Renews or ends a lease.
    pub fn lease(&self, lease: &StoredLease) {
        let leases = &mut self.state().leases;
        match lease.ends {
            true => leases.end(lease.lease),
            false => leases.renew(lease.lease, lease.version, Instant::now()),
        }
    }
}

pub(crate) fn placed(file: &ReplicatedFile) -> PlacedPart {
    PlacedPart {
        content: file.row.content,
        part: file.row.part,
        file: part_of(&file.row),
        replicas: file.replicas,
        disks: file.disks.clone(),
    }
}

/// Returns the ranges of numbers without a gap.
fn ranges(sorted: &[ConcreteId]) -> Vec<[ConcreteId; 2]> {
    let mut ranges: Vec<[ConcreteId; 2]> = Vec::new();
    for file in sorted {
        match ranges.last_mut() {
            Some([_, last]) if last.0 + 1 == file.0 => *last = *file,
            _ => ranges.push([*file, *file]),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::ranges;
    use ids::ConcreteId;

    #[test]
    fn ranges_have_no_other_files() {
        let check = |numbers: &[i64], expected: &[[i64; 2]]| {
            let sorted: Vec<ConcreteId> = numbers.iter().copied().map(ConcreteId).collect();
            let ranges: Vec<[i64; 2]> =
                ranges(&sorted).iter().map(|[first, last]| [first.0, last.0]).collect();
            assert_eq!(ranges, expected);
        };
        check(&[], &[]);
        check(&[4], &[[4, 4]]);
        check(&[1, 2, 3, 7, 9, 10], &[[1, 3], [7, 7], [9, 10]]);
    }
}
