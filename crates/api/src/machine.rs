//! Reports of a node about its machine and the programs that it runs. They are sent with polls; a lost report is sent
//! again, or is not needed.

use crate::KeyBytes;
use ids::{AttemptKey, ChunkId, JobId, NodeId, RunId, TaskIndex};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum number of samples of a report: those of a minute. Older ones are dropped while a server is away.
pub const SAMPLES_MAX: usize = 60;
/// Maximum number of unreachable nodes in a report.
pub const UNREACHED_MAX: usize = 64;
/// Maximum number of runs in [`LostOnDisk::read`].
pub const READS_TOLD_MAX: usize = 16_384;
/// Maximum number of disks of a node.
pub const DISKS_MAX: usize = 256;

/// State of a node, and events since its last report.
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
    /// Runs that have been replicated to another node: runs of this node, and promoted replicas here. Repeated until a
    /// poll that carried them is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated: Vec<ReplicatedRun>,
    /// Parts for later stages that have been replicated to another node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated_parts: Vec<ReplicatedPart>,
    /// Runs on failed disks of this node, found before any task asked for them. Repeated until a poll that carried them
    /// is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostOnDisk>,
    /// Reduce attempts that will end earlier than their tasks say, as ordered. The attempt's result repeats this, in
    /// case the report is late or lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<ShortenedAttempt>,
    /// Other nodes that were unreachable or stopped responding lately; at most [`UNREACHED_MAX`], each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<UnreachedNode>,
}

/// A node that another one could not reach, and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnreachedNode {
    pub node: NodeId,
    pub how: Unreached,
}

/// Error of a request to an unreachable node. A greater value says more about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unreached {
    /// No answer yet: it may be busy.
    Silent,
    /// No connection within the timeout, or no route.
    TimedOut,
    /// A connection was cut off.
    CutOff,
    /// Its machine refused the connection: no process listens there.
    Refused,
}

impl Unreached {
    /// Returns the words for users.
    pub fn words(self) -> &'static str {
        match self {
            Self::Silent => "no answer",
            Self::TimedOut => "connection timed out",
            Self::CutOff => "connection cut off",
            Self::Refused => "connection refused",
        }
    }
}

/// Data of a job that was lost with a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostOnDisk {
    pub job: JobId,
    pub runs: Vec<RunId>,
    /// Chunks whose records were in these runs.
    pub chunks: Vec<ChunkId>,
    /// Reason, in one sentence.
    pub why: String,
    /// Attempts, here and on other nodes, that do not need some of these runs any more, because they have read their
    /// share of them from the disk: at most [`READS_TOLD_MAX`] runs in all.
    pub read: Vec<AttemptRead>,
}

/// Runs whose share an attempt has read completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptRead {
    pub attempt: AttemptKey,
    pub runs: Vec<RunId>,
}

/// A reduce attempt that gave up the unread end of its range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShortenedAttempt {
    pub attempt: AttemptKey,
    /// The first key that is no longer its own.
    pub upper_key: KeyBytes,
}

/// A part for later stages that has been replicated to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedPart {
    pub job: JobId,
    pub task: TaskIndex,
    /// Name of its file, which identifies the attempt that made it.
    pub name: String,
    pub to: NodeId,
    /// Bytes that were sent.
    pub bytes: u64,
    /// Time from its completion until it was on two nodes.
    pub single_ns: u64,
    /// Part of that time during which it was being sent.
    pub sending_ns: u64,
}

/// A run of a node, or a promoted replica there, that has been replicated to another node.
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
    /// Time during which only one node had it: since it was sorted, or since its node was ordered to copy it again.
    pub single_ns: u64,
    /// Part of that time during which it was being sent.
    pub sending_ns: u64,
}

impl NodeReport {
    /// Returns whether there is nothing to report.
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

/// State of a machine at a time. Bytes are counted since the previous sample; busy shares are in thousandths.
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
    /// Bytes received over the network, without those that the machine sent to itself; the same holds below.
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    /// Bytes of frames that map tasks appended to chunks here.
    pub appended_bytes: u64,
}

/// A directory for intermediate data, with its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskReport {
    pub path: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub state: DiskState,
}

/// State of a disk: whether it accepts new chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskState {
    Usable,
    /// Too little space is free.
    Full,
    ReadOnly,
    /// It does not respond.
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

/// Progress of an attempt, and the causes of its elapsed time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptProgress {
    pub attempt: AttemptKey,
    pub done_bytes: u64,
    /// Bytes of all its input; 0 if unknown.
    pub total_bytes: u64,
    /// Time that it waited for its input, or for the runs that it merges.
    pub read_ns: u64,
    /// Time in the program, and all other time.
    pub program_ns: u64,
    /// Time that it waited for chunks to accept its output.
    pub append_ns: u64,
    /// The node for whose data it waited most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<NodeId>,
    /// The node for whose chunks it waited most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_to: Option<NodeId>,
}

/// Output of the program of a one-task job since the node's last report. A text that does not continue the previous one
/// replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSaid {
    pub attempt: AttemptKey,
    pub standard_output: OutputChunk,
    pub standard_error: OutputChunk,
}

/// A piece of a program's output; bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputChunk {
    /// At most [`crate::task::RUN_OUTPUT_BYTES_MAX`] bytes.
    pub text: String,
    /// Bytes of all the text up to the end of this piece.
    pub end_bytes: u64,
}
