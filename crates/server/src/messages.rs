//! Messages to the server and from it by function call. The messages between processes are in `api::control`.

use crate::submission::ShippedOptions;
use api::{JobSpec, Task};
use control::Service;
use control::users::JobQuota;
use ids::AttemptKey;
use roots::Roots;
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

/// A job as its attempts in this process share it.
#[derive(Clone, Debug)]
pub struct LocalJob {
    pub spec: Arc<JobSpec>,
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
    /// Turns true when the job is cancelled, fails, or the server goes.
    pub cancelled: Arc<AtomicBool>,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub enum PullReply {
    Run(Box<LocalAssignment>),
    /// Every job submitted so far is over, or the server shuts down.
    Stop,
}

/// An attempt to run now, in this process.
#[derive(Clone, Debug)]
pub struct LocalAssignment {
    pub attempt: AttemptKey,
    pub task: Task,
    pub job: Arc<LocalJob>,
}
