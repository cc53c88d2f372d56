//! Rows of the store for jobs and nodes: those of the tables of `metastore` from which a restarted server goes on.

use super::plan::JobPlan;
use api::task::MapTask;
use api::{InputFile, Split, Task, TaskResult};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, RunId, StageIndex, TaskIndex};
use mapreduce::Replica;
use scheduler::Slot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything, as of one transaction.
#[derive(Clone, Default)]
pub(crate) struct Rows {
    pub jobs: BTreeMap<JobId, JobRows>,
    /// The process of each node that is up.
    pub nodes: BTreeMap<NodeId, u64>,
}

#[derive(Clone)]
pub(crate) struct JobRows {
    pub plan: JobPlan,
    /// Stages that have their tasks.
    pub expanded: usize,
    pub tasks: BTreeMap<(StageIndex, TaskIndex), TaskRow>,
    pub attempts: BTreeMap<AttemptKey, AttemptRow>,
    pub results: BTreeMap<(StageIndex, TaskIndex), (AttemptKey, Arc<TaskResult>)>,
    /// Replicas of runs; None if the replica is gone.
    pub replicas: BTreeMap<(RunId, NodeId), Option<Replica>>,
    /// Nodes with replicas of parts that rest.
    pub part_replicas: BTreeMap<TaskIndex, NodeId>,
    /// Inputs and splits of a job that reads another one; None before the other one is done.
    pub inputs: Option<(Vec<InputFile>, Vec<Split>)>,
    pub plan_version: u32,
    /// How it ended.
    pub succeeded: Option<bool>,
}

#[derive(Clone)]
pub(crate) struct TaskRow {
    pub payload: Arc<Task>,
    pub winner: Option<AttemptNumber>,
    /// The task was struck with the data it worked on.
    pub is_dropped: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct AttemptRow {
    pub slot: Slot,
    pub assigned_ns: u64,
    pub runs: bool,
    pub failed: bool,
}

impl JobRows {
    pub fn new(plan: JobPlan) -> Self {
        Self {
            plan,
            expanded: 0,
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            results: BTreeMap::new(),
            replicas: BTreeMap::new(),
            part_replicas: BTreeMap::new(),
            inputs: None,
            plan_version: 0,
            succeeded: None,
        }
    }

    /// Stores the tasks of a stage. A done task keeps its winner; all other tasks of the stage had been struck.
    pub fn stage_expanded(&mut self, stage: StageIndex, tasks: &[Task]) {
        self.expanded = usize::from(stage.0) + 1;
        for (index, task) in tasks.iter().enumerate() {
            let payload = Arc::new(task.clone());
            let key = (stage, TaskIndex(index as u32));
            let row = self.tasks.entry(key).or_insert_with(|| TaskRow {
                payload: Arc::clone(&payload),
                winner: None,
                is_dropped: false,
            });
            (row.payload, row.is_dropped) = (payload, false);
        }
    }

    /// Reopens these tasks of a stage, and strikes the tasks and results of all later stages except `stands`.
    pub fn stage_reopened(
        &mut self,
        stage: StageIndex,
        tasks: &[(TaskIndex, Task)],
        stands: Option<StageIndex>,
    ) {
        let is_struck = |other: StageIndex| other > stage && Some(other) != stands;
        for ((_, _), row) in self.tasks.iter_mut().filter(|((other, _), _)| is_struck(*other)) {
            (row.is_dropped, row.winner) = (true, None);
        }
        self.results.retain(|(other, _), _| !is_struck(*other));
        self.expanded = usize::from(stage.0) + 1;
        for (index, task) in tasks {
            if let Some(row) = self.tasks.get_mut(&(stage, *index)) {
                (row.payload, row.winner) = (Arc::new(task.clone()), None);
            }
            self.results.remove(&(stage, *index));
        }
    }

    pub fn task_done(&mut self, attempt: AttemptKey, result: &TaskResult) {
        let key = (attempt.task.stage, attempt.task.task);
        if let Some(row) = self.tasks.get_mut(&key) {
            row.winner = Some(attempt.attempt);
        }
        self.results.insert(key, (attempt, Arc::new(result.clone())));
    }

    pub fn attempt_ended(&mut self, attempt: AttemptKey, failed: bool) {
        if let Some(row) = self.attempts.get_mut(&attempt) {
            (row.runs, row.failed) = (false, failed);
        }
    }

    /// Tasks that were not struck, in order.
    pub fn live_tasks(&self) -> impl Iterator<Item = (StageIndex, TaskIndex, &TaskRow)> {
        let live = self.tasks.iter().filter(|(_, row)| !row.is_dropped);
        live.map(|((stage, task), row)| (*stage, *task, row))
    }

    /// The number after the highest of the attempts of a stage.
    pub fn attempts_used(&self, stage: StageIndex) -> u32 {
        let own = self.attempts.keys().filter(|attempt| attempt.task.stage == stage);
        own.map(|attempt| attempt.attempt.0 + 1).max().unwrap_or(0)
    }

    pub fn maps_again(&self) -> impl Iterator<Item = (TaskIndex, &api::task::MapAgain)> {
        self.live_tasks().filter_map(|(_, task, row)| match &*row.payload {
            Task::Map(MapTask { again: Some(again), .. }) => Some((task, again)),
            _ => None,
        })
    }
}
