//! The trees that a mount shows: all stored files, or files that are shown one by one.

use filestore::{EntryPage, FileEntry, FilesError, OpenedFile, StoredTree};
use filetree::{TreeName, TreePath};
use rows::FileCommitRow;
use std::sync::Arc;

/// A tree as the file system asks for it.
pub(crate) trait MountedTree: Send + Sync {
    /// Returns the entry of a name.
    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError>;

    /// Returns entries of a directory whose names follow `after`, a bounded number.
    fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError>;

    /// Opens a file for reads of its ranges.
    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError>;

    /// Returns the newest versions of the tree, at most so many.
    fn versions(&self, count_max: u32) -> Result<Vec<FileCommitRow>, FilesError>;
}

impl MountedTree for Arc<dyn StoredTree> {
    fn entry(&self, name: &TreeName) -> Result<FileEntry, FilesError> {
        self.as_ref().entry(name)
    }

    fn entry_page(&self, name: &TreeName, after: &str) -> Result<EntryPage, FilesError> {
        self.as_ref().entry_page(name, after)
    }

    fn open_file(&self, name: &TreeName) -> Result<OpenedFile, FilesError> {
        self.as_ref().open_file(name)
    }

    fn versions(&self, count_max: u32) -> Result<Vec<FileCommitRow>, FilesError> {
        self.as_ref().versions(&TreePath::default(), count_max)
    }
}
