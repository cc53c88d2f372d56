//! # What it does
//! The relational truth of jobs, tasks, attempts, data and proofs.
//!
//! # Where it sits
//! server -> metastore -> a SQLite file in the state directory.
//!
//! # Invariants
//! Changes go in whole: one call, one transaction. Only this crate holds SQL against our state.
//!
//! # Deliberately absent
//! No decisions: it does not know which attempt may follow which.
//!
//! # How it is tested
//! `suite.rs` holds the one suite, written against the store and not its back-end.

mod error;

pub use error::StoreError;
