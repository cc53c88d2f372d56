//! The best that any placement can reach: a maximum matching of tasks and slots (Hopcroft and Karp, 1973). It is slower
//! than the placement and only its measure.

use ids::NodeId;
use scheduler::{InputPlace, NodeRoom};
use std::collections::{BTreeMap, VecDeque};

/// Returns the largest number of tasks that can run on a replica if no slot runs more tasks than the waves that all
/// tasks need over all free slots.
pub fn most_on_replicas(tasks: &[InputPlace], nodes: &[NodeRoom]) -> usize {
    let free: u32 = nodes.iter().map(|node| node.free_slots).sum();
    let waves = (tasks.len() as u32).div_ceil(free.max(1));
    let mut first_slot: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    let mut slots = 0;
    for node in nodes {
        let count = (node.free_slots * waves) as usize;
        first_slot.insert(node.node, (slots..slots + count).collect());
        slots += count;
    }
    let slots_of = |task: &InputPlace| -> Vec<usize> {
        task.nodes.iter().filter_map(|node| first_slot.get(node)).flatten().copied().collect()
    };
    let mut matching = Matching {
        edges: tasks.iter().map(slots_of).collect(),
        slot_of: vec![None; tasks.len()],
        task_in: vec![None; slots],
        layer: vec![0; tasks.len()],
    };
    while matching.find_layers() {
        for task in 0..tasks.len() {
            if matching.slot_of[task].is_none() {
                matching.extend(task);
            }
        }
    }
    matching.slot_of.iter().flatten().count()
}

const NO_LAYER: usize = usize::MAX;

struct Matching {
    edges: Vec<Vec<usize>>,
    slot_of: Vec<Option<usize>>,
    task_in: Vec<Option<usize>>,
    /// Distance of each task from the unmatched ones.
    layer: Vec<usize>,
}

impl Matching {
    /// Sets the layers. Returns whether a path to an empty slot exists.
    fn find_layers(&mut self) -> bool {
        let mut queue = VecDeque::new();
        for (task, slot) in self.slot_of.iter().enumerate() {
            self.layer[task] = if slot.is_none() { 0 } else { NO_LAYER };
            queue.extend(slot.is_none().then_some(task));
        }
        let mut found = false;
        while let Some(task) = queue.pop_front() {
            for slot in &self.edges[task] {
                match self.task_in[*slot] {
                    None => found = true,
                    Some(next) if self.layer[next] == NO_LAYER => {
                        self.layer[next] = self.layer[task] + 1;
                        queue.push_back(next);
                    }
                    Some(_) => {}
                }
            }
        }
        found
    }

    /// Extends the matching by this task along the layers, if possible.
    fn extend(&mut self, task: usize) -> bool {
        for place in 0..self.edges[task].len() {
            let slot = self.edges[task][place];
            let is_free = match self.task_in[slot] {
                None => true,
                Some(next) => self.layer[next] == self.layer[task] + 1 && self.extend(next),
            };
            if is_free {
                (self.slot_of[task], self.task_in[slot]) = (Some(slot), Some(task));
                return true;
            }
        }
        self.layer[task] = NO_LAYER;
        false
    }
}
