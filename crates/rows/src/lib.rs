//! # What it does
//! Rows and changes of the store, as types: the deciding crates make them, and `metastore` writes and reads them.
//! # Where it sits
//! control -> rows -> metastore, by way of server.
//!
//! # Invariants
//! Plain values. Times are nanoseconds since 1970. A list of [`Change`]s is one transaction.
//!
//! # Deliberately absent
//! No SQL, no I/O, no decisions. Rows that users see over HTTP are in `api::history`.
//!
//! # How it is tested
//! By the suite of `metastore`, which writes every change to both databases and reads it back.

mod change;
mod files;
mod fleet;
mod intermediate_files;
mod jobs;
mod people;
mod recovered;
mod usage;

pub use change::{Change, Keep, ProofRow};
pub use files::{
    ClusterPutRow, ConcreteRow, FileCommitRow, FileDiskRow, FileGroups, FileItem, FileNameRow, FilePutRow,
    FileSpace, FoundNames, OwnedNameRow, PutFile, PutFileRow, RecordedPutFile, ReplicatedFile,
};
pub use fleet::{
    DiskRow, DiskState, NodeRow, NodeSecretRow, NodeState, PartReplicaRow, ReplicaRow, ReplicaState,
    SampleRow,
};
pub use intermediate_files::IntermediateReplicaRow;
pub use jobs::{CLUSTER_OWNER, ChunkRow, PartRow, PlanTaskRow, RunRow, TaskRow, TaskState, WinningCommits};
pub use people::{AuditRow, DATA_KEYS_MAX, DataKeyRow, TokenRow, UserGroupRow, UserRow};
pub use recovered::{Recovered, RecoveredJob, StepRow, WaitingJobRow};
pub use usage::{UsageSums, day_of};
