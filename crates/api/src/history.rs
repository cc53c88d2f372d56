//! Jobs as the store has them: read, sent and shown. Times are nanoseconds since 1970.

mod kind;
pub mod lineage;
pub mod usage;

use crate::kept::KeptPlace;
use crate::{JobSpec, KeyBytes, TaskFailure};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, StepNumber, TaskIndex};
pub use kind::EventKind;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// The latest jobs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobList {
    pub jobs: Vec<JobRow>,
    /// Number of older jobs that match too and are not listed; counted up to [`MORE_JOBS_MAX`].
    #[serde(default)]
    pub more: u64,
}

/// Maximum count of unlisted jobs.
pub const MORE_JOBS_MAX: u64 = 1_000_000;

/// A filter for jobs, as `?limit=N&state=failed&user=ann&name=TEXT` at the end of a path. A missing field matches all
/// jobs that are no steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsQuestion {
    pub limit: Option<u32>,
    pub state: Option<JobState>,
    pub user: Option<String>,
    /// A part of the name; ASCII letters match both cases.
    pub name: Option<String>,
    /// The steps of this job; None lists jobs that are no steps.
    pub steps_of: Option<JobId>,
}

/// Everything about a job except its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobDetails {
    pub job: JobRow,
    pub spec: JobSpec,
    /// Stages in order.
    pub stages: Vec<StageRow>,
    /// Attempts in order of stage, task and number.
    pub attempts: Vec<AttemptRow>,
    /// The latest events, oldest first.
    pub events: Vec<EventRow>,
    /// Intermediate data of the job that nodes of a cluster keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptPlace>,
}

/// Maximum number of entries of an answer, as `?limit=N` at the end of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub limit: Option<u32>,
}

/// A question in SQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StateQuestion {
    /// A single statement: select, with, values or explain.
    pub statement: String,
    /// Maximum number of rows; further rows are left off. A server may return fewer.
    pub rows_max: u32,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Running,
    /// Its commit task exists: the output may be published already.
    Committing,
    Succeeded,
    Failed,
    Cancelled,
    /// Its owner died before its end.
    Interrupted,
}

ids::words!(
    JobState: Running = "running", Committing = "committing", Succeeded = "succeeded", Failed = "failed",
    Cancelled = "cancelled", Interrupted = "interrupted"
);

impl JobState {
    /// Returns whether the state is final.
    pub fn over(self) -> bool {
        !matches!(self, Self::Running | Self::Committing)
    }
}

/// State of the kept intermediate data of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeptFiles {
    Kept,
    /// The removal has begun: the files may not be read any more.
    Removing,
    Removed,
}

ids::words!(KeptFiles: Kept = "kept", Removing = "removing", Removed = "removed");

/// State of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    Running,
    Succeeded,
    /// It succeeded after another attempt had won.
    Discarded,
    Failed,
    Cancelled,
    Interrupted,
}

ids::words!(
    AttemptState: Running = "running", Succeeded = "succeeded", Discarded = "discarded", Failed = "failed",
    Cancelled = "cancelled", Interrupted = "interrupted"
);

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// It has no tasks yet.
    Waiting,
    Running,
    Done,
}

ids::words!(StageState: Waiting = "waiting", Running = "running", Done = "done");

/// A job without its specification and report; see [`JobDetails`] and [`crate::JobReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRow {
    pub job: JobId,
    pub owner: String,
    /// The user who submitted it; None if the server does not ask for users.
    pub user: Option<String>,
    /// Priority; jobs of a higher priority go first.
    pub priority: i32,
    pub name: String,
    pub state: JobState,
    #[schema(value_type = String)]
    pub output: PathBuf,
    #[schema(value_type = String)]
    pub staging: PathBuf,
    #[schema(value_type = Vec<String>)]
    pub disk_dirs: Vec<PathBuf>,
    pub exit_code: Option<i32>,
    pub error: Option<String>,
    pub created_ns: u64,
    pub started_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    /// Time of its cleaning; None if its directories may still exist.
    pub cleaned_ns: Option<u64>,
    /// The job whose kept I-files this one reads.
    pub reduce_again: Option<JobId>,
    /// None if nothing was kept.
    pub kept_files: Option<KeptFiles>,
    /// Time from which kept files may be collected; None keeps them until somebody removes them.
    pub keep_until_ns: Option<u64>,
    /// Bytes of the data that nodes of a cluster keep; None if no nodes keep data, so that the files can be inspected
    /// directly.
    #[serde(default)]
    pub kept_bytes: Option<u64>,
    /// Set if it is a step of another job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_of: Option<StepOf>,
}

/// The place of a job among the steps of another job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepOf {
    pub job: JobId,
    pub step: StepNumber,
    /// Steps that the same job runs, as one pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<StepNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageRow {
    pub stage: StageIndex,
    #[serde(rename = "name")]
    pub kind: StageKind,
    pub state: StageState,
    /// Number of tasks; None before the stage is expanded.
    pub task_count: Option<u32>,
    pub tasks_done: u32,
    pub expanded_ns: Option<u64>,
    pub ended_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptRow {
    pub attempt: AttemptKey,
    pub node: NodeId,
    pub slot: u32,
    pub state: AttemptState,
    pub assigned_ns: u64,
    pub started_ns: Option<u64>,
    /// Time when the runs of a reduce attempt were open; None for other attempts, and after a failure.
    pub opened_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    pub failure: Option<TaskFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventRow {
    /// Number of the event; it grows with time.
    pub event: u64,
    pub time_ns: u64,
    pub stage: Option<StageIndex>,
    pub task: Option<TaskIndex>,
    pub attempt: Option<AttemptNumber>,
    pub kind: EventKind,
    pub detail: Option<String>,
}

/// The answer to a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// True if there were more rows than the limit.
    pub truncated: bool,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    /// Bytes; hex in messages.
    Blob(KeyBytes),
}
