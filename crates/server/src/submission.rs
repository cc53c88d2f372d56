//! Submission of stages, flows, single programs and jobs with steps, with their shipped files.

pub(crate) mod arguments;
pub(crate) mod job_steps;
mod jobs;
pub(crate) mod program_jobs;
pub(crate) mod shipping;
mod steps;

pub use program_jobs::job_logs;
pub use shipping::ShippedOptions;
