//! State of the scheduler.

use crate::claims::{Claims, User};
use crate::copies::Watch;
use crate::memory::Room;
use crate::ready::Ready;
use crate::slots::FreeSlots;
use crate::{Claim, Needs, Placement, Slot, UnixNanos};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, TaskKey};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs that are not over, or whose attempts still run, and the slots that wait for work.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) free_slots: FreeSlots,
    /// Nodes that are being emptied, or were: their numbers are given to nobody else. And their slots that wait, for
    /// tasks that can run nowhere else.
    pub(crate) draining: BTreeSet<NodeId>,
    pub(crate) draining_slots: FreeSlots,
    /// Places where attempts may wait for a slot of their node.
    pub(crate) places: FreeSlots,
    /// The users of jobs.
    pub(crate) users: BTreeMap<u64, User>,
    /// Attempts started so far.
    pub(crate) starts: u64,
    /// Jobs with tasks for any node.
    pub(crate) anywhere: Claims,
    /// Jobs with tasks on or near a node.
    pub(crate) near: BTreeMap<NodeId, Claims>,
    /// Jobs with tasks that have waited long enough for a node near their data.
    pub(crate) far: Claims,
    /// Times at which the tasks of jobs that still wait for a node near their data may go elsewhere.
    pub(crate) far_due: BTreeSet<(UnixNanos, JobId)>,
    /// Jobs by when they were served last.
    pub(crate) waits_since: BTreeSet<(UnixNanos, JobId)>,
    /// Jobs in that list, by level.
    pub(crate) levels: BTreeMap<i64, u32>,
    /// Nodes with a slot or a task that came since the last dispatch.
    pub(crate) woken: BTreeSet<NodeId>,
    /// Memory and architecture of nodes, as far as they told.
    pub(crate) rooms: BTreeMap<NodeId, Room>,
    /// Memory of the jobs that hold theirs on all nodes.
    pub(crate) held_bytes: u64,
    /// Jobs that hold memory on all nodes.
    pub(crate) holders: BTreeSet<JobId>,
    /// Jobs that wait to hold memory on all nodes.
    pub(crate) line: BTreeSet<JobId>,
    /// Jobs that hold nothing everywhere: with tasks that need something of the node where they run, or nothing.
    pub(crate) needy: BTreeMap<Needs, Claims>,
    /// A job that needs memory where it runs, and has waited long, and the node that is kept for it.
    pub(crate) kept: Option<(JobId, NodeId)>,
    /// Whether a job may fit since the memory was looked at last.
    pub(crate) room_changed: bool,
    /// Whether some node may run since then a task that it could not: a job that needs something of a node came, or
    /// no job waits before it any more.
    pub(crate) look_everywhere: bool,
    /// Jobs whose attempts have said how far they are since they were judged.
    pub(crate) has_progress: BTreeSet<JobId>,
    /// Nodes that were found slow, and until when they get no copies.
    pub(crate) slow_nodes: BTreeMap<NodeId, UnixNanos>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub claim: Claim,
    pub stages: Vec<Stage>,
    /// Failures of one task with which the job fails.
    pub failures_max: u32,
    /// The stage that runs.
    pub current: StageIndex,
    pub phase: Phase,
    /// Attempts that were started and have not ended, over all stages.
    pub running: BTreeMap<AttemptKey, Running>,
    /// Attempts declared lost that have not been heard of since.
    pub lost: BTreeSet<AttemptKey>,
    /// Its priority, and one more for each time it was not served for long.
    pub level: i64,
    /// Its entries in the lists of the state by time.
    pub far_due: Option<UnixNanos>,
    pub waits_since: Option<UnixNanos>,
    /// Holds its memory on all nodes.
    pub has_memory: bool,
    /// It has given its memory back until its next stage.
    pub rests: bool,
    /// Time since which it has waited to hold memory on all nodes.
    pub in_line_since: UnixNanos,
    /// Some of its tasks do not wait for all nodes for which they were placed.
    pub keeps_away: bool,
    pub watch: Watch,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub slot: Slot,
    pub started: UnixNanos,
    /// Another server began it, nobody knows when.
    pub is_taken_over: bool,
    /// Its task has, or had, another winner: whatever becomes of it is discarded.
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
    /// Cancelled; starts nothing more. If the last stage completes all the same, the job has succeeded:
    /// what it published cannot be taken back.
    Cancelling,
    /// The end has been announced; waits for attempts that still run.
    Over,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub kind: StageKind,
    pub expanded: bool,
    pub tasks: Vec<Task>,
    pub ready: Ready,
    pub done: u32,
    /// Attempts below this number belong to tasks that this stage had before its data was lost.
    pub attempts_base: u32,
    /// Below this number were all attempts that another server knew, also of tasks that are no more.
    pub attempts_used: u32,
    /// Its tasks stand as they are until it is expanded again.
    pub stands: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub placement: Placement,
    /// Waits in the queues of its stage.
    pub queued: bool,
    pub attempts_started: u32,
    pub failures: u32,
    /// Attempts running now, but for those that were told to stop.
    pub running: u32,
    pub winner: Option<AttemptNumber>,
    /// Nodes on which it failed for a reason of the node.
    pub failed_on: Vec<NodeId>,
    /// Nodes for which alone it waits because of that, wherever it was placed.
    pub only: Option<Vec<NodeId>>,
}

/// How far a stage is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    pub kind: StageKind,
    pub expanded: bool,
    pub tasks: u32,
    pub done: u32,
    pub running: u32,
}

impl State {
    /// Takes in a job. Panics where its id was used before.
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
            running: BTreeMap::new(),
            lost: BTreeSet::new(),
            level: i64::from(claim.priority),
            far_due: None,
            waits_since: None,
            has_memory: false,
            rests: false,
            in_line_since: UnixNanos(0),
            keeps_away: false,
            watch: Watch::default(),
        }
    }

    /// Whether it is a single task that may run anywhere, and nothing else.
    pub fn is_one_task(&self) -> bool {
        match &self.stages[..] {
            [stage] => matches!(&stage.tasks[..], [task] if task.placement == Placement::Anywhere),
            _ => false,
        }
    }

    pub fn stage(&mut self, stage: StageIndex) -> &mut Stage {
        &mut self.stages[usize::from(stage.0)]
    }

    /// The task, where the job has it.
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

/// Whether any job is not over or has attempts running.
pub fn has_jobs(state: &State) -> bool {
    !state.jobs.is_empty()
}

/// How far the stages of a job are; None for a job that is gone.
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
