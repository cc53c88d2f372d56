//! Reasons for the places of attempts, as the store has them.

use api::placement::{JobPlacements, PlacedAttempt, PlacementReason};
use ids::{AttemptKey, JobId};
use metastore::{Metastore, StoreError};
use std::collections::BTreeMap;

/// Sentences about lost data that are shown of a job.
const LOSSES_SHOWN_MAX: u32 = 100;
/// And about slow attempts.
const SLOW_SHOWN_MAX: u32 = 100;

/// The attempts of a job and why each ran where it did; empty for a job that is not there. A reason that cannot be
/// read is none: another version wrote it.
pub async fn job_placements(store: &Metastore, job: JobId) -> Result<JobPlacements, StoreError> {
    let stages = store.stages(job).await?.into_iter().map(|stage| stage.kind).collect();
    let reasons = store.placements(job).await?.into_iter();
    let mut reasons: BTreeMap<AttemptKey, PlacementReason> =
        reasons.filter_map(|(attempt, text)| Some((attempt, serde_json::from_str(&text).ok()?))).collect();
    let attempts = store.attempts(job).await?.into_iter().map(|row| PlacedAttempt {
        attempt: row.attempt,
        node: row.node,
        slot: row.slot,
        state: row.state,
        reason: reasons.remove(&row.attempt),
    });
    let losses = store.losses(job, LOSSES_SHOWN_MAX).await?;
    let slow = store.slow_attempts(job, SLOW_SHOWN_MAX).await?;
    Ok(JobPlacements { stages, attempts: attempts.collect(), losses, slow, waits_for: None })
}
