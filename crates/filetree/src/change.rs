//! A change of the tree without bytes: mkdir, rm, mv or cp.

use crate::{
    FoundPath, Making, Parents, Recursion, TreeDecision, TreeError, TreePath, copy, make_directory, remove,
    rename,
};
use rows::FileNameRow;

/// A change of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    MakeDirectory { path: TreePath, parents: Parents },
    Remove { path: TreePath, recursive: Recursion },
    Rename { from: TreePath, to: TreePath },
    Copy { from: TreePath, to: TreePath },
}

impl TreeChange {
    /// Returns the word that is stored with the change.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::MakeDirectory { .. } => "mkdir",
            Self::Remove { .. } => "rm",
            Self::Rename { .. } => "mv",
            Self::Copy { .. } => "cp",
        }
    }

    /// Returns the paths that the decision needs, in their order.
    pub fn paths(&self) -> Vec<&TreePath> {
        match self {
            Self::MakeDirectory { path, .. } | Self::Remove { path, .. } => vec![path],
            Self::Rename { from, to } | Self::Copy { from, to } => vec![from, to],
        }
    }

    /// Returns the path that is stored with the change.
    pub fn path(&self) -> &TreePath {
        match self {
            Self::MakeDirectory { path, .. } | Self::Remove { path, .. } => path,
            Self::Rename { to, .. } | Self::Copy { to, .. } => to,
        }
    }

    /// Returns whether the decision needs everything below the first path.
    pub fn needs_subtree(&self) -> bool {
        matches!(self, Self::Copy { .. })
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
        }
    }
}

/// Returns the rows of the first two paths; the root in place of one that was not looked up.
pub(crate) fn first_two(found: &[FoundPath]) -> [FoundPath; 2] {
    [0, 1].map(|index| found.get(index).cloned().unwrap_or_default())
}
