//! The ways of an input that many nodes need: each node fetches from one that has it or is still fetching it, and
//! passes each verified block on. No node serves more than [`SERVES_MAX`] others, so the time for many nodes is little
//! more than the time for two. In Clustera's blast experiment (section 4.5, Figure 18) one node served all.
//!
//! ```text
//!  one tree: half of the nodes serve    two trees, each for half of the bytes: each node serves in one of them
//!          H                                      H                  H
//!        /   \                                    |                  |
//!       a     b                                   a                  b
//!      / \   / \                                 / \                / \
//!     c   d e   f                               b   c              a   d
//!                                                  / \                / \
//!                                                 d   e              c   f ...
//! ```
//!
//! In one tree half of the links send nothing, and the others send everything twice. In two trees each node serves in
//! one and not in the other, so each sends as many bytes as it receives (SplitStream, Castro et al., SOSP 2003).

use ids::NodeId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Maximum number of nodes that a node serves at once.
pub const SERVES_MAX: u32 = 2;

/// A node and the number of its rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOfRack {
    pub node: NodeId,
    pub rack: u32,
}

/// A node that fetches the input, or its part of a tree, from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub from: NodeId,
    pub to: NodeId,
}

/// A node that has the input, or will have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub at: NodeOfRack,
    /// Number of fetches between it and a node that had the input from the beginning.
    pub depth: u32,
    pub serves: u32,
    pub serves_max: u32,
}

impl Server {
    /// Returns the rank of a server for a node, the best first: in its rack the one with the shortest way; of another
    /// rack one that keeps a place for its own.
    pub fn rank(&self, for_node: NodeOfRack) -> (bool, Reverse<u32>, u32, u32, NodeId) {
        let crosses = self.at.rack != for_node.rack;
        let places_left = if crosses { self.serves_max - self.serves } else { 0 };
        (crosses, Reverse(places_left), self.depth, self.serves, self.at.node)
    }
}

/// Returns a fetch for each of the other nodes, in each of the trees. There are at least one and at most
/// [`SERVES_MAX`] trees; each brings an equal part of the bytes to all nodes. A fetch follows the one that brings the
/// bytes to its `from`. A rack without the input gets it once over its uplink, as far as its nodes may serve each other.
/// The trees are empty if no node has the input. The time is quadratic in the number of nodes.
pub fn fetch_trees(holders: &[NodeOfRack], others: &[NodeOfRack], trees: u32) -> Vec<Vec<Fetch>> {
    let trees = trees.clamp(1, SERVES_MAX);
    let mut by_rack = others.to_vec();
    by_rack.sort_by_key(|other| other.rack);
    let tree = |tree: u32| {
        let serves_max = SERVES_MAX / trees;
        let server = |holder: &NodeOfRack| Server { at: *holder, depth: 0, serves: 0, serves_max };
        let mut servers: Vec<Server> = holders.iter().map(server).collect();
        let mut fetches = Vec::with_capacity(others.len());
        // Neighbours in this order serve in different trees.
        let (serving, leaves): (Vec<_>, Vec<_>) =
            by_rack.iter().enumerate().partition(|(position, _)| *position as u32 % trees == tree);
        // Each that serves adds more places than it takes, so the places last for all.
        for (nodes, serves_max) in [(serving, SERVES_MAX), (leaves, 0)] {
            let nodes: Vec<NodeOfRack> = nodes.into_iter().map(|(_, node)| *node).collect();
            for at in first_of_racks_first(&servers, &nodes) {
                fetches.extend(join(&mut servers, at, serves_max));
            }
        }
        fetches
    };
    (0..trees).map(tree).collect()
}

/// Returns the nodes with the first of each rack before all others: in racks with a server first, because its places go
/// to other racks otherwise.
fn first_of_racks_first(servers: &[Server], nodes: &[NodeOfRack]) -> Vec<NodeOfRack> {
    let mut seen = BTreeSet::new();
    let (mut first, rest): (Vec<NodeOfRack>, Vec<NodeOfRack>) =
        nodes.iter().partition(|node| seen.insert(node.rack));
    let served: BTreeSet<u32> = servers.iter().map(|server| server.at.rack).collect();
    first.sort_by_key(|node| !served.contains(&node.rack));
    [first, rest].concat()
}

/// Adds a node below the best server that may serve one more.
fn join(servers: &mut Vec<Server>, at: NodeOfRack, serves_max: u32) -> Option<Fetch> {
    let may_serve = servers.iter_mut().filter(|server| server.serves < server.serves_max);
    let best = may_serve.min_by_key(|server| server.rank(at))?;
    best.serves += 1;
    let (from, depth) = (best.at.node, best.depth + 1);
    servers.push(Server { at, depth, serves: 0, serves_max });
    Some(Fetch { from, to: at.node })
}
