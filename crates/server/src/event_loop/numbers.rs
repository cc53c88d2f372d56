//! Numbers of jobs, taken from the store ahead of use.

use control::Service;
use ids::JobId;
use metastore::{Metastore, StoreError};
use std::ops::Range;

/// Numbers of jobs that are taken at once: each taking is a transaction of its own. Those that are left when the server ends are
/// never used.
const NUMBERS_AT_ONCE: u32 = 1_000;

/// Numbers that are taken and not used yet.
pub(crate) struct JobNumbers(Range<JobId>);

impl Default for JobNumbers {
    fn default() -> Self {
        Self(JobId(0)..JobId(0))
    }
}

impl JobNumbers {
    /// The first of so many numbers that follow each other.
    pub async fn take(
        &mut self,
        store: &Metastore,
        service: Service,
        count: u32,
    ) -> Result<JobId, StoreError> {
        let range = &mut self.0;
        if range.end.0 - range.start.0 < i64::from(count) {
            // On one machine nobody is in a hurry, and people like their jobs numbered without gaps.
            let at_once = match service {
                Service::Embedded => count,
                Service::Cluster => count.max(NUMBERS_AT_ONCE),
            };
            *range = store.reserve_job_ids(at_once).await?;
        }
        let first = range.start;
        range.start.0 += i64::from(count);
        Ok(first)
    }
}
