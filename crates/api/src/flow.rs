//! Flows: map-reduce stages that follow one another, with intermediate files between them (intermediate storage system,
//! ISS, section 4; `docs/internals/flows.md`).
//!
//! Each stage is a job. Its output for later stages never reaches a shared file system. The parts are intermediate
//! files on the disks of the nodes that made them, with replicas on other nodes of the same rack if wanted.

use crate::job::SubmittedJob;
use crate::{JobSpec, Split};
use ids::{AttemptNumber, JobId, NodeId, TaskIndex};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of stages of a flow.
pub const FLOW_STAGES_MAX: usize = 64;

/// The properties that make a job a stage of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowStage {
    /// Identity of the flow: the number of its first job. 0 until it is stored.
    pub flow: JobId,
    /// Name of the stage in the flow.
    pub name: String,
    /// The jobs whose output it reads after its own inputs, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<JobId>,
    /// Number of its own inputs that the user named, regardless of the number of files. It is also the number of the
    /// first of `reads` among all inputs ([`crate::InputFile::named`]).
    #[serde(default)]
    pub named_inputs: u32,
    /// True if later stages read its output: its parts are intermediate files, and `JobSpec::output` is only a name.
    #[serde(default)]
    pub feeds: bool,
}

/// A stage as a client submits it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageSubmission {
    /// Specification with `stage` set to its name and to whether it feeds others; the server fills in the rest.
    pub spec: JobSpec,
    /// Splits of the inputs that exist now. For a stage that reads others, the server makes the splits when those are
    /// done.
    pub splits: Vec<Split>,
    /// The stages that it reads: positions in [`FlowSubmission::stages`], each before its own position.
    #[serde(default)]
    pub reads: Vec<u32>,
}

/// Stages that are submitted together: all are stored in one transaction, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSubmission {
    /// At most [`FLOW_STAGES_MAX`]; each stage reads only earlier ones.
    pub stages: Vec<StageSubmission>,
    /// The user who owns the stages.
    #[serde(default)]
    pub user: String,
    /// Jobs of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
}

/// The jobs of a flow, in the order of its stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmittedFlow {
    pub jobs: Vec<SubmittedJob>,
}

/// A part of an earlier stage that a stage reads: its unchanging properties. Each task has the current location of the
/// part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageFile {
    /// The job of the stage that made it.
    pub job: JobId,
    /// The task that made it.
    pub task: TaskIndex,
    /// CRC-32C of all its bytes: an attempt that recomputes the part must produce the same.
    pub crc32c: u32,
}

/// Current location of an intermediate file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageFilePlace {
    /// Position in `JobSpec::inputs`.
    pub file_index: u32,
    /// Its file name on disks.
    pub name: String,
    /// Node to read it from; None while it is recomputed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Other node that holds a copy of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<NodeId>,
}

/// Returns the name of the intermediate file that an attempt makes.
pub fn stage_file_name(task: TaskIndex, attempt: AttemptNumber) -> String {
    format!("part-{:05}.attempt-{}.stage", task.0, attempt.0)
}
