//! Placement of all tasks at once, fewest choices first.
//!
//! ```text
//!  tasks by number of nodes with a replica and room     node of the chosen task
//!  1: c            <- next: its only chance             the fewest tasks per remaining slot want it
//!  2: a e f                                             (a full node leaves the choices of its other tasks,
//!  3: b d g h                                            which move one bucket down)
//! ```
//!
//! Bounds: the greedy steps leave a task without a replica only if all its nodes are full, so they place at least half
//! as many tasks on a replica as the best matching (any maximal matching does). In 15 worlds of 100 nodes with as many
//! tasks as slots they reached 0.990 of it at least. `augment.rs` moves placed tasks to make room for the remaining ones:
//! the result is a best matching as long as its budget lasts, which makes the cost linear in the number of replicas.

use super::augment;
use super::choices::Choices;
use ids::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes that have the input of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputPlace {
    pub nodes: Vec<NodeId>,
    pub reach: Reach,
}

/// The nodes that can run a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Any node: it reads the input from another one if it has none.
    #[default]
    Anywhere,
    /// Only the nodes that have the input, such as a directory that no other node sees.
    OnlyThere,
}

/// The slots of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    pub node: NodeId,
    /// Number of the rack of the node.
    pub rack: u32,
    /// Slots that are free now.
    pub free_slots: u32,
    /// All slots; they count for tasks beyond the free slots of all nodes.
    pub slots: u32,
}

/// The node of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedTask {
    pub node: NodeId,
    pub proximity: Proximity,
}

/// The distance from a task to its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proximity {
    OnReplica,
    InRackOfReplica,
    Elsewhere,
}

/// Returns the node of each task, in their order. A node gets at most one task for each free slot, and one for each of
/// its slots in each further wave that the tasks need. Bound tasks may exceed that: those without room wait at the least
/// overloaded of their nodes. A task has no node only if there are no slots, or if it is bound to nodes that are not in
/// the list. `nodes` has each node once; their order matters only among equals.
pub fn place(tasks: &[InputPlace], nodes: &[NodeRoom]) -> Vec<Option<PlacedTask>> {
    let mut choices = Choices::new(tasks, nodes);
    for reach in [Reach::OnlyThere, Reach::Anywhere] {
        let these: Vec<usize> = (0..tasks.len()).filter(|task| tasks[*task].reach == reach).collect();
        Greedy::new(&mut choices, &these).run();
        let left: Vec<usize> = these.into_iter().filter(|task| choices.placed[*task].is_none()).collect();
        augment::augment(&mut choices, &left);
        if reach == Reach::OnlyThere {
            queue_bound(&mut choices, &left);
        }
    }
    let far = place_far(&mut choices, tasks, nodes);
    let placed = |(task, node): (usize, Option<usize>)| {
        let proximity = far.get(&task).copied().unwrap_or(Proximity::OnReplica);
        node.map(|node| PlacedTask { node: nodes[node].node, proximity })
    };
    choices.placed.iter().copied().enumerate().map(placed).collect()
}

/// The greedy steps over some of the tasks.
struct Greedy<'a> {
    choices: &'a mut Choices,
    /// Number of nodes with a replica and room, by task; 0 for the tasks that are placed or not looked at.
    left_of: Vec<usize>,
    /// Number of these tasks that are not placed and have a replica there, by node.
    wanted_by: Vec<usize>,
    /// Tasks by `left_of`. A task whose number has changed is in more than one bucket; only the entry of its current
    /// number counts.
    buckets: Vec<VecDeque<usize>>,
}

impl<'a> Greedy<'a> {
    fn new(choices: &'a mut Choices, tasks: &[usize]) -> Self {
        let mut left_of = vec![0; choices.nodes_of.len()];
        let mut wanted_by = vec![0; choices.tasks_of.len()];
        let mut buckets = vec![VecDeque::new()];
        for task in tasks.iter().copied() {
            let with_room = choices.nodes_of[task].iter().filter(|node| choices.room[**node] > 0);
            left_of[task] = with_room.inspect(|node| wanted_by[**node] += 1).count();
            buckets.resize_with(buckets.len().max(left_of[task] + 1), VecDeque::new);
            buckets[left_of[task]].push_back(task);
        }
        Self { choices, left_of, wanted_by, buckets }
    }

    fn run(mut self) {
        let mut fewest = 1;
        while fewest < self.buckets.len() {
            let Some(task) = self.buckets[fewest].pop_front() else {
                fewest += 1;
                continue;
            };
            if self.left_of[task] == fewest
                && let Some(node) = self.least_wanted(task)
            {
                fewest = fewest.min(self.put(task, node));
            }
        }
    }

    /// Returns the node with room that the fewest tasks want for each remaining slot.
    fn least_wanted(&self, task: usize) -> Option<usize> {
        let with_room =
            self.choices.nodes_of[task].iter().copied().filter(|node| self.choices.room[*node] > 0);
        with_room.reduce(|best, node| {
            let wants = |node: usize| self.wanted_by[node] as u128;
            let room = |node: usize| self.choices.room[node] as u128;
            if wants(node) * room(best) < wants(best) * room(node) { node } else { best }
        })
    }

    /// Places a task. Returns the lowest bucket that got a task.
    fn put(&mut self, task: usize, node: usize) -> usize {
        self.choices.put(task, node);
        self.left_of[task] = 0;
        self.choices.nodes_of[task].iter().for_each(|wanted| {
            self.wanted_by[*wanted] = self.wanted_by[*wanted].saturating_sub(1);
        });
        let mut lowest = self.buckets.len();
        if self.choices.room[node] > 0 {
            return lowest;
        }
        for other in self.choices.tasks_of[node].iter().copied() {
            if self.left_of[other] > 0 {
                self.left_of[other] -= 1;
                let left = self.left_of[other];
                self.buckets[left].push_back(other);
                lowest = lowest.min(left.max(1));
            }
        }
        lowest
    }
}

/// Gives bound tasks whose nodes are full to the least overloaded of these nodes; they wait there.
fn queue_bound(choices: &mut Choices, tasks: &[usize]) {
    for task in tasks.iter().copied().filter(|task| choices.placed[*task].is_none()).collect::<Vec<_>>() {
        let most_room =
            choices.nodes_of[task].iter().copied().max_by_key(|node| (choices.room[*node], Reverse(*node)));
        if let Some(node) = most_room {
            choices.put(task, node);
        }
    }
}

/// Places the tasks whose nodes are all full: in the rack of a replica if there is room, else where most room is.
/// Returns the proximity of each of these tasks.
fn place_far(choices: &mut Choices, tasks: &[InputPlace], nodes: &[NodeRoom]) -> BTreeMap<usize, Proximity> {
    let mut racks: BTreeMap<u32, BTreeSet<(i64, Reverse<usize>)>> = BTreeMap::new();
    for (position, node) in nodes.iter().enumerate().filter(|(position, _)| choices.room[*position] > 0) {
        racks.entry(node.rack).or_default().insert((choices.room[position], Reverse(position)));
    }
    let mut far = BTreeMap::new();
    for (task, input) in tasks.iter().enumerate() {
        if choices.placed[task].is_some() || input.reach == Reach::OnlyThere {
            continue;
        }
        let near: BTreeSet<u32> = choices.nodes_of[task].iter().map(|node| nodes[*node].rack).collect();
        let most_room = |rack: &u32| racks.get(rack).and_then(BTreeSet::last).copied();
        let (found, proximity) = match near.iter().filter_map(most_room).max() {
            Some(found) => (Some(found), Proximity::InRackOfReplica),
            None => (racks.values().filter_map(BTreeSet::last).max().copied(), Proximity::Elsewhere),
        };
        let Some((room, Reverse(node))) = found else { continue };
        choices.put(task, node);
        far.insert(task, proximity);
        let rack = racks.entry(nodes[node].rack).or_default();
        rack.remove(&(room, Reverse(node)));
        if room > 1 {
            rack.insert((room - 1, Reverse(node)));
        }
    }
    far
}
