//! Rows of intermediate files.

use ids::{IntermediateId, NodeId};

/// A file that lies on a second node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntermediateReplicaRow {
    pub file: IntermediateId,
    pub node: NodeId,
    /// Bytes of the file as it is stored.
    pub bytes: u64,
    /// How long it lay on one node only.
    pub single_ns: u64,
}
