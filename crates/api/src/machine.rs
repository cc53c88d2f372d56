//! News of a node about its machine and the programs that it runs. It rides along with polls; lost news are told
//! again, or not missed.

use crate::KeyBytes;
use ids::{AttemptKey, ChunkId, JobId, NodeId, RunId, TaskIndex};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most samples of a report: those of a minute. Older ones are dropped while a server is away.
pub const SAMPLES_MAX: usize = 60;
/// Most nodes that a report says could not be reached.
pub const UNREACHED_MAX: usize = 64;
/// Most runs that attempts are said to have read, in [`LostOnDisk::read`].
pub const READS_TOLD_MAX: usize = 16_384;
/// Most disks of a node.
pub const DISKS_MAX: usize = 256;

/// State of a node and events there since it told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Oldest first, at most [`SAMPLES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<MachineSample>,
    /// All disks, in the order in which they were given; empty if nothing has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskReport>,
    /// At most one for each slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<ProgramSaid>,
    /// Progress of map and reduce tasks: at most one entry for each slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<AttemptProgress>,
    /// Runs that lie on another node as well by now: runs of this node, and replicas here that stand for runs of
    /// others. Told until a poll that carried them is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated: Vec<ReplicatedRun>,
    /// Parts that later stages read and that lie on another node as well by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated_parts: Vec<ReplicatedPart>,
    /// Runs on disks of this node that have failed, found before anybody asked for them. Told until a poll that carried them is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostOnDisk>,
    /// Reduce attempts that end earlier than their tasks say from now on, as they were asked to. The attempt's result
    /// says it again, in case this is not told in time, or not heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<ShortenedAttempt>,
    /// Other nodes that could not be reached, or did not go on, lately; at most [`UNREACHED_MAX`], and each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<UnreachedNode>,
}

/// A node that another one could not reach, and the error that the other one met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnreachedNode {
    pub node: NodeId,
    pub how: Unreached,
}

/// Error of a request to a node that could not be reached; an error that says more about the node is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unreached {
    /// It has not answered yet: it may be busy.
    Silent,
    /// No connection came about in time, or there is no way there.
    TimedOut,
    /// A connection ended in the middle.
    CutOff,
    /// Its machine says that nobody listens there.
    Refused,
}

impl Unreached {
    /// Returns the words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Silent => "no answer",
            Self::TimedOut => "connection timed out",
            Self::CutOff => "connection cut off",
            Self::Refused => "connection refused",
        }
    }
}

/// Data of a job that is lost with a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostOnDisk {
    pub job: JobId,
    pub runs: Vec<RunId>,
    /// Chunks whose records were in these runs.
    pub chunks: Vec<ChunkId>,
    /// Reason, in one sentence.
    pub why: String,
    /// Attempts, here and on other nodes, that have no need of some of these runs any more, because they have read
    /// all that they read of them from the disk: at most [`READS_TOLD_MAX`] runs in all.
    pub read: Vec<AttemptRead>,
}

/// Runs that an attempt has read as far as it reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptRead {
    pub attempt: AttemptKey,
    pub runs: Vec<RunId>,
}

/// A reduce attempt that gave up the tail of its range, of which it had read nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShortenedAttempt {
    pub attempt: AttemptKey,
    /// The first key that is no longer its own.
    pub upper_key: KeyBytes,
}

/// A part that later stages read, which lies on another node as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedPart {
    pub job: JobId,
    pub task: TaskIndex,
    /// Name of its file: it tells the attempt that made it.
    pub name: String,
    pub to: NodeId,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Time since it was written, in which it lay on one node only.
    pub single_ns: u64,
    /// Part of that time in which it was on its way.
    pub sending_ns: u64,
}

/// A run of a node, or a replica there that stands for it, of which another node has a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedRun {
    pub job: JobId,
    pub run: RunId,
    /// Chunks whose records are in the run.
    pub chunks: Vec<ChunkId>,
    pub to: NodeId,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Time in which it lay on one node only: since it was sorted, or since its node was asked to send it once more.
    pub single_ns: u64,
    /// Part of that time in which it was on its way.
    pub sending_ns: u64,
}

impl NodeReport {
    /// Whether it tells nothing.
    pub fn is_empty(&self) -> bool {
        let Self { samples, disks, said, progress, replicated, replicated_parts, lost, shortened, unreached } =
            self;
        samples.is_empty()
            && disks.is_empty()
            && said.is_empty()
            && progress.is_empty()
            && replicated.is_empty()
            && replicated_parts.is_empty()
            && lost.is_empty()
            && shortened.is_empty()
            && unreached.is_empty()
    }
}

/// State of a machine at a time. Bytes are counts since the sample before; busy shares are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSample {
    /// Time by the clock of the node, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Busy share of all its processors together.
    pub cpu_permille: u32,
    pub memory_used_bytes: u64,
    /// Busy share of its busiest disk.
    pub disk_busy_permille: u32,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Bytes received over the network, without those that the machine sent to itself; likewise below.
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    /// Frames that map tasks appended to chunks here.
    pub appended_bytes: u64,
}

/// A directory for intermediate data and the file system on which it lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskReport {
    pub path: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub state: DiskState,
}

/// Whether a disk can take new chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    Usable,
    /// Too little is free.
    Full,
    ReadOnly,
    /// It does not answer.
    Failed,
}

impl DiskState {
    /// Returns the word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
        }
    }
}

/// Progress of an attempt, and its time since it began, by cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptProgress {
    pub attempt: AttemptKey,
    pub done_bytes: u64,
    /// Bytes of all its data; 0: nobody knows.
    pub total_bytes: u64,
    /// Time that it waited for its input, or for the runs that it merges.
    pub read_ns: u64,
    /// Time in the program, and all other time.
    pub program_ns: u64,
    /// Time that it waited for chunks to take its output.
    pub append_ns: u64,
    /// The node whose data it waited for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<NodeId>,
    /// The node whose chunks it waited for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_to: Option<NodeId>,
}

/// Output of the program of a one-task job since its node told last. A text that does not follow on the text told
/// before takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSaid {
    pub attempt: AttemptKey,
    pub standard_output: SaidText,
    pub standard_error: SaidText,
}

/// A piece of the text that a program writes to one of its outputs; bytes that are no UTF-8 are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaidText {
    /// At most [`crate::task::RUN_OUTPUT_BYTES_MAX`] bytes.
    pub text: String,
    /// Bytes of all the text up to the end of this piece.
    pub end_bytes: u64,
}
