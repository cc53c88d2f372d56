//! Jobs of one task each: programs that run once.

mod admission;
mod backlog;

pub use admission::Queued;
pub(crate) use admission::{Turn, admit, end_before_begin, window};
pub use backlog::{Backlog, FileHold, QueueKey, Seat, Waiting, WaitingSpec, Window};
