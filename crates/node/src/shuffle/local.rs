//! Local runs in a merge: the memory that they need, and the runs that are lost together.

use crate::job_data::JobData;
use api::TaskFailure;
use chunkserver::{ChunkServer, Run};
use std::sync::Arc;

/// Maximum bytes read ahead from one run: longer reads gain nothing.
const READ_AHEAD_BYTES_MAX: u64 = 2 << 20;
/// The current block of a run, decompressed, and the bytes read ahead.
const BLOCKS_PER_RUN: u64 = 2;

/// Adds all runs that are lost with a run of this node: a failed disk loses everything on it.
pub(crate) fn with_lost_beside(mut failure: TaskFailure, chunkserver: &ChunkServer) -> TaskFailure {
    if failure.lost_runs.iter().any(|run| chunkserver.run(*run).is_some()) {
        failure.lost_runs.extend(chunkserver.unreadable_runs());
        failure.lost_runs.sort_unstable();
        failure.lost_runs.dedup();
    }
    failure
}

fn disk_runs(runs: &[Arc<Run>]) -> impl Iterator<Item = &Arc<Run>> {
    runs.iter().filter(|run| !run.is_in_memory())
}

/// Returns the memory that an attempt requests from the share to merge these runs, and runs of other nodes that need
/// `away_bytes`. It is the minimum or, if that is little, an even part of the share, so that reads are long and all
/// slots can merge at once.
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

/// Returns the bytes to read ahead of each run, with `bytes` of memory for all.
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
        // Runs of other nodes are within the even part.
        check(10 + 30, 500 + 30, 100);
        check(120, 500, 120);
    }
}
