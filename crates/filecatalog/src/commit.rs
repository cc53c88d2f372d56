//! Commit of a put. Names below a directory are stored first, in steps, in directories that no name reaches; one small
//! transaction shows them.

use crate::asked::{found_paths, making, now_ns, path_of};
use crate::{Asker, Catalog, CatalogError};
use api::stored::HashedFile;
use api::stored::cluster::{CommitStored, CommittedStored, StoredPut};
use filetree::{FileSize, Making, TreeDecision, TreeError, check_component, place};
use ids::{DirectoryId, FileVersion, PutId};
use metastore::{EndedPut, FileChange, FileFacts, FileQuestion};
use rows::{ClusterPutRow, FileCommitRow, FileGroups, FileItem, FileNameRow, FileSpace, PutFile};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Files whose names are stored in one transaction.
const FILES_AT_ONCE: u32 = 2000;
/// Time after which a request is answered although names are left.
const STEP: Duration = Duration::from_secs(2);

/// The names of a put that are being stored.
#[derive(Debug)]
pub(crate) struct Naming {
    session: u32,
    after: Option<String>,
    /// Directories below the put, by name.
    directories: HashMap<String, DirectoryId>,
    next_number: u32,
    files: u64,
    bytes: u64,
    is_complete: bool,
    has_empty_directories: bool,
}

/// The thing that a put shows under its name.
struct Shown {
    item: FileItem,
    size: FileSize,
    hashed: Option<HashedFile>,
}

/// An error inside the transaction.
enum Refused {
    Tree(TreeError),
    SessionOver(PutId),
}

impl From<TreeError> for Refused {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}

impl Naming {
    fn new(put: PutId, session: u32) -> Option<Self> {
        Some(Self {
            session,
            after: None,
            directories: HashMap::from([(String::new(), DirectoryId::of(put, 0)?)]),
            next_number: 1,
            files: 0,
            bytes: 0,
            is_complete: false,
            has_empty_directories: false,
        })
    }

    /// Returns the directory of this name, and makes the rows of those that are missing.
    fn directory(
        &mut self,
        row: &ClusterPutRow,
        name: &str,
        rows: &mut Vec<FileNameRow>,
    ) -> Result<DirectoryId, CatalogError> {
        if let Some(known) = self.directories.get(name) {
            return Ok(*known);
        }
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        let above = self.directory(row, above, rows)?;
        let id = DirectoryId::of(row.put, self.next_number).ok_or(CatalogError::TooMany)?;
        self.next_number += 1;
        rows.push(name_row(row, above, last, FileItem::Directory(id), FileSize::default()));
        self.directories.insert(name.to_string(), id);
        Ok(id)
    }

    fn add(
        &mut self,
        row: &ClusterPutRow,
        file: &PutFile,
        rows: &mut Vec<FileNameRow>,
    ) -> Result<(), CatalogError> {
        let name = &file.row.name;
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        let above = self.directory(row, above, rows)?;
        let size = FileSize { bytes: file.row.bytes, parts: file.row.parts };
        let new = name_row(row, above, last, FileItem::File(file.row.content), size);
        rows.push(FileNameRow { hashed: file.row.hashed.clone(), ..new });
        self.files += 1;
        self.bytes += file.row.bytes;
        Ok(())
    }
}

/// Returns the row of a name below a put. Its version is written some time after the commit: until then it belongs to
/// every version, and only the name of the put leads to it.
fn name_row(
    row: &ClusterPutRow,
    directory: DirectoryId,
    name: &str,
    item: FileItem,
    size: FileSize,
) -> FileNameRow {
    FileNameRow {
        directory,
        name: name.to_string(),
        since: FileVersion(0),
        until: None,
        item,
        user: row.user.clone(),
        bytes: size.bytes,
        parts: size.parts,
        created_ns: now_ns(),
        keep_versions: row.keep_versions,
        expires_ns: None,
        groups: FileGroups::default(),
        hashed: None,
    }
}

impl Catalog {
    /// Makes the files of a put visible, as one version, or goes on with storing their names. A repeated request gets the
    /// same version.
    pub async fn commit(
        &self,
        asker: &Asker,
        commit: &CommitStored,
    ) -> Result<CommittedStored, CatalogError> {
        let mut naming = self.naming.lock().await;
        let row = self.put_row(asker, commit.of).await?;
        if let Some(version) = row.version {
            return Ok(CommittedStored {
                version: Some(version),
                files: row.files,
                bytes: row.bytes,
                short_files: row.short_files,
            });
        }
        if !row.is_directory {
            let mut files = self.store.cluster_put_files(row.put, None, 2).await?;
            let problem = "it is one file, which has not been recorded";
            let file = files.pop().filter(|_| files.is_empty());
            let file = file.ok_or(CatalogError::Incomplete { put: row.put, problem })?;
            let size = FileSize { bytes: file.row.bytes, parts: file.row.parts };
            let item = FileItem::File(file.row.content);
            let shown = Shown { item, size, hashed: file.row.hashed };
            return self.show(asker, &row, shown, [1, file.row.bytes]).await;
        }
        let known = naming.remove(&row.put).filter(|known| known.session == row.session);
        let mut step = match known {
            Some(known) => known,
            None => Naming::new(row.put, row.session).ok_or(CatalogError::TooMany)?,
        };
        let began = Instant::now();
        while !step.is_complete {
            if began.elapsed() >= STEP {
                let told =
                    CommittedStored { files: step.files, bytes: step.bytes, ..CommittedStored::default() };
                naming.insert(row.put, step);
                return Ok(told);
            }
            self.name_some(&row, commit, &mut step).await?;
        }
        let root = DirectoryId::of(row.put, 0).ok_or(CatalogError::TooMany)?;
        let item = FileItem::Directory(root);
        let shown = Shown { item, size: FileSize::default(), hashed: None };
        self.show(asker, &row, shown, [step.files, step.bytes]).await
    }

    /// Stores some names.
    async fn name_some(
        &self,
        row: &ClusterPutRow,
        commit: &CommitStored,
        step: &mut Naming,
    ) -> Result<(), CatalogError> {
        let mut rows = Vec::new();
        if !step.has_empty_directories {
            for name in &commit.empty_directories {
                let text = |source| CatalogError::Name { text: name.clone(), source };
                name.split('/').try_for_each(check_component).map_err(text)?;
                path_of(&format!("{}/{name}", row.path))?;
                step.directory(row, name, &mut rows)?;
            }
            step.has_empty_directories = true;
        }
        let files = self.store.cluster_put_files(row.put, step.after.as_deref(), FILES_AT_ONCE).await?;
        for file in &files {
            step.add(row, file, &mut rows)?;
        }
        match files.last() {
            Some(last) => step.after = Some(last.row.name.clone()),
            None => step.is_complete = true,
        }
        for some in rows.chunks(FILES_AT_ONCE as usize) {
            if !self.store.name_cluster_files(row.put, row.session, now_ns(), some).await? {
                return Err(CatalogError::SessionOver(row.put));
            }
        }
        Ok(())
    }

    /// Gives the put its name.
    async fn show(
        &self,
        asker: &Asker,
        row: &ClusterPutRow,
        shown: Shown,
        [files, bytes]: [u64; 2],
    ) -> Result<CommittedStored, CatalogError> {
        let path = path_of(&row.path)?;
        let (short_files, job) = {
            let state = self.state();
            (state.short.get(&row.put).copied().unwrap_or(0), state.outputs.maker(row.put))
        };
        let question = FileQuestion {
            space: FileSpace::Cluster,
            paths: vec![path.components()],
            subtree: false,
            put: Some(row.put),
            user: asker.changer.user(),
            groups: Vec::new(),
        };
        let of = StoredPut { put: row.put, session: row.session };
        let decide = |facts: FileFacts| {
            let is_current =
                facts.put_row.as_ref().is_some_and(|now| now.session == of.session && now.version.is_none());
            if !is_current {
                return Err(Refused::SessionOver(of.put));
            }
            let found = found_paths(&facts, &[&path]);
            let found = found.first().cloned().unwrap_or_default();
            let mut making = Making { ttl_ns: row.ttl_ns, ..making(&facts, &row.user, row.keep_versions) };
            self.may_put_at(&found, &asker.changer.in_groups(facts.groups.clone()))?;
            let TreeDecision { ends, mut begins, owned } =
                place(&found, shown.item, shown.size, &mut making)?;
            // The last row is that of the file.
            if let Some(own) = begins.last_mut() {
                own.hashed = shown.hashed;
            }
            let commit = FileCommitRow {
                version: facts.version,
                user: row.user.clone(),
                verb: "put".to_string(),
                path: row.path.clone(),
                files,
                bytes,
                created_ns: making.now_ns,
                job,
            };
            let ended = EndedPut::Cluster { put: of.put, session: of.session, files, bytes, short_files };
            let more = Box::new(std::iter::empty());
            Ok(Some(FileChange { commit, ends, begins, owned, more, ended_put: Some(ended) }))
        };
        let version = match self.store.change_files(&question, decide).await? {
            Ok(version) => version,
            Err(Refused::Tree(error)) => return Err(error.into()),
            Err(Refused::SessionOver(put)) => return Err(CatalogError::SessionOver(put)),
        };
        let mut state = self.state();
        state.short.remove(&row.put);
        state.travelling.remove(&row.put);
        Ok(CommittedStored { version, files, bytes, short_files })
    }
}

#[cfg(test)]
mod tests {
    use super::Naming;
    use ids::{DirectoryId, PutId};
    use rows::ClusterPutRow;

    #[test]
    fn directories_come_before_their_entries() {
        let row = ClusterPutRow { put: PutId(3), user: "ann".to_string(), ..ClusterPutRow::default() };
        let mut naming = Naming::new(row.put, 1).unwrap();
        let mut rows = Vec::new();
        naming.directory(&row, "a/b/c", &mut rows).unwrap();
        naming.directory(&row, "a/b", &mut rows).unwrap();
        let names: Vec<(DirectoryId, &str)> =
            rows.iter().map(|row| (row.directory, row.name.as_str())).collect();
        let id = |number| DirectoryId::of(row.put, number).unwrap();
        assert_eq!(names, [(id(0), "a"), (id(1), "b"), (id(2), "c")]);
    }
}
