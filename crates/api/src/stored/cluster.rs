//! Messages about the stored files of a cluster: names and puts between clients and the server, and disks between nodes
//! and the server. The bytes travel to and from the data ports of nodes. Documented in docs/protocol.md.

use crate::StoredPart;
use crate::data_access::SecretText;
use crate::stored::{HashedFile, MakingJob, PinnedFile};
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, FileVersion, JobId, NodeId, PutId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Default number of replicas of a stored file, if there are as many nodes.
pub const STORED_REPLICAS: u32 = 3;
/// Maximum number of replicas of a stored file.
pub const STORED_REPLICAS_MAX: u32 = 16;
/// Maximum number of entries of a page of a directory, of recorded files of one request, and of known files.
pub const STORED_PAGE_MAX: u32 = 2000;
/// Maximum number of concrete files that one report of a node lists, and that one answer orders.
pub const STORED_LISTED_MAX: usize = 10_000;
/// Maximum number of sources that failed, in one question for others.
pub const FAILED_SOURCES_MAX: usize = 64;
/// Maximum number of nodes to which a node passes a local copy on at the same time.
pub const COPY_READERS_MAX: u32 = 2;
/// Maximum number of changes that one request lists.
pub const STORED_COMMITS_MAX: u32 = 10_000;

/// An item of the tree: a directory or the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoredItem {
    Directory(DirectoryId),
    File(ContentId),
}

/// A name in a directory, from one version of the tree up to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredEntry {
    /// The directory that has the name.
    pub directory: DirectoryId,
    pub name: String,
    pub item: StoredItem,
    /// The first version that has it.
    pub since: FileVersion,
    pub user: String,
    pub bytes: u64,
    /// Number of concrete files.
    pub parts: u32,
    /// Time of the put, nanoseconds since 1970.
    pub created_ns: u64,
    pub keep_versions: u32,
    /// Time after which the name is removed, nanoseconds since 1970; None is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ns: Option<u64>,
    /// The groups of its own.
    #[serde(default)]
    pub groups: StoredGroups,
    /// Set if the records of the file are distributed by their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashed: Option<HashedFile>,
}

/// The groups of readers and writers of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredGroups {
    /// None: that of the nearest directory above it that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<String>,
}

/// A question for the entry of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindStored {
    /// The name without `files:`, such as `logs/a.txt`; empty for the root.
    pub path: String,
    /// None is the current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<FileVersion>,
    /// True if the contents will be read: the answer has a lease.
    #[serde(default)]
    pub reads: bool,
    /// True if the answer names the job that made the file, or the directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maker: bool,
}

/// The entry of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundStored {
    /// None for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<StoredEntry>,
    /// The root of the tree.
    pub root: DirectoryId,
    /// The version that was looked at.
    pub version: FileVersion,
    /// Number of a lease: the version keeps its files until the lease is ended, or is not renewed in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// Seconds until a lease that is not renewed ends.
    #[serde(default)]
    pub lease_seconds: u32,
    /// The groups that count for the name: its own, or those of directories above it.
    #[serde(default)]
    pub groups: StoredGroups,
    /// The job whose output it is, if that was asked for and the caller sees the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<MakingJob>,
}

/// A question for entries of a directory, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListStored {
    pub directory: DirectoryId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<FileVersion>,
    /// Entries after this name; empty for the first ones.
    #[serde(default)]
    pub after: String,
    /// Only the entry of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Maximum number of entries, at most [`STORED_PAGE_MAX`].
    pub limit: u32,
    /// True if the answer has the concrete files of all files, and rights to read them.
    #[serde(default)]
    pub parts: bool,
    /// The lease under which they are read; it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
}

/// A page of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredPage {
    pub entries: Vec<StoredEntry>,
    /// True if there are entries behind these.
    pub more: bool,
    /// Concrete files of the entries, by content and position.
    #[serde(default)]
    pub parts: Vec<PlacedPart>,
    /// The nodes of their disks that can be reached now.
    #[serde(default)]
    pub nodes: Vec<StoredNode>,
    /// Rights to read them; each part lies in one range.
    #[serde(default)]
    pub grants: Vec<StoredRange>,
    /// The jobs that made those without a replica in reach, as far as the caller sees the jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub makers: Vec<MakerOfParts>,
    /// For a node that copies the parts: the first node to fetch each from, if there is a better one than any with a
    /// replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceOfPart>,
}

/// The node from which another node fetches a part for a local copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceOfPart {
    pub part: ConcreteId,
    pub node: NodeId,
    pub data_url: String,
    /// Value for the header `sailfish-incarnation` of requests to that data port.
    pub incarnation: u64,
    /// True if it has a local copy, perhaps not all of it yet; false if it has a replica.
    pub has_copy: bool,
}

/// The job that made the concrete files of a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakerOfParts {
    pub put: PutId,
    pub job: MakingJob,
}

/// A concrete file with the disks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacedPart {
    pub content: ContentId,
    /// Position within the content; counts from 0.
    pub part: u32,
    pub file: StoredPart,
    /// Wished number of replicas.
    pub replicas: u32,
    /// Disks that have it, also those that cannot be reached now.
    pub disks: Vec<DiskId>,
}

/// A disk with concrete files, and the data port of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredNode {
    pub disk: DiskId,
    pub node: NodeId,
    pub node_name: String,
    pub data_url: String,
    /// Value for the header `sailfish-incarnation` of requests to that data port.
    pub incarnation: u64,
}

/// A right to a range of concrete files, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredRange {
    pub first: ConcreteId,
    pub last: ConcreteId,
    /// Value for the header `authorization`, after `Bearer`.
    pub grant: SecretText,
}

/// A lease to renew or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredLease {
    pub lease: u64,
    /// The version that is read, for a server that has restarted meanwhile.
    pub version: FileVersion,
    /// True if the reader has read everything.
    pub ends: bool,
}

/// A request to change the tree without bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeStored {
    pub change: StoredChange,
    /// The user who owns what is made, if no token names one.
    #[serde(default)]
    pub user: String,
}

/// A change of the tree without bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StoredChange {
    MakeDirectory { path: String, parents: bool },
    Remove { path: String, recursive: bool },
    Rename { from: String, to: String },
    Copy { from: String, to: String },
    SetGroups { path: String, read: StoredGroup, write: StoredGroup, recursive: bool },
    SetOwner { path: String, user: String, recursive: bool },
}

/// A new group of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StoredGroup {
    #[default]
    Kept,
    /// The name has that of its directory.
    Inherited,
    Group(String),
}

/// The version that a change made; none if there was nothing to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedStored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<FileVersion>,
}

/// A question for the changes of a name and of everything below it, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitsOfStored {
    pub path: String,
    /// At most [`STORED_COMMITS_MAX`].
    pub limit: u32,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredCommit {
    pub version: FileVersion,
    pub user: String,
    /// `put`, `mkdir`, `rm`, `mv`, `cp`, `chmod` or `chown`.
    pub verb: String,
    pub path: String,
    pub files: u64,
    pub bytes: u64,
    pub created_ns: u64,
    /// The job whose output was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<MakingJob>,
}

/// The changes of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredCommits {
    pub commits: Vec<StoredCommit>,
}

/// A put that begins, or goes on after its client was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginStored {
    /// The name that is put.
    pub path: String,
    /// The files that are put, as the client names them: the same source goes on. Empty for a stream, which cannot.
    #[serde(default)]
    pub source: String,
    /// True if a directory is put.
    pub is_directory: bool,
    /// Wished number of replicas; None is [`STORED_REPLICAS`], or the number of nodes if that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Number of versions that are kept, with the new one.
    pub keep_versions: u32,
    /// Time from the commit after which the name is removed, in seconds; None is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// The user who owns the files, if no token names one.
    #[serde(default)]
    pub user: String,
}

/// A put under way, with the number of its session: a later session of the same put ends an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredPut {
    pub put: PutId,
    pub session: u32,
}

/// A put that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BegunStored {
    pub of: StoredPut,
    /// Number of replicas that each file will have.
    pub replicas: u32,
    /// True if an earlier session may have stored files of it.
    pub goes_on: bool,
}

/// A question for the files of a put that an earlier session stored, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownOfPut {
    pub of: StoredPut,
    /// Files after this name; None for the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Stored files of a put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownFiles {
    pub files: Vec<KnownFile>,
    pub more: bool,
}

/// A stored file of a put, with the state of its source when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownFile {
    /// Name below the put; empty if the put is this file.
    pub name: String,
    pub content: ContentId,
    pub bytes: u64,
    pub modified_ns: u64,
    pub parts: Vec<StoredPart>,
}

/// A request for numbers of concrete files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberStored {
    pub of: StoredPut,
    pub count: u32,
}

/// Numbers of concrete files of a put: those from `first` on, with the right to write them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberedStored {
    pub first: u32,
    pub range: StoredRange,
}

/// A request for disks for concrete files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceStored {
    pub of: StoredPut,
    /// Bytes of all files that will be placed there.
    pub bytes: u64,
    /// Disks that failed or refused.
    #[serde(default)]
    pub avoid: Vec<DiskId>,
}

/// Disks for concrete files, each on another node. The files are written to the first one, and fetched by the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacesOfStored {
    pub disks: Vec<StoredNode>,
}

/// A report that files of a put are synced on disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordStored {
    pub of: StoredPut,
    /// At most [`STORED_PAGE_MAX`] files. A file that is known under its name is replaced.
    pub files: Vec<RecordedFile>,
    /// Names of known files that the source does not have any more.
    #[serde(default)]
    pub forgotten: Vec<String>,
}

/// A file of a put that is on disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedFile {
    pub name: String,
    pub content: ContentId,
    pub bytes: u64,
    pub modified_ns: u64,
    pub parts: Vec<RecordedPart>,
    /// Set if the records of the file are distributed by their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashed: Option<HashedFile>,
}

/// A part of such a file, with the disks that have synced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedPart {
    pub file: StoredPart,
    pub disks: Vec<DiskId>,
}

/// A request to make the files of a put visible. It is repeated until it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitStored {
    pub of: StoredPut,
    /// Directories below the put in which no file lies.
    #[serde(default)]
    pub empty_directories: Vec<String>,
}

/// The state of such a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommittedStored {
    /// The version that has the files; None if names are still being stored: ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<FileVersion>,
    pub files: u64,
    pub bytes: u64,
    /// Files with fewer replicas than wished; the server adds the others.
    pub short_files: u64,
}

/// A request of a node for the number of a part of a job's output, or only for disks of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceOutput {
    pub of: StoredPut,
    /// Disks that have the part, or will have it.
    #[serde(default)]
    pub have: Vec<DiskId>,
    /// Bytes of the part, as far as they are known.
    pub bytes: u64,
    /// Disks that failed or refused.
    #[serde(default)]
    pub avoid: Vec<DiskId>,
    /// True if the part has a number already.
    #[serde(default)]
    pub is_numbered: bool,
}

/// The number of a part of a job's output, and disks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacedOutput {
    /// The number, and the right to write it; None if the part has one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<StoredRange>,
    /// Disks for the missing replicas, each on another node.
    pub disks: Vec<StoredNode>,
}

/// The parts of a job's output, which become visible with one version of the tree. It is repeated until it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitOutput {
    pub of: StoredPut,
    /// The parts in order, with their names; those without bytes have no concrete file.
    pub parts: Vec<OutputPartStored>,
}

/// A part of a job's output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputPartStored {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<RecordedPart>,
}

/// A report of a node about its disks with concrete files, sent each second, and at once after an order was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredNews {
    pub incarnation: String,
    pub data_url: String,
    pub disks: Vec<StoredDiskNews>,
    /// Pages of the inventories that the server asked for.
    #[serde(default)]
    pub listed: Vec<StoredListing>,
    /// Orders that were done or failed, and damage that was found.
    #[serde(default)]
    pub ends: Vec<StoredEnd>,
    /// True if the node is about to end and will return: nothing is repaired early.
    #[serde(default)]
    pub is_leaving: bool,
}

/// A disk with concrete files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredDiskNews {
    /// Its unique name, and the secret by which its node shows that it has the disk.
    pub uuid: String,
    pub secret: SecretText,
    /// True if it has no concrete file, so that a server that does not know it may use it.
    pub is_empty: bool,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Bytes that new concrete files may take, beyond which the reserve of other data begins.
    pub room_bytes: u64,
    /// False if no new files are taken: the disk failed, or its node is being drained.
    pub takes_files: bool,
}

/// A page of the inventory of a disk: all of its concrete files from `first` to `last`, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredListing {
    pub uuid: String,
    pub first: ConcreteId,
    pub last: ConcreteId,
    /// Files with their lengths in bytes; at most [`STORED_LISTED_MAX`].
    pub files: Vec<(ConcreteId, u64)>,
    /// True for the last page.
    pub is_last: bool,
}

/// The end of an order, or damage that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredEnd {
    pub uuid: String,
    pub file: ConcreteId,
    pub outcome: StoredOutcome,
}

/// The state of a concrete file on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoredOutcome {
    /// It was fetched, verified and synced.
    Fetched,
    /// It is not there any more.
    Removed,
    /// It is missing or damaged; the file was removed.
    Lost(String),
    /// It could not be fetched.
    Failed(String),
    /// A reader met damage, or stated another content: the server orders a look with the content that it has.
    Suspect(String),
}

/// The answer to a report: orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredOrders {
    /// The numbers of the disks in the order of the report; None for a disk that the server does not use.
    pub disks: Vec<Option<DiskId>>,
    /// The reasons for which disks are not used: their unique names, and a sentence.
    #[serde(default)]
    pub refused: Vec<(String, String)>,
    /// Disks whose inventory is wanted from its beginning.
    #[serde(default)]
    pub list: Vec<DiskId>,
    #[serde(default)]
    pub fetch: Vec<StoredFetch>,
    #[serde(default)]
    pub remove: Vec<StoredRemoval>,
    /// Files that should be there: the node looks at each, and removes and reports those that are not as they should be.
    #[serde(default)]
    pub look: Vec<StoredLook>,
    /// Files that programs of many tasks open: the node makes its copies now.
    #[serde(default)]
    pub copy_early: Vec<EarlyCopy>,
}

/// A file that programs of tasks of a user open, some of which this node will probably run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyCopy {
    /// A job that reads the file.
    pub job: JobId,
    pub user: String,
    pub file: PinnedFile,
}

/// An order to fetch a concrete file from another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredFetch {
    pub disk: DiskId,
    pub file: StoredPart,
    pub from: Vec<StoredNode>,
    pub grant: SecretText,
}

/// An order to remove concrete files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredRemoval {
    pub disk: DiskId,
    pub files: Vec<ConcreteId>,
}

/// An order to look for a concrete file: at its length, or at all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredLook {
    pub disk: DiskId,
    pub file: StoredPart,
    /// True if every byte is to be verified.
    #[serde(default)]
    pub verifies: bool,
}

/// A question of a node for the concrete files that a disk of it should have, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartsOnDisk {
    pub incarnation: String,
    pub uuid: String,
    /// Files after this one; None for the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ConcreteId>,
}

/// Concrete files that a disk should have, at most [`STORED_PAGE_MAX`]; none behind the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListedParts {
    pub parts: Vec<StoredPart>,
}

/// A question of a node that runs a job for the places of stored files that the job reads. The answer is a
/// [`StoredPage`] without entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartsOfJob {
    /// At most [`STORED_PAGE_MAX`].
    pub parts: Vec<ConcreteId>,
    /// True if the node makes local copies of the parts, which it passes on: the answer has sources.
    #[serde(default)]
    pub copies: bool,
    /// Sources that have failed, at most [`FAILED_SOURCES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NodeId>,
}
