//! Rows of the tree of files: names with their versions, and the concrete files of contents.

use ids::{ConcreteId, ContentId, DirectoryId, FileVersion, PutId};

/// The thing that a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileItem {
    Directory(DirectoryId),
    /// A version of a logical file.
    File(ContentId),
}

/// A name in a directory, from one version of the tree up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNameRow {
    pub directory: DirectoryId,
    pub name: String,
    /// The first version that has it, and the first one that does not.
    pub since: FileVersion,
    pub until: Option<FileVersion>,
    pub item: FileItem,
    pub user: String,
    /// Bytes of a file.
    pub bytes: u64,
    /// Concrete files of a file.
    pub parts: u32,
    /// Time of the put, nanoseconds since 1970.
    pub created_ns: u64,
    /// Number of versions that are kept of it, with the current one.
    pub keep_versions: u32,
}

impl FileNameRow {
    /// Returns whether a version of the tree has the name; None is the current one.
    pub fn is_in(&self, version: Option<FileVersion>) -> bool {
        match version {
            None => self.until.is_none(),
            Some(version) => self.since <= version && self.until.is_none_or(|until| version < until),
        }
    }
}

/// A concrete file of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcreteRow {
    pub concrete: ConcreteId,
    pub content: ContentId,
    /// Position within the content; counts from 0.
    pub part: u32,
    pub bytes: u64,
    pub crc32c: u32,
}

/// A change of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCommitRow {
    pub version: FileVersion,
    pub user: String,
    /// `put`, `mkdir`, `rm`, `mv` or `cp`.
    pub verb: String,
    /// The name that changed.
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    pub created_ns: u64,
}

/// The rows of a path inside a store, from the root down, as far as it exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundNames {
    pub rows: Vec<FileNameRow>,
    /// True if the whole path is a directory with entries.
    pub has_entries: bool,
}

/// A put under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePutRow {
    pub put: PutId,
    pub user: String,
    pub path: String,
    /// The files that are put, as the client names them.
    pub source: String,
    pub created_ns: u64,
}

/// A file of a put that is on disk, with the state of its source when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutFileRow {
    /// Name below the put.
    pub name: String,
    pub content: ContentId,
    pub parts: u32,
    pub bytes: u64,
    pub modified_ns: u64,
}
