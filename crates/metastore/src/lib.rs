//! # What it does
//! The relational truth about jobs, tasks, attempts, data and proofs, about machines and permissions: one transaction
//! for a list of changes, typed reads, and read-only SQL for users.
//!
//! # Where it sits
//! server -> metastore -> a SQLite file in the state directory, shared by every process that uses it, or a PostgreSQL
//! database, led by one server at a time.
//!
//! # Invariants
//! Changes are atomic: one [`Metastore::apply`] is one transaction, durable when it returns. The history is only
//! appended to: every change that users may ask about leaves an event. Finished jobs slow nothing down: an index finds
//! the others, which a server reads at its start. Only this crate holds SQL against our state.
//!
//! # Deliberately absent
//! No decisions: it does not know which attempt may follow which. Key indexes of runs stay in their files. No tokens,
//! only their hashes.
//!
//! # How it is tested
//! `suite.rs` has the common suite, written against the store and not its back-end, and runs it on both; `open.rs`,
//! `console/tests.rs` and `tests/` test the specifics of one back-end.

mod apply;
mod batch;
mod console;
mod convert;
mod database;
mod error;
mod listing;
mod open;
mod read;
mod recover;
mod stored_spec;
#[cfg(test)]
mod suite;
mod tables;
mod transaction;
mod writer;

pub use api::history::{
    AttemptRow, AttemptState, Cell, EventRow, JobRow, JobState, KeptFiles, StageRow, Table,
};
pub use api::people::Role;
pub use console::{QueryError, QueryLimits, answer_question, query_read_only};
pub use error::StoreError;
pub use open::Metastore;
pub use rows::{
    AuditRow, CLUSTER_OWNER, Change, ChunkRow, DATA_KEYS_MAX, DataKeyRow, DiskRow, DiskState,
    IntermediateReplicaRow, Keep, NodeRow, NodeState, PartReplicaRow, PartRow, PlanTaskRow, ProofRow,
    Recovered, RecoveredJob, ReplicaRow, ReplicaState, RunRow, SampleRow, StepRow, TaskRow, TokenRow,
    UsageSums, UserRow, WaitingJobRow, WinningCommits,
};
pub use tables::files::{
    EndedPut, ExpiredName, FOREIGN_PUT_MAX, FileChange, FileFacts, FileQuestion, ForeignPuts, LastName,
    Numbered, Recorded, RetirePins, Retired,
};
pub use tables::finished_runs::{FinishedRunRow, RunKey};
pub use tables::groups::GroupRefusal;
