//! Nodes that may host chunks and replicas of a job, by their racks.

use api::control::NodeAddress;
use ids::NodeId;
use std::collections::BTreeSet;

/// Returns the nodes on which map tasks of a node open chunks: the nodes of its rack, so that the links between racks
/// carry a record once, when it is reduced. If none of these accepts chunks (full disks, draining), returns the nodes
/// of other racks; if no node accepts chunks, returns the nodes of its rack.
pub fn chunk_hosts(here: NodeId, nodes: &[NodeAddress]) -> BTreeSet<NodeId> {
    let rack = nodes.iter().find(|node| node.node == here).map(|node| node.rack.as_str());
    let of = |is_host: &dyn Fn(&NodeAddress) -> bool| -> BTreeSet<NodeId> {
        nodes.iter().filter(|node| is_host(node)).map(|node| node.node).collect()
    };
    let near = |node: &NodeAddress| rack.is_none_or(|rack| node.rack == rack);
    let choices = [of(&|node| near(node) && node.takes_chunks), of(&|node| node.takes_chunks), of(&near)];
    choices.into_iter().find(|hosts| !hosts.is_empty()).unwrap_or_else(|| BTreeSet::from([here]))
}

/// Returns the nodes on which runs of a node get replicas: other nodes of its rack, or if there are none, nodes of
/// other racks (intermediate storage system, ISS, section 4.2).
pub fn replica_hosts(here: NodeId, nodes: &[NodeAddress]) -> BTreeSet<NodeId> {
    let rack = nodes.iter().find(|node| node.node == here).map(|node| node.rack.as_str());
    let others = || nodes.iter().filter(|node| node.node != here && node.takes_chunks);
    let near: BTreeSet<NodeId> =
        others().filter(|node| rack == Some(node.rack.as_str())).map(|node| node.node).collect();
    if near.is_empty() { others().map(|node| node.node).collect() } else { near }
}

#[cfg(test)]
mod tests {
    use super::{chunk_hosts, replica_hosts};
    use api::control::NodeAddress;
    use ids::NodeId;

    fn addresses(nodes: &[(&str, bool)]) -> Vec<NodeAddress> {
        let address = |(index, (rack, takes_chunks)): (usize, &(&str, bool))| NodeAddress {
            node: NodeId(index as u32),
            rack: rack.to_string(),
            data_url: String::new(),
            takes_chunks: *takes_chunks,
        };
        nodes.iter().enumerate().map(address).collect()
    }

    #[test]
    fn chunks_stay_in_a_rack_with_usable_nodes() {
        let check = |nodes: &[(&str, bool)], expected: &[u32]| {
            let nodes = addresses(nodes);
            let hosts: Vec<u32> = chunk_hosts(NodeId(0), &nodes).iter().map(|node| node.0).collect();
            assert_eq!(hosts, expected, "{nodes:?}");
        };
        check(&[], &[0]);
        check(&[("a", true)], &[0]);
        check(&[("a", true), ("b", true), ("a", true)], &[0, 2]);
        check(&[("a", false), ("b", true), ("a", true)], &[2]);
        check(&[("a", false), ("b", true), ("a", false)], &[1]);
        check(&[("a", false), ("b", false), ("a", false)], &[0, 2]);
    }

    #[test]
    fn replica_stays_in_a_rack_with_another_node() {
        let check = |nodes: &[(&str, bool)], expected: &[u32]| {
            let nodes = addresses(nodes);
            let hosts: Vec<u32> = replica_hosts(NodeId(0), &nodes).iter().map(|node| node.0).collect();
            assert_eq!(hosts, expected, "{nodes:?}");
        };
        check(&[("a", true)], &[]);
        check(&[("a", true), ("b", true), ("a", true)], &[2]);
        check(&[("a", true), ("b", true), ("a", false)], &[1]);
    }
}
