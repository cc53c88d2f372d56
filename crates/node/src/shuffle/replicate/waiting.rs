//! Waits for replicas, for attempts that end only when runs are on two nodes.

use crate::job_data::AttemptData;
use crate::shared::Shared;
use api::{Blame, TaskFailure};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval between two checks whether all runs have replicas.
const REPLICAS_LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait while no run gets a replica.
const REPLICAS_STALLED_MAX: Duration = Duration::from_secs(30);
/// Waits, if runs of this node are replicated, until all are on a second node. Stops if there is no second node, if no
/// node accepts the runs for [`REPLICAS_STALLED_MAX`], or after `limit`.
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
            // No node accepts them: the job goes on as if there were no second node.
            count if count == left && since.elapsed() > REPLICAS_STALLED_MAX => break,
            count if count != left => (left, since) = (count, Instant::now()),
            _ => {}
        }
        std::thread::sleep(REPLICAS_LOOK_EVERY);
    }
    Ok(())
}
