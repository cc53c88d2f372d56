//! The tasks of a planned stage that wait for one of their nodes, each for a time of its own: the time in which another
//! node could fetch its input.

use crate::UnixNanos;
use ids::TaskIndex;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A task that begins to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarTask {
    pub task: TaskIndex,
    /// Position among the tasks of its planned node; u32::MAX without one.
    pub turn: u32,
    pub wait_ns: u64,
}

/// Tasks by the time at which any node may take them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FarWaits {
    /// Tasks whose wait begins when the job may run.
    new: Vec<FarTask>,
    waiting: BTreeSet<(UnixNanos, Reverse<u32>, TaskIndex)>,
}

impl FarWaits {
    pub fn add(&mut self, task: FarTask) {
        self.new.push(task);
    }

    /// Begins the waits of new tasks. `since` returns the time at which a task began to wait.
    pub fn begin(&mut self, mut since: impl FnMut(TaskIndex) -> UnixNanos) {
        for FarTask { task, turn, wait_ns } in self.new.drain(..) {
            let due = UnixNanos(since(task).0.saturating_add(wait_ns));
            self.waiting.insert((due, Reverse(turn), task));
        }
    }

    /// Returns the time at which the next task has waited enough. Tasks that do not wait any more are forgotten.
    pub fn next_due(&mut self, waits: impl Fn(TaskIndex) -> bool) -> Option<UnixNanos> {
        while let Some((due, _, task)) = self.waiting.first().copied() {
            if waits(task) {
                return Some(due);
            }
            self.waiting.pop_first();
        }
        None
    }

    /// Takes the tasks that have waited enough: first those without a planned node, and then those that would have to
    /// wait for the most others on their planned node.
    pub fn take_due(&mut self, now: UnixNanos) -> Vec<TaskIndex> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first().copied().filter(|(due, ..)| *due <= now) {
            self.waiting.pop_first();
            due.push((first.1, first.2));
        }
        due.sort_unstable();
        due.into_iter().map(|(_, task)| task).collect()
    }

    pub fn remove(&mut self, task: TaskIndex) {
        self.new.retain(|new| new.task != task);
        self.waiting.retain(|(_, _, waiting)| *waiting != task);
    }
}
