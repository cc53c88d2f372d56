//! Waits for replicas, for attempts that end only when runs lie on two nodes.

use crate::job_data::AttemptData;
use crate::shared::Shared;
use api::{Blame, TaskFailure};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often is looked whether all runs have replicas, where a job waits for that.
const REPLICAS_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long it waits while no run gets any.
const REPLICAS_STALLED_MAX: Duration = Duration::from_secs(30);
/// Waits, if runs of this node are replicated, until all lie on a second node. Stops if there is no second node, if nobody takes the
/// runs for [`REPLICAS_STALLED_MAX`], or after `limit`.
pub(crate) fn wait_for_replicas(
    shared: &Shared,
    job: &AttemptData,
    limit: Duration,
) -> Result<(), TaskFailure> {
    let began = Instant::now();
    let chunkserver = job.chunkserver()?;
    let has_second = || shared.other_nodes(job.job).is_some_and(|others| !others.replica_hosts.is_empty());
    let (mut left, mut since) = (usize::MAX, Instant::now());
    while job.is_replicating() && has_second() && began.elapsed() < limit {
        if job.cancelled.load(Ordering::Relaxed) {
            return Err(TaskFailure::new(Blame::Cancelled, "the attempt was cancelled"));
        }
        match chunkserver.uncopied_count() {
            0 => break,
            // Nobody takes them: the job goes on as if there were no second node.
            count if count == left && since.elapsed() > REPLICAS_STALLED_MAX => break,
            count if count != left => (left, since) = (count, Instant::now()),
            _ => {}
        }
        std::thread::sleep(REPLICAS_LOOK_EVERY);
    }
    Ok(())
}
