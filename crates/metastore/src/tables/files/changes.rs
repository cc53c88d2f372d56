//! A change of the tree: look-ups, the decision, and its rows, in one transaction.

use crate::database::{Rows, Session};
use crate::transaction::ApplyError;
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::{DirectoryId, FileVersion, PutId};
use rows::{
    ClusterPutRow, ConcreteRow, FileCommitRow, FileItem, FileNameRow, FileSpace, FoundNames, OwnedNameRow,
};
use std::collections::BTreeSet;

/// Rows that are written by one call, so that a change of a million files needs little memory.
const ROWS_AT_ONCE: usize = 4096;
/// Maximum number of entries of a directory tree that is copied.
const COPIED_MAX: usize = ids::ITEMS_MAX as usize;
/// Entries of a directory that are read at once.
pub(super) const ENTRIES_AT_ONCE: u32 = 4096;

/// The facts that a decision needs.
#[derive(Clone, Debug, Default)]
pub struct FileQuestion<'a> {
    /// The tree that changes.
    pub space: FileSpace,
    /// Components of paths.
    pub paths: Vec<&'a [String]>,
    /// True if everything below the first path is needed.
    pub subtree: bool,
    /// A put of a cluster whose row is needed.
    pub put: Option<PutId>,
    /// The user whose groups are needed.
    pub user: Option<&'a str>,
    /// Groups that must exist: they stay until the transaction ends.
    pub groups: Vec<&'a str>,
}

/// The answers, as they are inside the transaction.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    /// The version that the change makes, and a number for everything that it makes.
    pub version: FileVersion,
    pub put: PutId,
    pub found: Vec<FoundNames>,
    /// Everything below the first path, each directory before its entries.
    pub subtree: Vec<FileNameRow>,
    /// The put of the question; it does not change until the transaction ends. None if it is gone.
    pub put_row: Option<ClusterPutRow>,
    /// The groups of the user.
    pub groups: BTreeSet<String>,
    /// Groups of the question that do not exist.
    pub missing_groups: Vec<String>,
}

/// A put whose files have names now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedPut {
    /// A put of a machine is forgotten.
    Machine(PutId),
    /// A put of a cluster keeps its row with these figures, so that a repeated commit finds them.
    Cluster { put: PutId, session: u32, files: u64, bytes: u64, short_files: u64 },
}

impl EndedPut {
    fn number(self) -> PutId {
        match self {
            Self::Machine(put) | Self::Cluster { put, .. } => put,
        }
    }
}

/// The rows of a change.
pub struct FileChange<'a> {
    pub commit: FileCommitRow,
    pub ends: Vec<(DirectoryId, String)>,
    pub begins: Vec<FileNameRow>,
    /// Names that get another owner or other groups.
    pub owned: Vec<OwnedNameRow>,
    /// More names that begin, perhaps many, with the concrete files of their contents.
    pub more: Box<dyn Iterator<Item = (FileNameRow, Vec<ConcreteRow>)> + 'a>,
    /// The put that ends with the change.
    pub ended_put: Option<EndedPut>,
}

/// Decides about a change; None changes nothing.
type Decision<'a, E> = Result<Option<FileChange<'a>>, E>;

impl Metastore {
    /// Decides about a change of a tree and writes it, in one transaction; durable when this returns. Returns the
    /// version that it made. Nothing is changed if it ends a put of a cluster whose session is over, or that has a
    /// version.
    ///
    /// The transaction is not repeated: after [`StoreError::ConnectionLost`] the change may have been made.
    pub async fn change_files<'a, E>(
        &self,
        question: &FileQuestion<'_>,
        decide: impl FnOnce(FileFacts) -> Decision<'a, E>,
    ) -> Result<Result<Option<FileVersion>, E>, StoreError> {
        let work = async |db: &mut Session<'_>| {
            let done = self.decide_and_write(db, question, decide).await?;
            Ok(match done {
                Ok(Some(_)) => Ending::Commit(done),
                Ok(None) | Err(_) => Ending::Rollback(done),
            })
        };
        self.in_transaction(work).await
    }

    async fn decide_and_write<'a, E>(
        &self,
        db: &mut Session<'_>,
        question: &FileQuestion<'_>,
        decide: impl FnOnce(FileFacts) -> Decision<'a, E>,
    ) -> Result<Result<Option<FileVersion>, E>, ApplyError> {
        // The update locks the row, so that changes come one after the other also in PostgreSQL.
        let version = FileVersion(self.advance(db, "file_version").await?);
        let put = PutId(self.advance(db, "file_put").await?);
        let mut found = Vec::with_capacity(question.paths.len());
        for path in &question.paths {
            found.push(self.found_in(db, question.space, path).await?);
        }
        let subtree = match (question.subtree, found.first(), question.paths.first()) {
            (true, Some(first), Some(path)) if first.rows.len() == path.len() => {
                self.subtree_of(db, first).await?
            }
            _ => Vec::new(),
        };
        let put_row = match question.put {
            Some(put) => self.locked_cluster_put(db, put).await?,
            None => None,
        };
        let (groups, missing_groups) = self.groups_in(db, question).await?;
        match decide(FileFacts { version, put, found, subtree, put_row, groups, missing_groups }) {
            Err(error) => Ok(Err(error)),
            Ok(None) => Ok(Ok(None)),
            Ok(Some(change)) => {
                let is_written = write(db, question.space, change).await?;
                Ok(Ok(is_written.then_some(version)))
            }
        }
    }

    pub(super) async fn advance(
        &self,
        db: &mut Session<'_>,
        sequence: &'static str,
    ) -> Result<i64, ApplyError> {
        let statement = "UPDATE sequences SET value = value + 1 WHERE name = $1 RETURNING value";
        let rows = db.fetch(statement, [sequence.into()]).await?;
        match rows.first() {
            Some(row) => Ok(self.get(row, "value")?),
            None => Err(self.damaged("sequences.name", sequence).into()),
        }
    }

    async fn subtree_of(
        &self,
        db: &mut Session<'_>,
        found: &FoundNames,
    ) -> Result<Vec<FileNameRow>, ApplyError> {
        let mut all: Vec<FileNameRow> = Vec::new();
        let mut pending: Vec<DirectoryId> = Vec::new();
        pending.extend(found.rows.last().and_then(directory_of));
        while let Some(directory) = pending.pop() {
            let mut after = String::new();
            loop {
                let statement = "SELECT * FROM file_names WHERE directory = $1 AND name > $2 AND until_version IS NULL \
                     ORDER BY name LIMIT $3";
                let values = [directory.0.into(), after.as_str().into(), ENTRIES_AT_ONCE.into()];
                let rows = db.fetch(statement, values).await?;
                let rows = self.file_name_rows(&rows)?;
                pending.extend(rows.iter().filter_map(directory_of));
                let Some(last) = rows.last() else { break };
                after.clone_from(&last.name);
                all.extend(rows);
                if all.len() > COPIED_MAX {
                    return Ok(all);
                }
            }
        }
        Ok(all)
    }
}

fn directory_of(row: &FileNameRow) -> Option<DirectoryId> {
    match row.item {
        FileItem::Directory(directory) => Some(directory),
        FileItem::File(_) => None,
    }
}

/// Writes a change. Returns false if the put that it ends may not end; then the transaction is rolled back.
async fn write(db: &mut Session<'_>, space: FileSpace, change: FileChange<'_>) -> Result<bool, ApplyError> {
    let commit = &change.commit;
    if let Some(EndedPut::Cluster { .. }) = change.ended_put
        && !end_cluster_put(db, &change).await?
    {
        return Ok(false);
    }
    insert_commit(db, space, commit, change.ended_put).await?;
    for (directory, name) in &change.ends {
        let statement = "UPDATE file_names SET until_version = $3 \
                         WHERE directory = $1 AND name = $2 AND until_version IS NULL";
        let values = [directory.0.into(), name.as_str().into(), commit.version.0.into()];
        db.execute(statement, values).await?;
    }
    super::owners::write(db, &change.owned).await?;
    let (mut names, mut concretes) = (Rows::default(), Rows::default());
    let mut waiting = 0;
    let begins = change.begins.into_iter().map(|row| (row, Vec::new()));
    for (row, files) in begins.chain(change.more) {
        push_name(&mut names, space, &row);
        waiting += 1 + files.len();
        files.iter().for_each(|file| push_concrete(&mut concretes, file));
        if waiting >= ROWS_AT_ONCE {
            write_rows(db, std::mem::take(&mut names), std::mem::take(&mut concretes)).await?;
            waiting = 0;
        }
    }
    write_rows(db, names, concretes).await?;
    if let Some(EndedPut::Machine(put)) = change.ended_put {
        super::puts::finish(db, put).await?;
    }
    Ok(true)
}

async fn insert_commit(
    db: &mut Session<'_>,
    space: FileSpace,
    commit: &FileCommitRow,
    ended_put: Option<EndedPut>,
) -> Result<(), ApplyError> {
    let made = commit.job.as_ref();
    let values = [
        commit.version.0.into(),
        commit.user.as_str().into(),
        commit.verb.as_str().into(),
        commit.path.as_str().into(),
        commit.files.into(),
        commit.bytes.into(),
        commit.created_ns.into(),
        space.number().into(),
        made.map(|made| made.job.0).into(),
        made.map(|made| made.name.as_str()).into(),
        made.and(ended_put).map(|put| put.number().0).into(),
    ];
    let statement = "INSERT INTO file_commits (version, user_name, verb, path, files, bytes, created_ns, tree, \
                     job, job_name, put) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    db.execute(statement, values).await?;
    Ok(())
}

/// Gives a put of a cluster its version. Returns false if its session is over, or if it has one.
async fn end_cluster_put(db: &mut Session<'_>, change: &FileChange<'_>) -> Result<bool, ApplyError> {
    let Some(EndedPut::Cluster { put, session, files, bytes, short_files }) = change.ended_put else {
        return Ok(false);
    };
    let values = [
        put.0.into(),
        session.into(),
        change.commit.version.0.into(),
        files.into(),
        bytes.into(),
        short_files.into(),
        change.commit.created_ns.into(),
    ];
    let statement = "UPDATE file_puts SET version = $3, files = $4, bytes = $5, short_files = $6, heard_ns = $7 \
                     WHERE put = $1 AND session = $2 AND tree = 1 AND version IS NULL";
    Ok(db.execute(statement, values).await? > 0)
}

async fn write_rows(db: &mut Session<'_>, names: Rows, concretes: Rows) -> Result<(), ApplyError> {
    db.insert("file_names", NAME_COLUMNS, "", names).await?;
    write_concretes(db, concretes).await
}

pub(super) async fn write_concretes(db: &mut Session<'_>, rows: Rows) -> Result<(), ApplyError> {
    let columns = "content, part, concrete, bytes, crc32c, is_removed";
    // Files of a put that was interrupted are there already.
    Ok(db.insert("concrete_files", columns, "ON CONFLICT (content, part) DO NOTHING", rows).await?)
}

pub(super) fn push_concrete(rows: &mut Rows, file: &ConcreteRow) {
    rows.push([
        file.content.0.into(),
        file.part.into(),
        file.concrete.0.into(),
        file.bytes.into(),
        file.crc32c.into(),
        false.into(),
    ]);
}

/// The columns of the rows of [`push_name`].
pub(super) const NAME_COLUMNS: &str = "directory, name, since_version, until_version, is_directory, item, user_name, \
     bytes, parts, created_ns, keep_versions, is_removing, tree, expires_ns, \
     read_group, write_group, hashed";

pub(super) fn push_name(rows: &mut Rows, space: FileSpace, row: &FileNameRow) {
    let (is_directory, item) = match row.item {
        FileItem::Directory(directory) => (true, directory.0),
        FileItem::File(content) => (false, content.0),
    };
    rows.push([
        row.directory.0.into(),
        row.name.as_str().into(),
        row.since.0.into(),
        row.until.map(|until| until.0).into(),
        is_directory.into(),
        item.into(),
        row.user.as_str().into(),
        row.bytes.into(),
        row.parts.into(),
        row.created_ns.into(),
        row.keep_versions.into(),
        false.into(),
        space.number().into(),
        row.expires_ns.into(),
        row.groups.read.as_deref().into(),
        row.groups.write.as_deref().into(),
        super::hashed_value(row.hashed.as_ref()),
    ]);
}
