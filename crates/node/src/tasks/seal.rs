//! Seal attempts, which end the maps, and adopt attempts, which open the kept runs of an earlier job instead.

use crate::job_data::{AttemptData, JobData};
use crate::shared::Shared;
use crate::shuffle::replicate::waiting::wait_for_replicas;
use api::task::{AdoptResult, AdoptTask, SealResult, SealTask};
use api::{Replication, TaskFailure};
use std::time::Duration;

/// Divisor of the time since the job began here, for the wait of a seal for the last replicas in every job that
/// replicates: a loss is most expensive when reducers have just begun.
const SEAL_WAITS_PART: u32 = 50;
const SEAL_WAITS_MAX: Duration = Duration::from_secs(2);

pub(crate) fn seal(shared: &Shared, job: &AttemptData, task: &SealTask) -> Result<SealResult, TaskFailure> {
    let chunkserver = job.chunkserver()?;
    let sealed = chunkserver.seal(&task.standing).map_err(|error| error.to_failure())?;
    let for_the_last = (job.began.elapsed() / SEAL_WAITS_PART).min(SEAL_WAITS_MAX);
    let limit = if job.run.spec.replication == Replication::Sync { Duration::MAX } else { for_the_last };
    wait_for_replicas(shared, job, limit)?;
    Ok(sealed)
}

pub(crate) fn adopt(job: &JobData, task: &AdoptTask) -> Result<AdoptResult, TaskFailure> {
    job.chunkserver()?.adopt(task).map_err(|error| error.to_failure())
}
