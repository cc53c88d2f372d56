//! Messages to the server and from it by function call. The messages between processes are in `api::control`.

use crate::submission::ShippedOptions;
use api::{JobSpec, Task};
use control::Service;
use control::users::JobQuota;
use ids::AttemptKey;
use roots::{HeldDir, JobPaths, Roots};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of a server: the place of its state, the nodes that it serves, and the files that jobs may use.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Holds `sailfish.db` and `owners/`; created where it is missing.
    pub state_dir: PathBuf,
    pub service: Service,
    /// A PostgreSQL that has the rows in place of the state directory, `postgres://...`. Several servers may be
    /// started on one: the first leads, the others wait.
    pub database: Option<String>,
    /// For a cluster.
    pub shipped: ShippedOptions,
    /// Roots below which jobs may name paths and objects; None: every path that this process can reach.
    pub roots: Option<Roots>,
}

/// Limits of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserQuota {
    /// Jobs that are not over.
    pub jobs_max: u32,
    /// Bytes of the specifications of those jobs: words, variables, names of files.
    pub spec_bytes_max: u64,
    /// Bytes of I-files kept by jobs that are over. One job may exceed it; the next job keeps nothing.
    pub kept_bytes_max: u64,
    /// Bytes of intermediate files.
    pub intermediate_bytes_max: u64,
}

/// The part of a quota that control knows.
pub(crate) fn job_quota(quota: UserQuota) -> JobQuota {
    JobQuota { jobs_max: quota.jobs_max, spec_bytes_max: quota.spec_bytes_max }
}

/// The facts that a server needs about the user who hands a job in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submitter {
    /// Limits of the user; None: no limits.
    pub quota: Option<UserQuota>,
    /// User under whose name the files that the job needs were shipped.
    pub files_of: String,
}

impl ServerOptions {
    /// A server for the node in this process.
    pub fn embedded(state_dir: PathBuf) -> Self {
        let shipped = ShippedOptions::default();
        Self { state_dir, service: Service::Embedded, database: None, shipped, roots: None }
    }

    /// A server for nodes elsewhere.
    pub fn cluster(state_dir: PathBuf, database: Option<String>) -> Self {
        let shipped = ShippedOptions::default();
        Self { state_dir, service: Service::Cluster, database, shipped, roots: None }
    }
}

/// State shared by all attempts of a job.
#[derive(Clone, Debug)]
pub struct JobRun {
    pub spec: Arc<JobSpec>,
    pub staging: PathBuf,
    /// Directories on the disks of the node where the attempts run.
    pub disk_dirs: Vec<PathBuf>,
    /// Turns true when the job is cancelled, fails, or the server goes.
    pub cancelled: Arc<AtomicBool>,
    /// On a node of a cluster: turns true when the server says that its runs get replicas.
    pub replicates: Arc<AtomicBool>,
    /// On the node where the attempts run: opens what the job names.
    pub paths: JobPaths,
    /// On that node, where there are roots: `staging` is a path of it.
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
    /// Turns true when this attempt is to stop, with its job or alone: it polls this and stops. What outlives it on the node
    /// goes by the flag of the job.
    pub cancelled: Arc<AtomicBool>,
}
