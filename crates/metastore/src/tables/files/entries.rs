//! Single entries of directories, and the versions of the names of a committed put.

use crate::database::Value;
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use api::JobSpec;
use ids::{DirectoryId, FileVersion, ITEM_BITS, JobId, PutId};
use rows::{FileNameRow, FileSpace};

/// The last name of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastName {
    directory: DirectoryId,
    name: String,
}

impl Metastore {
    /// Returns the entry of a name in a directory; None for a directory of another tree.
    pub async fn file_entry(
        &self,
        space: FileSpace,
        directory: DirectoryId,
        at: Option<FileVersion>,
        name: &str,
    ) -> Result<Option<FileNameRow>, StoreError> {
        let statement = "SELECT * FROM file_names WHERE directory = $1 AND name = $2 AND tree = $3 \
             AND is_removing = 0 ORDER BY since_version";
        let values: Vec<Value> = vec![directory.0.into(), name.into(), space.number().into()];
        let rows = self.file_name_rows(&self.rows(statement, values).await?)?;
        Ok(rows.into_iter().find(|row| row.is_in(at)))
    }

    /// Writes the version of a committed put to names below it that have none yet: at most `limit` after the last one of
    /// the step before. Returns the last one; None if there are no more.
    pub async fn date_cluster_names(
        &self,
        put: PutId,
        version: FileVersion,
        after: Option<&LastName>,
        limit: u32,
    ) -> Result<Option<LastName>, StoreError> {
        let end = (put.0 + 1) << ITEM_BITS;
        let begin = LastName { directory: DirectoryId(put.0 << ITEM_BITS), name: String::new() };
        let after = after.unwrap_or(&begin);
        let undated = "SELECT directory, name FROM file_names WHERE (directory, name) > ($1, $2) \
             AND directory < $3 AND since_version = 0 ORDER BY directory, name LIMIT $4";
        let values: Vec<Value> =
            vec![after.directory.0.into(), after.name.as_str().into(), end.into(), limit.into()];
        let rows = self.rows(undated, values).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        let last =
            LastName { directory: DirectoryId(self.get(last, "directory")?), name: self.get(last, "name")? };
        self.in_transaction(async |db| {
            let statement = "UPDATE file_names SET since_version = $1 WHERE (directory, name) > ($2, $3) \
                 AND (directory, name) <= ($4, $5) AND since_version = 0";
            let values = [
                version.0.into(),
                after.directory.0.into(),
                after.name.as_str().into(),
                last.directory.0.into(),
                last.name.as_str().into(),
            ];
            db.execute(statement, values).await?;
            Ok(Ending::Commit(()))
        })
        .await?;
        Ok(Some(last))
    }

    /// Returns jobs that are not over and read stored files, with their specifications.
    pub async fn jobs_with_stored_files(&self) -> Result<Vec<(JobId, JobSpec)>, StoreError> {
        let statement = "SELECT jobs.job, specs.spec FROM jobs JOIN specs ON specs.job = jobs.job \
             WHERE jobs.state IN ('running', 'committing') AND (specs.spec LIKE '%\"stored\":{%' \
             OR specs.spec LIKE '%\"stored_output\":{%')";
        let rows = self.rows(statement, []).await?;
        rows.iter().map(|row| Ok((JobId(self.get(row, "job")?), self.spec(row)?))).collect()
    }

    /// Returns the bytes of a user's stored files of the cluster: of each name and version once, without replicas, and
    /// of the recorded files of puts under way.
    pub async fn stored_bytes_of(&self, user: &str) -> Result<u64, StoreError> {
        let statement = "SELECT CAST( \
             (SELECT coalesce(sum(bytes), 0) FROM file_names \
                 WHERE tree = 1 AND is_directory = 0 AND user_name = $1) + \
             (SELECT coalesce(sum(f.bytes), 0) FROM file_puts p JOIN file_put_files f ON f.put = p.put \
                 WHERE p.tree = 1 AND p.version IS NULL AND p.user_name = $1) AS BIGINT) AS bytes";
        let rows = self.rows(statement, [user.into()]).await?;
        rows.first().map_or(Ok(0), |row| self.number(row, "bytes"))
    }
}
