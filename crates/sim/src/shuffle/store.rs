//! The store of a server: rows from which a restarted server continues. It applies changes like the tables of
//! `metastore`.

use super::plan::OTHER_DATA;
use api::history::{AttemptRow, AttemptState, EventKind, JobRow, JobState, StageRow, StageState};
use api::{JobReport, JobSpec, Task, TaskResult};
use ids::{
    AttemptKey, AttemptNumber, JobId, NodeId, PlanVersion, RunId, StageIndex, StageKind, TaskIndex, TaskKey,
};
use mapreduce::{Replica, Replicas};
use rows::{
    Change, NodeRow, NodeState, PartReplicaRow, Recovered, RecoveredJob, ReplicaRow, ReplicaState, TaskRow,
    TaskState,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All rows, as of one transaction.
#[derive(Clone, Default)]
pub(crate) struct Rows {
    pub jobs: BTreeMap<JobId, JobRows>,
    pub nodes: BTreeMap<NodeId, NodeRow>,
}

#[derive(Clone)]
pub(crate) struct JobRows {
    pub spec: Arc<JobSpec>,
    pub stages: Vec<StageKind>,
    pub state: JobState,
    pub error: Option<String>,
    pub is_cleaned: bool,
    report: Option<Box<JobReport>>,
    /// Number of stages with tasks.
    pub expanded: usize,
    pub tasks: BTreeMap<(StageIndex, TaskIndex), StoredTask>,
    pub attempts: BTreeMap<AttemptKey, AttemptRow>,
    results: BTreeMap<(StageIndex, TaskIndex), (AttemptKey, Arc<TaskResult>)>,
    pub replicas: BTreeMap<(RunId, NodeId), ReplicaRow>,
    part_replicas: BTreeMap<TaskIndex, PartReplicaRow>,
    plan_version: PlanVersion,
    /// True if the inputs of a later stage of a flow are known.
    pub has_inputs: bool,
    cancel_asked: Option<String>,
}

#[derive(Clone)]
pub(crate) struct StoredTask {
    pub payload: Arc<Task>,
    winner: Option<AttemptNumber>,
    /// True if the task was dropped with its data.
    is_dropped: bool,
}

impl Rows {
    /// Applies the changes that a restarted server needs.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::JobSubmitted { job, spec, stages, .. } => {
                self.jobs.insert(*job, JobRows::new(Arc::clone(spec), stages.clone()));
            }
            Change::NodeRegistered { node, .. } => drop(self.nodes.insert(node.node, node.clone())),
            Change::NodeStateChanged { node, state, .. } => {
                self.nodes.get_mut(node).into_iter().for_each(|row| row.state = *state);
            }
            other => {
                if let Some(job) = job_of(other).and_then(|job| self.jobs.get_mut(&job)) {
                    job.apply(other);
                }
            }
        }
    }

    /// Returns the state that a restarted server needs.
    pub fn recovered(&self) -> Recovered {
        let hot = self.jobs.iter().filter(|(_, job)| !job.is_cleaned);
        Recovered {
            jobs: hot.map(|(id, job)| (*id, job.recovered(*id))).collect(),
            nodes: self.nodes.values().cloned().collect(),
            steps: BTreeMap::new(),
            disks: Vec::new(),
        }
    }

    pub fn lives(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|row| row.state == NodeState::Up)
    }
}

/// Returns the job whose rows a change concerns.
fn job_of(change: &Change) -> Option<JobId> {
    match change {
        Change::JobInputs { job, .. }
        | Change::JobCommitting { job, .. }
        | Change::JobEnded { job, .. }
        | Change::JobCleaned { job, .. }
        | Change::StageExpanded { job, .. }
        | Change::StageReopened { job, .. }
        | Change::Plan { job, .. }
        | Change::PlanCut { job, .. }
        | Change::Replicas { job, .. }
        | Change::PartReplicas { job, .. }
        | Change::Note { job: Some(job), .. } => Some(*job),
        Change::AttemptStarted { attempt, .. }
        | Change::AttemptEnded { attempt, .. }
        | Change::TaskDone { attempt, .. }
        | Change::Result { attempt, .. } => Some(attempt.task.job),
        _ => None,
    }
}

impl JobRows {
    fn new(spec: Arc<JobSpec>, stages: Vec<StageKind>) -> Self {
        Self {
            spec,
            stages,
            state: JobState::Running,
            error: None,
            is_cleaned: false,
            report: None,
            expanded: 0,
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            results: BTreeMap::new(),
            replicas: BTreeMap::new(),
            part_replicas: BTreeMap::new(),
            plan_version: PlanVersion::default(),
            has_inputs: false,
            cancel_asked: None,
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::JobInputs { spec, .. } => (self.spec, self.has_inputs) = (Arc::clone(spec), true),
            Change::JobCommitting { report, .. } => {
                (self.state, self.report) = (JobState::Committing, Some(report.clone()));
            }
            Change::JobEnded { state, error, .. } => (self.state, self.error) = (*state, error.clone()),
            Change::JobCleaned { .. } => self.is_cleaned = true,
            Change::StageExpanded { stage, tasks, .. } => self.stage_expanded(*stage, tasks),
            Change::StageReopened { stage, tasks, retained, .. } => {
                self.stage_reopened(*stage, tasks, *retained)
            }
            Change::Plan { version, .. } | Change::PlanCut { version, .. } => self.plan_version = *version,
            Change::Replicas { replicas, .. } => replicas.iter().for_each(|row| self.take_replica(row)),
            Change::PartReplicas { replicas, .. } => {
                self.part_replicas.extend(replicas.iter().map(|row| (row.task, *row)));
            }
            Change::Note { kind: EventKind::JobCancelAsked, detail, .. } => {
                self.cancel_asked.get_or_insert(detail.clone());
            }
            Change::AttemptStarted { attempt, node, slot, now_ns } => {
                let row = AttemptRow {
                    attempt: *attempt,
                    node: *node,
                    slot: *slot,
                    state: AttemptState::Running,
                    assigned_ns: *now_ns,
                    started_ns: None,
                    opened_ns: None,
                    ended_ns: None,
                    failure: None,
                };
                self.attempts.insert(*attempt, row);
            }
            Change::AttemptEnded { attempt, state, started_ns, ended_ns, .. } => {
                if let Some(row) = self.attempts.get_mut(attempt) {
                    row.state = *state;
                    (row.started_ns, row.ended_ns) = (Some(*started_ns), Some(*ended_ns));
                }
            }
            Change::TaskDone { attempt, .. } => {
                let row = self.tasks.get_mut(&(attempt.task.stage, attempt.task.task));
                row.into_iter().for_each(|row| row.winner = Some(attempt.attempt));
            }
            Change::Result { attempt, result } => {
                let key = (attempt.task.stage, attempt.task.task);
                self.results.insert(key, (*attempt, Arc::clone(result)));
            }
            _ => {}
        }
    }

    /// Stores the tasks of a stage. A done task keeps its winner; all other tasks of the stage had been dropped.
    fn stage_expanded(&mut self, stage: StageIndex, tasks: &[Task]) {
        self.expanded = usize::from(stage.0) + 1;
        for (index, task) in tasks.iter().enumerate() {
            let payload = Arc::new(task.clone());
            let key = (stage, TaskIndex(index as u32));
            let row = self.tasks.entry(key).or_insert_with(|| StoredTask {
                payload: Arc::clone(&payload),
                winner: None,
                is_dropped: false,
            });
            (row.payload, row.is_dropped) = (payload, false);
        }
    }

    /// Reopens these tasks of a stage, and drops the tasks and results of all later stages except `retained`.
    fn stage_reopened(
        &mut self,
        stage: StageIndex,
        tasks: &[(TaskIndex, Task)],
        retained: Option<StageIndex>,
    ) {
        let is_struck = |other: StageIndex| other > stage && Some(other) != retained;
        for ((_, _), row) in self.tasks.iter_mut().filter(|((other, _), _)| is_struck(*other)) {
            (row.is_dropped, row.winner) = (true, None);
        }
        self.results.retain(|(other, _), _| !is_struck(*other));
        let makes_parts = if self.spec.kind.has_shuffle() { StageKind::Reduce } else { StageKind::Map };
        let makes_parts = self.stages.iter().position(|kind| *kind == makes_parts);
        let makes_parts = makes_parts.map(|stage| StageIndex(stage as u16));
        if makes_parts.is_some_and(is_struck) {
            self.part_replicas.clear();
        }
        self.expanded = usize::from(stage.0) + 1;
        for (index, task) in tasks {
            if let Some(row) = self.tasks.get_mut(&(stage, *index)) {
                (row.payload, row.winner) = (Arc::new(task.clone()), None);
            }
            self.results.remove(&(stage, *index));
            if makes_parts == Some(stage) {
                self.part_replicas.remove(index);
            }
        }
    }

    /// Stores the row of a replica; only the state of a known one changes.
    fn take_replica(&mut self, row: &ReplicaRow) {
        match self.replicas.get_mut(&(row.run, row.node)) {
            Some(known) if row.chunks.is_empty() => known.state = row.state,
            _ => drop(self.replicas.insert((row.run, row.node), row.clone())),
        }
    }

    /// Returns the tasks that were not dropped, in order.
    pub fn live_tasks(&self) -> impl Iterator<Item = (StageIndex, TaskIndex, &StoredTask)> {
        let live = self.tasks.iter().filter(|(_, row)| !row.is_dropped);
        live.map(|((stage, task), row)| (*stage, *task, row))
    }

    /// Returns whether a task that was not dropped has a winner.
    pub fn any_done(&self, stage: StageIndex) -> bool {
        self.live_tasks().any(|(other, _, row)| other == stage && row.winner.is_some())
    }

    /// Returns the replicas on live nodes, as readers use them.
    pub fn replicas_on(&self, lives: impl Fn(NodeId) -> bool) -> Replicas {
        let there = self.replicas.values().filter(|row| row.state != ReplicaState::Lost && lives(row.node));
        let replica = |row: &ReplicaRow| Replica {
            node: row.node,
            chunks: row.chunks.clone(),
            single_ns: row.single_ns,
            promoted: row.state == ReplicaState::Promoted,
            second: None,
        };
        let mut replicas = Replicas::default();
        replicas.restore(there.map(|row| (row.run, replica(row))).collect());
        replicas
    }

    /// Returns whether the attempts of a map are not deterministic.
    pub fn gives_other_data(&self) -> bool {
        self.spec.name.ends_with(OTHER_DATA)
    }

    fn recovered(&self, job: JobId) -> RecoveredJob {
        let mut recovered = RecoveredJob::new(self.job_row(job), self.spec.as_ref().clone());
        recovered.cancel_asked = self.cancel_asked.clone();
        recovered.report = self.report.as_deref().cloned();
        let stage = |(index, kind): (usize, &StageKind)| StageRow {
            stage: StageIndex(index as u16),
            kind: *kind,
            state: StageState::Running,
            task_count: (index < self.expanded).then_some(0),
            tasks_done: 0,
            expanded_ns: None,
            ended_ns: None,
        };
        recovered.stages = self.stages.iter().enumerate().map(stage).collect();
        let task = |((stage, task), row): (&(StageIndex, TaskIndex), &StoredTask)| TaskRow {
            task: TaskKey { job, stage: *stage, task: *task },
            state: if row.is_dropped { TaskState::Dropped } else { TaskState::Waiting },
            payload: (*row.payload).clone(),
            winner: row.winner,
        };
        recovered.tasks = self.tasks.iter().map(task).collect();
        recovered.attempts = self.attempts.values().cloned().collect();
        let result = |(attempt, result): &(AttemptKey, Arc<TaskResult>)| (*attempt, (**result).clone());
        recovered.results = self.results.values().map(result).collect();
        recovered.plan_versions = vec![self.plan_version];
        recovered.replicas = self.replicas.values().cloned().collect();
        recovered.part_replicas = self.part_replicas.values().copied().collect();
        recovered
    }

    fn job_row(&self, job: JobId) -> JobRow {
        JobRow {
            job,
            owner: rows::CLUSTER_OWNER.to_string(),
            user: None,
            priority: 0,
            name: self.spec.name.clone(),
            state: self.state,
            output: self.spec.output.clone(),
            staging: self.spec.output.clone(),
            disk_dirs: Vec::new(),
            exit_code: None,
            error: self.error.clone(),
            created_ns: 0,
            started_ns: None,
            ended_ns: None,
            cleaned_ns: None,
            reduce_again: None,
            kept_files: None,
            keep_until_ns: None,
            kept_bytes: None,
            step_of: None,
        }
    }
}
