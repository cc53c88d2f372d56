//! The waiting tasks of a stage: queues by placement.

use crate::state::{Stage, Task};
use crate::{Needs, RecoveredTask, WhyHere};
use ids::{AttemptNumber, NodeId, Placement, TaskIndex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A queue of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// Queue of tasks on or near a node.
    Of(NodeId),
    Anywhere,
    /// Queue of the tasks near some node, for all other nodes.
    Far,
    /// Like `Anywhere`, for a job without memory on all nodes: any node with the needed resources may run it.
    Needy(Needs),
}

impl Queue {
    /// Returns the queue of a job with these needs: `Needy` in place of `Anywhere`, unless it holds memory on all
    /// nodes.
    pub fn for_needs(self, needs: Needs) -> Self {
        match self {
            Self::Anywhere if !needs.everywhere => Self::Needy(needs),
            other => other,
        }
    }
}

/// Queues of one stage. A task near several nodes is in the queue of each and in `far`; the first to take it clears its
/// mark, and the other entries are skipped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    anywhere: VecDeque<TaskIndex>,
    by_node: BTreeMap<NodeId, VecDeque<TaskIndex>>,
    far: VecDeque<TaskIndex>,
    /// Queues that have become non-empty since the last look.
    pub opened: BTreeSet<Queue>,
}

impl Stage {
    /// Sets the placements of the tasks; all wait from now on, in their order, except valid ones that are done or run.
    pub fn fill(&mut self, placements: Vec<Placement>) {
        let tasks = std::mem::take(&mut self.tasks);
        let mut stood = if std::mem::take(&mut self.retains_tasks) { tasks } else { Vec::new() }.into_iter();
        let attempts_started = self.attempts_base;
        let new = |placement| Task { placement, attempts_started, ..Task::default() };
        let task = |placement| match stood.next() {
            Some(task) => Task { placement, queued: false, ..task },
            None => new(placement),
        };
        self.tasks = placements.into_iter().map(task).collect();
        self.ready = Ready::default();
        self.done = self.tasks.iter().filter(|task| task.winner.is_some()).count() as u32;
        self.queue_idle();
    }

    /// Keeps the tasks for the next expansion: finished tasks, and running attempts.
    pub fn let_stand(&mut self) {
        self.retains_tasks |= self.expanded;
        self.expanded = false;
        self.ready = Ready::default();
        self.tasks.iter_mut().for_each(|task| task.queued = false);
    }

    /// Marks a task as not done.
    pub fn undo(&mut self, index: TaskIndex) {
        if let Some(task) = self.tasks.get_mut(index.0 as usize) {
            self.done -= u32::from(task.winner.take().is_some());
        }
    }

    /// Marks a task as done in a stage that is not expanded.
    pub fn stand_done(&mut self, index: TaskIndex, winner: AttemptNumber) {
        let place = index.0 as usize;
        let attempts_started = self.attempts_base;
        let idle = Task { attempts_started, ..Task::default() };
        self.tasks.resize(self.tasks.len().max(place + 1), idle);
        self.retains_tasks = true;
        self.done += u32::from(self.tasks[place].winner.replace(winner).is_none());
    }

    /// Restores tasks; [`Self::queue_idle`] follows when the running ones are known.
    pub fn restore(&mut self, tasks: Vec<RecoveredTask>) {
        self.done = tasks.iter().filter(|task| task.winner.is_some()).count() as u32;
        let task = |task: RecoveredTask| Task {
            placement: task.placement,
            attempts_started: task.attempts_started,
            failures: task.failures,
            winner: task.winner,
            ..Task::default()
        };
        self.expanded = true;
        self.tasks = tasks.into_iter().map(task).collect();
        self.ready = Ready::default();
    }

    /// Queues the tasks that neither run nor are done.
    pub fn queue_idle(&mut self) {
        for index in 0..self.task_count() {
            let task = &self.tasks[index as usize];
            if task.winner.is_none() && task.running == 0 {
                self.enqueue(TaskIndex(index), VecDeque::push_back);
            }
        }
    }

    /// Adds a task, which waits from now on.
    pub fn add(&mut self, placement: Placement) {
        let index = TaskIndex(self.task_count());
        let attempts_started = self.attempts_base.max(self.attempts_used);
        self.tasks.push(Task { placement, attempts_started, ..Task::default() });
        self.enqueue(index, VecDeque::push_back);
    }

    /// Queues a task again before all others.
    pub fn go_again(&mut self, index: TaskIndex) {
        self.enqueue(index, VecDeque::push_front);
    }

    /// Limits a task that is not waiting to these nodes for its next wait; None restores its placement.
    pub fn keep_to(&mut self, index: TaskIndex, only: Option<Vec<NodeId>>) {
        self.tasks[index.0 as usize].only = only;
        // Entries of a taken task stay in the queues, and would count again.
        let ready = &mut self.ready;
        let queues = [&mut ready.anywhere, &mut ready.far].into_iter().chain(ready.by_node.values_mut());
        queues.for_each(|queue| queue.retain(|each| *each != index));
    }

    /// Removes the limit to a few nodes; if the task waits, it goes before all others.
    pub fn go_anywhere(&mut self, index: TaskIndex) {
        let task = &mut self.tasks[index.0 as usize];
        task.only = None;
        if std::mem::take(&mut task.queued) {
            self.enqueue(index, VecDeque::push_front);
        }
    }

    fn enqueue(&mut self, index: TaskIndex, put: fn(&mut VecDeque<TaskIndex>, TaskIndex)) {
        let task = &mut self.tasks[index.0 as usize];
        // A task with entries from its last wait keeps its positions.
        let is_new = !std::mem::replace(&mut task.queued, true);
        let ready = &mut self.ready;
        let mut open = |queue: Queue, tasks: &mut VecDeque<TaskIndex>| {
            ready.opened.insert(queue);
            if is_new {
                put(tasks, index);
            }
        };
        if let Some(nodes) = &task.only {
            for node in nodes {
                open(Queue::Of(*node), ready.by_node.entry(*node).or_default());
            }
            return;
        }
        match &task.placement {
            Placement::Anywhere => open(Queue::Anywhere, &mut ready.anywhere),
            Placement::On(node) => open(Queue::Of(*node), ready.by_node.entry(*node).or_default()),
            Placement::Near(nodes) => {
                for node in nodes {
                    open(Queue::Of(*node), ready.by_node.entry(*node).or_default());
                }
                open(Queue::Far, &mut ready.far);
            }
        }
    }

    /// Returns the first task of a queue that still waits.
    pub fn first_waiting(&mut self, queue: Queue) -> Option<TaskIndex> {
        let Self { tasks, ready, .. } = self;
        match queue {
            Queue::Anywhere | Queue::Needy(_) => front(&mut ready.anywhere, tasks),
            Queue::Far => front(&mut ready.far, tasks),
            Queue::Of(node) => {
                let found = front(ready.by_node.get_mut(&node)?, tasks);
                if found.is_none() {
                    ready.by_node.remove(&node);
                }
                found
            }
        }
    }

    /// Returns the first task that waits for a node and can run on no other. Tasks that are only near it are in other
    /// queues too, and leave this one.
    pub fn first_bound(&mut self, node: NodeId) -> Option<TaskIndex> {
        loop {
            let index = self.first_waiting(Queue::Of(node))?;
            if matches!(self.tasks[index.0 as usize].placement, Placement::On(_)) {
                return Some(index);
            }
            self.ready.by_node.get_mut(&node)?.pop_front();
        }
    }

    /// Refills the queue of a node with the tasks near it that left the queue. Returns whether any waits there.
    pub fn refill(&mut self, node: NodeId) -> bool {
        let waits_there = |task: &Task| match &task.placement {
            _ if !task.queued || task.winner.is_some() => false,
            _ if task.only.is_some() => task.only.iter().flatten().any(|only| *only == node),
            Placement::Anywhere => false,
            Placement::On(bound) => *bound == node,
            Placement::Near(nodes) => nodes.contains(&node),
        };
        // A task that won while it waited leaves all queues; otherwise it could not be queued again.
        self.tasks.iter_mut().for_each(|task| task.queued &= task.winner.is_none());
        let there = self.tasks.iter().enumerate().filter(|(_, task)| waits_there(task));
        let queue: VecDeque<TaskIndex> = there.map(|(index, _)| TaskIndex(index as u32)).collect();
        let any = !queue.is_empty();
        self.ready.by_node.remove(&node);
        if any {
            self.ready.by_node.insert(node, queue);
        }
        any
    }

    /// Returns whether any task waits.
    pub fn has_waiting(&mut self) -> bool {
        !self.queues_with_waiting().is_empty()
    }

    /// Returns the queues with waiting tasks.
    pub fn queues_with_waiting(&mut self) -> Vec<Queue> {
        let nodes = self.ready.by_node.keys().map(|node| Queue::Of(*node));
        let all: Vec<Queue> = nodes.chain([Queue::Anywhere, Queue::Far]).collect();
        all.into_iter().filter(|queue| self.first_waiting(*queue).is_some()).collect()
    }

    /// Takes a task that [`Self::first_waiting`] returned for the node, or a running one. Returns the reason for its
    /// placement.
    pub fn take(&mut self, index: TaskIndex, node: NodeId) -> WhyHere {
        let task = &mut self.tasks[index.0 as usize];
        if !std::mem::take(&mut task.queued) {
            return WhyHere::BesideSlow;
        }
        if task.only.is_some() {
            return WhyHere::NotWhereItFailed;
        }
        match &task.placement {
            Placement::Anywhere => WhyHere::Any,
            Placement::On(_) => WhyHere::OnlyHere,
            Placement::Near(nodes) if nodes.contains(&node) => WhyHere::NearData,
            Placement::Near(_) => WhyHere::NoNearerSlot,
        }
    }
}

/// Returns the first task of a queue that still waits; entries of others are dropped.
fn front(queue: &mut VecDeque<TaskIndex>, tasks: &mut [Task]) -> Option<TaskIndex> {
    while let Some(index) = queue.front() {
        let task = &mut tasks[index.0 as usize];
        // A lost attempt may have won while its task waited for the rerun.
        task.queued &= task.winner.is_none();
        if task.queued {
            return Some(*index);
        }
        queue.pop_front();
    }
    None
}
