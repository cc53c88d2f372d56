//! What a process that is dead left on the disks of a node, as far as it is whole: told by the next process there when it joins.

use crate::data_access::SecretText;
use ids::{ChunkId, JobId, RunId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most files that are told of; of what is more the next process makes no use.
pub const LEFT_FILES_MAX: usize = 1 << 16;

/// What one such process left of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftBehind {
    /// Of the process that is dead.
    pub incarnation: String,
    /// Which the server gave that process for its disks: without it anybody who knows an incarnation could say that a process is dead.
    pub proof: SecretText,
    pub job: JobId,
    pub runs: Vec<LeftRun>,
    pub parts: Vec<LeftPart>,
}

/// A sorted run of which header, footer, key index and source table are whole; its blocks are verified when they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftRun {
    /// Of that process, or of another node whose run was copied there.
    pub run: RunId,
    /// What is in it.
    pub chunks: Vec<ChunkId>,
    pub records: u64,
    pub record_bytes: u64,
    /// Of the file.
    pub stored_bytes: u64,
}

/// A part that later stages read, of which header and footer are whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftPart {
    /// Of its file: it tells the attempt that made it.
    pub name: String,
    pub bytes: u64,
    pub crc32c: u32,
}
