//! # What it does
//! The relational truth of jobs, tasks, attempts, data and proofs, of machines and of who may do what: one transaction
//! for a list of changes, typed reads, and read-only SQL for people.
//!
//! # Where it sits
//! server -> metastore -> a SQLite file in the state directory, shared by every process that uses it, or a PostgreSQL
//! database, led by one server at a time.
//!
//! # Invariants
//! Changes go in whole: one [`Metastore::apply`], one transaction, durable when it returns. History is only
//! appended to: every change that people may ask about leaves an event. Jobs that are over slow nothing down: what a
//! server reads again is found by an index of the others. Only this crate holds SQL against our state.
//!
//! # Deliberately absent
//! No decisions: it does not know which attempt may follow which. Key indexes of runs stay in their files. No tokens,
//! only what they hash to.
//!
//! # How it is tested
//! `suite.rs` holds the one suite, written against the store and not its back-end, and runs it on both; `open.rs`,
//! `console/tests.rs` and `tests/` test what is particular to one of them.

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
    Recovered, RecoveredJob, ReplicaRow, ReplicaState, RunRow, SampleRow, TaskRow, TokenRow, UserRow,
    WaitingJobRow, WinningCommits,
};
