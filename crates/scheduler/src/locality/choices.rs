//! The graph of tasks and nodes: tasks with a replica, and the remaining room of nodes.

use super::{InputPlace, NodeRoom};
use ids::NodeId;
use std::collections::BTreeMap;

/// Tasks and nodes by position, with the replicas between them and the tasks placed so far.
pub(super) struct Choices {
    /// Nodes with a replica, by task; each once, in ascending order.
    pub nodes_of: Vec<Vec<usize>>,
    /// Tasks with a replica, by node, in ascending order.
    pub tasks_of: Vec<Vec<usize>>,
    /// Number of further tasks that each node takes. Below zero only for tasks that no other node can run.
    pub room: Vec<i64>,
    /// Node of each placed task.
    pub placed: Vec<Option<usize>>,
}

impl Choices {
    /// Builds the graph. Nodes that are not in the list are ignored.
    pub fn new(tasks: &[InputPlace], nodes: &[NodeRoom]) -> Self {
        let positions: BTreeMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(position, node)| (node.node, position)).collect();
        let mut tasks_of = vec![Vec::new(); nodes.len()];
        let mut nodes_of = Vec::with_capacity(tasks.len());
        for (task, input) in tasks.iter().enumerate() {
            let mut known: Vec<usize> =
                input.nodes.iter().filter_map(|node| positions.get(node).copied()).collect();
            known.sort_unstable();
            known.dedup();
            known.iter().for_each(|node| tasks_of[*node].push(task));
            nodes_of.push(known);
        }
        Self { nodes_of, tasks_of, room: room(tasks.len(), nodes), placed: vec![None; tasks.len()] }
    }

    pub fn put(&mut self, task: usize, node: usize) {
        self.placed[task] = Some(node);
        self.room[node] -= 1;
    }

    /// Moves a placed task to another node.
    pub fn shift(&mut self, task: usize, node: usize) {
        if let Some(before) = self.placed[task].take() {
            self.room[before] += 1;
        }
        self.put(task, node);
    }
}

/// Returns the number of tasks that each node takes: one in each free slot now, and one in each of its slots for each
/// further wave. There are as many waves as the tasks need.
fn room(tasks: usize, nodes: &[NodeRoom]) -> Vec<i64> {
    let sum = |slots: fn(&NodeRoom) -> u32| nodes.iter().map(|node| i64::from(slots(node))).sum::<i64>();
    let (free, slots) = (sum(|node| node.free_slots), sum(|node| node.slots));
    let waiting = (tasks as i64 - free).max(0);
    let waves = if slots == 0 { 0 } else { (waiting as u64).div_ceil(slots as u64) as i64 };
    nodes.iter().map(|node| i64::from(node.free_slots) + waves * i64::from(node.slots)).collect()
}
