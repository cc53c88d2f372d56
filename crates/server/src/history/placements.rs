//! The stored reasons for the placement of attempts.

use api::placement::{JobPlacements, PlacedAttempt, PlacementReason};
use ids::{AttemptKey, JobId};
use metastore::{Metastore, StoreError};
use std::collections::BTreeMap;

/// Maximum number of sentences about lost data of a job.
const LOSSES_SHOWN_MAX: u32 = 100;
/// Maximum number of sentences about slow attempts of a job.
const SLOW_SHOWN_MAX: u32 = 100;

/// Returns the attempts of a job with the reasons for their placement; empty for an unknown job. A reason that cannot
/// be parsed is left out: another version wrote it.
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
