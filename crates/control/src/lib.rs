//! # What it does
//! The decisions of a server between a message and what follows from it, as far as they have moved here: whether a node lives, which
//! jobs of one task the scheduler gets next, how many jobs a user may have, which logs are kept.
//!
//! # Where it sits
//! messages and the time, by way of `server` -> control -> answers to `server`, which writes rows and speaks to nodes.
//!
//! # Invariants
//! Pure: no clock, no I/O, no randomness. Each module owns its state; nobody else writes it. The time comes in as a parameter.
//!
//! # Deliberately absent
//! The event loop, the transaction and the store are of `server`. Which attempt runs where is for `scheduler`.
//!
//! # How it is tested
//! Each module by itself, the backlog by a property test against its promises. Black-box tests of `server` meet all of them.

pub mod log_room;
pub mod membership;
pub mod program_jobs;
pub mod users;

mod moment;

pub use moment::Moment;
