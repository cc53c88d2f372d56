//! Rows of intermediate files.

use ids::{IntermediateId, NodeId};

/// A file replicated to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntermediateReplicaRow {
    pub file: IntermediateId,
    pub node: NodeId,
    /// Bytes of the stored file.
    pub bytes: u64,
    /// Time for which it was on one node only.
    pub single_ns: u64,
}
