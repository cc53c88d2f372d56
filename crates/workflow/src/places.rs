//! The stored inputs of pipelines: two branches are joined where one node has the inputs of both, and stay apart where a
//! large input would move (Clustera, section 3.4, Figures 6 and 7).

use api::ContentHash;
use api::task::RunTask;
use ids::NodeId;
use jobkind::{NodeSize, PipelineNeeds};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes from which on the place of an input matters: a node fetches less in the time in which an attempt begins.
const LARGE_BYTES: u64 = 1 << 20;

/// The needs and the stored inputs of steps that run together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed {
    pub needs: PipelineNeeds,
    inputs: BTreeSet<ContentHash>,
}

impl Placed {
    pub fn of(program: &RunTask) -> Self {
        let resources = program.resources.clone();
        Self {
            needs: PipelineNeeds { slots: program.slots(), memory_bytes: program.memory_bytes, resources },
            inputs: program.inputs.iter().filter_map(|input| input.content).collect(),
        }
    }

    pub fn with(&self, more: &Self) -> Self {
        let mut all = self.clone();
        all.needs.add(&more.needs);
        all.inputs.extend(&more.inputs);
        all
    }

    /// Returns the start of the next phase of the same attempt, which has the resources and the copies of inputs until its
    /// end.
    pub fn next_phase(&self) -> Self {
        let resources = self.needs.resources.clone();
        Self { needs: PipelineNeeds { resources, ..PipelineNeeds::default() }, inputs: self.inputs.clone() }
    }

    /// Returns whether they read stored files.
    pub fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Returns whether some node could run them together.
    pub fn fits(&self, size: NodeSize<'_>) -> bool {
        let PipelineNeeds { slots, memory_bytes, resources } = &self.needs;
        let could = size.nodes.is_some_and(|nodes| nodes.could_run(&self.needs, None));
        *slots <= size.slots && *memory_bytes <= size.memory_bytes && (resources.is_none() || could)
    }

    /// Returns the bytes of the inputs, and of these the most that one node has that could run the steps.
    fn bytes(&self, size: NodeSize<'_>) -> Bytes {
        let Some(places) = size.places else { return Bytes::default() };
        let mut by_node: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut all = 0_u64;
        for place in self.inputs.iter().filter_map(|content| places.get(content)) {
            all = all.saturating_add(place.bytes);
            for (node, bytes) in &place.by_node {
                let sum = by_node.entry(*node).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let could = |node: NodeId| size.nodes.is_none_or(|nodes| nodes.could_run(&self.needs, Some(node)));
        let largest = by_node.into_iter().filter(|(node, _)| could(*node)).map(|(_, bytes)| bytes).max();
        Bytes { all, on_one_node: largest.unwrap_or(0) }
    }

    /// Returns whether large inputs would move if these steps ran together with others, and need not move if they ran apart.
    pub fn moves_more_with(&self, others: &Self, size: NodeSize<'_>) -> bool {
        if size.places.is_none() || !self.has_inputs() || !others.has_inputs() {
            return false;
        }
        let apart = self.bytes(size).moved().saturating_add(others.bytes(size).moved());
        self.with(others).bytes(size).moved() > apart.saturating_add(LARGE_BYTES)
    }

    /// Returns whether one node that could run these steps has most bytes of their inputs.
    pub fn has_a_home(&self, size: NodeSize<'_>) -> bool {
        let Bytes { all, on_one_node } = self.bytes(size);
        all > 0 && on_one_node >= all.div_ceil(2)
    }
}

/// Bytes of inputs.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    all: u64,
    /// The most that one node has.
    on_one_node: u64,
}

impl Bytes {
    /// Returns the bytes that move to the node that has the most.
    fn moved(self) -> u64 {
        self.all.saturating_sub(self.on_one_node)
    }
}
