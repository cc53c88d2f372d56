//! The local copies that nodes make of parts, as far as the server knows: a tree for each part, in memory only. A node
//! enters it when it asks for its source. A node without a reachable disk leaves it, and a tree is forgotten when nobody
//! has asked for a while: replicas are read again as if nobody had fetched.

use crate::nodes::disks::Disks;
use api::stored::cluster::{COPY_READERS_MAX, PlacedPart, SourceOfPart};
use ids::{ConcreteId, DiskId, NodeId};
use scheduler::{FetchTree, NodeOfRack};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

/// Maximum number of parts with a tree; beyond it the one that was asked for the longest time ago is forgotten.
const TREES_MAX: usize = 4096;
/// Time without a question after which a tree is forgotten. Copies may have gone by then.
const UNASKED_MAX: Duration = Duration::from_secs(600);

// A node refuses more readers than this.
const _: () = assert!(COPY_READERS_MAX == scheduler::SERVES_MAX);

/// The trees of parts.
#[derive(Debug, Default)]
pub(crate) struct PartFetches {
    trees: BTreeMap<ConcreteId, AskedTree>,
}

#[derive(Debug)]
struct AskedTree {
    tree: FetchTree,
    asked: Instant,
}

impl PartFetches {
    /// Returns the source of each part for a node that copies them. A part without a free place in its tree has none,
    /// and a node that has no disk in reach gets none.
    pub fn sources(
        &mut self,
        disks: &Disks,
        node: NodeId,
        parts: &[PlacedPart],
        failed: &[NodeId],
        now: Instant,
    ) -> Vec<SourceOfPart> {
        let in_reach: BTreeMap<NodeId, DiskId> =
            disks.reached(now).into_iter().map(|(disk, node)| (node, disk)).collect();
        let at = |node: NodeId| {
            let disk = disks.get(*in_reach.get(&node)?)?;
            Some(NodeOfRack { node, rack: number_of(&disk.row.rack) })
        };
        let Some(reader) = at(node) else { return Vec::new() };
        let source = |part: &PlacedPart| {
            let replicas = disks.nodes_of(part.disks.iter().copied(), now);
            let holders: Vec<NodeOfRack> = replicas.iter().filter_map(|replica| at(replica.node)).collect();
            let tree = self.tree(part.file.concrete, now);
            tree.retain(|node| in_reach.contains_key(&node));
            let from = tree.source(&holders, reader, failed)?;
            let port = disks.node_of(*in_reach.get(&from)?, now)?;
            Some(SourceOfPart {
                part: part.file.concrete,
                node: from,
                data_url: port.data_url,
                incarnation: port.incarnation,
                has_copy: holders.iter().all(|holder| holder.node != from),
            })
        };
        parts.iter().filter_map(source).collect()
    }

    fn tree(&mut self, part: ConcreteId, now: Instant) -> &mut FetchTree {
        let is_asked_for = |tree: &AskedTree| now.saturating_duration_since(tree.asked) < UNASKED_MAX;
        if !self.trees.get(&part).is_some_and(is_asked_for) {
            self.trees.retain(|_, tree| is_asked_for(tree));
            let oldest = self.trees.iter().min_by_key(|(_, tree)| tree.asked).map(|(part, _)| *part);
            if let Some(oldest) = oldest.filter(|_| self.trees.len() >= TREES_MAX) {
                self.trees.remove(&oldest);
            }
        }
        let fresh = || AskedTree { tree: FetchTree::default(), asked: now };
        let tree = self.trees.entry(part).or_insert_with(fresh);
        tree.asked = now;
        &mut tree.tree
    }
}

/// Returns a number for a rack. Two racks with the same one count as one, which costs bytes over their uplinks only.
fn number_of(rack: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    rack.hash(&mut hasher);
    hasher.finish() as u32
}
