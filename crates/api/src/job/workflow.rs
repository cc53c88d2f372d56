//! The specification of a job of the kind `workflow`.

use crate::JobSpec;
use crate::task::RunTask;
use serde::{Deserialize, Serialize};

/// Programs and MapReduce jobs, each of which runs after others. The programs are tasks, or texts of them: `P`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSpec<P = RunTask> {
    pub steps: Vec<WorkflowStep<P>>,
    /// True: nothing runs; the history of the job tells which steps would run, and why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_judges: bool,
}

/// A step of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowStep<P = RunTask> {
    /// Unique in its workflow.
    pub name: String,
    pub program: P,
    /// A MapReduce job in place of the program, which then declares the files: its inputs are those of the job, its
    /// outputs the parts. The server lists the inputs when the step begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<JobSpec>>,
    /// Positions of the steps that must succeed before it begins, besides those whose outputs it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}
