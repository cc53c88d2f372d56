//! The nodes of a moment, for kinds that join steps into pipelines: their sizes, and the places of stored inputs.

use api::ContentHash;
use api::job::resources::GenericResources;
use ids::NodeId;
use std::collections::BTreeMap;

/// The largest node that works now, and more about the nodes. A pipeline must fit on the largest one.
#[derive(Clone, Copy)]
pub struct NodeSize<'a> {
    pub slots: u32,
    pub memory_bytes: u64,
    /// All working nodes; None if only the largest one is known.
    pub nodes: Option<&'a dyn WorkingNodes>,
    /// Places of the stored inputs of the job; None if they are not known.
    pub places: Option<&'a InputPlaces>,
}

impl Default for NodeSize<'_> {
    /// Returns the size as long as no node is known: no pipeline fits.
    fn default() -> Self {
        Self { slots: 1, memory_bytes: 0, nodes: None, places: None }
    }
}

/// The working nodes.
pub trait WorkingNodes {
    /// Returns whether a node could run a pipeline with these needs if nothing else ran: this one, or without one any.
    fn could_run(&self, needs: &PipelineNeeds, on: Option<NodeId>) -> bool;
}

/// Needs of a pipeline of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipelineNeeds {
    pub slots: u32,
    pub memory_bytes: u64,
    pub resources: GenericResources,
}

impl PipelineNeeds {
    /// Adds the needs of more programs.
    pub fn add(&mut self, more: &Self) {
        self.slots = self.slots.saturating_add(more.slots);
        self.memory_bytes = self.memory_bytes.saturating_add(more.memory_bytes);
        self.resources.add(&more.resources);
    }
}

/// The nodes that have the bytes of stored inputs, by the identities of these bytes. A hint: replicas move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputPlaces {
    by_content: BTreeMap<ContentHash, InputPlace>,
}

/// The nodes that have bytes of a stored input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputPlace {
    pub bytes: u64,
    /// Bytes that each node has.
    pub by_node: BTreeMap<NodeId, u64>,
}

impl InputPlaces {
    pub fn is_empty(&self) -> bool {
        self.by_content.is_empty()
    }

    pub fn get(&self, content: &ContentHash) -> Option<&InputPlace> {
        self.by_content.get(content)
    }

    pub fn insert(&mut self, content: ContentHash, place: InputPlace) {
        self.by_content.insert(content, place);
    }

    /// Notes that a node has a copy of a known input.
    pub fn add_copy(&mut self, content: &ContentHash, node: NodeId) {
        if let Some(place) = self.by_content.get_mut(content) {
            place.by_node.insert(node, place.bytes);
        }
    }
}
