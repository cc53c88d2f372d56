//! The rules by which slots get tasks.

use super::{Assigning, Machines};
use ids::{AttemptKey, InputNodes, JobId, NodeId, Placement, StageIndex, StageKind};
use scheduler::{Action, Claim, Event, InputPlace, Slot, State, UnixNanos, handle};
use std::collections::{BTreeMap, VecDeque};

const JOB: JobId = JobId(1);
const MAPS: StageIndex = StageIndex(0);

/// A task that starts in a slot.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub task: usize,
    pub slot: Slot,
}

/// An assigner of tasks to slots that ask.
pub(super) enum Assigner {
    /// The first to ask is served: a task with a replica there, else any.
    FirstCome(FirstCome),
    Scheduler(Box<Scheduled>),
}

impl Assigner {
    /// `read_bytes`: bytes of the input of a task.
    pub fn new(assigning: Assigning, machines: &Machines, tasks: &[InputPlace], read_bytes: f64) -> Self {
        let near = |nodes: &[NodeId]| Placement::Near(nodes.to_vec());
        match assigning {
            Assigning::AtHeartbeats => Self::FirstCome(FirstCome::new(machines, tasks)),
            Assigning::NearReplicas => Self::Scheduler(Box::new(Scheduled::new(
                tasks.iter().map(|task| near(&task.nodes)).collect(),
            ))),
            Assigning::Greedy => {
                // A task waits for its nodes as long as fetching would take.
                let wait_ns = (read_bytes / machines.link_bytes_per_second * 1e9) as u64;
                let input = |task: &InputPlace| InputNodes {
                    nodes: task.nodes.clone(),
                    planned: None,
                    wait_ns,
                    only_there: false,
                };
                let planned = scheduler::plan(tasks.iter().map(input).collect(), &machines.rooms());
                Self::Scheduler(Box::new(Scheduled::new(planned)))
            }
        }
    }

    pub fn slot_asks(&mut self, slot: Slot, now_ns: u64) -> Vec<Start> {
        match self {
            Self::FirstCome(rule) => {
                rule.next(slot.node).map(|task| Start { task, slot }).into_iter().collect()
            }
            Self::Scheduler(scheduled) => scheduled.feed(Event::SlotFree { slot }, now_ns),
        }
    }

    pub fn task_ends(&mut self, task: usize, now_ns: u64) -> Vec<Start> {
        match self {
            Self::FirstCome(_) => Vec::new(),
            Self::Scheduler(scheduled) => match scheduled.attempts.remove(&task) {
                Some(attempt) => scheduled.feed(Event::AttemptSucceeded { attempt }, now_ns),
                None => Vec::new(),
            },
        }
    }

    pub fn tick(&mut self, now_ns: u64) -> Vec<Start> {
        match self {
            Self::FirstCome(_) => Vec::new(),
            Self::Scheduler(scheduled) => scheduled.feed(Event::Tick, now_ns),
        }
    }
}

pub(super) struct FirstCome {
    /// Tasks with a replica, by node.
    local: Vec<VecDeque<usize>>,
    all: VecDeque<usize>,
    is_taken: Vec<bool>,
}

impl FirstCome {
    fn new(machines: &Machines, tasks: &[InputPlace]) -> Self {
        let mut local = vec![VecDeque::new(); machines.nodes() as usize];
        for (task, input) in tasks.iter().enumerate() {
            input.nodes.iter().for_each(|node| local[node.0 as usize].push_back(task));
        }
        Self { local, all: (0..tasks.len()).collect(), is_taken: vec![false; tasks.len()] }
    }

    fn next(&mut self, node: NodeId) -> Option<usize> {
        let Self { local, all, is_taken } = self;
        let first = |queue: &mut VecDeque<usize>| {
            while queue.front().is_some_and(|task| is_taken[*task]) {
                queue.pop_front();
            }
            queue.pop_front()
        };
        let task = [&mut local[node.0 as usize], all].into_iter().find_map(first)?;
        self.is_taken[task] = true;
        Some(task)
    }
}

/// The real scheduler with one job.
pub(super) struct Scheduled {
    state: State,
    attempts: BTreeMap<usize, AttemptKey>,
}

impl Scheduled {
    fn new(tasks: Vec<Placement>) -> Self {
        let mut scheduled = Self { state: State::default(), attempts: BTreeMap::new() };
        let failures_max = scheduler::FAILURES_MAX;
        let stages = vec![StageKind::Map];
        let submit = Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max };
        scheduled.feed(submit, 0);
        scheduled.feed(Event::StageExpanded { job: JOB, stage: MAPS, tasks }, 0);
        scheduled
    }

    fn feed(&mut self, event: Event, now_ns: u64) -> Vec<Start> {
        let mut outbox = VecDeque::new();
        handle(&mut self.state, &mut outbox, UnixNanos(now_ns), event);
        let mut starts = Vec::new();
        for action in outbox {
            if let Action::StartAttempt { attempt, slot } = action {
                let task = attempt.task.task.0 as usize;
                self.attempts.insert(task, attempt);
                starts.push(Start { task, slot });
            }
        }
        starts
    }
}
