//! Submission of stages, flows, and single programs, with their shipped files.

pub(crate) mod arguments;
mod jobs;
pub(crate) mod program_jobs;
pub(crate) mod shipping;

pub use program_jobs::job_logs;
pub use shipping::ShippedOptions;
