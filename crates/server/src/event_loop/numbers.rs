//! Numbers of jobs, reserved in the store ahead of use.

use control::Service;
use ids::JobId;
use metastore::{Metastore, StoreError};
use std::ops::Range;

/// Number of job numbers that are reserved at once, because each reservation is a separate transaction. Numbers left
/// when the server ends are never used.
const NUMBERS_AT_ONCE: u32 = 1_000;

/// Reserved numbers that are not used yet.
pub(crate) struct JobNumbers(Range<JobId>);

impl Default for JobNumbers {
    fn default() -> Self {
        Self(JobId(0)..JobId(0))
    }
}

impl JobNumbers {
    /// Returns the first of `count` consecutive numbers.
    pub async fn take(
        &mut self,
        store: &Metastore,
        service: Service,
        count: u32,
    ) -> Result<JobId, StoreError> {
        let range = &mut self.0;
        if range.end.0 - range.start.0 < i64::from(count) {
            // On one machine speed does not matter, and users like numbers without gaps.
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
