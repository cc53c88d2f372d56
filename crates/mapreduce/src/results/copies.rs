//! Copies, on other nodes, of kept runs and of parts, as far as nodes have told of them.

use api::machine::ReplicatedPart;
use api::task::AdoptedCopy;
use ids::{NodeId, RunId, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Answers of nodes about the replicas that they kept, and about files that they lack.
#[derive(Clone, Debug, Default)]
pub struct KeptCopies {
    pub(crate) copies: BTreeMap<RunId, (NodeId, AdoptedCopy)>,
    pub(crate) missing: BTreeSet<RunId>,
}

/// Known facts about the parts of a stage that later stages read, besides the parts themselves.
#[derive(Clone, Debug, Default)]
pub struct StageFiles {
    /// Nodes of the replicas of parts.
    pub(crate) replicas: BTreeMap<TaskIndex, NodeId>,
    /// Replicas of parts whose attempts have not ended yet, as far as the server knows: by task and name of the file,
    /// with the node that sent them.
    pub(crate) early: BTreeMap<(TaskIndex, String), (NodeId, ReplicatedPart)>,
}
