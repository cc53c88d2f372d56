//! The machines: capacities, the way of bytes over them, and random replicas.

use crate::links::Flow;
use ids::NodeId;
use scheduler::{InputPlace, NodeOfRack, NodeRoom, Reach};

/// Racks of equal nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    pub racks: u32,
    pub nodes_per_rack: u32,
    pub slots_per_node: u32,
    /// Speed of the disk of each node, reading and writing together.
    pub disk_bytes_per_second: f64,
    /// Speed of the link of each node, in each direction.
    pub link_bytes_per_second: f64,
    /// Speed of the link of each rack to all others, in each direction.
    pub uplink_bytes_per_second: f64,
}

/// Bytes on their way from the disk or the memory of a node to another node, or within one.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub from: usize,
    pub to: usize,
    /// Bytes for each unit of the flow.
    pub bytes: f64,
}

impl Machines {
    /// Returns 100 nodes in five racks with two slots each, disks of 100 MB/s, links of 1 Gb/s and uplinks of 10 Gb/s.
    pub fn of_100() -> Self {
        Self {
            racks: 5,
            nodes_per_rack: 20,
            slots_per_node: 2,
            disk_bytes_per_second: 100e6,
            link_bytes_per_second: 125e6,
            uplink_bytes_per_second: 1.25e9,
        }
    }

    pub fn nodes(&self) -> u32 {
        self.racks * self.nodes_per_rack
    }

    pub fn slots(&self) -> u32 {
        self.nodes() * self.slots_per_node
    }

    pub fn rack(&self, node: u32) -> u32 {
        node / self.nodes_per_rack
    }

    pub(super) fn at(&self, node: u32) -> NodeOfRack {
        NodeOfRack { node: NodeId(node), rack: self.rack(node) }
    }

    /// Returns all nodes with free slots, for the placement.
    pub fn rooms(&self) -> Vec<NodeRoom> {
        let room = |node| {
            let slots = self.slots_per_node;
            NodeRoom { node: NodeId(node), rack: self.rack(node), free_slots: slots, slots }
        };
        (0..self.nodes()).map(room).collect()
    }

    /// Returns nodes for the replicas of this number of inputs. The rack rule: the first is on any node, the second in
    /// another rack, each further one on any other node. So the loss of a rack leaves one.
    pub fn random_replicas(&self, random: &mut fastrand::Rng, inputs: u32, replicas: u32) -> Vec<InputPlace> {
        let mut input = || {
            let mut nodes: Vec<NodeId> = Vec::new();
            while nodes.len() < replicas.min(self.nodes()) as usize {
                let node = random.u32(..self.nodes());
                let is_in_another_rack = nodes.len() != 1
                    || self.racks == 1
                    || nodes.iter().any(|other| self.rack(other.0) != self.rack(node));
                if is_in_another_rack && !nodes.contains(&NodeId(node)) {
                    nodes.push(NodeId(node));
                }
            }
            InputPlace { nodes, reach: Reach::Anywhere }
        };
        (0..inputs).map(|_| input()).collect()
    }

    /// Returns the capacities: links out, links in and disks of nodes, then links out and in of racks.
    pub(super) fn capacities(&self) -> Vec<f64> {
        let (nodes, racks) = (self.nodes() as usize, self.racks as usize);
        let mut capacities = vec![self.link_bytes_per_second; 2 * nodes];
        capacities.resize(3 * nodes, self.disk_bytes_per_second);
        capacities.resize(3 * nodes + 2 * racks, self.uplink_bytes_per_second);
        capacities
    }

    /// Adds the links between two nodes to a flow; nothing within a node.
    pub(super) fn takes_links(&self, flow: &mut Flow, way: Way) {
        let (nodes, racks) = (self.nodes() as usize, self.racks as usize);
        if way.from == way.to {
            return;
        }
        flow.takes(way.from, way.bytes, 1.0);
        flow.takes(nodes + way.to, way.bytes, 1.0);
        let (from, to) = (self.rack(way.from as u32) as usize, self.rack(way.to as u32) as usize);
        if from != to {
            flow.takes(3 * nodes + from, way.bytes, 1.0);
            flow.takes(3 * nodes + racks + to, way.bytes, 1.0);
        }
    }

    /// Adds the disk of a node to a flow.
    pub(super) fn takes_disk(&self, flow: &mut Flow, node: usize, bytes: f64) {
        flow.takes(2 * self.nodes() as usize + node, bytes, 1.0);
    }
}
