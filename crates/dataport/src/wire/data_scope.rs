//! Owner of the data of a request.

use ids::JobId;
use std::fmt;

/// The beginning of the path of a request, below `/data/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataScope {
    Job(JobId),
    /// Intermediate files of users, which belong to no job.
    Users,
    /// Stored files, which belong to no job.
    Stored,
}

impl From<JobId> for DataScope {
    fn from(job: JobId) -> Self {
        Self::Job(job)
    }
}

impl fmt::Display for DataScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "jobs/{job}"),
            Self::Users => f.write_str("intermediate"),
            Self::Stored => f.write_str("stored"),
        }
    }
}
