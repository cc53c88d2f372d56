//! Stored files: the concrete files of an input of a job (Clustera, sections 3.4 and 3.5), and in `cluster` the messages
//! about the files that the nodes of a cluster keep.

pub mod cluster;
pub mod need;
mod partition;
mod pinned;

pub use partition::{of_partition, partition_path};
pub use pinned::{PINNED_FILES_MAX, PinnedFile, name_beside};

use crate::task::proof::DataSum;
use crate::{ContentHash, FieldSplit, PartitionRule, RecordFormat};
use cluster::StoredPut;
use ids::{ConcreteId, JobId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;
use utoipa::ToSchema;

/// The beginning of a name that means a stored file and not a path.
pub const STORED_PREFIX: &str = "files:";

/// Beginning of the source of a put that stores an output of a step; the number of the job of the step follows.
pub const STEP_SOURCE: &str = "output of a step: ";

/// Returns whether the path of an output means a stored file of the cluster: `files:NAME`.
pub fn is_stored_output(output: &Path) -> bool {
    output.to_str().is_some_and(|text| text.starts_with(STORED_PREFIX))
}

/// The put that stores the output of a job in the cluster: the server begins it at submit, and the commit ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredOutput {
    pub of: StoredPut,
    /// Number of replicas that each part gets, if there are as many nodes.
    pub replicas: u32,
    /// True if each part becomes a file of its own, in a directory.
    pub is_directory: bool,
    /// True if an administrator submitted the job: the name may be another user's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_administrator: bool,
    /// Maximum bytes of the user's stored files; None is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
}

/// The bytes of a stored file: its concrete files, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredContent {
    pub parts: Vec<StoredPart>,
}

impl StoredContent {
    /// Returns the bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Returns an identity of the bytes: that of their concrete files, which never change. A copy under another name has
    /// the same one, and another put of the same bytes has not.
    pub fn identity(&self) -> ContentHash {
        let mut hasher = Sha256::new();
        for part in &self.parts {
            hasher.update(part.concrete.0.to_le_bytes());
            hasher.update(part.bytes.to_le_bytes());
            hasher.update(part.crc32c.to_le_bytes());
        }
        ContentHash(hasher.finalize().into())
    }
}

/// A concrete file, and its expected content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredPart {
    pub concrete: ConcreteId,
    pub bytes: u64,
    pub crc32c: u32,
}

/// The job whose output a stored file is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakingJob {
    pub job: JobId,
    pub name: String,
}

impl fmt::Display for MakingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} ({})", self.job, self.name)
    }
}

impl MakingJob {
    /// Returns the advice for a file of the job that is lost.
    pub fn advice(&self) -> String {
        format!("it was made by {self}: run that job again")
    }
}

/// Maximum number of partitions of a stored file whose records are distributed by their keys.
pub const HASHED_PARTITIONS_MAX: u32 = 1024;

/// The distribution of the records of a stored file over its parts: each part is a partition of `run`, and partitions
/// without records have no part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HashedFile {
    /// Lines that end with LF, or records of one length.
    pub records: RecordFormat,
    /// The key of a line. Its separator also divides the key into fields.
    pub keys: FieldSplit,
    pub partitions: PartitionRule,
    /// Partitions without records, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<u32>,
    /// The order-free sum of all records, each as a key without a value.
    pub sum: DataSum,
}
