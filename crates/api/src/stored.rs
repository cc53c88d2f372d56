//! Stored files: the concrete files of an input of a job (Clustera, sections 3.4 and 3.5), and in `cluster` the messages
//! about the files that the nodes of a cluster keep.

pub mod cluster;
pub mod need;

use ids::ConcreteId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The beginning of a name that means a stored file and not a path.
pub const STORED_PREFIX: &str = "files:";

/// The bytes of a stored file: its concrete files, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredContent {
    pub parts: Vec<StoredPart>,
}

impl StoredContent {
    /// Returns the bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.bytes))
    }
}

/// A concrete file, and its expected content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredPart {
    pub concrete: ConcreteId,
    pub bytes: u64,
    pub crc32c: u32,
}
