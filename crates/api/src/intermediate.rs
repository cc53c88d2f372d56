//! Intermediate files of users: made, written, opened and read by any program (ISS section 6.1, Table 2). What is said of them to
//! the server stands here; their bytes go to and come from the data ports of nodes. Documented in docs/intermediate-files.md.

use crate::data_access::{FileCopy, SecretText};
use ids::{IntermediateId, JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Longest name.
pub const INTERMEDIATE_NAME_BYTES_MAX: usize = 200;
/// A writer that is silent for so long is given up, where it asks for nothing else; and the most that it may ask for. In seconds.
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
    /// That no other file of the user has.
    pub name: String,
    /// Whose it becomes; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// It goes when this job is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// It goes so long after it was closed; without it, and without a job, it stays until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_seconds: Option<u64>,
    /// Name of the node on which the writer runs: the file lies there if it can, else near it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// The writer is given up when nothing is heard of it for so long.
    #[serde(default = "default_silence")]
    pub silence_seconds: u32,
}

fn default_silence() -> u32 {
    SILENCE_SECONDS
}

/// Where a file lies.
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
    /// So many bytes it may have, where its user has a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    pub file: IntermediateId,
    pub place: IntermediatePlace,
    pub silence_seconds: u32,
    /// Goes into the header `authorization` of requests to the data port, after `Bearer`; none where nobody needs tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// How a file stands.
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

/// What is known of a file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateStatus {
    pub file: IntermediateId,
    pub user: String,
    pub name: String,
    /// It goes with this job.
    pub job: Option<JobId>,
    pub state: IntermediateState,
    /// Where it was written, or is read first.
    pub node: NodeId,
    /// It lies there as well.
    pub replica: Option<NodeId>,
    /// Of a complete file: bytes, and their CRC-32C.
    pub bytes: Option<u64>,
    pub crc32c: Option<u32>,
    pub created_ns: u64,
    pub closed_ns: Option<u64>,
    /// How long it stays after it was closed.
    pub keep_ns: Option<u64>,
    /// When it goes.
    pub expires_ns: Option<u64>,
    /// Why it is abandoned, or lost.
    pub problem: Option<String>,
}

/// A file is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenIntermediate {
    pub name: String,
    /// Whose it is; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where it is being written, the answer waits for its writer so long, and five seconds at most: then ask again.
    #[serde(default)]
    pub wait_ms: u64,
}

/// How the file stands, and where it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenedIntermediate {
    pub status: IntermediateStatus,
    /// In the order in which they are to be tried; none of a file that is not complete.
    pub places: Vec<IntermediatePlace>,
    /// As in [`CreatedIntermediate::grant`], to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// A file is to go, also where it is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveIntermediate {
    pub name: String,
    /// Whose it is; an administrator may name somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The files of a user, or of all for an administrator, by user and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntermediateList {
    pub files: Vec<IntermediateStatus>,
}

/// What a node tells of such files.
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
    /// Its writer is gone, or failed: its bytes are.
    Abandoned { file: IntermediateId, reason: String },
    /// A copy lies on another node. `bytes` of the file as it is stored; `single_ns`: how long it lay on one node only.
    Replicated { file: IntermediateId, to: NodeId, bytes: u64, single_ns: u64 },
    /// All that this node has something of.
    Holds { files: Vec<IntermediateId> },
}

/// Files of which the node drops what it has: nobody knows of them any more.
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
