//! Stages and their tasks.

use api::task::{MapResult, MergeResult, ReduceResult, ReduceTask, SealResult};
use api::{JobSpec, Split, Task};
use ids::{AttemptNumber, JobId, StageIndex, TaskIndex};
use std::collections::BTreeMap;

/// Everything the next stage may follow from. The server keeps one per running job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    pub job: JobId,
    pub splits: Vec<Split>,
    /// The winning attempt of each map task and its result.
    pub maps: BTreeMap<TaskIndex, (AttemptNumber, MapResult)>,
    pub seal: Option<SealResult>,
    pub merges: BTreeMap<TaskIndex, MergeResult>,
    /// The reduce tasks as planned, in part order.
    pub plan: Vec<ReduceTask>,
    pub target_bytes: u64,
    pub reduces: BTreeMap<TaskIndex, ReduceResult>,
    /// Every ended attempt, winners or not.
    pub attempts: Vec<AttemptTime>,
}

/// When an attempt ran, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTime {
    pub stage: StageIndex,
    pub task: TaskIndex,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    pub won: bool,
}

/// Why a stage has no tasks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExpandError {
    #[error("there is no stage {stage:?} in this kind of job")]
    NoSuchStage { stage: String },
}

/// The names of the stages of a job, in order.
pub fn stages(spec: &JobSpec) -> Vec<&'static str> {
    if spec.map_only { vec!["map", "commit"] } else { vec!["map", "seal", "merge", "reduce", "commit"] }
}

/// The tasks of a stage, from the results of those before it.
pub fn expand(stage: &str, spec: &JobSpec, results: &mut JobResults) -> Result<Vec<Task>, ExpandError> {
    let _ = (spec, results);
    Err(ExpandError::NoSuchStage { stage: stage.to_string() })
}
