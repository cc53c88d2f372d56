//! Why an attempt failed, in the three answers a caller needs: retryable, whose fault, what to tell the user.

use crate::StageFile;
use crate::task::RunResult;
use ids::{NodeId, RunId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Party at fault for a failure; decides the advice given and whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The user's program failed: tried again up to the limit, then its exit code becomes ours.
    UserProgram,
    /// The input, an option or a record is bad: another attempt gives the same answer.
    UserData,
    /// The machine: a disk, a file, memory. Tried again.
    Environment,
    /// The engine found its own data wrong (a checksum, a proof). Never hidden, not tried again.
    Engine,
    /// The attempt was told to stop.
    Cancelled,
}

/// The failure of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFailure {
    pub blame: Blame,
    /// One sentence that names the file, record or option.
    pub message: String,
    /// Exit code of the user's program, where it exited by itself.
    pub exit_code: Option<i32>,
    /// Signal that ended the user's program, where one did.
    pub signal: Option<i32>,
    /// The last lines the user's program wrote to its standard error; bounded by the reader.
    pub stderr_tail: Vec<String>,
    /// Output of the program of a one-task job before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<RunResult>>,
    /// Runs that the attempt found gone or damaged: the data in them must be made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_runs: Vec<RunId>,
    /// The node that the attempt could not reach: it may be dead, which others may not know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<NodeId>,
    /// The intermediate file that the attempt could not read anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_input: Option<Box<LostInput>>,
}

/// An intermediate file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostInput {
    pub file: StageFile,
    /// Name of the file that the attempt looked for: it tells the attempt that made the file.
    pub name: String,
    /// Nodes on which the file was found gone or damaged. Empty: the file was being made again, and was not there in
    /// time.
    pub nodes: Vec<NodeId>,
}

impl TaskFailure {
    /// A failure without a program behind it.
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
            lost_input: None,
        }
    }

    /// Whether another attempt may succeed.
    pub fn retryable(&self) -> bool {
        matches!(self.blame, Blame::UserProgram | Blame::Environment)
    }
}
