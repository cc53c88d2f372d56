//! A change of the tree without bytes: mkdir, rm, mv, cp, chmod or chown.

use crate::{
    FoundPath, GroupSetting, Making, Parents, Recursion, TreeDecision, TreeError, TreePath, copy,
    make_directory, remove, rename, set_groups, set_owner,
};
use rows::FileNameRow;

/// A change of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    MakeDirectory { path: TreePath, parents: Parents },
    Remove { path: TreePath, recursive: Recursion },
    Rename { from: TreePath, to: TreePath },
    Copy { from: TreePath, to: TreePath },
    SetGroups { path: TreePath, read: GroupSetting, write: GroupSetting, recursive: Recursion },
    SetOwner { path: TreePath, user: String, recursive: Recursion },
}

impl TreeChange {
    /// Returns the word that is stored with the change.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::MakeDirectory { .. } => "mkdir",
            Self::Remove { .. } => "rm",
            Self::Rename { .. } => "mv",
            Self::Copy { .. } => "cp",
            Self::SetGroups { .. } => "chmod",
            Self::SetOwner { .. } => "chown",
        }
    }

    /// Returns the paths that the decision needs, in their order.
    pub fn paths(&self) -> Vec<&TreePath> {
        match self {
            Self::MakeDirectory { path, .. }
            | Self::Remove { path, .. }
            | Self::SetGroups { path, .. }
            | Self::SetOwner { path, .. } => vec![path],
            Self::Rename { from, to } | Self::Copy { from, to } => vec![from, to],
        }
    }

    /// Returns the path that is stored with the change.
    pub fn path(&self) -> &TreePath {
        match self {
            Self::MakeDirectory { path, .. }
            | Self::Remove { path, .. }
            | Self::SetGroups { path, .. }
            | Self::SetOwner { path, .. } => path,
            Self::Rename { to, .. } | Self::Copy { to, .. } => to,
        }
    }

    /// Returns whether the decision needs everything below the first path.
    pub fn needs_subtree(&self) -> bool {
        match self {
            Self::Copy { .. } => true,
            Self::SetGroups { recursive, .. } | Self::SetOwner { recursive, .. } => {
                *recursive == Recursion::Yes
            }
            Self::MakeDirectory { .. } | Self::Remove { .. } | Self::Rename { .. } => false,
        }
    }

    /// Returns the groups that must exist.
    pub fn groups(&self) -> Vec<&str> {
        let Self::SetGroups { read, write, .. } = self else { return Vec::new() };
        let mut groups: Vec<&str> = [read, write].into_iter().filter_map(GroupSetting::group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Decides the change. `found` has the rows of [`paths`](Self::paths), and `subtree` everything below the first one
    /// if it is needed, each directory before its entries.
    pub fn decide(
        &self,
        found: &[FoundPath],
        subtree: &[FileNameRow],
        making: &mut Making,
    ) -> Result<TreeDecision, TreeError> {
        let [first, second] = first_two(found);
        match self {
            Self::MakeDirectory { parents, .. } => make_directory(&first, *parents, making),
            Self::Remove { recursive, .. } => remove(&first, *recursive),
            Self::Rename { .. } => rename(&first, &second, making),
            Self::Copy { .. } => copy(&first, &second, subtree, making),
            Self::SetGroups { read, write, .. } => set_groups(&first, subtree, read, write),
            Self::SetOwner { user, .. } => set_owner(&first, subtree, user),
        }
    }
}

/// Returns the rows of the first two paths; the root in place of one that was not looked up.
pub(crate) fn first_two(found: &[FoundPath]) -> [FoundPath; 2] {
    [0, 1].map(|index| found.get(index).cloned().unwrap_or_default())
}
