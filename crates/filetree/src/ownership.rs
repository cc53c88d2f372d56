//! Rights to names in a tree of several users. A name belongs to the user who made it.

use crate::change::first_two;
use crate::{FoundPath, TreeChange, TreeError, TreePath};
use ids::DirectoryId;
use rows::{FileItem, FileNameRow};
use std::collections::BTreeMap;

/// The user for whom a tree is read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changer {
    /// No permissions are checked: an administrator, or a cluster without users.
    Anybody,
    User(String),
}

impl Changer {
    fn has(&self, row: &FileNameRow) -> bool {
        match self {
            Self::Anybody => true,
            Self::User(user) => *user == row.user,
        }
    }
}

/// Returns an error if the user may not read a file, or list a directory: both belong to others. Everybody may list the
/// root, which has no row.
pub fn may_read(row: &FileNameRow, changer: &Changer, path: &TreePath) -> Result<(), TreeError> {
    match changer.has(row) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: path.clone(), user: row.user.clone() }),
    }
}

/// Returns an error if the user may not put something under a name: a new one needs the owner of the last directory
/// that exists above it, and one that is replaced its own or the owner of its directory. At the root everybody may make
/// names.
pub fn may_put(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    match found.row() {
        Some(_) => may_end(found, changer),
        None => may_make(found, changer),
    }
}

/// Returns an error if the user may not make a change. A change that its rules forbid in any case is not judged: the
/// decision says the reason.
///
/// A new name needs the owner of the last directory that exists above it; one that is removed, replaced or moved its
/// own or the owner of its directory; a copy the owner of everything that is copied.
pub fn may_change(
    change: &TreeChange,
    found: &[FoundPath],
    subtree: &[FileNameRow],
    changer: &Changer,
) -> Result<(), TreeError> {
    let [first, second] = first_two(found);
    match change {
        TreeChange::MakeDirectory { .. } if first.row().is_some() => Ok(()),
        TreeChange::MakeDirectory { .. } => may_make(&first, changer),
        TreeChange::Remove { .. } => may_end(&first, changer),
        TreeChange::Rename { .. } => {
            may_end(&first, changer)?;
            may_put(&second, changer)
        }
        TreeChange::Copy { .. } => {
            may_copy(&first, subtree, changer)?;
            may_put(&second, changer)
        }
    }
}

/// Checks the end of a name.
fn may_end(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    let Some(row) = found.row() else { return Ok(()) };
    let above = found.rows.len().checked_sub(2).and_then(|index| found.rows.get(index));
    match changer.has(row) || above.is_some_and(|above| changer.has(above)) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: found.path.clone(), user: row.user.clone() }),
    }
}

/// Checks a new name.
fn may_make(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    let above = found.path.components().len().saturating_sub(1);
    let depth = found.rows.len().min(above);
    let Some(last) = found.rows.get(depth.wrapping_sub(1)) else { return Ok(()) };
    match changer.has(last) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: found.ancestor(depth), user: last.user.clone() }),
    }
}

/// Checks a copy, which makes contents readable for its new owner.
fn may_copy(from: &FoundPath, subtree: &[FileNameRow], changer: &Changer) -> Result<(), TreeError> {
    let Some(row) = from.row() else { return Ok(()) };
    may_read(row, changer, &from.path)?;
    let mut paths: BTreeMap<DirectoryId, TreePath> = BTreeMap::new();
    if let FileItem::Directory(directory) = row.item {
        paths.insert(directory, from.path.clone());
    }
    for row in subtree {
        // A directory comes before its entries. A path that is too long is shown as that of its directory.
        let above = paths.get(&row.directory).unwrap_or(&from.path);
        let path = above.child(&row.name).unwrap_or_else(|_| above.clone());
        may_read(row, changer, &path)?;
        if let FileItem::Directory(directory) = row.item {
            paths.insert(directory, path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Changer, may_change, may_put, may_read};
    use crate::{FoundPath, Parents, Recursion, TreeChange, TreeError, TreePath};
    use ids::{ContentId, DirectoryId, FileVersion};
    use rows::{FileItem, FileNameRow, FileSpace};

    fn path(text: &str) -> TreePath {
        TreePath::parse(text).unwrap()
    }

    fn row(directory: i64, name: &str, item: FileItem, user: &str) -> FileNameRow {
        FileNameRow {
            directory: DirectoryId(directory),
            name: name.to_string(),
            since: FileVersion(1),
            until: None,
            item,
            user: user.to_string(),
            bytes: 0,
            parts: 0,
            created_ns: 0,
            keep_versions: 1,
            expires_ns: None,
        }
    }

    /// Returns the rows of a path in a tree: `ann/` has `a.txt`, `ours/` of Ann has `b.txt` of Bob, which lie at the
    /// root with `top.txt` of Bob.
    fn found(text: &str) -> FoundPath {
        let directory = |number, name, user| row(1, name, FileItem::Directory(DirectoryId(number)), user);
        let file = |directory, name, user| row(directory, name, FileItem::File(ContentId(9)), user);
        let tree = [
            ("ann", directory(10, "ann", "ann")),
            ("ann/a.txt", file(10, "a.txt", "ann")),
            ("ours", directory(20, "ours", "ann")),
            ("ours/b.txt", file(20, "b.txt", "bob")),
            ("top.txt", file(1, "top.txt", "bob")),
        ];
        let path = path(text);
        let components = path.components();
        let above = (1..=components.len()).map(|count| components[..count].join("/"));
        let rows = above
            .map_while(|prefix| tree.iter().find(|(name, _)| *name == prefix).map(|(_, row)| row.clone()));
        let rows = rows.collect();
        FoundPath { path, root: FileSpace::Cluster.root(), rows, has_entries: true }
    }

    /// Returns the refusal of a user as `PATH of USER`, or an empty text.
    fn refusal(outcome: Result<(), TreeError>) -> String {
        match outcome {
            Ok(()) => String::new(),
            Err(TreeError::OfOther { path, user }) => format!("{path} of {user}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_are_put_by_owners() {
        let check = |text: &str, user: &str, expected: &str| {
            let user_may = may_put(&found(text), &Changer::User(user.to_string()));
            assert_eq!(refusal(user_may), expected, "{user} puts {text}");
            assert_eq!(may_put(&found(text), &Changer::Anybody), Ok(()));
        };
        // New names.
        check("new.txt", "cid", "");
        check("new/deep/new.txt", "cid", "");
        check("ann/new.txt", "ann", "");
        check("ann/new.txt", "bob", "ann of ann");
        check("ann/new/deep.txt", "bob", "ann of ann");
        check("ours/new.txt", "bob", "ours of ann");
        // Replaced ones.
        check("ann/a.txt", "ann", "");
        check("ann/a.txt", "bob", "ann/a.txt of ann");
        check("ours/b.txt", "ann", "");
        check("ours/b.txt", "bob", "");
        check("ours/b.txt", "cid", "ours/b.txt of bob");
        check("top.txt", "ann", "top.txt of bob");
        check("top.txt", "bob", "");
    }

    fn check_change(change: &TreeChange, subtree: &[FileNameRow], user: &str, expected: &str) {
        let all: Vec<FoundPath> = change.paths().iter().map(|path| found(&path.to_string())).collect();
        let user_may = may_change(change, &all, subtree, &Changer::User(user.to_string()));
        assert_eq!(refusal(user_may), expected, "{user}: {change:?}");
        assert_eq!(may_change(change, &all, subtree, &Changer::Anybody), Ok(()));
    }

    #[test]
    fn directories_are_made_and_removed_by_owners() {
        let make = |text: &str, user: &str, expected: &str| {
            let change = TreeChange::MakeDirectory { path: path(text), parents: Parents::Made };
            check_change(&change, &[], user, expected);
        };
        make("mine", "cid", "");
        make("ann", "bob", "");
        make("ann/x/y", "ann", "");
        make("ann/x/y", "bob", "ann of ann");
        let remove = |text: &str, user: &str, expected: &str| {
            let change = TreeChange::Remove { path: path(text), recursive: Recursion::Yes };
            check_change(&change, &[], user, expected);
        };
        remove("ann", "ann", "");
        remove("ann", "bob", "ann of ann");
        remove("ours/b.txt", "ann", "");
        remove("ours/b.txt", "bob", "");
        remove("ours/b.txt", "cid", "ours/b.txt of bob");
        remove("missing", "cid", "");
        remove("ann/missing", "cid", "");
        remove("/", "cid", "");
    }

    #[test]
    fn moves_need_both_ends() {
        let rename = |from: &str, to: &str, user: &str, expected: &str| {
            check_change(&TreeChange::Rename { from: path(from), to: path(to) }, &[], user, expected);
        };
        rename("ann/a.txt", "a.txt", "ann", "");
        rename("ann/a.txt", "a.txt", "bob", "ann/a.txt of ann");
        rename("ours/b.txt", "b.txt", "bob", "");
        rename("ours/b.txt", "ann/b.txt", "bob", "ann of ann");
        rename("ours/b.txt", "ann/b.txt", "ann", "");
        rename("ann/a.txt", "top.txt", "ann", "top.txt of bob");
        rename("ann/a.txt", "ours/b.txt", "ann", "");
    }

    #[test]
    fn copies_need_the_owner_of_everything() {
        let copy = |from: &str, subtree: &[FileNameRow], user: &str, expected: &str| {
            check_change(&TreeChange::Copy { from: path(from), to: path("new") }, subtree, user, expected);
        };
        copy("ann/a.txt", &[], "ann", "");
        copy("ann/a.txt", &[], "bob", "ann/a.txt of ann");
        // The owner of a directory may remove a file of another in it, and may not copy it.
        copy("ours/b.txt", &[], "ann", "ours/b.txt of bob");
        copy("ours/b.txt", &[], "bob", "");
        let below = |user| {
            let inner = row(20, "inner", FileItem::Directory(DirectoryId(30)), "ann");
            [inner, row(30, "c.txt", FileItem::File(ContentId(7)), user)]
        };
        copy("ours", &below("ann"), "ann", "");
        copy("ours", &below("bob"), "ann", "ours/inner/c.txt of bob");
        copy("ours", &below("bob"), "bob", "ours of ann");
    }

    #[test]
    fn files_are_read_by_their_owners() {
        let check = |text: &str, user: &str, expected: &str| {
            let found = found(text);
            let user_may = may_read(found.row().unwrap(), &Changer::User(user.to_string()), &found.path);
            assert_eq!(refusal(user_may), expected, "{user} reads {text}");
            assert_eq!(may_read(found.row().unwrap(), &Changer::Anybody, &found.path), Ok(()));
        };
        check("ann/a.txt", "ann", "");
        check("ann/a.txt", "bob", "ann/a.txt of ann");
        check("ours/b.txt", "ann", "ours/b.txt of bob");
        check("ours", "bob", "ours of ann");
    }
}
