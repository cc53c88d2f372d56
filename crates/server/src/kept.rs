//! Kept data of jobs: read again by other jobs, checked, and removed.

mod checks;
mod cluster_gc;
mod fsck;
pub(crate) mod gc;
pub(crate) mod runs;

pub use fsck::check_here;
pub use gc::{Collected, GcOptions, GcOutcome, GcSelection, collect_garbage, kept_bytes};
pub use runs::{KeptSource, NotReducible, check_reducible, kept_source};
