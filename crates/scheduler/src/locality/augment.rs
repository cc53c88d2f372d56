//! Makes room for a task whose nodes are full, by moving placed tasks to other replicas along the shortest path to a
//! node with room (an augmenting path of a bipartite matching).

use super::choices::Choices;
use std::collections::VecDeque;

/// Steps that all searches may take, for each replica of the stage. Searches that fail take few steps for each replica
/// together, because no later search enters the nodes they have seen; only successful ones repeat.
const STEPS_PER_REPLICA: usize = 32;

/// Places as many of these tasks on a replica as possible. Placed tasks stay on a replica.
pub(super) fn augment(choices: &mut Choices, tasks: &[usize]) {
    let replicas: usize = choices.nodes_of.iter().map(Vec::len).sum();
    let mut placed_on: Vec<Vec<usize>> = vec![Vec::new(); choices.tasks_of.len()];
    if tasks.is_empty() {
        return;
    }
    for (task, node) in choices.placed.iter().enumerate() {
        if let Some(node) = node {
            placed_on[*node].push(task);
        }
    }
    let mut search = Search {
        placed_on,
        dead: vec![false; choices.tasks_of.len()],
        came_by: vec![None; choices.tasks_of.len()],
        steps_left: replicas.saturating_mul(STEPS_PER_REPLICA),
    };
    for task in tasks {
        if search.steps_left == 0 {
            return;
        }
        search.place(choices, *task);
    }
}

struct Search {
    placed_on: Vec<Vec<usize>>,
    /// Nodes from which no node with room can be reached.
    dead: Vec<bool>,
    /// The task that would move to this node, by node; of the current search.
    came_by: Vec<Option<usize>>,
    steps_left: usize,
}

impl Search {
    fn place(&mut self, choices: &mut Choices, task: usize) {
        let mut seen = Vec::new();
        let found = self.find(choices, task, &mut seen);
        if let Some(node) = found {
            self.shift(choices, node);
        }
        for node in seen {
            self.came_by[node] = None;
            self.dead[node] |= found.is_none() && self.steps_left > 0;
        }
    }

    /// Returns the nearest node with room, breadth first from the nodes of the task.
    fn find(&mut self, choices: &Choices, task: usize, seen: &mut Vec<usize>) -> Option<usize> {
        let mut tasks = VecDeque::from([task]);
        while let Some(task) = tasks.pop_front() {
            for node in choices.nodes_of[task].iter().copied() {
                if self.steps_left == 0 {
                    return None;
                }
                self.steps_left -= 1;
                if self.dead[node] || self.came_by[node].is_some() {
                    continue;
                }
                self.came_by[node] = Some(task);
                seen.push(node);
                if choices.room[node] > 0 {
                    return Some(node);
                }
                self.steps_left = self.steps_left.saturating_sub(self.placed_on[node].len());
                tasks.extend(&self.placed_on[node]);
            }
        }
        None
    }

    /// Moves the tasks of the path that ends at this node, the last one first.
    fn shift(&mut self, choices: &mut Choices, end: usize) {
        let mut node = end;
        while let Some(task) = self.came_by[node] {
            let before = choices.placed[task];
            choices.shift(task, node);
            self.placed_on[node].push(task);
            // The task to be placed begins the path: it was nowhere.
            let Some(before) = before else { return };
            self.placed_on[before].retain(|other| *other != task);
            node = before;
        }
    }
}
