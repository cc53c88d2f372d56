//! Rights to names in a tree of several users. A name belongs to the user who made it. It may have a group of readers and
//! one of writers; without one of its own it has that of the nearest directory above it.

use crate::change::first_two;
use crate::{FoundPath, TreeChange, TreeError, TreePath};
use ids::DirectoryId;
use rows::{FileGroups, FileItem, FileNameRow};
use std::collections::{BTreeMap, BTreeSet};

/// The user for whom a tree is read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changer {
    /// No permissions are checked: an administrator, or a cluster without users.
    Anybody,
    /// A user whose groups are not known yet, and count for nothing.
    User(String),
    Member {
        user: String,
        groups: BTreeSet<String>,
    },
}

impl Changer {
    /// Returns the same user in these groups.
    pub fn in_groups(&self, groups: BTreeSet<String>) -> Self {
        match self {
            Self::Anybody => Self::Anybody,
            Self::User(user) | Self::Member { user, .. } => Self::Member { user: user.clone(), groups },
        }
    }

    /// Returns the name of the user; None for those whose permissions are not checked.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Anybody => None,
            Self::User(user) | Self::Member { user, .. } => Some(user),
        }
    }

    /// Returns whether everything of this user belongs to the changer.
    pub fn has(&self, user: &str) -> bool {
        self.user().is_none_or(|own| own == user)
    }

    /// Returns whether the changer may read what belongs to a user. `groups`: those that count for it.
    pub fn reads(&self, user: &str, groups: &FileGroups) -> bool {
        self.has(user) || self.is_in(groups.read.as_ref()) || self.is_in(groups.write.as_ref())
    }

    /// Returns whether the changer may replace and remove what belongs to a user.
    pub fn writes(&self, user: &str, groups: &FileGroups) -> bool {
        self.has(user) || self.is_in(groups.write.as_ref())
    }

    fn is_in(&self, group: Option<&String>) -> bool {
        match self {
            Self::Anybody => true,
            Self::User(_) => false,
            Self::Member { groups, .. } => group.is_some_and(|group| groups.contains(group)),
        }
    }
}

/// Returns the groups that count for the last of these rows, which are those of a path from the root down.
pub fn groups_of(rows: &[FileNameRow]) -> FileGroups {
    rows.iter().fold(FileGroups::default(), |above, row| row.groups.within(&above))
}

/// Returns whether the user may read the content of a name. `above`: the groups that count for its directory.
pub fn reads(row: &FileNameRow, above: &FileGroups, changer: &Changer) -> bool {
    changer.reads(&row.user, &row.groups.within(above))
}

/// Returns an error if the user may not read a file, or copy a directory.
pub fn may_read(
    row: &FileNameRow,
    above: &FileGroups,
    changer: &Changer,
    path: &TreePath,
) -> Result<(), TreeError> {
    match reads(row, above, changer) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: path.clone(), user: row.user.clone() }),
    }
}

/// Returns an error if the user may not put something under a name: a new one needs the owner or a writer of the last
/// directory that exists above it, and one that is replaced its own or those of its directory. At the root everybody may
/// make names.
pub fn may_put(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    match found.row() {
        Some(_) => may_end(found, changer),
        None => may_make(found, changer),
    }
}

/// Returns an error if the user may not make a change. A change that its rules forbid in any case is not judged: the
/// decision says the reason.
///
/// A new name needs the owner or a writer of the last directory that exists above it; one that is removed, replaced or
/// moved its own or those of its directory; a copy a reader of everything that is copied; other groups the owner of all
/// names that get them; another owner an administrator.
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
            let may_copy = |row: &_, above: &_, path: &_| may_read(row, above, changer, path);
            each_below(&first, subtree, may_copy)?;
            may_put(&second, changer)
        }
        TreeChange::SetGroups { read, write, .. } => {
            let changed = crate::set_groups(&first, subtree, read, write)?.owned;
            let changed: BTreeSet<(DirectoryId, &str)> =
                changed.iter().map(|row| (row.directory, row.name.as_str())).collect();
            each_below(&first, subtree, |row, _, path| {
                let is_named = *path == first.path || changed.contains(&(row.directory, row.name.as_str()));
                match changer.has(&row.user) || !is_named {
                    true => Ok(()),
                    false => Err(TreeError::GroupsOfOther { path: path.clone(), user: row.user.clone() }),
                }
            })
        }
        TreeChange::SetOwner { path, .. } => match changer {
            Changer::Anybody => Ok(()),
            Changer::User(_) | Changer::Member { .. } => Err(TreeError::OwnerOfAdministrators(path.clone())),
        },
    }
}

/// Returns whether the user owns the last of these rows, or is a writer of it.
fn writes(rows: &[FileNameRow], changer: &Changer) -> bool {
    rows.last().is_some_and(|row| changer.writes(&row.user, &groups_of(rows)))
}

/// Checks the end of a name.
fn may_end(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    let Some(row) = found.row() else { return Ok(()) };
    let above = &found.rows[..found.rows.len() - 1];
    match writes(&found.rows, changer) || writes(above, changer) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: found.path.clone(), user: row.user.clone() }),
    }
}

/// Checks a new name.
fn may_make(found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
    let above = found.path.components().len().saturating_sub(1);
    let rows = &found.rows[..found.rows.len().min(above)];
    let Some(last) = rows.last() else { return Ok(()) };
    match writes(rows, changer) {
        true => Ok(()),
        false => Err(TreeError::OfOther { path: found.ancestor(rows.len()), user: last.user.clone() }),
    }
}

/// Checks a name and everything below it: each row, with the groups that count for its directory.
fn each_below(
    from: &FoundPath,
    subtree: &[FileNameRow],
    mut check: impl FnMut(&FileNameRow, &FileGroups, &TreePath) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    let Some(row) = from.row() else { return Ok(()) };
    let above = groups_of(&from.rows[..from.rows.len() - 1]);
    check(row, &above, &from.path)?;
    let mut directories: BTreeMap<DirectoryId, (TreePath, FileGroups)> = BTreeMap::new();
    let top = (from.path.clone(), row.groups.within(&above));
    if let FileItem::Directory(directory) = row.item {
        directories.insert(directory, top.clone());
    }
    for row in subtree {
        // A directory comes before its entries. A path that is too long is shown as that of its directory.
        let (above, groups) = directories.get(&row.directory).unwrap_or(&top);
        let path = above.child(&row.name).unwrap_or_else(|_| above.clone());
        check(row, groups, &path)?;
        if let FileItem::Directory(directory) = row.item {
            let groups = row.groups.within(groups);
            directories.insert(directory, (path, groups));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Changer, groups_of, may_change, may_put, may_read};
    use crate::{FoundPath, GroupSetting, Parents, Recursion, TreeChange, TreeError, TreePath};
    use ids::{ContentId, DirectoryId, FileVersion};
    use rows::{FileGroups, FileItem, FileNameRow, FileSpace};

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
            groups: FileGroups::default(),
            hashed: None,
        }
    }

    fn with(row: FileNameRow, read: Option<&str>, write: Option<&str>) -> FileNameRow {
        let groups = FileGroups { read: read.map(str::to_string), write: write.map(str::to_string) };
        FileNameRow { groups, ..row }
    }

    /// Returns a user, after whom a sign follows each group, as in `bob+writers`.
    fn user(text: &str) -> Changer {
        let mut words = text.split('+').map(str::to_string);
        Changer::User(words.next().unwrap()).in_groups(words.collect())
    }

    /// Returns the rows of a path in a tree: `ann/` has `a.txt`, `ours/` of Ann has `b.txt` of Bob, which lie at the
    /// root with `top.txt` of Bob. `team/` of Ann has groups, and `team/in/` another one of readers.
    fn found(text: &str) -> FoundPath {
        let directory = |number, name, user| row(1, name, FileItem::Directory(DirectoryId(number)), user);
        let file = |directory, name, user| row(directory, name, FileItem::File(ContentId(9)), user);
        let tree = [
            ("ann", directory(10, "ann", "ann")),
            ("ann/a.txt", file(10, "a.txt", "ann")),
            ("ours", directory(20, "ours", "ann")),
            ("ours/b.txt", file(20, "b.txt", "bob")),
            ("top.txt", file(1, "top.txt", "bob")),
            ("team", with(directory(30, "team", "ann"), Some("readers"), Some("writers"))),
            ("team/c.txt", file(30, "c.txt", "ann")),
            ("team/in", with(directory(31, "in", "ann"), Some("few"), None)),
            ("team/in/d.txt", file(31, "d.txt", "ann")),
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
            Err(TreeError::OfOther { path, user } | TreeError::GroupsOfOther { path, user }) => {
                format!("{path} of {user}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_are_put_by_owners() {
        let check = |text: &str, who: &str, expected: &str| {
            let user_may = may_put(&found(text), &user(who));
            assert_eq!(refusal(user_may), expected, "{who} puts {text}");
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
        // By groups.
        check("team/new.txt", "bob+writers", "");
        check("team/in/deep/new.txt", "bob+writers", "");
        check("team/in/d.txt", "bob+writers", "");
        check("team/new.txt", "bob+readers", "team of ann");
        check("team", "bob+writers", "");
        check("team/c.txt", "bob+readers+few", "team/c.txt of ann");
    }

    fn check_change(change: &TreeChange, subtree: &[FileNameRow], who: &str, expected: &str) {
        let all: Vec<FoundPath> = change.paths().iter().map(|path| found(&path.to_string())).collect();
        let user_may = may_change(change, &all, subtree, &user(who));
        assert_eq!(refusal(user_may), expected, "{who}: {change:?}");
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
        // A reader of the directory copies names without groups of their own, and the others as their groups say.
        copy("team", &[row(30, "c.txt", FileItem::File(ContentId(7)), "ann")], "bob+readers", "");
        let other = with(row(30, "e.txt", FileItem::File(ContentId(7)), "ann"), Some("few"), None);
        copy("team", std::slice::from_ref(&other), "bob+readers", "team/e.txt of ann");
        copy("team", &[other], "bob+writers", "");
    }

    #[test]
    fn owners_choose_groups_and_administrators_owners() {
        let chmod = |text: &str, subtree: &[FileNameRow], who: &str, expected: &str| {
            let change = TreeChange::SetGroups {
                path: path(text),
                read: GroupSetting::Group("all".to_string()),
                write: GroupSetting::Kept,
                recursive: Recursion::Yes,
            };
            check_change(&change, subtree, who, expected);
        };
        chmod("team", &[], "ann", "");
        chmod("team", &[], "bob+writers", "team of ann");
        // A name of another user in it stays as it is, unless it has a group that it would lose.
        let of_bob = row(30, "e.txt", FileItem::File(ContentId(7)), "bob");
        chmod("team", std::slice::from_ref(&of_bob), "ann", "");
        chmod("team", &[with(of_bob, Some("few"), None)], "ann", "team/e.txt of bob");
        let change =
            TreeChange::SetOwner { path: path("ann"), user: "bob".to_string(), recursive: Recursion::No };
        check_change(&change, &[], "ann", "only administrators may give ann another owner");
    }

    #[test]
    fn files_are_read_by_owners_and_groups() {
        let check = |text: &str, who: &str, expected: &str| {
            let found = found(text);
            let above = groups_of(&found.rows[..found.rows.len() - 1]);
            let row = found.row().unwrap();
            let user_may = may_read(row, &above, &user(who), &found.path);
            assert_eq!(refusal(user_may), expected, "{who} reads {text}");
            assert_eq!(may_read(row, &above, &Changer::Anybody, &found.path), Ok(()));
        };
        check("ann/a.txt", "ann", "");
        check("ann/a.txt", "bob", "ann/a.txt of ann");
        check("ours/b.txt", "ann", "ours/b.txt of bob");
        check("ours", "bob", "ours of ann");
        check("team/c.txt", "bob+readers", "");
        check("team/c.txt", "bob+writers", "");
        check("team/c.txt", "bob+few", "team/c.txt of ann");
        // The nearest directory with a group of the kind decides.
        check("team/in/d.txt", "bob+few", "");
        check("team/in/d.txt", "bob+writers", "");
        check("team/in/d.txt", "bob+readers", "team/in/d.txt of ann");
    }
}
