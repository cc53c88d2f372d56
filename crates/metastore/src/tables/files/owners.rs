//! Owners and groups of names, and the directories above one.

use super::changes::FileQuestion;
use super::lookups::{of_version, version_value};
use crate::database::Session;
use crate::tables::groups::{GROUPS_OF_USER, locked};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use ids::{DirectoryId, FileVersion};
use rows::{FileNameRow, FileSpace, OwnedNameRow};
use std::collections::BTreeSet;

/// Maximum depth of a directory: a name has at most 4,095 bytes.
const DEPTH_MAX: usize = 2048;

impl Metastore {
    /// Returns the rows that lead to a directory of a tree, from the root down, the last of them its own; none for the
    /// root. They are incomplete if the version does not have the directory.
    pub async fn rows_to_directory(
        &self,
        space: FileSpace,
        directory: DirectoryId,
        at: Option<FileVersion>,
    ) -> Result<Vec<FileNameRow>, StoreError> {
        let statement = concat!(
            "SELECT * FROM file_names WHERE ",
            of_version!(),
            " AND item = $2 AND is_directory = 1 AND tree = $3"
        );
        let mut rows = Vec::new();
        let mut next = directory;
        while next != space.root() && rows.len() < DEPTH_MAX {
            let values = [version_value(at), next.0.into(), space.number().into()];
            let found = self.file_name_rows(&self.rows(statement, values).await?)?;
            let Some(row) = found.into_iter().next() else { break };
            next = row.directory;
            rows.push(row);
        }
        rows.reverse();
        Ok(rows)
    }

    /// Returns the groups of the user of a question, and the groups of the question that do not exist.
    pub(super) async fn groups_in(
        &self,
        db: &mut Session<'_>,
        question: &FileQuestion<'_>,
    ) -> Result<(BTreeSet<String>, Vec<String>), ApplyError> {
        let mut groups = BTreeSet::new();
        if let Some(user) = question.user {
            for row in db.fetch(GROUPS_OF_USER, [user.into()]).await? {
                groups.insert(self.get(&row, "group_name")?);
            }
        }
        let mut missing = Vec::new();
        for group in &question.groups {
            if !locked(db, group).await? {
                missing.push((*group).to_string());
            }
        }
        Ok((groups, missing))
    }
}

/// Writes owners and groups of names, also to kept earlier versions of the same owner.
pub(super) async fn write(db: &mut Session<'_>, owned: &[OwnedNameRow]) -> Result<(), ApplyError> {
    let statement = "UPDATE file_names SET user_name = $4, read_group = $5, write_group = $6 \
                     WHERE directory = $1 AND name = $2 AND user_name = $3";
    for row in owned {
        let values = [
            row.directory.0.into(),
            row.name.as_str().into(),
            row.owner.as_str().into(),
            row.new_owner.as_str().into(),
            row.groups.read.as_deref().into(),
            row.groups.write.as_deref().into(),
        ];
        db.execute(statement, values).await?;
    }
    Ok(())
}
