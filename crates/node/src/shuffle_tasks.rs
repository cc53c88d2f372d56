//! Seal and merge attempts: the end of the maps, and extra merge passes.

use crate::Shared;
use crate::job_data::{AttemptData, JobData};
use crate::record_data::{OtherNodes, RunFailure};
use crate::reduce_task::with_lost_beside;
use api::task::{AdoptResult, AdoptTask, MergeResult, MergeTask, SealResult, SealTask};
use api::{Blame, Replication, TaskFailure};
use chunkserver::{ChunkServerError, MergeFailure, Run};
use dataport::AnyRun;
use ids::RunId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most bytes read ahead of a merge from one run: past this, longer reads gain nothing.
const READ_AHEAD_BYTES_MAX: u64 = 2 << 20;
/// How often is looked whether all runs have replicas, where a job waits for that.
const REPLICAS_LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long it waits while no run gets any.
const REPLICAS_STALLED_MAX: Duration = Duration::from_secs(30);
/// For the last runs a seal waits a moment in every job that replicates, at most this part of the time since the job began here: what
/// is lost when reducers have just begun costs most.
const SEAL_WAITS_PART: u32 = 50;
const SEAL_WAITS_MAX: Duration = Duration::from_secs(2);
/// The current block of a run, decompressed, and the bytes read ahead.
const BLOCKS_PER_RUN: u64 = 2;

pub(crate) fn seal(shared: &Shared, job: &AttemptData, task: &SealTask) -> Result<SealResult, TaskFailure> {
    let chunkserver = job.chunkserver()?;
    let sealed = chunkserver.seal(&task.standing).map_err(|error| error.to_failure())?;
    let for_the_last = (job.began.elapsed() / SEAL_WAITS_PART).min(SEAL_WAITS_MAX);
    let limit = if job.run.spec.replication == Replication::Sync { Duration::MAX } else { for_the_last };
    wait_for_replicas(shared, job, limit)?;
    Ok(sealed)
}

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

pub(crate) fn adopt(job: &JobData, task: &AdoptTask) -> Result<AdoptResult, TaskFailure> {
    job.chunkserver()?.adopt(task).map_err(|error| error.to_failure())
}

pub(crate) fn merge(
    shared: &Shared,
    job: &AttemptData,
    task: &MergeTask,
) -> Result<MergeResult, TaskFailure> {
    let chunkserver = job.chunkserver()?;
    let others = shared.other_nodes(job.job);
    let places = &task.places[..];
    let is_away = |run: &RunId| others.as_ref().is_some_and(|others| others.is_away(*run, places));
    let away_count = task.runs.iter().filter(|run| is_away(run)).count();
    let mut runs: Vec<Arc<Run>> = Vec::with_capacity(task.runs.len() - away_count);
    for id in task.runs.iter().filter(|run| !is_away(run)) {
        let run = chunkserver.run(*id);
        runs.push(run.ok_or_else(|| ChunkServerError::UnknownRun(*id).to_failure())?);
    }
    // How large their blocks are is not known here; few are larger than those of a whole chunk.
    let away_bytes = OtherNodes::need_bytes(away_count as u64 * job.run.spec.layout.block_bytes);
    let need = merge_need_bytes(job, &runs, away_bytes);
    let pass = job.gate.enter(need, &job.cancelled)?;
    let merged = match others {
        // Runs that move here are merged on their way.
        Some(others) if away_count > 0 => {
            let here_bytes = pass.bytes().saturating_sub(away_bytes);
            let read_ahead = read_ahead_bytes(job, &runs, here_bytes);
            let open = || others.open_range(job, (&task.runs, places), (None, None), &runs, read_ahead);
            let merged = chunkserver.merge_opened(task.ifile, &task.runs, open, AnyRun::report);
            merged.map_err(|failure| match failure {
                MergeFailure::Read(error) => error.to_task_failure(),
                MergeFailure::Write(error) => error.to_failure(),
            })
        }
        _ => {
            let read_ahead_bytes = read_ahead_bytes(job, &runs, pass.bytes());
            let merged = chunkserver.merge_runs(task.ifile, &task.runs, read_ahead_bytes);
            merged.map_err(|error| error.to_failure())
        }
    };
    merged.map_err(|failure| with_lost_beside(failure, &chunkserver))
}

fn disk_runs(runs: &[Arc<Run>]) -> impl Iterator<Item = &Arc<Run>> {
    runs.iter().filter(|run| !run.is_in_memory())
}

/// Returns the memory that an attempt asks of the share to merge these runs, and runs of other nodes that need `away_bytes`. It asks
/// for its minimum or, if that is little, for an even part of the share, so that reads are long and all slots can merge at once.
pub(crate) fn merge_need_bytes(job: &JobData, runs: &[Arc<Run>], away_bytes: u64) -> u64 {
    let layout = &job.run.spec.layout;
    let must: u64 = disk_runs(runs).map(|run| BLOCKS_PER_RUN * run.block_bytes_max()).sum();
    let even_part = layout.sort_share_bytes / u64::from(job.slots);
    let useful = disk_runs(runs).count() as u64 * (READ_AHEAD_BYTES_MAX + layout.block_bytes);
    even_need_bytes(must + away_bytes, useful + away_bytes, even_part)
}

fn even_need_bytes(must: u64, useful: u64, even_part: u64) -> u64 {
    must.max(even_part.min(useful))
}

/// How far each run is read ahead with `bytes` of memory for all.
pub(crate) fn read_ahead_bytes(job: &JobData, runs: &[Arc<Run>], bytes: u64) -> usize {
    let largest = disk_runs(runs).map(|run| run.block_bytes_max()).max();
    let block_bytes = job.run.spec.layout.block_bytes.min(largest.unwrap_or(u64::MAX));
    let each = bytes / (disk_runs(runs).count() as u64).max(1);
    each.saturating_sub(block_bytes).clamp(block_bytes, READ_AHEAD_BYTES_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::even_need_bytes;

    #[test]
    fn all_slots_can_merge_at_once_by_default() {
        let check = |must, useful, expected| assert_eq!(even_need_bytes(must, useful, 100), expected);
        check(10, 50, 50);
        // Whatever comes from other nodes is within the even part.
        check(10 + 30, 500 + 30, 100);
        check(120, 500, 120);
    }
}
