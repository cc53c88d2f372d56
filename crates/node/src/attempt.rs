//! Attempts as they enter and leave slots.

use crate::clock::now_ns;
use api::task::AttemptUsage;
use api::{JobSpec, Task, TaskFailure, TaskResult};
use ids::AttemptKey;
use roots::{HeldDir, JobPaths};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// State shared by all attempts of a job on this node.
#[derive(Clone, Debug)]
pub struct JobRun {
    pub spec: Arc<JobSpec>,
    /// Owner of the job; empty on one machine.
    pub user: String,
    pub staging: PathBuf,
    /// Directories on the disks of this node.
    pub disk_dirs: Vec<PathBuf>,
    /// True when the job is cancelled or has failed, or the server ends.
    pub cancelled: Arc<AtomicBool>,
    /// On a node of a cluster: true when the server orders that its runs get replicas.
    pub replicates: Arc<AtomicBool>,
    /// Opens the paths that the job names.
    pub paths: JobPaths,
    /// Set if there are roots: `staging` is a path through it.
    pub held_staging: Option<Arc<HeldDir>>,
}

impl JobRun {
    /// Creates the run of a job without directories and limits.
    pub fn new(spec: Arc<JobSpec>) -> JobRun {
        JobRun {
            spec,
            user: String::new(),
            staging: PathBuf::new(),
            disk_dirs: Vec::new(),
            cancelled: Arc::default(),
            replicates: Arc::default(),
            paths: JobPaths::default(),
            held_staging: None,
        }
    }
}

/// An attempt to run.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub attempt: AttemptKey,
    pub task: Task,
    pub job: Arc<JobRun>,
    /// True when this attempt must stop, alone or with its job; the attempt polls it. Work that outlives the attempt on
    /// the node uses the flag of the job.
    pub cancelled: Arc<AtomicBool>,
}

/// The end of an attempt. Times are nanoseconds since 1970.
#[derive(Debug)]
pub struct Finished {
    pub attempt: AttemptKey,
    pub outcome: Result<TaskResult, TaskFailure>,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub usage: AttemptUsage,
}

/// Returns the end of an attempt that never began.
pub(crate) fn never_began(attempt: AttemptKey, failure: TaskFailure) -> Finished {
    let now = now_ns();
    Finished {
        attempt,
        outcome: Err(failure),
        started_ns: now,
        ended_ns: now,
        usage: AttemptUsage::default(),
    }
}
