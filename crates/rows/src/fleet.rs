//! Rows of machines: nodes, disks, samples, and the places of replicas. Times are nanoseconds since 1970.

use ids::{ChunkId, DiskIndex, NodeId, RunId, TaskIndex};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A machine that runs tasks, in its last registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub node: NodeId,
    /// Unique among nodes; a node that comes back under its name keeps its number.
    pub name: String,
    /// URL of its data port.
    pub url: String,
    pub rack: String,
    pub slots: u32,
    pub memory_bytes: u64,
    pub cpu_count: u32,
    /// In the compiler's spelling: `x86_64`, `aarch64`.
    pub arch: String,
    /// Amounts of its generic resources by name.
    pub resources: BTreeMap<String, u32>,
    /// Version of its program.
    pub version: String,
    pub state: NodeState,
    /// Counter of the registrations under this name.
    pub generation: u64,
    /// The process of the last registration.
    pub incarnation: String,
    /// SHA-256 of the secret that identifies this process; None for a registration before there were such secrets.
    pub secret_hash: Option<[u8; 32]>,
    /// The name of the token of its join; None: it needed none, or used the server's own.
    pub join_token: Option<String>,
    /// Directories that not every node sees.
    pub sees: Vec<PathBuf>,
    pub registered_ns: u64,
    pub last_seen_ns: u64,
}

/// The secret of a live node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSecretRow {
    pub node: NodeId,
    pub hash: [u8; 32],
    pub join_token: Option<String>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Up,
    /// Gets no new work; its data moves away.
    Draining,
    /// Holds no data that anybody needs.
    Drained,
    /// Has been silent for too long.
    Dead,
    /// Left by a graceful shutdown.
    Left,
}

/// A directory given to a node with `--disk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRow {
    pub disk: DiskIndex,
    pub path: PathBuf,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub state: DiskState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    Usable,
    Full,
    ReadOnly,
    Failed,
}

/// Load of a machine. Bytes are counts since the previous sample, busy shares are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    pub node: NodeId,
    pub time_ns: u64,
    pub cpu_permille: u32,
    pub memory_used_bytes: u64,
    pub disk_busy_permille: u32,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    pub network_received_bytes: u64,
    pub network_sent_bytes: u64,
    pub appended_bytes: u64,
}

/// A part of a stage of a flow, replicated to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartReplicaRow {
    pub task: TaskIndex,
    pub node: NodeId,
    /// Bytes of the file.
    pub bytes: u64,
    /// Nanoseconds for which the part was on one node only.
    pub single_ns: u64,
    /// Nanoseconds of these in which the replica was in transit.
    pub sending_ns: u64,
}

/// A run on another node than the one that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    pub run: RunId,
    pub node: NodeId,
    pub state: ReplicaState,
    /// Chunks in the run.
    pub chunks: Vec<ChunkId>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Nanoseconds from the sort of the run until it was on two nodes.
    pub single_ns: u64,
    /// Nanoseconds of these in which the replica was in transit.
    pub sending_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    Complete,
    /// It is read in place of a lost run.
    Promoted,
    Lost,
}

ids::words!(NodeState: Up = "up", Draining = "draining", Drained = "drained", Dead = "dead", Left = "left");
ids::words!(DiskState: Usable = "usable", Full = "full", ReadOnly = "read-only", Failed = "failed");
ids::words!(ReplicaState: Complete = "complete", Promoted = "standing", Lost = "lost");
