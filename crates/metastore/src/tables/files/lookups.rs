//! Reads of the tree of files.

use crate::database::{Row, Session, Value};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::stored::MakingJob;
use ids::{ContentId, DirectoryId, FileVersion, JobId, PutId};
use rows::{ConcreteRow, FileCommitRow, FileItem, FileNameRow, FileSpace, FoundNames};

/// Condition for the names of version `$1`, or of the current one if that is NULL.
macro_rules! of_version {
    () => {
        "(CASE WHEN $1 < 0 THEN until_version IS NULL \
           ELSE since_version <= $1 AND (until_version IS NULL OR until_version > $1) AND is_removing = 0 END)"
    };
}

pub(super) use of_version;

/// More components than a path has: each takes two of at most 4,095 bytes.
const PATH_COMPONENTS_MAX: usize = 2048;

/// The value of `$1` for a version.
pub(super) fn version_value(at: Option<FileVersion>) -> Value {
    at.map_or(-1, |version| version.0).into()
}

/// One entry of a directory.
const ENTRY: &str =
    concat!("SELECT * FROM file_names WHERE ", of_version!(), " AND directory = $2 AND name = $3");
/// Whether a directory has entries.
const HAS_ENTRIES: &str =
    concat!("SELECT name FROM file_names WHERE ", of_version!(), " AND directory = $2 LIMIT 1");

impl Metastore {
    /// Returns the rows of a path of a tree.
    pub async fn found_names(
        &self,
        space: FileSpace,
        components: &[String],
        at: Option<FileVersion>,
    ) -> Result<FoundNames, StoreError> {
        self.found(space, components, at, async |statement, values| self.rows(statement, values).await).await
    }

    /// Returns the rows of a path of the current version, inside a transaction.
    pub(super) async fn found_in(
        &self,
        db: &mut Session<'_>,
        space: FileSpace,
        components: &[String],
    ) -> Result<FoundNames, ApplyError> {
        self.found(space, components, None, async |statement, values| Ok(db.fetch(statement, values).await?))
            .await
    }

    async fn found<E: From<StoreError>>(
        &self,
        space: FileSpace,
        components: &[String],
        at: Option<FileVersion>,
        mut fetch: impl AsyncFnMut(&'static str, Vec<Value>) -> Result<Vec<Row>, E>,
    ) -> Result<FoundNames, E> {
        let mut found = FoundNames::default();
        let mut directory = space.root();
        for name in components {
            let values = vec![version_value(at), directory.0.into(), name.as_str().into()];
            let rows = fetch(ENTRY, values).await?;
            let Some(row) = rows.first() else { return Ok(found) };
            let row = self.file_name_row(row)?;
            let item = row.item;
            found.rows.push(row);
            match item {
                FileItem::Directory(next) => directory = next,
                FileItem::File(_) => return Ok(found),
            }
        }
        let entries = fetch(HAS_ENTRIES, vec![version_value(at), directory.0.into()]).await?;
        found.has_entries = !entries.is_empty();
        Ok(found)
    }

    /// Returns entries of a directory of a tree, by name in the order of its bytes: at most `limit` after the name
    /// `after`. A directory of another tree has none.
    pub async fn file_entries(
        &self,
        space: FileSpace,
        directory: DirectoryId,
        at: Option<FileVersion>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<FileNameRow>, StoreError> {
        let statement = concat!(
            "SELECT * FROM file_names WHERE ",
            of_version!(),
            " AND directory = $2 AND name > $3 AND tree = $5 ORDER BY name LIMIT $4"
        );
        let values =
            [version_value(at), directory.0.into(), after.into(), limit.into(), space.number().into()];
        self.file_name_rows(&self.rows(statement, values).await?)
    }

    /// Returns the concrete files of a content, in their order.
    pub async fn concrete_files(&self, content: ContentId) -> Result<Vec<ConcreteRow>, StoreError> {
        let statement = "SELECT * FROM concrete_files WHERE content = $1 ORDER BY part";
        self.concrete_rows(&self.rows(statement, [content.0.into()]).await?)
    }

    /// Returns the concrete files of the entries of a directory from one name to another, both included, by content
    /// and part.
    pub async fn concrete_files_between(
        &self,
        directory: DirectoryId,
        at: Option<FileVersion>,
        names: [&str; 2],
    ) -> Result<Vec<ConcreteRow>, StoreError> {
        let statement = concat!(
            "SELECT c.* FROM file_names JOIN concrete_files c ON c.content = item WHERE ",
            of_version!(),
            " AND directory = $2 AND name >= $3 AND name <= $4 AND is_directory = 0 ORDER BY c.content, c.part"
        );
        let values = [version_value(at), directory.0.into(), names[0].into(), names[1].into()];
        self.concrete_rows(&self.rows(statement, values).await?)
    }

    /// Returns a path by which a tree reaches a content, a current one if there is one; None if no name has it.
    pub async fn path_of_content(
        &self,
        space: FileSpace,
        content: ContentId,
    ) -> Result<Option<String>, StoreError> {
        let statement = "SELECT * FROM file_names WHERE item = $1 AND is_directory = $2 AND tree = $3 \
             ORDER BY CASE WHEN until_version IS NULL THEN 0 ELSE 1 END, since_version DESC LIMIT 1";
        let mut components = Vec::new();
        let (mut item, mut is_directory) = (content.0, 0_i64);
        while components.len() < PATH_COMPONENTS_MAX {
            let values: Vec<Value> = vec![item.into(), is_directory.into(), space.number().into()];
            let rows = self.rows(statement, values).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let row = self.file_name_row(row)?;
            components.push(row.name);
            if row.directory == space.root() {
                components.reverse();
                return Ok(Some(components.join("/")));
            }
            (item, is_directory) = (row.directory.0, 1);
        }
        Ok(None)
    }

    /// Returns the number that the next put or change gets, without reserving it.
    pub async fn next_put_number(&self) -> Result<PutId, StoreError> {
        let rows = self.rows("SELECT value FROM sequences WHERE name = 'file_put'", []).await?;
        match rows.first() {
            Some(row) => Ok(PutId(self.get::<i64>(row, "value")? + 1)),
            None => Err(self.damaged("sequences.name", "file_put")),
        }
    }

    /// Returns the version of the trees: that of the last change of either, or 0.
    pub async fn file_version(&self) -> Result<FileVersion, StoreError> {
        let rows = self.rows("SELECT value FROM sequences WHERE name = 'file_version'", []).await?;
        rows.first().map_or(Ok(FileVersion(0)), |row| Ok(FileVersion(self.get(row, "value")?)))
    }

    /// Returns the rows of a name in a directory, current and ended, oldest first.
    pub async fn versions_of_name(
        &self,
        directory: DirectoryId,
        name: &str,
    ) -> Result<Vec<FileNameRow>, StoreError> {
        let statement = "SELECT * FROM file_names WHERE directory = $1 AND name = $2 ORDER BY since_version";
        self.file_name_rows(&self.rows(statement, [directory.0.into(), name.into()]).await?)
    }

    /// Returns the changes of a path of a tree and of names below it, newest first.
    pub async fn file_commits(
        &self,
        space: FileSpace,
        path: &str,
        limit: u32,
    ) -> Result<Vec<FileCommitRow>, StoreError> {
        self.file_commits_by(space, path, None, limit).await
    }

    /// Returns the same, of one user.
    pub async fn file_commits_by(
        &self,
        space: FileSpace,
        path: &str,
        user: Option<&str>,
        limit: u32,
    ) -> Result<Vec<FileCommitRow>, StoreError> {
        // `0` follows `/`, so the range holds the names below the path.
        let statement = "SELECT * FROM file_commits \
             WHERE (path = $1 OR (path >= $2 AND path < $3) OR $1 = '/') AND tree = $5 \
             AND ($6 = 0 OR user_name = $7) \
             ORDER BY version DESC LIMIT $4";
        let values = [
            path.into(),
            format!("{path}/").into(),
            format!("{path}0").into(),
            limit.into(),
            space.number().into(),
            i64::from(user.is_some()).into(),
            user.unwrap_or_default().into(),
        ];
        self.rows(statement, values).await?.iter().map(|row| self.commit_row(row)).collect()
    }

    /// Returns the change that stored the output of a job; None if the put was that of a user.
    pub async fn commit_of_job_put(&self, put: PutId) -> Result<Option<FileCommitRow>, StoreError> {
        let statement = "SELECT * FROM file_commits WHERE put = $1 LIMIT 1";
        let rows = self.rows(statement, [put.0.into()]).await?;
        rows.first().map(|row| self.commit_row(row)).transpose()
    }

    fn commit_row(&self, row: &Row) -> Result<FileCommitRow, StoreError> {
        let job: Option<i64> = self.get(row, "job")?;
        let name: Option<String> = self.get(row, "job_name")?;
        Ok(FileCommitRow {
            version: FileVersion(self.get(row, "version")?),
            user: self.get(row, "user_name")?,
            verb: self.get(row, "verb")?,
            path: self.get(row, "path")?,
            files: self.number(row, "files")?,
            bytes: self.number(row, "bytes")?,
            created_ns: self.number(row, "created_ns")?,
            job: job.map(|job| MakingJob { job: JobId(job), name: name.unwrap_or_default() }),
        })
    }
}
