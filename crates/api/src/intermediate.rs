//! Intermediate files of users: any program creates, writes and reads them (section 6.1 and table 2 of the paper on the
//! intermediate storage system, ISS). This module has the messages about them for the server; their bytes travel to and
//! from the data ports of nodes. Documented in docs/intermediate-files.md.

use crate::data_access::{FileCopy, SecretText};
use crate::stored::cluster::{StoredGroup, StoredGroups};
use ids::{IntermediateId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Longest name, in bytes.
pub const INTERMEDIATE_NAME_BYTES_MAX: usize = 200;
/// Default and maximum of the time without a message of a writer after which its file is abandoned, in seconds.
pub const SILENCE_SECONDS: u32 = 60;
pub const SILENCE_SECONDS_MAX: u32 = 3600;
/// Maximum bytes of one write, and of one plain read.
pub const INTERMEDIATE_PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of files in one page of the list of a node.
pub const INTERMEDIATES_LISTED_MAX: usize = 10_000;
/// Maximum number of nodes that may bring a file back.
pub const FORMER_NODES_MAX: usize = 8;
/// Maximum number of files of a user.
pub const USER_INTERMEDIATES_MAX: usize = 10_000;

/// Returns whether a text is a valid name of an intermediate file: 1 to [`INTERMEDIATE_NAME_BYTES_MAX`] printable
/// bytes.
pub fn is_intermediate_name(name: &str) -> bool {
    (1..=INTERMEDIATE_NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// A request to create a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIntermediate {
    /// Name of the file, unique among the files of the user.
    pub name: String,
    /// The user who will own the file; an administrator may name another user, and a writer of an existing file its
    /// owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// True if the file may take the place of another one of that name, even of one that is being written. It keeps the
    /// groups of that one.
    #[serde(default)]
    pub replace: bool,
    /// The file is removed when this job is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Seconds after the close of the file until it is removed. Without it, and without a job, the file stays until it
    /// is removed by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// Name of the node on which the writer runs: the file is put there if possible, otherwise near it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Seconds without a message of the writer after which the file is abandoned.
    #[serde(default = "default_silence")]
    pub silence_seconds: u32,
}

fn default_silence() -> u32 {
    SILENCE_SECONDS
}

/// Location of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediatePlace {
    pub node: NodeId,
    pub node_name: String,
    pub data_url: String,
    /// Value for the header `sailfish-incarnation` of requests to that data port.
    pub incarnation: u64,
}

/// The answer to a request to create a file: where to write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatedIntermediate {
    /// Maximum bytes of the file, if its user has a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    pub file: IntermediateId,
    pub place: IntermediatePlace,
    pub silence_seconds: u32,
    /// Value for the header `authorization` of requests to the data port, after `Bearer`; none if the server needs no
    /// tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntermediateState {
    /// It is being written and cannot be read yet.
    Writing,
    /// It is closed and never changes again.
    Complete,
    /// Its writer was lost, and its bytes with it.
    Abandoned,
    /// All nodes that had it are lost. It is complete again when one of them returns with its disk.
    Lost,
}

impl IntermediateState {
    pub const ALL: [Self; 4] = [Self::Writing, Self::Complete, Self::Abandoned, Self::Lost];

    /// Returns the word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Complete => "complete",
            Self::Abandoned => "abandoned",
            Self::Lost => "lost",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// The server's facts about a file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateStatus {
    pub file: IntermediateId,
    pub user: String,
    pub name: String,
    /// Lost nodes that had it, and later nodes on their disks: they may bring it back. The last
    /// [`FORMER_NODES_MAX`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<NodeId>,
    /// The groups whose members may read it, and replace and remove it.
    #[serde(default)]
    pub groups: StoredGroups,
    /// Job at whose end the file is removed.
    pub job: Option<JobId>,
    pub state: IntermediateState,
    /// Node on which the file was written, or from which it is read first.
    pub node: NodeId,
    /// Other node that holds a copy of the file.
    pub replica: Option<NodeId>,
    /// Bytes of a complete file, and their CRC-32C.
    pub bytes: Option<u64>,
    pub crc32c: Option<u32>,
    pub created_ns: u64,
    pub closed_ns: Option<u64>,
    /// Time between the close of the file and its removal.
    pub keep_ns: Option<u64>,
    /// Time at which it is removed.
    pub expires_ns: Option<u64>,
    /// Reason why it was abandoned or lost.
    pub problem: Option<String>,
}

/// A request to read a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenIntermediate {
    pub name: String,
    /// The user who owns the file; none is the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Longest time that the answer waits for a file that is being written, at most five seconds; the caller must retry
    /// after that.
    #[serde(default)]
    pub wait_ms: u64,
}

/// State of the file, and the nodes to read it from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenedIntermediate {
    pub status: IntermediateStatus,
    /// Locations in the order in which to try them; empty for an incomplete file.
    pub places: Vec<IntermediatePlace>,
    /// Grant to read, as in [`CreatedIntermediate::grant`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// A request to remove a file, even while it is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveIntermediate {
    pub name: String,
    /// The user who owns the file; none is the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A request to change the groups or the owner of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeIntermediate {
    pub name: String,
    /// The user who owns the file; none is the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub change: IntermediateChange,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum IntermediateChange {
    /// By the owner or an administrator. No file has a directory: `inherited` is no group.
    SetGroups { read: StoredGroup, write: StoredGroup },
    /// By an administrator: the file belongs to this user, who has no file of that name.
    SetOwner { user: String },
}

/// The files that the caller may read, by user and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateList {
    pub files: Vec<IntermediateStatus>,
}

/// A node's report about intermediate files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateNews {
    pub incarnation: String,
    pub notes: Vec<IntermediateNote>,
    /// Copies that the node wants to send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<FileCopy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum IntermediateNote {
    /// The writer has closed the file: it is complete on this node.
    Closed { file: IntermediateId, bytes: u64, crc32c: u32 },
    /// The writer was lost, or failed: its bytes are removed.
    Abandoned { file: IntermediateId, reason: String },
    /// Another node holds a copy. `bytes`: size of the stored file; `single_ns`: time during which only one node had
    /// it.
    Replicated { file: IntermediateId, to: NodeId, bytes: u64, single_ns: u64 },
    /// A page of the files of which this node has data: the complete ones, at most [`INTERMEDIATES_LISTED_MAX`], and in
    /// the first page those that are being written.
    Holds { files: Vec<HeldIntermediate>, writing: Vec<IntermediateId> },
}

/// A complete file on a disk of a node, according to its footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldIntermediate {
    pub file: IntermediateId,
    pub bytes: u64,
    pub crc32c: u32,
    /// Bytes of the stored file.
    pub stored_bytes: u64,
}

/// The answer to such a report: files that the node must drop, because the server does not know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateAnswer {
    pub dropped: Vec<IntermediateId>,
    /// The rights to send copies, one for each permitted copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<CopyGrant>,
}

/// The right to send a node a copy of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyGrant {
    pub copy: FileCopy,
    pub grant: SecretText,
}

#[cfg(test)]
mod tests {
    use super::is_intermediate_name;

    #[test]
    fn names_are_short_and_can_be_printed() {
        for name in ["a", "stage 1/part-3", "größe", &"x".repeat(200)] {
            assert!(is_intermediate_name(name), "{name:?}");
        }
        for name in ["", "a\nb", "a\0", "\u{7f}", &"x".repeat(201)] {
            assert!(!is_intermediate_name(name), "{name:?}");
        }
    }
}
