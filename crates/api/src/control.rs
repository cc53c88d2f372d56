//! Messages of the control port: between a server, its nodes and its clients. Documented in docs/protocol.md.

pub use crate::job::SubmittedJob;
use ids::StageKind;

use crate::data_access::{DataKeys, JobToken, SecretText};
use crate::drill::DrillFault;
use crate::fsck::CheckTask;
use crate::job::resources::GenericResources;
use crate::machine::{DiskReport, MachineSample, NodeReport};
use crate::orphaned::OrphanedData;
use crate::stored::need::StoredNeed;
use crate::task::{AttemptUsage, RunPlace, RunTask};
use crate::{Boundaries, JobReport, JobSpec, KeyBytes, Split, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, AttemptNumber, IntermediateId, JobId, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Version of these messages; server, nodes and clients must agree on it.
pub const PROTOCOL_VERSION: u32 = 26;
/// Maximum number of attempts of a node that wait for a slot, or run after such a wait.
pub const PLACES_MAX: u32 = 256;
/// Maximum bytes of a request body and of an answer: a result that seals very many runs is the largest.
pub const BODY_BYTES_MAX: usize = 256 << 20;
/// Longest time that the server delays the answer to a poll without news, in milliseconds.
pub const POLL_MS_MAX: u64 = 5_000;
/// Header with the number of a job: a node sends the request for a program of that job, with the rights of its user.
pub const JOB_HEADER: &str = "sailfish-job";

/// Maximum number of keys in an order to end an attempt earlier.
pub const END_KEYS_MAX: usize = 16;
/// Maximum number of slots of a node, and of a job.
pub const SLOTS_MAX: u32 = 1024;
/// Longest name of a node, in bytes.
pub const NODE_NAME_BYTES_MAX: usize = 100;
/// Longest name of a job, or of its user, in bytes: both are in tables, lists and messages.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest of all other texts in a node's description of itself, in bytes.
pub const NODE_TEXT_BYTES_MAX: usize = 1000;

/// A job as a client submits it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    pub spec: JobSpec,
    /// The inputs of the map tasks, in order.
    pub splits: Vec<Split>,
    /// The user who owns the job; jobs of users share the cluster.
    #[serde(default)]
    pub user: String,
    /// Jobs of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
}

/// Jobs of one task each, submitted together: all are stored in one transaction, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobBatch {
    /// Name of each of the jobs.
    pub name: String,
    /// A task for each job, at most [`BATCH_JOBS_MAX`].
    pub tasks: Vec<RunTask>,
    /// The user who owns the jobs.
    #[serde(default)]
    pub user: String,
    /// Jobs of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
}

/// Maximum number of jobs that are submitted together.
pub const BATCH_JOBS_MAX: usize = 1_000;

/// The numbers of jobs that were submitted together: `first` and the following ones, in the order of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmittedBatch {
    pub first: JobId,
    pub count: u32,
}

/// Output of the program of a one-task job, as far as it is stored. While the program runs: the output that its node
/// has reported so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobLogs {
    /// The attempt that wrote it; the output of each attempt begins anew.
    pub attempt: Option<AttemptNumber>,
    pub standard_output: String,
    pub standard_error: String,
    /// Bytes of all its text on standard output; the text above is the end of it.
    pub standard_output_bytes: u64,
    pub standard_error_bytes: u64,
    /// The job is over: no more output follows.
    pub over: bool,
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JobOutcome {
    Succeeded(Box<JobReport>),
    /// A job of one task has succeeded: there is no report.
    Done,
    Failed {
        failure: TaskFailure,
        /// The attempt that failed last; None if the engine itself stopped the job (a failed proof).
        attempt: Option<AttemptKey>,
        /// The exit code of a front end: that of the user's program if it failed.
        exit_code: i32,
    },
    Cancelled {
        reason: String,
    },
}

/// Progress of a job, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobProgress {
    /// In stage order; a stage without tasks is not expanded yet.
    pub stages: Vec<StageProgress>,
    /// True after the last attempt has ended.
    pub over: bool,
    /// For a stage of a flow: true if its parts are complete and wait for the stages that read them.
    #[serde(default)]
    pub parts_ready: bool,
}

/// Progress of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageProgress {
    #[serde(rename = "name")]
    pub kind: StageKind,
    pub expanded: bool,
    pub tasks: u32,
    pub done: u32,
    /// Number of attempts that run now.
    pub running: u32,
    /// Finished steps for which runs of earlier jobs stand, of a job with steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The answer to a wait: None while the job is not over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitAnswer {
    pub outcome: Option<JobOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundariesProposal {
    pub keys: Vec<KeyBytes>,
}

/// The answer to a proposal: the boundaries of the first proposal.
pub type BoundariesAnswer = Boundaries;

/// A node's description of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeInfo {
    pub protocol: u32,
    /// Version of its program.
    pub version: String,
    pub name: String,
    pub rack: String,
    pub slots: u32,
    /// Memory for the buffers of all jobs that run on it at once.
    pub memory_bytes: u64,
    /// Architecture of its processor, as in `x86_64`.
    pub architecture: String,
    /// Generic resources that it declares.
    #[serde(default, skip_serializing_if = "GenericResources::is_none")]
    pub resources: GenericResources,
    /// Address of its data port for other nodes; empty if it has none.
    #[serde(default)]
    pub data_url: String,
    /// Directories that not every node sees, absolute and without links; at most [`crate::seen::SEES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub sees: Vec<PathBuf>,
    /// Files of dead processes on its disks. Sent only when the node joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<OrphanedData>,
    /// Proofs of all dead processes on its disks, at most [`crate::orphaned::PREDECESSORS_MAX`]. Sent only when the node
    /// joins. It may bring back intermediate files of these processes and of no other ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predecessors: Vec<SecretText>,
}

/// The answer to a node that has joined. A restarted process is a new node: its memory is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeWelcome {
    pub node: NodeId,
    /// Unique name of this process. Every message of the node must contain it.
    pub incarnation: String,
    /// Secret of the node for the header `authorization`. Every message of the node needs it: it proves the sender.
    pub secret: SecretText,
    /// Proof to keep on its disks. The next process there presents it, and so proves that it has these disks.
    pub disk_proof: SecretText,
    /// Public keys with which its data port verifies texts that the server signed.
    pub data_keys: DataKeys,
    /// Time without a message of the node after which it counts as dead.
    pub lease_ms: u64,
    /// True if user programs must run in a sandbox.
    #[serde(default)]
    pub sandbox: bool,
    /// Directories and object prefixes to which the paths and objects of jobs are limited; None permits all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<String>>,
    /// Jobs that read their files on the disks of this node again: these files belong to this process now. All other
    /// files of dead processes are useless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readmitted: Vec<JobId>,
}

/// A poll: carries the ends of attempts to the server, and orders back. The server answers at once if it has news,
/// otherwise after at most [`POLL_MS_MAX`], or when a later poll of the same node arrives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePoll {
    pub incarnation: String,
    /// Number of the last order that arrived; later orders are sent again.
    pub received: u64,
    /// Slots that run nothing and wait for work.
    pub free_slots: Vec<u32>,
    /// Free places, in which an attempt may wait for a slot, so that a node need not poll for each of very many short
    /// programs. Their numbers follow those of its slots; at most [`PLACES_MAX`].
    #[serde(default)]
    pub places: Vec<u32>,
    /// Ends of attempts that the server has not confirmed by an answer to a poll that carried them.
    pub finished: Vec<AttemptEnd>,
    /// All attempts that the node runs or whose ends are not confirmed. A restarted server finds by them the orders
    /// that never arrived.
    #[serde(default)]
    pub held: Vec<AttemptKey>,
    /// State of the node and its programs; empty if nothing has changed.
    #[serde(default, skip_serializing_if = "NodeReport::is_empty")]
    pub report: NodeReport,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptEnd {
    pub attempt: AttemptKey,
    pub outcome: AttemptOutcome,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    /// Nanoseconds since 1970.
    pub ended_ns: u64,
    /// Resources that it used.
    #[serde(default)]
    pub usage: AttemptUsage,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each attempt that ends")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AttemptOutcome {
    Succeeded(TaskResult),
    Failed(TaskFailure),
    /// It waited too long for a slot and never began: the server may assign it to another node.
    GivenBack,
}

impl From<Result<TaskResult, TaskFailure>> for AttemptOutcome {
    fn from(outcome: Result<TaskResult, TaskFailure>) -> Self {
        match outcome {
            Ok(result) => Self::Succeeded(result),
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// The answer to a poll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeOrders {
    /// In order of their numbers, which grow by one. The node skips those that it has seen already.
    pub orders: Vec<NumberedOrder>,
    /// The live nodes.
    pub peers: Vec<NodeAddress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberedOrder {
    pub number: u64,
    pub order: NodeOrder,
}

/// An order to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeOrder {
    /// Run an attempt. `/v1/jobs/JOB/brief` has the facts of the job that it needs.
    Start {
        attempt: AttemptKey,
        /// The number of a free slot, or of a place.
        slot: u32,
        task: Box<Task>,
    },
    /// Stop all attempts of the job as soon as possible.
    Stop { job: JobId },
    /// Stop this attempt as soon as possible: its input no longer exists, or another attempt has won. Its result is
    /// discarded.
    StopAttempt { attempt: AttemptKey },
    /// End this reduce attempt before the first of these keys that it has not reached: another attempt reads from
    /// there. An attempt beyond all of them continues unchanged. In order; at most [`END_KEYS_MAX`].
    EndBefore { attempt: AttemptKey, keys: Vec<KeyBytes> },
    /// The job is over: remove all its data.
    Forget { job: JobId },
    /// Replicate the sorted runs of the job to other nodes from now on.
    Replicate { job: JobId },
    /// Copy these promoted replicas, which replace lost runs of other nodes, to one more node. Other replicas are not
    /// copied again.
    ReplicateAgain { job: JobId, runs: Vec<RunId> },
    /// Accept no new chunks: the node is being drained.
    Drain,
    /// Shut down gracefully: no job needs the node any more.
    Leave,
    /// The job is over: keep its runs on disk under names that outlive the process, and announce them
    /// ([`crate::kept::KeptAnnouncement`]). Remove everything else of the job.
    Keep { job: JobId },
    /// Announce the kept directories on the disks.
    TellKept,
    /// Remove the kept directories of these names.
    DropKept { names: Vec<String> },
    /// Read kept files and report the findings ([`crate::fsck::CheckNews`]).
    CheckKept { check: String, task: Box<CheckTask> },
    /// Expect an intermediate file of a user. The node abandons the file if its writer sends nothing for this many
    /// seconds.
    BeginIntermediate { file: IntermediateId, silence_seconds: u32 },
    /// Remove intermediate files of users, including those that are being written.
    DropIntermediates { files: Vec<IntermediateId> },
    /// Promote the copies of these files on the node to first copies: the node re-replicates them.
    AdoptIntermediates { files: Vec<IntermediateId> },
    /// Another node has come back with copies of these files of the node: they are not replicated elsewhere.
    CopiedIntermediates { files: Vec<IntermediateId>, on: NodeId },
    /// Use new keys: the server signs the texts for data ports with another key. The node asks for tokens signed with
    /// it, and accepts texts signed with an earlier key for a while.
    DataKeys { keys: Box<DataKeys> },
    /// List the files at a path below a directory that this node sees, and report them page by page
    /// ([`crate::seen::SeenNews`]).
    ListSeen { listing: String, path: String },
    /// Execute a fault, if the node was started for drills, and report the outcome ([`crate::drill::DrillNews`]).
    Drill { strike: String, fault: DrillFault },
}

/// Address of a node's data port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    pub node: NodeId,
    pub rack: String,
    pub data_url: String,
    /// True if new chunks may be put on it.
    #[serde(default = "yes")]
    pub takes_chunks: bool,
}

fn yes() -> bool {
    true
}

/// Facts of a job that a node needs to run attempts of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobBrief {
    pub job: JobId,
    pub spec: JobSpec,
    #[schema(value_type = String)]
    pub staging: PathBuf,
    /// True if its sorted runs get replicas on other nodes.
    #[serde(default)]
    pub replicates: bool,
    /// Token by which other nodes admit this one to the data of the job.
    pub token: SecretText,
    /// Tokens for the jobs whose parts this one reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<JobToken>,
    /// The user who owns the job: a node may allow paths for this user that it denies to others.
    #[serde(default)]
    pub user: String,
}

/// A reader's question for the current locations of runs that it cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacesQuestion {
    pub runs: Vec<RunId>,
}

/// Locations of the runs that are not only on the nodes that made them, in order of the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacesAnswer {
    pub places: Vec<RunPlace>,
}

/// A node as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeStatus {
    pub node: NodeId,
    pub info: NodeInfo,
    /// Number of attempts that it has now: they run, or wait for a slot there.
    pub running: u32,
    /// Time since the last message of the node, in milliseconds.
    pub silent_ms: u64,
    /// Disks as the node reported them last; empty before its first report.
    #[serde(default)]
    pub disks: Vec<DiskReport>,
    #[serde(default)]
    pub sample: Option<MachineSample>,
    #[serde(default)]
    pub state: NodeState,
    /// Jobs with kept intermediate data on its disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_jobs: Vec<JobId>,
    /// While it is being drained: its stored files that have too few replicas on other nodes. None before the first scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_need: Option<StoredNeed>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    #[default]
    Up,
    /// Gets no new work; its data moves to other nodes.
    Draining,
    /// Holds no data that any job needs, and has been told to leave, or has left.
    Drained,
    /// Sent no message for too long, or its process has ended.
    Dead,
}

impl NodeState {
    /// Returns the word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Dead => "dead",
        }
    }
}

/// The live nodes, the recently drained ones, and the resources that a job may count on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterStatus {
    pub nodes: Vec<NodeStatus>,
    /// Nodes that died within a day and have not come back, most recent first; at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<NodeStatus>,
}

impl ClusterStatus {
    /// Returns the number of slots of all nodes that get work.
    pub fn slots(&self) -> u32 {
        self.working().map(|node| node.info.slots).sum()
    }

    /// Returns the nodes that get work.
    pub fn working(&self) -> impl Iterator<Item = &NodeStatus> {
        self.nodes.iter().filter(|node| node.state == NodeState::Up)
    }

    /// Returns the memory that every node has for jobs; None without nodes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.working().map(|node| node.info.memory_bytes).min()
    }
}

/// Content of an error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorAnswer {
    /// A code for programs.
    pub code: ErrorCode,
    /// The message for the user, in one sentence.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request cannot be understood, or asks for something impossible.
    BadRequest,
    /// The request was understood and refused because of an option, an output or a path. The user must change it.
    Refused,
    NotFound,
    /// The node is not known, or no longer: it must register again and forget its state.
    UnknownNode,
    /// Server and caller have different protocol versions.
    VersionMismatch,
    Unauthenticated,
    Forbidden,
    /// The caller sends too many requests, or has too many jobs: retry later.
    TooMany,
    TooLarge,
    /// The server cannot continue; another one may.
    Failed,
}

impl ErrorCode {
    /// Returns the HTTP status of such an answer.
    pub fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Refused => 422,
            Self::NotFound => 404,
            Self::UnknownNode => 410,
            Self::VersionMismatch => 409,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::TooMany => 429,
            Self::TooLarge => 413,
            Self::Failed => 503,
        }
    }
}
