//! Slot threads, their counters, and the jobs that they work for.

pub(crate) mod job_keeper;
pub(crate) mod meters;
pub(crate) mod progress;
pub(crate) mod run_gate;
pub(crate) mod slot;
pub(crate) mod state;
