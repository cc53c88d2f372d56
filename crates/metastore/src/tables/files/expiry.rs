//! Names whose time is over.

use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::DirectoryId;
use rows::{FileNameRow, FileSpace};

/// A current name whose time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredName {
    pub row: FileNameRow,
    /// Components of its path. None if no current directory leads to it, which stays so: it goes with the older version
    /// of a directory that has it.
    pub path: Option<Vec<String>>,
}

impl Metastore {
    /// Returns names of a tree whose time is over, those first that have expired first.
    pub async fn expired_file_names(
        &self,
        space: FileSpace,
        now_ns: u64,
        limit: u32,
    ) -> Result<Vec<ExpiredName>, StoreError> {
        let statement = "SELECT * FROM file_names WHERE tree = $1 AND expires_ns <= $2 AND expires_ns IS NOT NULL \
             AND until_version IS NULL ORDER BY expires_ns, directory, name LIMIT $3";
        let rows = self.rows(statement, [space.number().into(), now_ns.into(), limit.into()]).await?;
        let mut expired = Vec::with_capacity(rows.len());
        for row in self.file_name_rows(&rows)? {
            let path = self.path_of_name(space, &row).await?;
            expired.push(ExpiredName { row, path });
        }
        Ok(expired)
    }

    /// Returns the components of the path of a current name; None if a directory above it has no current name.
    async fn path_of_name(
        &self,
        space: FileSpace,
        row: &FileNameRow,
    ) -> Result<Option<Vec<String>>, StoreError> {
        let mut path = vec![row.name.clone()];
        let mut directory = row.directory;
        while directory != space.root() {
            // A directory has one current name at most.
            let statement = "SELECT directory, name FROM file_names \
                 WHERE item = $1 AND is_directory = 1 AND until_version IS NULL AND tree = $2 LIMIT 1";
            let above = self.rows(statement, [directory.0.into(), space.number().into()]).await?;
            let Some(above) = above.first() else { return Ok(None) };
            path.push(self.get(above, "name")?);
            directory = DirectoryId(self.get(above, "directory")?);
        }
        path.reverse();
        Ok(Some(path))
    }

    /// Takes the times from names, so that they are not found as expired any more.
    pub async fn forget_file_expiry(&self, names: &[FileNameRow]) -> Result<(), StoreError> {
        self.in_transaction(async |db| {
            for row in names {
                let statement = "UPDATE file_names SET expires_ns = NULL \
                     WHERE directory = $1 AND name = $2 AND since_version = $3";
                let values = [row.directory.0.into(), row.name.as_str().into(), row.since.0.into()];
                db.execute(statement, values).await?;
            }
            Ok(Ending::Commit(()))
        })
        .await
    }
}
