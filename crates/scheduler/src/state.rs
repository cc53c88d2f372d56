//! State of the scheduler.

use crate::claims::{Claims, JobOrder, User};
use crate::memory::Room;
use crate::ready::Ready;
use crate::slots::FreeSlots;
use crate::slots::occupied::OccupiedSlots;
use crate::speculative_attempts::Watch;
use crate::{Claim, Needs, Slot, UnixNanos};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, StageKind, TaskKey};
use std::collections::{BTreeMap, BTreeSet};

/// Unfinished jobs, finished jobs with running attempts, and the waiting slots.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) free_slots: FreeSlots,
    /// Nodes that are or were being drained; their numbers are never reused. And their waiting slots, for tasks that
    /// can run on no other node.
    pub(crate) draining: BTreeSet<NodeId>,
    pub(crate) draining_slots: FreeSlots,
    /// Slots that running attempts have taken besides their own.
    pub(crate) occupied: OccupiedSlots,
    /// Places where attempts may wait for a slot of their node.
    pub(crate) places: FreeSlots,
    /// The users of jobs.
    pub(crate) users: BTreeMap<u64, User>,
    /// Number of attempts started so far.
    pub(crate) starts: u64,
    /// Jobs with tasks for any node.
    pub(crate) anywhere: Claims,
    /// Jobs with tasks on or near a node.
    pub(crate) near: BTreeMap<NodeId, Claims>,
    /// Jobs with tasks that have waited long enough for a node near their data.
    pub(crate) far: Claims,
    /// Times at which tasks may stop waiting for a node near their data, by job.
    pub(crate) far_due: BTreeSet<(UnixNanos, JobId)>,
    /// Waiting jobs by the time of their last service.
    pub(crate) waits_since: BTreeSet<(UnixNanos, JobId)>,
    /// Number of jobs in that list, by level.
    pub(crate) levels: BTreeMap<i64, u32>,
    /// Nodes with a new slot or task since the last dispatch.
    pub(crate) woken: BTreeSet<NodeId>,
    /// Declared resources of nodes.
    pub(crate) rooms: BTreeMap<NodeId, Room>,
    /// Memory of the jobs that hold it on all nodes.
    pub(crate) held_bytes: u64,
    /// Jobs that hold memory on all nodes.
    pub(crate) holders: BTreeSet<JobId>,
    /// Jobs that wait to hold memory on all nodes.
    pub(crate) line: BTreeSet<JobId>,
    /// Jobs without memory on all nodes: their tasks need resources of their own node, or nothing.
    pub(crate) needy: BTreeMap<Needs, Claims>,
    /// Jobs whose attempts need resources of their node, by node: jobs with tasks on or near the node, or for None, with tasks that
    /// have waited long enough for a node near their data.
    pub(crate) wide: BTreeMap<Option<NodeId>, BTreeMap<Needs, Claims>>,
    /// A job that needs memory or several slots where it runs and has waited long, and the node that is reserved for
    /// it.
    pub(crate) kept: Option<(JobId, NodeId)>,
    /// Jobs that held memory on all nodes when the whole node was reserved; None if only memory is reserved.
    pub(crate) holders_when_kept: Option<BTreeSet<JobId>>,
    /// True if a job may fit since the memory was last checked.
    pub(crate) room_changed: bool,
    /// True if a node may now be able to run a task that it could not run before: a job with needs came, or no older
    /// job waits any more.
    pub(crate) look_everywhere: bool,
    /// Jobs with reports of progress since they were last judged.
    pub(crate) has_progress: BTreeSet<JobId>,
    /// Slow nodes, with the time until which they get no copies.
    pub(crate) slow_nodes: BTreeMap<NodeId, UnixNanos>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub claim: Claim,
    pub stages: Vec<Stage>,
    /// Number of failures of one task that make the job fail.
    pub failures_max: u32,
    /// The current stage.
    pub current: StageIndex,
    pub phase: Phase,
    /// True if none of its attempts may start.
    pub is_held: bool,
    /// Attempts that were started and have not ended, over all stages.
    pub running: BTreeMap<AttemptKey, Running>,
    /// Attempts declared lost and not heard of since.
    pub lost: BTreeSet<AttemptKey>,
    /// Its priority, plus one for each long time without service.
    pub level: i64,
    /// Its entries in the lists of the state by time.
    pub far_due: Option<UnixNanos>,
    pub waits_since: Option<UnixNanos>,
    /// True if it holds its memory on all nodes.
    pub has_memory: bool,
    /// True if it has given back its memory until its next stage.
    pub waits_for_readers: bool,
    /// Time since which it has waited to hold memory on all nodes.
    pub in_line_since: UnixNanos,
    /// True if some of its tasks are limited to a part of their nodes.
    pub keeps_away: bool,
    pub watch: Watch,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub slot: Slot,
    pub started: UnixNanos,
    /// True if a previous server began it, at an unknown time.
    pub is_taken_over: bool,
    /// True if its task has, or had, another winner: its result is discarded.
    pub is_told_to_stop: bool,
}

impl Running {
    pub fn new(slot: Slot, started: UnixNanos) -> Self {
        Self { slot, started, is_taken_over: false, is_told_to_stop: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for the tasks of the current stage.
    Expanding,
    Running,
    /// Cancelled; starts nothing more. If the last stage completes nevertheless, the job has succeeded: its output is
    /// published and cannot be taken back.
    Cancelling,
    /// The end has been announced; some attempts still run.
    Over,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub kind: StageKind,
    pub expanded: bool,
    pub tasks: Vec<Task>,
    pub ready: Ready,
    pub done: u32,
    /// Attempts below this number belong to earlier tasks of this stage, whose data was lost.
    pub attempts_base: u32,
    /// All attempt numbers of previous servers are below this one, including those of dropped tasks.
    pub attempts_used: u32,
    /// True if its tasks stay valid until it is expanded again.
    pub retains_tasks: bool,
    /// True if its tasks wait for their nodes each for a time of its own.
    pub is_planned: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub placement: Placement,
    /// True if it waits in the queues of its stage.
    pub queued: bool,
    /// Start of this wait; only in a stage with planned tasks.
    pub waits_since: Option<UnixNanos>,
    pub attempts_started: u32,
    pub failures: u32,
    /// Number of running attempts, without those that were told to stop.
    pub running: u32,
    pub winner: Option<AttemptNumber>,
    /// Nodes on which it failed because of the node.
    pub failed_on: Vec<NodeId>,
    /// The only nodes that it may wait for because of that, regardless of its placement.
    pub only: Option<Vec<NodeId>>,
}

/// Progress of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    pub kind: StageKind,
    pub expanded: bool,
    pub tasks: u32,
    pub done: u32,
    pub running: u32,
}

impl State {
    /// Adds a job. Panics if its id was used before.
    pub(crate) fn add_job(&mut self, id: JobId, job: Job) {
        self.users.entry(job.claim.user).or_default().jobs += 1;
        let before = self.jobs.insert(id, job);
        assert!(before.is_none(), "job {id} came twice");
    }
}

impl Job {
    pub fn new(claim: Claim, stages: Vec<Stage>, failures_max: u32, phase: Phase) -> Self {
        Self {
            claim,
            stages,
            failures_max,
            current: StageIndex(0),
            phase,
            is_held: false,
            running: BTreeMap::new(),
            lost: BTreeSet::new(),
            level: i64::from(claim.priority),
            far_due: None,
            waits_since: None,
            has_memory: false,
            waits_for_readers: false,
            in_line_since: UnixNanos(0),
            keeps_away: false,
            watch: Watch::default(),
        }
    }

    /// Returns its order among the jobs of its user on its level.
    pub fn order(&self, id: JobId) -> JobOrder {
        JobOrder::new(id, &self.claim)
    }

    /// Returns whether it is a single task that may run anywhere.
    pub fn is_one_task(&self) -> bool {
        match &self.stages[..] {
            [stage] => matches!(&stage.tasks[..], [task] if task.placement == Placement::Anywhere),
            _ => false,
        }
    }

    pub fn stage(&mut self, stage: StageIndex) -> &mut Stage {
        &mut self.stages[usize::from(stage.0)]
    }

    /// Returns the task; None if the job does not have it.
    pub fn task(&mut self, key: TaskKey) -> Option<&mut Task> {
        self.stages.get_mut(usize::from(key.stage.0))?.tasks.get_mut(key.task.0 as usize)
    }

    pub fn in_last_stage(&self) -> bool {
        usize::from(self.current.0) + 1 == self.stages.len()
    }
}

impl Stage {
    pub fn task_count(&self) -> u32 {
        u32::try_from(self.tasks.len()).expect("StageExpanded carries the count as u32")
    }

    pub fn complete(&self) -> bool {
        self.expanded && self.done == self.task_count()
    }
}

/// Returns whether there are unfinished jobs, or running attempts.
pub fn has_jobs(state: &State) -> bool {
    !state.jobs.is_empty()
}

/// Returns the progress of a job's stages; None for a job that is gone.
pub fn stage_counts(state: &State, job: JobId) -> Option<Vec<StageCounts>> {
    let job = state.jobs.get(&job)?;
    let count = |(index, stage): (usize, &Stage)| StageCounts {
        kind: stage.kind,
        expanded: stage.expanded,
        tasks: stage.task_count(),
        done: stage.done,
        running: job.running.keys().filter(|key| usize::from(key.task.stage.0) == index).count() as u32,
    };
    Some(job.stages.iter().enumerate().map(count).collect())
}
