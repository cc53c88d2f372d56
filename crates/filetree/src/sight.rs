//! A tree of which each user sees the names that the user may read, and no others: those of others are as if they were
//! missing.

use crate::change::first_two;
use crate::{Changer, FoundPath, TreeChange, TreeError, groups_of, reads};
use rows::FileNameRow;

/// Returns whether a user sees the last of these rows, which are those of a path from the root down.
pub fn sees(rows: &[FileNameRow], changer: &Changer) -> bool {
    match rows.split_last() {
        Some((row, above)) => reads(row, &groups_of(above), changer),
        None => true,
    }
}

/// Returns an error for a change of something that the user does not see. To be asked before the decision, whose errors
/// would tell about it.
pub fn check_seen(change: &TreeChange, found: &[FoundPath], changer: &Changer) -> Result<(), TreeError> {
    let [first, second] = first_two(found);
    let check_source = |found: &FoundPath| match found.row().is_none() || sees(&found.rows, changer) {
        true => Ok(()),
        false => Err(TreeError::Missing(found.path.clone())),
    };
    match change {
        TreeChange::MakeDirectory { .. } => check_seen_place(&first, changer),
        TreeChange::Remove { .. } | TreeChange::SetGroups { .. } | TreeChange::SetOwner { .. } => {
            check_source(&first)
        }
        TreeChange::Rename { .. } | TreeChange::Copy { .. } => {
            check_source(&first)?;
            check_seen_place(&second, changer)
        }
    }
}

/// Returns an error for a new name at or below one that the user does not see. It is the same whatever lies there.
pub fn check_seen_place(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    let seen = (0..=found.rows.len()).rev().find(|count| sees(&found.rows[..*count], changer)).unwrap_or(0);
    match seen == found.rows.len() {
        true => Ok(()),
        false => Err(TreeError::Taken(found.ancestor(seen + 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::check_seen_place;
    use crate::{Changer, FoundPath, TreePath};
    use ids::{DirectoryId, FileVersion};
    use rows::{FileGroups, FileItem, FileNameRow, FileSpace};

    #[test]
    fn hidden_places_do_not_tell_their_depth() {
        let row = |user: &str, read: Option<&str>| FileNameRow {
            directory: DirectoryId(1),
            name: "x".to_string(),
            since: FileVersion(1),
            until: None,
            item: FileItem::Directory(DirectoryId(2)),
            user: user.to_string(),
            bytes: 0,
            parts: 0,
            created_ns: 0,
            keep_versions: 1,
            expires_ns: None,
            groups: FileGroups { read: read.map(str::to_string), write: None },
            hashed: None,
        };
        let check = |rows: &[FileNameRow], expected: Option<&str>| {
            let path = TreePath::parse("a/b/c").unwrap();
            let found =
                FoundPath { path, root: FileSpace::Cluster.root(), rows: rows.to_vec(), has_entries: false };
            let bob = Changer::User("bob".to_string()).in_groups(["team".to_string()].into());
            let taken = check_seen_place(&found, &bob).err().map(|error| error.to_string());
            let expected = expected.map(|name| format!("{name} cannot be used: choose another name"));
            assert_eq!(taken, expected);
            assert_eq!(check_seen_place(&found, &Changer::Anybody), Ok(()));
        };
        check(&[], None);
        check(&[row("bob", None)], None);
        check(&[row("ann", None)], Some("a"));
        check(&[row("ann", None), row("ann", None)], Some("a"));
        // A directory that was opened within one that was not.
        check(&[row("ann", None), row("ann", Some("team"))], None);
        check(&[row("ann", Some("team")), row("ann", Some("few"))], Some("a/b"));
        check(&[row("ann", Some("team")), row("ann", Some("few")), row("ann", None)], Some("a/b"));
    }
}
