//! Submission of stages, flows, and single programs, with their shipped files.

pub(crate) mod arguments;
mod jobs;
pub(crate) mod shipping;
pub(crate) mod singles;

pub use shipping::ShippedOptions;
pub use singles::job_logs;
