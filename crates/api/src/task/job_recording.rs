//! MapReduce jobs whose runs are remembered, so that a later one is skipped.

use super::finished_run::FileStamp;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Facts with which the commit of a job records its run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRecording {
    /// Directory of the workflow: in it programs read only declared files.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Files beside the inputs whose contents count: those of its programs that do not travel with it, and those of the
    /// environment of its step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub files: Vec<PathBuf>,
    /// Files and directories that its programs may read besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub reads: Vec<PathBuf>,
    /// The inputs as they were when the job began, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<FileStamp>,
    /// Further inputs of its step, which it reads as parts of other jobs of its flow: no file has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub streamed: Vec<PathBuf>,
}
