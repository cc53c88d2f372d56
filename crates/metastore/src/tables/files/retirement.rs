//! Removal of names that no version needs any more, and of the contents that no name needs.

use super::changes::ENTRIES_AT_ONCE;
use crate::database::Session;
use crate::transaction::ApplyError;
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::{DirectoryId, FileVersion};
use rows::{FileItem, FileNameRow, FileSpace};

/// Names that end in one transaction.
const NAMES_AT_ONCE: usize = 1000;

/// Versions of the tree that are being read: names in them stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetirePins {
    pub versions: Vec<FileVersion>,
}

/// The outcome of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    pub names: u64,
    /// True if another step has more to do.
    pub more: bool,
}

/// Ended names beyond the number of versions that are kept: with the newer ones of the same name, and one more if the
/// name has no current one, there are enough.
const BEYOND: &str = "SELECT e.* FROM file_names e WHERE e.tree = $1 AND e.until_version > 0 AND \
    (SELECT count(*) + 1 - coalesce(max(CASE WHEN n.until_version IS NULL THEN 1 ELSE 0 END), 0) \
         FROM file_names n WHERE n.directory = e.directory AND n.name = e.name AND n.since_version > e.since_version) \
    >= (SELECT k.keep_versions FROM file_names k WHERE k.directory = e.directory AND k.name = e.name \
         ORDER BY k.since_version DESC LIMIT 1) \
    ORDER BY e.until_version, e.directory, e.name LIMIT $2";

impl Metastore {
    /// Removes up to a thousand names of a tree that no version needs, and marks the concrete files of contents without
    /// a name as removed. Repeat it while there is more.
    pub async fn retire_file_names(
        &self,
        space: FileSpace,
        pins: &RetirePins,
    ) -> Result<Retired, StoreError> {
        let has_ended = "SELECT 1 FROM file_names WHERE tree = $1 AND until_version IS NOT NULL LIMIT 1";
        if self.rows(has_ended, [space.number().into()]).await?.is_empty() {
            return Ok(Retired::default());
        }
        self.in_transaction(async |db| {
            let mut step = Step { store: self, space, pins, left: NAMES_AT_ONCE, names: 0 };
            step.run(db).await?;
            let retired = Retired { names: step.names, more: step.left == 0 };
            Ok(if step.names == 0 { Ending::Rollback(retired) } else { Ending::Commit(retired) })
        })
        .await
    }
}

struct Step<'a> {
    store: &'a Metastore,
    space: FileSpace,
    pins: &'a RetirePins,
    left: usize,
    names: u64,
}

impl Step<'_> {
    async fn run(&mut self, db: &mut Session<'_>) -> Result<(), ApplyError> {
        let limit: u64 = NAMES_AT_ONCE as u64;
        let rows = db.fetch(BEYOND, [self.space.number().into(), limit.into()]).await?;
        for row in self.store.file_name_rows(&rows)? {
            let is_pinned = self.pins.versions.iter().any(|version| row.is_in(Some(*version)));
            if self.left == 0 {
                return Ok(());
            }
            if !is_pinned {
                self.remove(db, &row).await?;
            }
        }
        Ok(())
    }

    /// Removes a name; before it everything below it, if it is the last name of a directory.
    async fn remove(&mut self, db: &mut Session<'_>, row: &FileNameRow) -> Result<(), ApplyError> {
        let mut pending = vec![row.clone()];
        while let Some(last) = pending.last().cloned() {
            if self.left == 0 {
                return Ok(());
            }
            if let FileItem::Directory(directory) = last.item
                && self.is_last_name(db, &last).await?
            {
                let below = self.entries(db, directory).await?;
                if !below.is_empty() {
                    if pending.len() == 1 {
                        self.mark(db, &last).await?;
                    }
                    pending.extend(below);
                    continue;
                }
            }
            pending.pop();
            self.forget(db, &last).await?;
        }
        Ok(())
    }

    /// Marks a directory, so that nobody reads it with only a part of its entries.
    async fn mark(&self, db: &mut Session<'_>, row: &FileNameRow) -> Result<(), ApplyError> {
        let statement = "UPDATE file_names SET is_removing = 1 \
                         WHERE directory = $1 AND name = $2 AND since_version = $3";
        db.execute(statement, [row.directory.0.into(), row.name.as_str().into(), row.since.0.into()]).await?;
        Ok(())
    }

    async fn is_last_name(&self, db: &mut Session<'_>, row: &FileNameRow) -> Result<bool, ApplyError> {
        let (is_directory, item) = match row.item {
            FileItem::Directory(directory) => (1_i64, directory.0),
            FileItem::File(content) => (0, content.0),
        };
        let statement = "SELECT name FROM file_names WHERE item = $1 AND is_directory = $2 LIMIT 2";
        Ok(db.fetch(statement, [item.into(), is_directory.into()]).await?.len() < 2)
    }

    async fn entries(
        &self,
        db: &mut Session<'_>,
        directory: DirectoryId,
    ) -> Result<Vec<FileNameRow>, ApplyError> {
        let statement = "SELECT * FROM file_names WHERE directory = $1 LIMIT $2";
        let limit = ENTRIES_AT_ONCE.min(self.left as u32);
        let rows = db.fetch(statement, [directory.0.into(), limit.into()]).await?;
        Ok(self.store.file_name_rows(&rows)?)
    }

    /// Deletes a row, and marks the concrete files of a content that has no other name.
    async fn forget(&mut self, db: &mut Session<'_>, row: &FileNameRow) -> Result<(), ApplyError> {
        if let FileItem::File(content) = row.item
            && self.is_last_name(db, row).await?
        {
            let statement = "UPDATE concrete_files SET is_removed = 1 WHERE content = $1";
            db.execute(statement, [content.0.into()]).await?;
        }
        let statement = "DELETE FROM file_names WHERE directory = $1 AND name = $2 AND since_version = $3";
        db.execute(statement, [row.directory.0.into(), row.name.as_str().into(), row.since.0.into()]).await?;
        self.left -= 1;
        self.names += 1;
        Ok(())
    }
}
