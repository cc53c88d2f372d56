//! State that a restarted server loads: all unfinished jobs, and the machines.

use crate::{
    ChunkRow, DiskRow, NodeRow, PartReplicaRow, PlanTaskRow, ReplicaRow, RunRow, TaskRow, WinningCommits,
};
use api::history::{AttemptRow, JobRow, JobState, StageRow};
use api::{Boundaries, JobReport, JobSpec, TaskResult};
use ids::{AttemptKey, ChunkId, JobId, NodeId, PlanVersion, RunId, StepNumber};
use std::collections::BTreeMap;

/// Everything that a restarted server must know.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The unfinished jobs of the cluster, and finished jobs that are not cleaned; oldest first.
    pub jobs: BTreeMap<JobId, RecoveredJob>,
    /// The steps of each unfinished job that has any, finished ones too; oldest first.
    pub steps: BTreeMap<JobId, Vec<StepRow>>,
    pub nodes: Vec<NodeRow>,
    pub disks: Vec<(NodeId, DiskRow)>,
}

/// The stored state of a job.
#[derive(Debug)]
pub struct RecoveredJob {
    pub row: JobRow,
    pub spec: JobSpec,
    /// The reason of a requested cancellation; None if there is none.
    pub cancel_asked: Option<String>,
    /// The report that its commit will publish, or has published; None before.
    pub report: Option<JobReport>,
    pub stages: Vec<StageRow>,
    /// With payload and winner, in order of stage and task.
    pub tasks: Vec<TaskRow>,
    /// Every attempt so far, in order; running ones are recorded as running.
    pub attempts: Vec<AttemptRow>,
    /// Stored results of winners ([`crate::Change::Result`]).
    pub results: Vec<(AttemptKey, TaskResult)>,
    pub boundaries: Option<Boundaries>,
    /// Every version of the plan, also those without tasks.
    pub plan_versions: Vec<PlanVersion>,
    /// The tasks of every version of the plan.
    pub plan: Vec<PlanTaskRow>,
    pub commits: WinningCommits,
    pub chunks: Vec<ChunkRow>,
    pub runs: Vec<RunRow>,
    /// The chunks of each run.
    pub run_chunks: Vec<(RunId, ChunkId)>,
    pub replicas: Vec<ReplicaRow>,
    pub part_replicas: Vec<PartReplicaRow>,
}

impl RecoveredJob {
    /// Makes a job of which only its row and specification are loaded.
    pub fn new(row: JobRow, spec: JobSpec) -> Self {
        Self {
            row,
            spec,
            cancel_asked: None,
            report: None,
            stages: Vec::new(),
            tasks: Vec::new(),
            attempts: Vec::new(),
            results: Vec::new(),
            boundaries: None,
            plan_versions: Vec::new(),
            plan: Vec::new(),
            commits: WinningCommits::new(),
            chunks: Vec::new(),
            runs: Vec::new(),
            run_chunks: Vec::new(),
            replicas: Vec::new(),
            part_replicas: Vec::new(),
        }
    }

    /// Returns whether it still has work to do, rather than only directories to remove.
    pub fn goes_on(&self) -> bool {
        matches!(self.row.state, JobState::Running | JobState::Committing)
    }
}

/// A step of an unfinished job of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Job of the step.
    pub job: JobId,
    pub step: StepNumber,
    /// Steps that the same job runs.
    pub beside: Vec<StepNumber>,
    pub name: String,
    pub state: JobState,
    pub exit_code: Option<i32>,
}

/// A one-task job of the cluster that is in no stage yet.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingJobRow {
    pub job: JobId,
    pub user: Option<String>,
    pub priority: i32,
    /// None if it is long: it is read separately.
    pub spec: Option<JobSpec>,
}
