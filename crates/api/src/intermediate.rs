//! Intermediate files of users: made, written, opened and read by any program (ISS section 6.1, Table 2). Here stand
//! the messages about them to the server; their bytes go to and come from the data ports of nodes. Documented in
//! docs/intermediate-files.md.

use crate::data_access::{FileCopy, SecretText};
use ids::{IntermediateId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Longest name.
pub const INTERMEDIATE_NAME_BYTES_MAX: usize = 200;
/// Seconds without news of a writer after which it is given up, unless it asks for another time; and the most seconds
/// that it may ask for.
pub const SILENCE_SECONDS: u32 = 60;
pub const SILENCE_SECONDS_MAX: u32 = 3600;
/// Most bytes of one write, and of one plain read.
pub const INTERMEDIATE_PIECE_BYTES_MAX: usize = 1 << 20;
/// Most files of a user.
pub const USER_INTERMEDIATES_MAX: usize = 10_000;

/// Whether a text may be the name of an intermediate file: 1 to [`INTERMEDIATE_NAME_BYTES_MAX`] bytes that can be printed.
pub fn is_intermediate_name(name: &str) -> bool {
    (1..=INTERMEDIATE_NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// A file is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewIntermediate {
    /// Name that no other file of the user has.
    pub name: String,
    /// User whom the file will belong to; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file is removed when this job is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Seconds after the file was closed until it is removed; without it, and without a job, the file stays until it
    /// is removed by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// Name of the node on which the writer runs: the file lies there if it can, else near it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Seconds without news of the writer after which it is given up.
    #[serde(default = "default_silence")]
    pub silence_seconds: u32,
}

fn default_silence() -> u32 {
    SILENCE_SECONDS
}

/// Place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediatePlace {
    pub node: NodeId,
    pub node_name: String,
    pub data_url: String,
    /// Goes into the header `sailfish-incarnation` of requests to that data port.
    pub incarnation: u64,
}

/// A file was made. It is written at its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatedIntermediate {
    /// Most bytes of the file, if its user has a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    pub file: IntermediateId,
    pub place: IntermediatePlace,
    pub silence_seconds: u32,
    /// Goes into the header `authorization` of requests to the data port, after `Bearer`; none where nobody needs tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntermediateState {
    /// Nobody can read it yet.
    Writing,
    /// It never changes any more.
    Complete,
    /// Its writer is gone, and its bytes are.
    Abandoned,
    /// All nodes that had it are gone.
    Lost,
}

impl IntermediateState {
    pub const ALL: [Self; 4] = [Self::Writing, Self::Complete, Self::Abandoned, Self::Lost];

    /// The word in tables.
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

/// Facts that the server knows of a file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateStatus {
    pub file: IntermediateId,
    pub user: String,
    pub name: String,
    /// Job with which the file is removed.
    pub job: Option<JobId>,
    pub state: IntermediateState,
    /// Node on which the file was written, or is read first.
    pub node: NodeId,
    /// Other node on which the file lies as well.
    pub replica: Option<NodeId>,
    /// Bytes of a complete file, and their CRC-32C.
    pub bytes: Option<u64>,
    pub crc32c: Option<u32>,
    pub created_ns: u64,
    pub closed_ns: Option<u64>,
    /// Time that it stays after it was closed.
    pub keep_ns: Option<u64>,
    /// Time at which it is removed.
    pub expires_ns: Option<u64>,
    /// Reason why it is abandoned, or lost.
    pub problem: Option<String>,
}

/// A file is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenIntermediate {
    pub name: String,
    /// User whom the file belongs to; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Most time that the answer waits for the writer of a file that is being written; five seconds at most: then ask
    /// again.
    #[serde(default)]
    pub wait_ms: u64,
}

/// State of the file, and the places to read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenedIntermediate {
    pub status: IntermediateStatus,
    /// Places in the order in which they are to be tried; empty for a file that is not complete.
    pub places: Vec<IntermediatePlace>,
    /// Grant to read, as in [`CreatedIntermediate::grant`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// A file is to go, also where it is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveIntermediate {
    pub name: String,
    /// User whom the file belongs to; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The files of a user, or of all for an administrator, by user and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateList {
    pub files: Vec<IntermediateStatus>,
}

/// News of a node about such files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateNews {
    pub incarnation: String,
    pub notes: Vec<IntermediateNote>,
    /// Copies that it wants to send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<FileCopy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum IntermediateNote {
    /// Its writer has closed it: it is complete here.
    Closed { file: IntermediateId, bytes: u64, crc32c: u32 },
    /// Its writer is gone, or failed: its bytes are gone.
    Abandoned { file: IntermediateId, reason: String },
    /// A copy lies on another node. `bytes`: size of the file as it is stored; `single_ns`: time that it lay on one
    /// node only.
    Replicated { file: IntermediateId, to: NodeId, bytes: u64, single_ns: u64 },
    /// All files of which this node has something.
    Holds { files: Vec<IntermediateId> },
}

/// Files that the node drops: the server does not know them any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateAnswer {
    pub dropped: Vec<IntermediateId>,
    /// The right to send each of the copies that it may send.
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
