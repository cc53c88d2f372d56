//! What goes up to the server and down from it, by function call on one machine.

use api::{JobReport, JobSpec, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where the server keeps its state.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Holds `sailfish.db` and `owners/`; created where it is missing.
    pub state_dir: PathBuf,
}

/// A job that is in the store, with its directories created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedJob {
    pub job: JobId,
    /// Hidden sibling of the output directory in which the parts are written.
    pub staging: PathBuf,
    /// One directory for each `--disk`, in the same order. Nobody but the server creates or removes them.
    pub disk_dirs: Vec<PathBuf>,
}

/// What every attempt of a job shares.
#[derive(Debug)]
pub struct JobRun {
    pub spec: Arc<JobSpec>,
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
    /// Turns true when the job is cancelled, fails, or the server goes: an attempt polls it and stops.
    pub cancelled: Arc<AtomicBool>,
}

/// A slot asks for work, and hands in what it finished since it last asked.
#[derive(Debug)]
pub struct PullRequest {
    pub node: NodeId,
    /// Counts from 0 within the node. One thread at a time pulls for a slot.
    pub slot: u32,
    pub finished: Option<Finished>,
}

/// The end of an attempt.
#[derive(Debug)]
pub struct Finished {
    pub attempt: AttemptKey,
    pub outcome: Result<TaskResult, TaskFailure>,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    /// Nanoseconds since 1970.
    pub ended_ns: u64,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub enum PullReply {
    Run(Box<Assignment>),
    /// Every job submitted so far is over, or the server shuts down.
    Stop,
}

/// An attempt to run now.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub attempt: AttemptKey,
    pub task: Task,
    pub job: Arc<JobRun>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq)]
pub enum JobOutcome {
    Succeeded(Box<JobReport>),
    Failed {
        failure: TaskFailure,
        /// The attempt that failed last; None where the engine refused to go on (a proof that disagrees).
        attempt: Option<AttemptKey>,
        /// The exit code a front end ends with: that of the user's program where one failed.
        exit_code: i32,
    },
    Cancelled {
        reason: String,
    },
}

/// Where a job stands, for people to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// In stage order; a stage that has not been expanded has no tasks yet.
    pub stages: Vec<StageProgress>,
    /// True once the last attempt has ended.
    pub over: bool,
}

/// Where a stage stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageProgress {
    pub name: &'static str,
    pub expanded: bool,
    pub tasks: u32,
    pub done: u32,
    /// Attempts running now.
    pub running: u32,
}
