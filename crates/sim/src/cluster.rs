//! The nodes of a world: the live ones, and their attempts.

use ids::{AttemptKey, NodeId};
use scheduler::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are alive or not yet found dead.
#[derive(Default)]
pub(crate) struct Cluster {
    alive: BTreeSet<NodeId>,
    running: BTreeMap<NodeId, BTreeMap<AttemptKey, Slot>>,
    next_node: u32,
}

impl Cluster {
    /// Adds a node; numbers are never reused.
    pub fn join(&mut self) -> NodeId {
        self.next_node += 1;
        let node = NodeId(self.next_node);
        self.alive.insert(node);
        node
    }

    pub fn is_alive(&self, node: NodeId) -> bool {
        self.alive.contains(&node)
    }

    /// Returns a random live node.
    pub fn pick(&self, random: &mut fastrand::Rng) -> Option<NodeId> {
        self.alive.iter().nth(random.usize(..self.alive.len().max(1))).copied()
    }

    /// Kills a node, without telling anybody.
    pub fn kill(&mut self, node: NodeId) {
        self.alive.remove(&node);
    }

    pub fn start(&mut self, attempt: AttemptKey, slot: Slot) {
        let busy = self.running.entry(slot.node).or_default();
        assert!(!busy.values().any(|other| *other == slot), "{slot:?} is given a second attempt");
        busy.insert(attempt, slot);
    }

    /// Removes an ended attempt and returns its slot; None if the attempt was lost with its node.
    pub fn end(&mut self, node: NodeId, attempt: AttemptKey) -> Option<Slot> {
        self.running.get_mut(&node)?.remove(&attempt)
    }

    /// Forgets a node that was found dead. Returns the attempts that it ran.
    pub fn bury(&mut self, node: NodeId) -> BTreeMap<AttemptKey, Slot> {
        self.running.remove(&node).unwrap_or_default()
    }
}
