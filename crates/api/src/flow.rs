//! Flows: map-reduce stages that follow one another, with intermediate files between them (ISS, section 4; `docs/internals/flows.md`).
//!
//! Each stage is a job. Its output for later stages never reaches a file system that nodes share. The parts are
//! intermediate files, which lie on the disks of the nodes that made them and, replicated, on others of the same
//! rack.

use crate::job::SubmittedJob;
use crate::{JobSpec, Split};
use ids::{AttemptNumber, JobId, NodeId, TaskIndex};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most stages of a flow.
pub const FLOW_STAGES_MAX: usize = 64;

/// Facts that make a job a stage of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowStage {
    /// The flow goes by the number of its first job. 0 until it is stored.
    pub flow: JobId,
    /// Its name in the flow.
    pub name: String,
    /// The jobs whose output it reads behind inputs of its own, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<JobId>,
    /// Number of inputs of its own that the user has named, whatever files these gave. It is the number of the first
    /// of `reads` among all inputs ([`crate::InputFile::named`]).
    #[serde(default)]
    pub named_inputs: u32,
    /// Later stages read its output: its parts are intermediate files and `JobSpec::output` is only a name.
    #[serde(default)]
    pub feeds: bool,
}

/// One stage as a client hands it in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageSubmission {
    /// Specification with `stage` set to its name and whether it feeds others; the server fills in the rest.
    pub spec: JobSpec,
    /// Splits of the inputs that are there now. The server makes the splits of a stage that reads others when these
    /// are done.
    pub splits: Vec<Split>,
    /// The stages that it reads: positions in [`FlowSubmission::stages`], each before its own.
    #[serde(default)]
    pub reads: Vec<u32>,
}

/// Stages handed in together: all are stored in one transaction, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSubmission {
    /// At most [`FLOW_STAGES_MAX`]; each reads only those before it.
    pub stages: Vec<StageSubmission>,
    /// User whom the stages belong to.
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

/// A part that a stage reads of one before it, by the facts that never change. Each task tells where the part lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageFile {
    /// The stage that made it.
    pub job: JobId,
    /// Its task.
    pub task: TaskIndex,
    /// CRC-32C of all its bytes: an attempt that makes the part again must give the same.
    pub crc32c: u32,
}

/// Place of an intermediate file now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageFilePlace {
    /// Position in `JobSpec::inputs`.
    pub file_index: u32,
    /// Its name on disks.
    pub name: String,
    /// Node to read it from; None while it is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Other node on which it lies as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<NodeId>,
}

/// The name of the intermediate file that an attempt makes.
pub fn stage_file_name(task: TaskIndex, attempt: AttemptNumber) -> String {
    format!("part-{:05}.attempt-{}.stage", task.0, attempt.0)
}
