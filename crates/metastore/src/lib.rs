//! # What it does
//! The relational truth of jobs, tasks, attempts, data and proofs: one transaction for a list of changes,
//! typed reads, and read-only SQL for people.
//!
//! # Where it sits
//! server -> metastore -> a SQLite file in the state directory, shared by every process that uses it.
//!
//! # Invariants
//! Changes go in whole: one [`Metastore::apply`], one transaction, durable when it returns. History is only
//! appended to: every change that people may ask about leaves an event. Only this crate holds SQL against
//! our state.
//!
//! # Deliberately absent
//! No decisions: it does not know which attempt may follow which. Key indexes of runs stay in their files.
//!
//! # How it is tested
//! `suite.rs` holds the one suite, written against the store and not its back-end; `console.rs` and `open.rs`
//! test what is particular to SQLite.

mod apply;
mod change;
mod console;
mod convert;
mod error;
mod intermediate;
mod kept;
mod open;
mod read;
#[cfg(test)]
mod suite;

pub use change::{AttemptState, Change, JobState, Keep, KeptFiles, ProofRow};
pub use console::{Cell, QueryError, QueryLimits, Table, query_read_only};
pub use error::StoreError;
pub use kept::WinningCommits;
pub use open::Metastore;
pub use read::{AttemptRow, ChunkRow, EventRow, JobRow, PartRow, PlanTaskRow, RunRow, StageRow, TaskRow};
