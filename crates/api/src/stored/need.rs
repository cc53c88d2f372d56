//! Stored files that a node must keep until other nodes have enough replicas of them, told by the catalogue of stored
//! files to control and shown by lists of nodes.

use ids::NodeId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of names in [`StoredNeed`].
pub const STORED_NEED_NAMES_MAX: usize = 10;

/// The stored files that keep a node from leaving while it is being drained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredNeed {
    /// Concrete files on its disks of which the other nodes have fewer replicas than wished.
    pub files: u64,
    /// Those of them that no other node can take: there are too few nodes, or too little room.
    #[serde(default)]
    pub without_place: u64,
    /// Names of such files, without `files:`; at most [`STORED_NEED_NAMES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// The need for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNeed {
    pub node: NodeId,
    pub need: StoredNeed,
}

/// A node that is being drained, or was drained and has not left yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingNode {
    pub node: NodeId,
    pub name: String,
}
