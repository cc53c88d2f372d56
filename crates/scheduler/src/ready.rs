//! The waiting tasks of a stage: queues by placement.

use crate::claims::ClaimRank;
use crate::locality::far_waits::{FarTask, FarWaits};
use crate::state::{Stage, Task};
use crate::{LOCALITY_DELAY_NS, Needs, RecoveredTask, UnixNanos, WhyHere};
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
    /// Like `Of`, or without a node like `Far`, for a job whose attempts need resources of their node.
    Wide(Option<NodeId>, Needs),
}

impl Queue {
    /// Returns the queue of a job with these needs: `Needy` in place of `Anywhere`, unless it holds memory on all
    /// nodes; and `Wide` in place of the others if its attempts need resources of their node.
    pub fn for_needs(self, needs: Needs) -> Self {
        match self {
            Self::Anywhere if !needs.everywhere => Self::Needy(needs),
            Self::Of(node) if needs.picks_nodes() => Self::Wide(Some(node), needs),
            Self::Far if needs.picks_nodes() => Self::Wide(None, needs),
            other => other,
        }
    }

    /// Returns whether tasks wait in it that found no slot near their data.
    pub fn is_far(self) -> bool {
        matches!(self, Self::Far | Self::Wide(None, _))
    }
}

/// The claim of a job that may start next on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextClaim {
    pub rank: ClaimRank,
    pub user: u64,
    /// Queue with its task.
    pub queue: Queue,
}

/// Puts a task into a queue.
type Put = fn(&mut VecDeque<TaskIndex>, TaskIndex);

/// Queues of one stage. A task near several nodes is in the queue of each and in `far`; the first to take it clears its
/// mark, and the other entries are skipped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    anywhere: VecDeque<TaskIndex>,
    /// Tasks planned for a node; they go before the others of the node.
    planned: BTreeMap<NodeId, VecDeque<TaskIndex>>,
    by_node: BTreeMap<NodeId, VecDeque<TaskIndex>>,
    far: VecDeque<TaskIndex>,
    /// Tasks that are not in `far` yet, if the stage is planned.
    far_waits: FarWaits,
    /// True if some tasks came that only some nodes can run.
    has_bound: bool,
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
        self.is_planned = self.tasks.iter().any(|task| matches!(task.placement, Placement::Planned(_)));
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
        let of_nodes = ready.by_node.values_mut().chain(ready.planned.values_mut());
        let queues = [&mut ready.anywhere, &mut ready.far].into_iter().chain(of_nodes);
        queues.for_each(|queue| queue.retain(|each| *each != index));
        ready.far_waits.remove(index);
    }

    /// Removes the limit to a few nodes; if the task waits, it goes before all others.
    pub fn go_anywhere(&mut self, index: TaskIndex) {
        let task = &mut self.tasks[index.0 as usize];
        task.only = None;
        if std::mem::take(&mut task.queued) {
            self.enqueue(index, VecDeque::push_front);
        }
    }

    fn enqueue(&mut self, index: TaskIndex, put: Put) {
        let task = &mut self.tasks[index.0 as usize];
        // A task with entries from its last wait keeps its positions.
        let is_new = !std::mem::replace(&mut task.queued, true);
        let ready = &mut self.ready;
        ready.has_bound |= task.only.is_some() || task.placement.is_bound();
        let mut open_with = |queue: Queue, tasks: &mut VecDeque<TaskIndex>, put: Put| {
            ready.opened.insert(queue);
            if is_new {
                put(tasks, index);
            }
        };
        let mut open = |queue, tasks: &mut _| open_with(queue, tasks, put);
        if let Some(nodes) = &task.only {
            for node in nodes {
                open(Queue::Of(*node), ready.by_node.entry(*node).or_default());
            }
            return;
        }
        let (nodes, planned, wait_ns) = match &task.placement {
            Placement::Anywhere => return open(Queue::Anywhere, &mut ready.anywhere),
            Placement::On(node) => return open(Queue::Of(*node), ready.by_node.entry(*node).or_default()),
            Placement::Near(nodes) => (nodes, None, LOCALITY_DELAY_NS),
            Placement::Planned(input) => (&input.nodes, input.planned, input.wait_ns),
        };
        let mut turn = u32::MAX;
        if let Some(node) = planned {
            let queue = ready.planned.entry(node).or_default();
            turn = queue.len() as u32;
            open(Queue::Of(node), queue);
        }
        // A node without planned tasks helps another node first with the tasks that this node would run last.
        let put = if planned.is_some() { VecDeque::push_front } else { put };
        for node in nodes.iter().filter(|node| planned != Some(**node)) {
            open_with(Queue::Of(*node), ready.by_node.entry(*node).or_default(), put);
        }
        match self.is_planned {
            _ if task.placement.is_bound() => {}
            false => open_with(Queue::Far, &mut ready.far, put),
            true => {
                ready.opened.insert(Queue::Far);
                if is_new {
                    ready.far_waits.add(FarTask { task: index, turn, wait_ns });
                }
            }
        }
    }

    /// Begins the waits of tasks for their nodes, and ends those that were long enough. Returns the time at which the
    /// next one ends.
    pub fn let_far_tasks_go(&mut self, now: UnixNanos) -> Option<UnixNanos> {
        let Self { tasks, ready, .. } = self;
        ready.far_waits.begin(|index| *tasks[index.0 as usize].waits_since.get_or_insert(now));
        ready.far.extend(ready.far_waits.take_due(now));
        ready.far_waits.next_due(|index| tasks[index.0 as usize].queued)
    }

    /// Replaces the placements of tasks. Those that wait do so in the new queues; their waits go on.
    pub fn place_again(&mut self, placements: Vec<(TaskIndex, Placement)>) {
        for (index, placement) in placements {
            if let Some(task) = self.tasks.get_mut(index.0 as usize) {
                self.is_planned |= matches!(placement, Placement::Planned(_));
                task.placement = placement;
            }
        }
        self.ready = Ready::default();
        let waiting = |task: &mut Task| std::mem::take(&mut task.queued) && task.winner.is_none();
        let waiting: Vec<bool> = self.tasks.iter_mut().map(waiting).collect();
        for index in (0..self.task_count()).filter(|index| waiting[*index as usize]) {
            self.enqueue(TaskIndex(index), VecDeque::push_back);
        }
    }

    /// Returns the first task of a queue that still waits.
    pub fn first_waiting(&mut self, queue: Queue) -> Option<TaskIndex> {
        let Self { tasks, ready, .. } = self;
        match queue {
            Queue::Anywhere | Queue::Needy(_) => front(&mut ready.anywhere, tasks),
            Queue::Far | Queue::Wide(None, _) => front(&mut ready.far, tasks),
            Queue::Of(node) | Queue::Wide(Some(node), _) => {
                for queues in [&mut ready.planned, &mut ready.by_node] {
                    let Some(queue) = queues.get_mut(&node) else { continue };
                    match front(queue, tasks) {
                        None => drop(queues.remove(&node)),
                        found => return found,
                    }
                }
                None
            }
        }
    }

    /// Returns the first task that waits for a node and can run on no other one for which `works` holds. All tasks keep
    /// their positions.
    pub fn first_stranded(&mut self, node: NodeId, works: impl Fn(NodeId) -> bool) -> Option<TaskIndex> {
        if !self.ready.has_bound {
            return None;
        }
        self.first_waiting(Queue::Of(node))?;
        let can_run_elsewhere = |task: &Task| match (&task.only, &task.placement) {
            (Some(only), _) => only.iter().any(|other| *other != node && works(*other)),
            (None, Placement::On(only)) => *only != node,
            (None, placement) if placement.is_bound() => {
                placement.near().iter().any(|other| *other != node && works(*other))
            }
            (None, _) => true,
        };
        let Ready { planned, by_node, .. } = &self.ready;
        let there = [planned.get(&node), by_node.get(&node)].into_iter().flatten().flatten();
        let is_stranded = |task: &Task| task.queued && task.winner.is_none() && !can_run_elsewhere(task);
        there.copied().find(|index| is_stranded(&self.tasks[index.0 as usize]))
    }

    /// Returns the first task that waits for a node and can run on no other. Tasks with other nodes are in other queues
    /// too, and leave this one.
    pub fn first_bound(&mut self, node: NodeId) -> Option<TaskIndex> {
        loop {
            let index = self.first_waiting(Queue::Of(node))?;
            if self.tasks[index.0 as usize].placement.is_only_on(node) {
                return Some(index);
            }
            let Ready { planned, by_node, .. } = &mut self.ready;
            let of_node = [planned.get_mut(&node), by_node.get_mut(&node)];
            of_node.into_iter().flatten().find(|queue| queue.front() == Some(&index))?.pop_front();
        }
    }

    /// Refills the queue of a node with the tasks near it that left the queue. Returns whether any waits there.
    pub fn refill(&mut self, node: NodeId) -> bool {
        let waits_there = |task: &Task| match &task.placement {
            _ if !task.queued || task.winner.is_some() => false,
            _ if task.only.is_some() => task.only.iter().flatten().any(|only| *only == node),
            Placement::Anywhere => false,
            Placement::On(bound) => *bound == node,
            Placement::Near(_) | Placement::Planned(_) => task.placement.near().contains(&node),
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
        let nodes: BTreeSet<NodeId> =
            self.ready.by_node.keys().chain(self.ready.planned.keys()).copied().collect();
        let nodes = nodes.into_iter().map(Queue::Of);
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
        task.waits_since = None;
        if task.only.is_some() {
            return WhyHere::NotWhereItFailed;
        }
        match &task.placement {
            Placement::Anywhere => WhyHere::Any,
            placement if placement.is_only_on(node) => WhyHere::OnlyHere,
            placement if placement.near().contains(&node) => WhyHere::NearData,
            Placement::On(_) | Placement::Near(_) | Placement::Planned(_) => WhyHere::NoNearerSlot,
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
