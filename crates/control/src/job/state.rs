//! State of a job.

use crate::interface::{JobDirs, Outbox};
use crate::job::log_room::LogRoom;
use crate::job::{Keeping, Replicating};
use crate::program_jobs::{FileHold, Seat};
use crate::users::JobOwner;
use api::control::JobOutcome;
use api::{Boundaries, JobSpec, Task, TaskFailure};
use ids::{AttemptKey, JobId, NodeId, RunId, StageIndex, StageKind, TaskIndex, TaskKey};
use mapreduce::JobResults;
use mapreduce::flow::FlowState;
use scheduler::FAILURES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A job of this process.
pub(crate) struct Job {
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    pub dirs: JobDirs,
    pub stage_kinds: Vec<StageKind>,
    /// The tasks of each expanded stage.
    pub tasks: Vec<Vec<Task>>,
    pub results: JobResults,
    /// The reduce tasks as they were before data that they read was lost. Some of their attempts keep running during
    /// the recomputation.
    pub standing: Option<(StageIndex, Vec<Task>)>,
    pub boundaries: Option<Boundaries>,
    pub cancel_reason: Option<String>,
    /// True if its running attempts have been told to stop.
    pub is_told_to_stop: bool,
    /// The last failure of an attempt, or of creating a stage.
    pub last_failure: Option<TaskFailure>,
    pub outcome: Option<JobOutcome>,
    pub report: Option<Box<api::JobReport>>,
    /// A hold on the shipped files, so that nodes can fetch them.
    pub file_hold: Option<FileHold>,
    pub owner: JobOwner,
    /// Room in the history for standard error of its programs, if it has many tasks.
    pub log_room: LogRoom,
    /// Seat in the scheduler of an admitted job of one task; given back at its end.
    pub seat: Option<Seat>,
    /// Set while nodes keep its intermediate data, and after they have confirmed.
    pub keeping: Option<Keeping>,
    pub replicating: Replicating,
    /// Progress as a stage of a flow.
    pub in_flow: FlowState,
    /// Attempts that became useless when another attempt of their task gave up the end of the range. They are told to
    /// stop.
    pub outrun: BTreeSet<AttemptKey>,
    /// Time since when each run is read from its replica.
    pub fell_back_ns: BTreeMap<RunId, u64>,
    /// Nodes that are away and whose data the job recomputes.
    pub given_up: BTreeSet<NodeId>,
    /// Runs that were lost so far; and below, the lost runs that running attempts had read before.
    pub lost_runs: BTreeSet<RunId>,
    pub have_read: BTreeMap<AttemptKey, BTreeSet<RunId>>,
    /// Pairs of a task and a node that an attempt of the task could not reach.
    unreached: BTreeSet<(TaskKey, NodeId)>,
}

impl Job {
    pub(crate) fn new(id: JobId, spec: Arc<JobSpec>, dirs: JobDirs, mut results: JobResults) -> Self {
        results.keeps_runs = spec.keep_ifiles;
        Self {
            id,
            stage_kinds: mapreduce::stages(&spec),
            spec,
            dirs,
            tasks: Vec::new(),
            results,
            standing: None,
            boundaries: None,
            cancel_reason: None,
            is_told_to_stop: false,
            last_failure: None,
            outcome: None,
            report: None,
            file_hold: None,
            owner: JobOwner::default(),
            log_room: LogRoom::default(),
            seat: None,
            keeping: None,
            replicating: Replicating::default(),
            in_flow: FlowState::default(),
            outrun: BTreeSet::new(),
            fell_back_ns: BTreeMap::new(),
            given_up: BTreeSet::new(),
            lost_runs: BTreeSet::new(),
            have_read: BTreeMap::new(),
            unreached: BTreeSet::new(),
        }
    }

    /// Returns whether all its attempts have been told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.outcome.is_some() || self.is_told_to_stop
    }

    /// Tells running attempts to stop.
    pub(crate) fn stop_attempts(&mut self, outbox: &mut Outbox) {
        self.is_told_to_stop = true;
        outbox.stop_attempts(self.id);
    }

    /// Returns whether it is a single task and no MapReduce job: it has no directories, and nodes remember nothing of
    /// it.
    pub(crate) fn is_single(&self) -> bool {
        self.spec.kind.program().is_some()
    }

    /// Returns the number of failures of one task that make the job fail. A user's program outside the engine may have
    /// done half of its work permanently: it runs once unless its user allows retries.
    pub(crate) fn failures_max(&self) -> u32 {
        match self.spec.kind.program() {
            Some(task) => task.retries.saturating_add(1),
            None => FAILURES_MAX,
        }
    }

    pub(crate) fn task(&self, attempt: AttemptKey) -> Option<&Task> {
        self.stage_tasks(attempt.task.stage)?.get(attempt.task.task.0 as usize)
    }

    pub(crate) fn stage_tasks(&self, stage: StageIndex) -> Option<&Vec<Task>> {
        let standing = self.standing.as_ref().filter(|(standing, _)| *standing == stage);
        self.tasks.get(usize::from(stage.0)).or(standing.map(|(_, tasks)| tasks))
    }

    /// Returns whether an attempt may have failed because its input is being recomputed.
    pub(crate) fn may_lack_data(&self, attempt: AttemptKey) -> bool {
        self.standing.as_ref().is_some_and(|(stage, _)| *stage == attempt.task.stage)
    }

    /// Returns whether an attempt is the first of its task that could not reach this node. The node may have died after
    /// its last poll, which still waits at the server, so nobody has noticed. The excuse works once per task and node.
    pub(crate) fn first_to_miss(&mut self, attempt: AttemptKey, node: NodeId) -> bool {
        self.unreached.insert((attempt.task, node))
    }

    pub(crate) fn stage_index(&self, kind: StageKind) -> Option<StageIndex> {
        self.stage_kinds.iter().position(|each| *each == kind).map(|index| StageIndex(index as u16))
    }

    /// Returns whether the job has this task, so that nothing is stored about an unknown one.
    pub(crate) fn knows(&self, stage: StageIndex, task: TaskIndex) -> bool {
        self.stage_tasks(stage).is_some_and(|tasks| (task.0 as usize) < tasks.len())
    }
}
