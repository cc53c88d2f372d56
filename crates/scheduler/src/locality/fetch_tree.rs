//! The tree of an input whose readers come one after the other: each is told its source when it asks. The places are
//! those of [`crate::fetch_trees`] in one tree.
//!
//! A place is taken once: neither the end of a fetch nor its failure gives it back. So a node that had the input from
//! the beginning sends it twice, however many readers come later, and a source that fails is not offered for long. Each
//! reader takes one place and adds two.

use crate::locality::tree::{NodeOfRack, SERVES_MAX, Server};
use ids::NodeId;
use std::collections::BTreeMap;

/// The tree of one input: the nodes that have it or fetch it.
#[derive(Clone, Debug, Default)]
pub struct FetchTree {
    servers: BTreeMap<NodeId, Server>,
    /// The source of each node that fetches.
    sources: BTreeMap<NodeId, NodeId>,
}

impl FetchTree {
    /// Forgets the other nodes.
    pub fn retain(&mut self, stays: impl Fn(NodeId) -> bool) {
        self.servers.retain(|node, _| stays(*node));
        self.sources.retain(|node, _| stays(*node));
    }

    /// Returns the source for a node, which becomes a source itself; None if all places are taken. A node that asks
    /// again keeps its source, unless that is among the `failed` ones.
    pub fn source(
        &mut self,
        holders: &[NodeOfRack],
        reader: NodeOfRack,
        failed: &[NodeId],
    ) -> Option<NodeId> {
        let fresh = |at: NodeOfRack, depth| Server { at, depth, serves: 0, serves_max: SERVES_MAX };
        for holder in holders {
            self.servers.entry(holder.node).or_insert_with(|| fresh(*holder, 0));
        }
        let is_usable = |node: &NodeId| self.servers.contains_key(node) && !failed.contains(node);
        if let Some(known) = self.sources.get(&reader.node).filter(|node| is_usable(node)) {
            return Some(*known);
        }
        let may_serve = self.servers.values().filter(|server| {
            let node = server.at.node;
            server.serves < server.serves_max && !failed.contains(&node) && !self.is_below(node, reader.node)
        });
        let best = may_serve.min_by_key(|server| server.rank(reader))?.at.node;
        let server = self.servers.get_mut(&best)?;
        server.serves += 1;
        let depth = server.depth + 1;
        self.sources.insert(reader.node, best);
        self.servers.entry(reader.node).or_insert_with(|| fresh(reader, depth)).depth = depth;
        Some(best)
    }

    /// Returns whether a node is this one, or gets the input by it.
    fn is_below(&self, node: NodeId, above: NodeId) -> bool {
        let mut next = Some(node);
        // A node with a replica may have fetched from a node that fetches from it now.
        for _ in 0..self.sources.len() + 2 {
            match next {
                Some(node) if node == above => return true,
                Some(node) => next = self.sources.get(&node).copied(),
                None => return false,
            }
        }
        true
    }
}
