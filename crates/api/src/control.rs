//! Messages of the control port: between a server, its nodes and its clients. Documented in docs/protocol.md.

pub use crate::job::SubmittedJob;
use ids::StageKind;

use crate::data_access::{DataKeys, JobToken, SecretText};
use crate::drill::DrillFault;
use crate::fsck::CheckTask;
use crate::left::LeftBehind;
use crate::machine::{DiskReport, MachineSample, NodeReport};
use crate::task::{RunPlace, RunTask};
use crate::{Boundaries, JobReport, JobSpec, KeyBytes, Split, Task, TaskFailure, TaskResult};
use ids::{AttemptKey, AttemptNumber, IntermediateId, JobId, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Version of these messages; server, nodes and clients must agree on it.
pub const PROTOCOL_VERSION: u32 = 14;
/// Most attempts of a node that wait for a slot, or run and have waited.
pub const PLACES_MAX: u32 = 256;
/// Most bytes of a request body, and of an answer: a result that seals very many runs is the largest.
pub const BODY_BYTES_MAX: usize = 256 << 20;
/// Longest that the server holds a poll back while there is nothing to say, in milliseconds.
pub const POLL_MS_MAX: u64 = 5_000;

/// Most keys of an order to end earlier.
pub const END_KEYS_MAX: usize = 16;
/// Most slots of a node, and of a job.
pub const SLOTS_MAX: u32 = 1024;
/// Longest name of a node.
pub const NODE_NAME_BYTES_MAX: usize = 100;
/// Longest name of a job, or of its user: each is in tables, lists and messages.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest of each other text that a node says of itself.
pub const NODE_TEXT_BYTES_MAX: usize = 1000;

/// A job as a client hands it in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    pub spec: JobSpec,
    /// The inputs of the map tasks, in order.
    pub splits: Vec<Split>,
    /// User whom the job belongs to; jobs of users share the cluster.
    #[serde(default)]
    pub user: String,
    /// Jobs of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
}

/// Jobs of one task each, handed in together: they are stored in one transaction, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobBatch {
    /// Name of each of the jobs.
    pub name: String,
    /// One for each job, at most [`BATCH_JOBS_MAX`].
    pub tasks: Vec<RunTask>,
    /// User whom the jobs belong to.
    #[serde(default)]
    pub user: String,
    /// Jobs of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
}

/// Most jobs that are handed in together.
pub const BATCH_JOBS_MAX: usize = 1_000;

/// The numbers of jobs that were handed in together: `first` and those that follow it, in the order of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmittedBatch {
    pub first: JobId,
    pub count: u32,
}

/// Output of the program of a one-task job, as far as it is remembered. While the program runs: the output that its
/// node has told so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobLogs {
    /// The attempt that wrote it; each begins anew.
    pub attempt: Option<AttemptNumber>,
    pub standard_output: String,
    pub standard_error: String,
    /// Bytes of all the text that it wrote to standard output; the text above is the last of it.
    pub standard_output_bytes: u64,
    pub standard_error_bytes: u64,
    /// The job is over: nothing follows.
    pub over: bool,
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JobOutcome {
    Succeeded(Box<JobReport>),
    /// A job of one task has succeeded: there is nothing to report.
    Done,
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

/// Progress of a job, for people to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobProgress {
    /// In stage order; a stage that has not been expanded has no tasks yet.
    pub stages: Vec<StageProgress>,
    /// True once the last attempt has ended.
    pub over: bool,
    /// For a stage of a flow: whether its parts are there and wait for the stages that read them.
    #[serde(default)]
    pub rests: bool,
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
    /// Attempts running now.
    pub running: u32,
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

/// Answer to a proposal: the boundaries that stand, proposed by whoever was first.
pub type BoundariesAnswer = Boundaries;

/// Description that a node gives of itself when it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeInfo {
    pub protocol: u32,
    /// Version of its program.
    pub version: String,
    pub name: String,
    pub rack: String,
    pub slots: u32,
    /// Memory for the buffers of all jobs that run there at once.
    pub memory_bytes: u64,
    /// Architecture of its processor, as in `x86_64`.
    pub architecture: String,
    /// Address at which other nodes reach its data port; empty if it has none.
    #[serde(default)]
    pub data_url: String,
    /// Files that dead processes left on its disks; told when the node joins, and never after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftBehind>,
}

/// A node that is known from now on. A process that comes again is a new node: what it had in memory is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeWelcome {
    pub node: NodeId,
    /// Name of this process, which tells it from every other one; everything that the node says must hold it.
    pub incarnation: String,
    /// Secret of the node for the header `authorization`: shows that it is this node that speaks. Everything that it
    /// says needs it.
    pub secret: SecretText,
    /// Proof to keep on its disks. The next process there shows it, and so shows that it has these disks.
    pub disk_proof: SecretText,
    /// Public keys by which its data port knows the texts that the server signed.
    pub data_keys: DataKeys,
    /// Time without news of the node after which it counts as dead.
    pub lease_ms: u64,
    /// Whether user programs must be kept in a sandbox.
    #[serde(default)]
    pub sandbox: bool,
    /// Directories and prefixes of objects below which jobs may name paths and objects; without them, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<String>>,
    /// Jobs that read again the files left of them on the disks of this node: these files belong to this process from
    /// now on. All other files that were left are of no use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readmitted: Vec<JobId>,
}

/// Finished work goes up, new work comes down. The server answers at once where it has anything to say, else after
/// at most [`POLL_MS_MAX`], or when a later poll of the same node arrives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePoll {
    pub incarnation: String,
    /// Number of the last order that arrived; orders after it are sent again.
    pub received: u64,
    /// Slots that run nothing now and wait for work.
    pub free_slots: Vec<u32>,
    /// Places where an attempt may wait for a slot, so that a node need not ask for each of very many short programs:
    /// numbers from that of its slots on, [`PLACES_MAX`] of them at most.
    #[serde(default)]
    pub places: Vec<u32>,
    /// Ends of attempts the server has not confirmed yet by answering a poll that carried them.
    pub finished: Vec<AttemptEnd>,
    /// Every attempt that the node runs or whose end is not confirmed: a server that starts again learns from it
    /// which of its orders never arrived.
    #[serde(default)]
    pub held: Vec<AttemptKey>,
    /// State of the node and its programs; empty if there is nothing new.
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
}

#[expect(clippy::large_enum_variant, reason = "there is one for each attempt that ends")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AttemptOutcome {
    Succeeded(TaskResult),
    Failed(TaskFailure),
    /// It waited for a slot for too long and never began: others may have it.
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
    /// In order of their numbers, which grow by one; those the node has seen already are passed over.
    pub orders: Vec<NumberedOrder>,
    /// The nodes that live.
    pub peers: Vec<NodeAddress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberedOrder {
    pub number: u64,
    pub order: NodeOrder,
}

/// Order to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeOrder {
    /// Run an attempt. The facts of the job that it needs are at `/v1/jobs/JOB/brief`.
    Start {
        attempt: AttemptKey,
        /// The number of a free slot, or of a place.
        slot: u32,
        task: Box<Task>,
    },
    /// Attempts of the job stop as soon as they can.
    Stop { job: JobId },
    /// This attempt stops as soon as it can: the data that it works on is no more, or another attempt has done its
    /// work. Its end is of no interest.
    StopAttempt { attempt: AttemptKey },
    /// This reduce attempt ends before the first of these keys that it has not come to: another attempt reads from
    /// there. An attempt beyond all of them goes on as it is. In order; at most [`END_KEYS_MAX`].
    EndBefore { attempt: AttemptKey, keys: Vec<KeyBytes> },
    /// The job is over: everything of it goes.
    Forget { job: JobId },
    /// Sorted runs of the job get replicas on other nodes from now on.
    Replicate { job: JobId },
    /// The node sends its replicas of these runs, which stand for runs of other nodes, to one more node. It sends no
    /// other replicas again.
    ReplicateAgain { job: JobId, runs: Vec<RunId> },
    /// The node is being emptied: no new chunk may lie on it.
    Drain,
    /// Nobody needs the node any more: it says good-bye and ends.
    Leave,
    /// The job is over: its runs on disk stay, under a name that outlives the process, and the node tells of them
    /// ([`crate::kept::KeptAnnouncement`]). Everything else of it goes.
    Keep { job: JobId },
    /// The node tells what is kept on its disks.
    TellKept,
    /// Kept directories of these names go.
    DropKept { names: Vec<String> },
    /// The node reads kept files and tells what it finds ([`crate::fsck::CheckNews`]).
    CheckKept { check: String, task: Box<CheckTask> },
    /// An intermediate file of a user will be written on the node. The node gives the writer up if it hears nothing
    /// of it for so long.
    BeginIntermediate { file: IntermediateId, silence_seconds: u32 },
    /// Intermediate files of users go, also where they are being written.
    DropIntermediates { files: Vec<IntermediateId> },
    /// The copies of these files on the node are the first ones from now on: the node sees that there is a second
    /// one.
    AdoptIntermediates { files: Vec<IntermediateId> },
    /// The server signs the texts for data ports with another key. The node asks for tokens that are signed with it.
    /// For a while it still lets in callers with texts that an earlier key signed.
    DataKeys { keys: Box<DataKeys> },
    /// A fault strikes the node, where it was started for drills; it tells what became of it ([`crate::drill::DrillNews`]).
    Drill { strike: String, fault: DrillFault },
}

/// Address of the record data of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    pub node: NodeId,
    pub rack: String,
    pub data_url: String,
    /// Whether new chunks may lie there.
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
    /// Its sorted runs get replicas on other nodes.
    #[serde(default)]
    pub replicates: bool,
    /// Token by which other nodes let this one in to data of the job.
    pub token: SecretText,
    /// Tokens for the jobs whose parts this one reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<JobToken>,
    /// The job belongs to this user, whom a node may let name more paths than others.
    #[serde(default)]
    pub user: String,
}

/// A reader asks where runs of a job lie by now, because it cannot go on where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacesQuestion {
    pub runs: Vec<RunId>,
}

/// Places of the runs that do not lie only with the node that made them, in order of the runs.
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
    /// Attempts that it has now: they run, or wait there for a slot.
    pub running: u32,
    /// Time since the node was last heard of, in milliseconds.
    pub silent_ms: u64,
    /// Disks as the node told last; empty before it told anything.
    #[serde(default)]
    pub disks: Vec<DiskReport>,
    #[serde(default)]
    pub sample: Option<MachineSample>,
    #[serde(default)]
    pub state: NodeState,
    /// Jobs that keep intermediate data on its disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_jobs: Vec<JobId>,
}

/// Whether a node works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    #[default]
    Up,
    /// Gets no new work; what it holds moves away.
    Draining,
    /// Holds nothing that anybody needs, and has been told to leave, or has left.
    Drained,
    /// Nothing was heard of it any more, or its process has ended.
    Dead,
}

impl NodeState {
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Dead => "dead",
        }
    }
}

/// The nodes that live, those that were drained lately, and what a job may count on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterStatus {
    pub nodes: Vec<NodeStatus>,
    /// Nodes that died within a day and have not come back, the last ones first; at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<NodeStatus>,
}

impl ClusterStatus {
    /// Slots of all nodes that get work.
    pub fn slots(&self) -> u32 {
        self.working().map(|node| node.info.slots).sum()
    }

    /// Nodes that get work.
    pub fn working(&self) -> impl Iterator<Item = &NodeStatus> {
        self.nodes.iter().filter(|node| node.state == NodeState::Up)
    }

    /// Memory that every node has for jobs; None without nodes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.working().map(|node| node.info.memory_bytes).min()
    }
}

/// Content of an error answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorAnswer {
    /// One word that a program can act on.
    pub code: ErrorCode,
    /// One sentence for people.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request cannot be understood, or asks for something impossible.
    BadRequest,
    /// The request was understood and refused: an option, an output, a path. The user's to change.
    Refused,
    NotFound,
    /// The node is not, or no longer, known: it must register anew and forget what it has.
    UnknownNode,
    /// Server and caller speak different versions.
    VersionMismatch,
    Unauthenticated,
    Forbidden,
    /// The caller asked too often, or has too many jobs: not now.
    TooMany,
    TooLarge,
    /// The server cannot go on; another one may.
    Failed,
}
