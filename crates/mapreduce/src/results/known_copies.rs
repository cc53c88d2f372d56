//! Known copies of kept runs and of parts on other nodes.

use api::machine::ReplicatedPart;
use api::task::AdoptedCopy;
use ids::{NodeId, RunId, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Answers of nodes about their kept replicas, and about missing files.
#[derive(Clone, Debug, Default)]
pub struct KeptCopies {
    pub(crate) copies: BTreeMap<RunId, (NodeId, AdoptedCopy)>,
    pub(crate) missing: BTreeSet<RunId>,
}

/// Facts about the replicas of parts that later stages read.
#[derive(Clone, Debug, Default)]
pub struct PartReplicas {
    /// Nodes of the replicas of parts.
    pub(crate) replicas: BTreeMap<TaskIndex, NodeId>,
    /// Replicas that were reported before the ends of their attempts: by task and name of the file, with the node that
    /// sent them.
    pub(crate) early: BTreeMap<(TaskIndex, String), (NodeId, ReplicatedPart)>,
}
