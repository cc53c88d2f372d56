//! Messages by function call. Those between processes are in `api::control`.

use crate::program_jobs::FileHold;
use crate::users::JobQuota;
use api::{JobSpec, Split, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId};
use std::path::PathBuf;
use std::sync::Arc;

/// Kind of service: a server works for its own process, or for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The node in this process, which is sent home when every job is over.
    Embedded,
    /// Nodes that come and go.
    Cluster,
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

impl Finished {
    /// Takes the outcome out; the rest tells of which attempt it was, and when.
    pub(crate) fn split(self) -> (Ended, Result<TaskResult, TaskFailure>) {
        let Self { attempt, outcome, started_ns, ended_ns } = self;
        (Ended { attempt, started_ns, ended_ns }, outcome)
    }
}

/// An attempt that has ended. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub attempt: AttemptKey,
    pub started_ns: u64,
    pub ended_ns: u64,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub enum SlotOrder {
    Run {
        attempt: AttemptKey,
        task: Box<Task>,
        spec: Arc<JobSpec>,
    },
    /// Every job submitted so far is over, or the server shuts down.
    Stop,
}

/// The directories of a job on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDirs {
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
}

/// A job that has its row and its directories, and begins.
pub struct NewJob {
    pub job: JobId,
    pub spec: Arc<JobSpec>,
    pub dirs: JobDirs,
    pub start: JobStart,
    pub user: String,
    pub priority: i32,
    /// Hold on the shipped files that it needs.
    pub file_hold: Option<FileHold>,
}

/// The data that a job begins with.
pub enum JobStart {
    Splits(Vec<Split>),
    /// The data that an earlier job left.
    Kept(Box<mapreduce::JobResults>),
}

/// The size of jobs that come in together, and the limits of their user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomWanted {
    pub jobs: u32,
    /// Bytes of their specifications.
    pub spec_bytes: u64,
    pub quota: Option<JobQuota>,
}
