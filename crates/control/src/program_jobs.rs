//! Jobs of one task each: programs that run once. Some are steps of other jobs.

mod admission;
mod backlog;
pub mod steps;

pub use admission::Queued;
pub(crate) use admission::{Turn, admit, end_before_begin, window};
pub use backlog::{Backlog, FileHold, QueueKey, Seat, Waiting, WaitingSpec, Window};
