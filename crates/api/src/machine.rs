//! What a node tells of its machine and of the programs that it runs. It rides along with polls; what is lost is told
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

/// How a node is and what happened there since it told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Oldest first, at most [`SAMPLES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<MachineSample>,
    /// All of them, in the order in which they were given; empty where nothing has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskReport>,
    /// At most one for each slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<ProgramSaid>,
    /// Of map and reduce tasks: at most one for each slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<AttemptProgress>,
    /// Runs of this node, and replicas here that stand for runs of others, which lie on another one as well by now. Told until a poll that carried them is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated: Vec<ReplicatedRun>,
    /// The same of parts that later stages read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicated_parts: Vec<ReplicatedPart>,
    /// Runs on disks of this node that have failed, found before anybody asked for them. Told until a poll that carried them is answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostOnDisk>,
    /// Reduce attempts that end earlier than their tasks say from now on, as they were asked to. What is not told in time, or not
    /// heard, the attempt's result says again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<ShortenedAttempt>,
    /// Other nodes that could not be reached, or did not go on, lately; at most [`UNREACHED_MAX`], and each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<UnreachedNode>,
}

/// A node from which another one wanted something, and what that one met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnreachedNode {
    pub node: NodeId,
    pub how: Unreached,
}

/// What somebody met that could not reach a node; what says more about that node is greater.
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
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Silent => "no answer",
            Self::TimedOut => "connection timed out",
            Self::CutOff => "connection cut off",
            Self::Refused => "connection refused",
        }
    }
}

/// What of a job is lost with a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LostOnDisk {
    pub job: JobId,
    pub runs: Vec<RunId>,
    /// What was in them.
    pub chunks: Vec<ChunkId>,
    /// One sentence.
    pub why: String,
    /// Attempts, here and on other nodes, that have no need of some of these runs any more, because all that they read of them has been
    /// read from the disk: [`READS_TOLD_MAX`] runs in all at most.
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
    /// The first key that is not its own any more.
    pub upper_key: KeyBytes,
}

/// A part that later stages read, which lies on another node as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedPart {
    pub job: JobId,
    pub task: TaskIndex,
    /// Of its file: it tells the attempt that made it.
    pub name: String,
    pub to: NodeId,
    /// That were sent.
    pub bytes: u64,
    /// Since it was written: so long it lay on one node only.
    pub single_ns: u64,
    /// Of which it was on its way.
    pub sending_ns: u64,
}

/// A run of a node, or a replica there that stands for it, of which another node has a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicatedRun {
    pub job: JobId,
    pub run: RunId,
    /// What is in it.
    pub chunks: Vec<ChunkId>,
    pub to: NodeId,
    /// That were sent.
    pub bytes: u64,
    /// Since it was sorted, or since its node was asked to send it once more: so long it lay on one node only.
    pub single_ns: u64,
    /// Of which it was on its way.
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

/// How a machine was at a time. Bytes are counts since the sample before; busy shares are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSample {
    /// By the clock of the node, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Of all its processors together.
    pub cpu_permille: u32,
    pub memory_used_bytes: u64,
    /// Of its busiest disk.
    pub disk_busy_permille: u32,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Without what it sent to itself.
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
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
        }
    }
}

/// How far an attempt is, and what it has spent its time on since it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptProgress {
    pub attempt: AttemptKey,
    pub done_bytes: u64,
    /// 0: nobody knows.
    pub total_bytes: u64,
    /// Until its input, or the runs that it merges, gave it something.
    pub read_ns: u64,
    /// In the program, and all the rest.
    pub program_ns: u64,
    /// Until chunks had taken what it gave them.
    pub append_ns: u64,
    /// The node whose data it waited for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<NodeId>,
    /// The node whose chunks it waited for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_to: Option<NodeId>,
}

/// What the program of a one-task job has written since its node told last. A text that does not follow on what was
/// told before takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSaid {
    pub attempt: AttemptKey,
    pub standard_output: SaidText,
    pub standard_error: SaidText,
}

/// A piece of what a program writes to one of its outputs; bytes that are no UTF-8 are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaidText {
    /// At most [`crate::task::RUN_OUTPUT_BYTES_MAX`] bytes.
    pub text: String,
    /// Bytes of all that was written up to the end of this text.
    pub end_bytes: u64,
}
