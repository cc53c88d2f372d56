//! Reasons why the tree is not changed.

use crate::TreePath;

/// A change of the tree that its rules forbid. The user can change that; nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("there is no file or directory {0}")]
    Missing(TreePath),
    #[error("{0} exists already")]
    Exists(TreePath),
    #[error("{0} is a file, not a directory")]
    NotADirectory(TreePath),
    #[error("{0} is a directory; `--recursive` removes it with its files")]
    IsADirectory(TreePath),
    #[error("{0} is a directory, and a file cannot replace it: remove it first")]
    FileOverDirectory(TreePath),
    #[error("{0} is a file, and a directory cannot replace it: remove it first")]
    DirectoryOverFile(TreePath),
    #[error("{to} lies within {from}, which cannot be moved or copied into itself")]
    IntoItself { from: TreePath, to: TreePath },
    #[error("the root of the tree cannot be removed, moved or replaced, and has no owner and no groups")]
    Root,
    #[error(
        "{path} belongs to {user}: only {user}, administrators and writers whom {user} named may do this"
    )]
    OfOther { path: TreePath, user: String },
    #[error("{path} belongs to {user}: only {user} and administrators may choose its groups")]
    GroupsOfOther { path: TreePath, user: String },
    #[error("only administrators may give {0} another owner")]
    OwnerOfAdministrators(TreePath),
    /// The name, or a directory above it, is one that the user does not see.
    #[error("{0} cannot be used: choose another name")]
    Taken(TreePath),
    #[error("there is no group {0:?}: an administrator makes one with `sailfish group create`")]
    NoSuchGroup(String),
    #[error("one change makes more than {} files and directories", ids::ITEMS_MAX)]
    TooMany,
}

impl TreeError {
    /// Returns whether the user lacks a right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::OfOther { .. } | Self::GroupsOfOther { .. } | Self::OwnerOfAdministrators(_))
    }
}
