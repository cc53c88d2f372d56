//! Lineage: the finished runs behind a file, and those that read it.

use crate::ContentHash;
use ids::JobId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Maximum number of runs in an answer.
pub const LINEAGE_RUNS_MAX: usize = 10_000;

/// A question for the lineage of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LineageQuestion {
    /// Absolute path of the file.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Path without symbolic links, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub real_path: Option<PathBuf>,
    pub direction: LineageDirection,
    /// Its content, by which a file is found that was moved after it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<ContentHash>,
}

/// The direction in which runs are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LineageDirection {
    /// To the runs and files from which the file was made.
    Up,
    /// To the runs and files that were made from it.
    Down,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// Path at which the file was made or read, if it was moved since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub was_at: Option<PathBuf>,
    /// The runs, the nearest first.
    pub runs: Vec<LineageRun>,
    /// True if there are more runs.
    pub is_cut: bool,
}

/// A finished run, the last one of its step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LineageRun {
    pub step: String,
    /// Job of the step.
    pub job: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub ended_ns: u64,
    /// Number of runs between the file and this one.
    pub distance: u32,
    /// The program and, for a script, its interpreters.
    pub executables: Vec<LineageFile>,
    /// Files that it read; those of its declared environment come last.
    pub inputs: Vec<LineageFile>,
    pub outputs: Vec<LineageFile>,
}

/// A file of a run, with its content then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LineageFile {
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Path without symbolic links, if the run read the file through one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub real_path: Option<PathBuf>,
    /// None for a stored file, and for bytes that streamed from one program to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<ContentHash>,
    pub bytes: u64,
}
