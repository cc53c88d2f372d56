//! Jobs: their state, and the effects of attempts on it.

mod accounts;
mod attempts;
mod begin;
mod cancel;
mod ends;
mod jobs;
mod keeping;
mod log_room;
mod outcome;
pub(crate) mod range_cuts;
mod replicating;
mod result_validation;
mod spec_bytes;
mod stages;
mod state;

pub(crate) use attempts::without_weights;
pub(crate) use begin::{begin_job, progress, propose};
pub(crate) use cancel::{cancel, stop};
pub(crate) use ends::JobEnds;
pub(crate) use jobs::Jobs;
pub(crate) use keeping::{FoundWhile, Keeping};
pub use outcome::keep_from;
pub(crate) use outcome::{EXIT_CANCELLED, exit_code};
pub(crate) use replicating::Replicating;
pub use spec_bytes::{spec_bytes, task_bytes};
pub(crate) use state::Job;
