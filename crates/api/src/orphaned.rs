//! Intact files that a dead process left on the disks of a node. The next process there reports them when it joins.

use crate::data_access::SecretText;
use ids::{ChunkId, JobId, RunId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of reported files; the next process does not use further ones.
pub const LEFT_FILES_MAX: usize = 1 << 16;

/// Maximum number of dead processes that a node names when it joins.
pub const PREDECESSORS_MAX: usize = 64;

/// Files of one job that one dead process left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrphanedData {
    /// Incarnation of the dead process.
    pub incarnation: String,
    /// Proof that the server gave that process for its disks. Without it, anybody who knows an incarnation could
    /// declare a process dead.
    pub proof: SecretText,
    pub job: JobId,
    pub runs: Vec<LeftRun>,
    pub parts: Vec<LeftPart>,
}

/// A sorted run whose header, footer, key index and source table are intact; its blocks are verified when they are
/// read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftRun {
    /// A run of that process, or a replica of another node's run.
    pub run: RunId,
    /// Chunks whose records are in the run.
    pub chunks: Vec<ChunkId>,
    pub records: u64,
    pub record_bytes: u64,
    /// Bytes of the file.
    pub stored_bytes: u64,
}

/// A part for later stages whose header and footer are intact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeftPart {
    /// Name of its file, which identifies the attempt that made it.
    pub name: String,
    pub bytes: u64,
    pub crc32c: u32,
}
