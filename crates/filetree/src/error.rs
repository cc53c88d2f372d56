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
    #[error("the root of the tree cannot be removed, moved or replaced")]
    Root,
    #[error("{path} belongs to {user}: only {user} and administrators may do this")]
    OfOther { path: TreePath, user: String },
    #[error("one change makes more than {} files and directories", ids::ITEMS_MAX)]
    TooMany,
}
