//! Attempts as they come to slots and leave them.

use crate::clock::now_ns;
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
    pub staging: PathBuf,
    /// Directories on the disks of this node.
    pub disk_dirs: Vec<PathBuf>,
    /// Turns true when the job is cancelled, fails, or the server goes.
    pub cancelled: Arc<AtomicBool>,
    /// On a node of a cluster: turns true when the server says that its runs get replicas.
    pub replicates: Arc<AtomicBool>,
    /// Opens what the job names.
    pub paths: JobPaths,
    /// Set where there are roots: `staging` is a path of it.
    pub held_staging: Option<Arc<HeldDir>>,
}

impl JobRun {
    /// Without directories, and with nothing that bounds it.
    pub fn new(spec: Arc<JobSpec>) -> JobRun {
        JobRun {
            spec,
            staging: PathBuf::new(),
            disk_dirs: Vec::new(),
            cancelled: Arc::default(),
            replicates: Arc::default(),
            paths: JobPaths::default(),
            held_staging: None,
        }
    }
}

/// An attempt to run now.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub attempt: AttemptKey,
    pub task: Task,
    pub job: Arc<JobRun>,
    /// Turns true when this attempt is to stop, with its job or alone: it polls this and stops. What outlives it on the node
    /// goes by the flag of the job.
    pub cancelled: Arc<AtomicBool>,
}

/// The end of an attempt. Times are nanoseconds since 1970.
#[derive(Debug)]
pub struct Finished {
    pub attempt: AttemptKey,
    pub outcome: Result<TaskResult, TaskFailure>,
    pub started_ns: u64,
    pub ended_ns: u64,
}

/// An attempt that ended before it began.
pub(crate) fn never_began(attempt: AttemptKey, failure: TaskFailure) -> Finished {
    let now = now_ns();
    Finished { attempt, outcome: Err(failure), started_ns: now, ended_ns: now }
}
