//! The failure of an attempt: whether to retry it, who caused it, and the message for the user.

use crate::StageFile;
use crate::task::RunResult;
use ids::{NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// The party at fault for a failure; decides the advice, and whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The user's program failed: retried up to the limit, after which its exit code becomes ours.
    UserProgram,
    /// The input, an option or a record is bad: another attempt gives the same result.
    UserData,
    /// The machine: a disk, a file, memory. Retried.
    Environment,
    /// The engine found its own data wrong (a checksum, a proof). Never hidden, not retried.
    Engine,
    /// The attempt was told to stop.
    Cancelled,
}

/// The failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFailure {
    pub blame: Blame,
    /// Message in one sentence that names the file, record or option.
    pub message: String,
    /// Exit code of the user's program, if it exited by itself.
    pub exit_code: Option<i32>,
    /// Signal that ended the user's program, if one did.
    pub signal: Option<i32>,
    /// The last lines of the user's program on standard error; bounded by the reader.
    pub stderr_tail: Vec<String>,
    /// Output of the program of a one-task job before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<RunResult>>,
    /// Runs that the attempt found lost or damaged: their data must be recomputed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_runs: Vec<RunId>,
    /// The node that the attempt could not reach: it may be dead without the server's knowledge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<NodeId>,
    /// The file that the attempt could not read from any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_file: Option<Box<LostFile>>,
    /// True if the standard input, which another attempt was writing, came to no end ([`crate::task::RunTask::growing`]). The
    /// attempt was interrupted: it runs again, and this counts as no failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream_broke: bool,
}

/// A file that no node could give to an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LostFile {
    /// An input that another attempt made.
    Intermediate(LostInput),
    /// A stored file, by its name in the task.
    #[schema(value_type = String)]
    Stored(PathBuf),
}

/// An intermediate file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostInput {
    pub file: StageFile,
    /// Name of the file that the attempt looked for, which identifies the attempt that made the file.
    pub name: String,
    /// Nodes on which the file was found lost or damaged. Empty if the file was being recomputed and not ready in time.
    pub nodes: Vec<NodeId>,
}

impl TaskFailure {
    /// Creates a failure without a program.
    pub fn new(blame: Blame, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            blame,
            message,
            exit_code: None,
            signal: None,
            stderr_tail: Vec::new(),
            said: None,
            lost_runs: Vec::new(),
            unreachable: None,
            lost_file: None,
            stream_broke: false,
        }
    }

    /// Returns whether another attempt may succeed.
    pub fn retryable(&self) -> bool {
        // A lost file must be made again first.
        matches!(self.blame, Blame::UserProgram | Blame::Environment) && self.lost_stored().is_none()
    }

    /// Returns the stored file of which the attempt could read no replica.
    pub fn lost_stored(&self) -> Option<&Path> {
        match self.lost_file.as_deref() {
            Some(LostFile::Stored(path)) => Some(path),
            _ => None,
        }
    }
}
