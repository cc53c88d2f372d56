//! Whole files that a dead process left on the disks of a node: the next process there tells of them when it joins.

use crate::data_access::SecretText;
use ids::{ChunkId, JobId, RunId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most files that are told of; the next process makes no use of further ones.
pub const LEFT_FILES_MAX: usize = 1 << 16;

/// Files that one such process left of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftBehind {
    /// Incarnation of the dead process.
    pub incarnation: String,
    /// Proof that the server gave that process for its disks. Without it, anybody who knows an incarnation could say
    /// that a process is dead.
    pub proof: SecretText,
    pub job: JobId,
    pub runs: Vec<LeftRun>,
    pub parts: Vec<LeftPart>,
}

/// A sorted run of which header, footer, key index and source table are whole; its blocks are verified when they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftRun {
    /// Run of that process, or of another node whose run was copied there.
    pub run: RunId,
    /// Chunks whose records are in the run.
    pub chunks: Vec<ChunkId>,
    pub records: u64,
    pub record_bytes: u64,
    /// Bytes of the file.
    pub stored_bytes: u64,
}

/// A part that later stages read, of which header and footer are whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftPart {
    /// Name of its file: it tells the attempt that made it.
    pub name: String,
    pub bytes: u64,
    pub crc32c: u32,
}
