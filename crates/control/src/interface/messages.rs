//! Messages that are function calls. `api::control` has the messages between processes.

use crate::program_jobs::FileHold;
use crate::users::JobQuota;
use api::task::AttemptUsage;
use api::{JobSpec, PinnedFile, Split, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId};
use std::path::PathBuf;
use std::sync::Arc;

/// The kind of service: a server works for its own process, or for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The node in this process. Its slots are stopped when every job is over.
    Embedded,
    /// Nodes that join and leave.
    Cluster,
}

/// A request of a slot for work, with the outcome of its previous attempt.
#[derive(Debug)]
pub struct PullRequest {
    pub node: NodeId,
    /// Counts from 0 within the node. One thread at a time pulls for a slot.
    pub slot: u32,
    /// True for a place: it comes after the slots, and its attempt waits for a turn of one.
    pub is_place: bool,
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
    pub usage: AttemptUsage,
}

impl Finished {
    /// Splits off the outcome. The rest identifies the attempt and its times.
    pub(crate) fn split(self) -> (Ended, Result<TaskResult, TaskFailure>) {
        let Self { attempt, outcome, started_ns, ended_ns, usage } = self;
        (Ended { attempt, started_ns, ended_ns, used: Some(usage) }, outcome)
    }
}

/// An attempt that has ended. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub attempt: AttemptKey,
    pub started_ns: u64,
    pub ended_ns: u64,
    /// None for an attempt that never ran.
    pub used: Option<AttemptUsage>,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub enum SlotOrder {
    Run {
        attempt: AttemptKey,
        task: Box<Task>,
        spec: Arc<JobSpec>,
    },
    /// Every submitted job is over, or the server shuts down.
    Stop,
}

/// The directories of a job on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobDirs {
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
}

/// The fate of intermediate data on disks when the other directories of a job are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskDirs {
    Keep,
    Remove,
}

/// A job that has its row and its directories, ready to begin.
pub struct NewJob {
    pub job: JobId,
    pub spec: Arc<JobSpec>,
    pub dirs: JobDirs,
    pub start: JobStart,
    pub user: String,
    pub priority: i32,
    /// A hold on the shipped files of the job.
    pub file_hold: Option<FileHold>,
    /// Nodes with its stored inputs now.
    pub part_nodes: Arc<mapreduce::PartNodes>,
}

/// The data with which a job begins.
pub enum JobStart {
    Splits(Vec<Split>),
    /// Kept data of an earlier job.
    Kept(Box<mapreduce::JobResults>),
}

/// Size of the jobs that are submitted together, and the quota of their user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomWanted {
    pub jobs: u32,
    /// Total bytes of their specifications.
    pub spec_bytes: u64,
    pub quota: Option<JobQuota>,
}

/// A job of which a node runs an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningJob {
    pub user: String,
    /// The job whose submission pinned the stored files that it reads: itself, or the job of which it is a step.
    pub pinned_by: JobId,
    /// Stored files that its program reads, as its server has brought them.
    pub pinned: Vec<PinnedFile>,
}
