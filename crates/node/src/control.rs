//! Whom a node works for, a server in its own process or one behind a link, and what passes between the two.

use crate::slot::now_ns;
use api::{Blame, Boundaries, JobSpec, KeyBytes, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, JobId, NodeId, RunId};
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
    /// Where there are roots: `staging` is a path of it.
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

/// A message of the server besides attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Attempts of the job stop as soon as they can.
    Stop(JobId),
    /// A reduce attempt ends before the first of these keys that it has not come to.
    EndBefore(AttemptKey, Vec<KeyBytes>),
    /// The job is over: everything of it goes.
    Forget(JobId),
    /// The job is over, and its runs on disk stay.
    Keep(JobId),
    /// Runs of the job get replicas on other nodes.
    Replicate(JobId),
    /// These runs go to one more node, and no others. They are replicas here that stand for runs of other nodes.
    ReplicateAgain(JobId, Vec<RunId>),
    /// No new chunk may lie here.
    Drain,
    /// Every job goes: the server does not know this node any more.
    ForgetAll,
}

/// Requests of a node to its server.
pub trait Control: Send + Sync {
    /// The number of the node, which the ids of its chunks and runs hold.
    fn node(&self) -> NodeId;

    /// Hands in what a slot finished and waits for its next attempt. None: the slot goes home.
    fn pull(&self, slot: u32, finished: Option<Finished>) -> Option<Assignment>;

    /// Proposes range boundaries; the answer is what stands.
    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure>;

    /// The data that attempts of a job share, for a job of which no attempt has run here: its data lies here, or comes from a node that
    /// showed this token. None: the job is not known.
    fn job_run(&self, job: JobId, shown: Option<&str>) -> Option<Arc<JobRun>>;

    /// Waits for the next notice. None: there will be none.
    fn next_notice(&self) -> Option<Notice>;

    /// A reduce attempt ends before this key, which lies before the end of its task.
    fn shortened(&self, attempt: AttemptKey, upper_key: KeyBytes);

    /// The node has nothing of a job any more but what is on disk, of which `keep` says whether its runs stay.
    fn forgotten(&self, job: JobId, keep: bool);
}

/// Returns the failure of an attempt whose range boundaries could not be stored.
pub fn boundaries_failure(error: &dyn std::error::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot store range boundaries: {error}"))
}

/// An attempt that ended before it began.
pub(crate) fn never_began(attempt: ids::AttemptKey, failure: TaskFailure) -> Finished {
    let now = now_ns();
    Finished { attempt, outcome: Err(failure), started_ns: now, ended_ns: now }
}
