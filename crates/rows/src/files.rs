//! Rows of the tree of files: names with their versions, and the concrete files of contents.

use api::stored::cluster::StoredGroups;
use api::stored::{HashedFile, MakingJob};
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, FileVersion, PutId};

/// The tree that names belong to: that of a machine, or that of a cluster. They share tables and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileSpace {
    #[default]
    Machine,
    Cluster,
}

impl FileSpace {
    /// Returns the root of the tree. No put makes a directory of that number.
    pub fn root(self) -> DirectoryId {
        DirectoryId(self.number())
    }

    /// Returns the number of the tree in the store.
    pub fn number(self) -> i64 {
        match self {
            Self::Machine => 0,
            Self::Cluster => 1,
        }
    }
}

/// The thing that a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileItem {
    Directory(DirectoryId),
    /// A version of a logical file.
    File(ContentId),
}

impl FileItem {
    /// Returns the put that made it.
    pub fn put(self) -> PutId {
        match self {
            Self::Directory(directory) => directory.put(),
            Self::File(content) => content.put(),
        }
    }
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
    /// Time after which the name is removed, nanoseconds since 1970; None is never.
    pub expires_ns: Option<u64>,
    pub groups: FileGroups,
    /// Set if the records of the file are distributed by their keys.
    pub hashed: Option<HashedFile>,
}

/// The groups of readers and writers of a name; None where the name has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileGroups {
    pub read: Option<String>,
    pub write: Option<String>,
}

impl FileGroups {
    /// Returns the groups that count: those of a directory, where the name in it has none of its own.
    pub fn within(&self, directory: &Self) -> Self {
        let or = |own: &Option<String>, above: &Option<String>| own.as_ref().or(above.as_ref()).cloned();
        Self { read: or(&self.read, &directory.read), write: or(&self.write, &directory.write) }
    }
}

impl From<StoredGroups> for FileGroups {
    fn from(StoredGroups { read, write }: StoredGroups) -> Self {
        Self { read, write }
    }
}

impl From<FileGroups> for StoredGroups {
    fn from(FileGroups { read, write }: FileGroups) -> Self {
        Self { read, write }
    }
}

/// A new owner and new groups of a name: for its current entry, and for the kept earlier ones of the same owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedNameRow {
    pub directory: DirectoryId,
    pub name: String,
    /// The owner until now.
    pub owner: String,
    pub new_owner: String,
    pub groups: FileGroups,
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
    /// `put`, `mkdir`, `rm`, `mv`, `cp`, `expire`, `chmod` or `chown`.
    pub verb: String,
    /// The name that changed.
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    pub created_ns: u64,
    /// The job whose output a put stored.
    pub job: Option<MakingJob>,
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
    /// Set if its records are distributed by their keys.
    pub hashed: Option<HashedFile>,
}

/// A put of a cluster: under way, or committed and not yet forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterPutRow {
    pub put: PutId,
    /// Counts the clients that worked on it; only the last one may go on.
    pub session: u32,
    pub user: String,
    pub path: String,
    /// The files that are put, as the client names them.
    pub source: String,
    pub is_directory: bool,
    /// The first number that no concrete file has been given yet.
    pub next_number: u32,
    /// True while the names of its files are being stored: no file is recorded any more.
    pub is_naming: bool,
    /// Wished number of replicas of each concrete file.
    pub replicas: u32,
    pub keep_versions: u32,
    /// Time from the commit after which the name is removed; None is never.
    pub ttl_ns: Option<u64>,
    pub created_ns: u64,
    /// Time of the last request about it, nanoseconds since 1970.
    pub heard_ns: u64,
    /// The version that has its files; None until it is committed. The numbers below are 0 until then.
    pub version: Option<FileVersion>,
    pub files: u64,
    pub bytes: u64,
    /// Files that had fewer replicas than wished when they were committed.
    pub short_files: u64,
}

/// A disk of a node with concrete files. It keeps its number when its node joins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiskRow {
    pub disk: DiskId,
    pub uuid: String,
    /// The node that had it last.
    pub node_name: String,
    pub rack: String,
    /// Hash of the secret by which a node shows that it has the disk.
    pub secret_hash: String,
}

/// A concrete file of a cluster with the disks that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedFile {
    pub row: ConcreteRow,
    /// Wished number of replicas.
    pub replicas: u32,
    /// True if no name needs it; its replicas are being removed.
    pub is_removed: bool,
    /// In the order of their numbers.
    pub disks: Vec<DiskId>,
}

/// A file that a put has on disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutFile {
    pub row: PutFileRow,
    /// In their order within the content.
    pub parts: Vec<ConcreteRow>,
}

/// A file of a put that is recorded: its parts with the disks that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPutFile {
    pub row: PutFileRow,
    pub parts: Vec<(ConcreteRow, Vec<DiskId>)>,
}
