//! Jobs of one task each: programs, run once.

mod backlog;

pub use backlog::{Backlog, FileHold, QueueKey, Seat, Waiting, WaitingSpec, Window};
