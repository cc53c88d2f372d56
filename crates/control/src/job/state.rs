//! State of one job.

use crate::interface::{JobDirs, Outbox};
use crate::job::log_room::LogRoom;
use crate::job::{Keeping, Replicating};
use crate::program_jobs::{FileHold, Seat};
use crate::users::JobOwner;
use api::control::JobOutcome;
use api::{Boundaries, JobSpec, Task, TaskFailure};
use ids::{AttemptKey, JobId, NodeId, RunId, StageIndex, StageKind, TaskIndex, TaskKey};
use mapreduce::JobResults;
use mapreduce::flow::StageState;
use scheduler::FAILURES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One job of this process.
pub(crate) struct Job {
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    pub dirs: JobDirs,
    pub stage_kinds: Vec<StageKind>,
    /// The tasks of each expanded stage.
    pub tasks: Vec<Vec<Task>>,
    pub results: JobResults,
    /// The reduce tasks as they were, while data that they read is made again: attempts of some run on.
    pub standing: Option<(StageIndex, Vec<Task>)>,
    pub boundaries: Option<Boundaries>,
    pub cancel_reason: Option<String>,
    /// Its running attempts are told to stop.
    pub is_told_to_stop: bool,
    /// The last failure of an attempt, or of making a stage.
    pub last_failure: Option<TaskFailure>,
    pub outcome: Option<JobOutcome>,
    pub report: Option<Box<api::JobReport>>,
    /// Hold on the shipped files, so that its nodes can fetch them.
    pub file_hold: Option<FileHold>,
    pub owner: JobOwner,
    /// Room for what its programs write to standard error, where it has many tasks.
    pub log_room: LogRoom,
    /// A job of one task was admitted to the scheduler, and gives its seat back.
    pub seat: Option<Seat>,
    /// Set while nodes make its intermediate data theirs to keep, and when they have.
    pub keeping: Option<Keeping>,
    pub replicating: Replicating,
    /// How far it is as a stage of a flow.
    pub in_flow: StageState,
    /// Attempts beside which another one of their task gave up the end of the range: they are told to stop.
    pub outrun: BTreeSet<AttemptKey>,
    /// Since when runs are read from their replicas.
    pub fell_back_ns: BTreeMap<RunId, u64>,
    /// Nodes that are away, whose data it makes again.
    pub given_up: BTreeSet<NodeId>,
    /// Runs that were lost, so far; and those of them that attempts which run had read before.
    pub lost_runs: BTreeSet<RunId>,
    pub have_read: BTreeMap<AttemptKey, BTreeSet<RunId>>,
    /// Tasks, each with a node that an attempt of it could not reach.
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
            in_flow: StageState::default(),
            outrun: BTreeSet::new(),
            fell_back_ns: BTreeMap::new(),
            given_up: BTreeSet::new(),
            lost_runs: BTreeSet::new(),
            have_read: BTreeMap::new(),
            unreached: BTreeSet::new(),
        }
    }

    /// Whether its attempts are told to stop, all of them.
    pub(crate) fn is_stopping(&self) -> bool {
        self.outcome.is_some() || self.is_told_to_stop
    }

    /// Tells running attempts to stop.
    pub(crate) fn stop_attempts(&mut self, outbox: &mut Outbox) {
        self.is_told_to_stop = true;
        outbox.stop_attempts(self.id);
    }

    /// Whether it is one task and no MapReduce: then it has no directories, and nodes remember nothing of it.
    pub(crate) fn is_single(&self) -> bool {
        self.spec.kind.program().is_some()
    }

    /// Failures of one task with which the job fails. A program that is not the engine's may have done half of its
    /// work for good: it runs once unless its user says otherwise.
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

    /// Whether an attempt may have failed because what it read is being made again.
    pub(crate) fn may_lack_data(&self, attempt: AttemptKey) -> bool {
        self.standing.as_ref().is_some_and(|(stage, _)| *stage == attempt.task.stage)
    }

    /// Whether an attempt is the first of its task that could not reach this node. The node may have died since its last poll, which
    /// waits at the server: then nobody knows of its death yet. A task cannot use this for ever: once for each node.
    pub(crate) fn first_to_miss(&mut self, attempt: AttemptKey, node: NodeId) -> bool {
        self.unreached.insert((attempt.task, node))
    }

    pub(crate) fn stage_index(&self, kind: StageKind) -> Option<StageIndex> {
        self.stage_kinds.iter().position(|each| *each == kind).map(|index| StageIndex(index as u16))
    }

    /// Whether the job has such a task, so that nothing is stored about one that never was.
    pub(crate) fn knows(&self, stage: StageIndex, task: TaskIndex) -> bool {
        self.stage_tasks(stage).is_some_and(|tasks| (task.0 as usize) < tasks.len())
    }
}
