//! Decisions about owners and groups of names. They are no versions of the files: the rows of the names change in place,
//! so that a right that was taken away is gone for all kept versions.

use crate::{FoundPath, TreeDecision, TreeError};
use api::stored::cluster::StoredGroup;
use rows::{FileGroups, FileNameRow, OwnedNameRow};

/// A new group of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupSetting {
    #[default]
    Kept,
    /// The name has that of its directory.
    Inherited,
    Group(String),
}

impl GroupSetting {
    /// Returns the name of the group.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Group(group) => Some(group),
            Self::Kept | Self::Inherited => None,
        }
    }

    /// Returns the group after this setting of a name that had another one.
    pub fn over(&self, old: Option<&String>) -> Option<String> {
        match self {
            Self::Kept => old.cloned(),
            Self::Inherited => None,
            Self::Group(group) => Some(group.clone()),
        }
    }

    /// Returns the setting of everything below a directory that has this one: it has the group of the directory.
    fn below(&self) -> Self {
        match self {
            Self::Kept => Self::Kept,
            Self::Inherited | Self::Group(_) => Self::Inherited,
        }
    }
}

impl From<&StoredGroup> for GroupSetting {
    fn from(group: &StoredGroup) -> Self {
        match group {
            StoredGroup::Kept => Self::Kept,
            StoredGroup::Inherited => Self::Inherited,
            StoredGroup::Group(group) => Self::Group(group.clone()),
        }
    }
}

/// Decides `chmod`. `subtree`: everything below a directory whose names lose the groups of their own; empty if only the
/// name itself is meant.
pub fn set_groups(
    found: &FoundPath,
    subtree: &[FileNameRow],
    read: &GroupSetting,
    write: &GroupSetting,
) -> Result<TreeDecision, TreeError> {
    let row = existing(found)?;
    let with = |row: &FileNameRow, read: &GroupSetting, write: &GroupSetting| {
        let old = &row.groups;
        let groups = FileGroups { read: read.over(old.read.as_ref()), write: write.over(old.write.as_ref()) };
        owned(row, row.user.clone(), groups)
    };
    let below = (read.below(), write.below());
    let all = subtree.iter().filter_map(|row| with(row, &below.0, &below.1));
    decided(with(row, read, write).into_iter().chain(all))
}

/// Decides `chown`; `subtree` as for [`set_groups`].
pub fn set_owner(found: &FoundPath, subtree: &[FileNameRow], user: &str) -> Result<TreeDecision, TreeError> {
    let row = existing(found)?;
    let all = std::iter::once(row).chain(subtree);
    decided(all.filter_map(|row| owned(row, user.to_string(), row.groups.clone())))
}

fn existing(found: &FoundPath) -> Result<&FileNameRow, TreeError> {
    if found.path.is_root() {
        return Err(TreeError::Root);
    }
    found.row().ok_or_else(|| TreeError::Missing(found.path.clone()))
}

/// Returns the change of a row; None if it is as it should be.
fn owned(row: &FileNameRow, new_owner: String, groups: FileGroups) -> Option<OwnedNameRow> {
    let is_same = row.user == new_owner && row.groups == groups;
    (!is_same).then(|| OwnedNameRow {
        directory: row.directory,
        name: row.name.clone(),
        owner: row.user.clone(),
        new_owner,
        groups,
    })
}

fn decided(owned: impl Iterator<Item = OwnedNameRow>) -> Result<TreeDecision, TreeError> {
    let owned: Vec<OwnedNameRow> = owned.take(ids::ITEMS_MAX as usize).collect();
    match owned.len() < ids::ITEMS_MAX as usize {
        true => Ok(TreeDecision { owned, ..TreeDecision::default() }),
        false => Err(TreeError::TooMany),
    }
}
