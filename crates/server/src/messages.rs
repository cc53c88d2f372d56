//! Messages to and from the server that are function calls. `api::control` has the messages between processes.

use crate::submission::ShippedOptions;
use api::job::resources::GenericResources;
use api::{JobSpec, Task};
use control::Service;
use control::users::JobQuota;
use ids::AttemptKey;
use jobkind::Kinds;
use mapreduce::PartNodes;
use roots::Roots;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of a server: its state directory, its nodes, and the files that jobs may use.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Directory of `sailfish.db` and `owners/`; created if missing.
    pub state_dir: PathBuf,
    pub service: Service,
    /// A PostgreSQL with the rows instead of the state directory, `postgres://...`. Several servers may use the same
    /// one: one of them leads, the others wait.
    pub database: Option<String>,
    /// Shipped files, for a cluster.
    pub shipped: ShippedOptions,
    /// Roots below which jobs may name paths and objects; None permits every path that this process can reach.
    pub roots: Option<Roots>,
    /// Kinds of jobs with steps.
    pub kinds: Kinds,
    /// Slots of the node in this process; 0 in a cluster.
    pub slots: u32,
    /// Generic resources of the node in this process.
    pub resources: GenericResources,
}

/// Limits of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserQuota {
    /// Maximum number of unfinished jobs.
    pub jobs_max: u32,
    /// Maximum bytes of the specifications of those jobs: words, variables, names of files.
    pub spec_bytes_max: u64,
    /// Maximum bytes of kept I-files of finished jobs. One job may exceed it; the next job keeps nothing.
    pub kept_bytes_max: u64,
    /// Maximum bytes of intermediate files.
    pub intermediate_bytes_max: u64,
    /// Bytes of stored files, without replicas.
    pub stored_bytes_max: u64,
}

/// Returns the part of a quota that control checks.
pub(crate) fn job_quota(quota: UserQuota) -> JobQuota {
    JobQuota { jobs_max: quota.jobs_max, spec_bytes_max: quota.spec_bytes_max }
}

/// The server's facts about the user who submits a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submitter {
    /// Quota of the user; None is unlimited.
    pub quota: Option<UserQuota>,
    /// User under whose name the shipped files of the job were sent.
    pub files_of: String,
    /// Nodes with the stored inputs of the job.
    pub part_nodes: Arc<PartNodes>,
}

impl ServerOptions {
    /// Returns the options of a server for the node in this process.
    pub fn embedded(state_dir: PathBuf, slots: u32) -> Self {
        let shipped = ShippedOptions::default();
        let kinds = jobkinds::all();
        let (service, resources) = (Service::Embedded, GenericResources::default());
        Self { state_dir, service, database: None, shipped, roots: None, kinds, slots, resources }
    }

    /// Returns the options of a server for remote nodes.
    pub fn cluster(state_dir: PathBuf, database: Option<String>) -> Self {
        let shipped = ShippedOptions::default();
        let kinds = jobkinds::all();
        let (service, resources) = (Service::Cluster, GenericResources::default());
        Self { state_dir, service, database, shipped, roots: None, kinds, slots: 0, resources }
    }
}

/// State of a job that its attempts in this process share.
#[derive(Clone, Debug)]
pub struct LocalJob {
    pub spec: Arc<JobSpec>,
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
    /// True when the job is cancelled or has failed, or the server ends.
    pub cancelled: Arc<AtomicBool>,
}

/// The answer to a pull.
#[derive(Clone, Debug)]
pub enum PullReply {
    Run(Box<LocalAssignment>),
    /// Every submitted job is over, or the server shuts down.
    Stop,
}

/// An attempt to run in this process.
#[derive(Clone, Debug)]
pub struct LocalAssignment {
    pub attempt: AttemptKey,
    pub task: Task,
    pub job: Arc<LocalJob>,
}
