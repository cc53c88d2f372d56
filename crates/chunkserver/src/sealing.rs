//! The end of the maps: every chunk is closed and sorted, and the inventory is reported.

use crate::ChunkServer;
use crate::chunk_table::ChunkTable;
use crate::error::ChunkServerError;
use crate::run::Run;
use api::task::{ChunkSummary, RunSummary, SealResult};
use api::{DataSum, Layout};
use ids::{ChunkId, NodeId, RunId, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl ChunkServer {
    /// Closes all open chunks, waits until everything is sorted, and lists chunks and runs. Repeated calls return the
    /// same list. No appender may be active.
    ///
    /// `standing` are promoted copies here, in place of runs of lost nodes: they are listed as well, with the sums of
    /// their chunks. A missing one is an error.
    pub fn seal(&self, standing: &[RunId]) -> Result<SealResult, Arc<ChunkServerError>> {
        let shared = &self.shared;
        shared.parked.clear();
        let mut table = shared.lock();
        table.begin_seal();
        shared.work.notify_all();
        loop {
            if let Some(failure) = &table.failure {
                return Err(Arc::clone(failure));
            }
            if shared.is_cancelled() {
                return Err(Arc::new(ChunkServerError::Cancelled));
            }
            if !table.has_stable_chunks() && table.busy_sorters == 0 {
                break;
            }
            let waited = shared.changed.wait_timeout(table, Duration::from_millis(100));
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let stand = stand(&table, standing, &shared.config.layout).map_err(Arc::new)?;
        table.standing.extend(standing);
        // Runs that moved here from a drained node are reported by the merge that moved them.
        let made_here = table.summaries.values().filter(|run| is_of(run, shared.config.node)).cloned();
        Ok(SealResult {
            chunks: table.chunk_summaries().into_iter().chain(stand.chunks).collect(),
            runs: made_here.chain(stand.runs).collect(),
            raw_spills: table.figures.raw_spills,
            raw_spill_bytes: table.figures.raw_spill_bytes,
            sort_seconds: table.figures.sort_seconds,
            write_seconds: table.figures.write_seconds,
            lost: table.lost.iter().copied().collect(),
            lost_because: table.lost_because.clone(),
        })
    }
}

/// Returns whether any chunk of a run was appended to on this node. If not, it consists of promoted copies, and is
/// recomputed.
fn is_of(run: &RunSummary, node: NodeId) -> bool {
    run.chunks.iter().any(|chunk| chunk.node() == node)
}

/// The chunks and runs of promoted copies.
struct Standing {
    chunks: Vec<ChunkSummary>,
    runs: Vec<RunSummary>,
}

fn stand(table: &ChunkTable, standing: &[RunId], layout: &Layout) -> Result<Standing, ChunkServerError> {
    let mut stand = Standing { chunks: Vec::new(), runs: Vec::with_capacity(standing.len()) };
    for id in standing.iter().collect::<BTreeSet<_>>() {
        let (run, summary) = table.copies.get(id).ok_or(ChunkServerError::UnknownRun(*id))?;
        stand.chunks.extend(chunks_of(run, summary, layout));
        stand.runs.push(summary.clone());
    }
    stand.chunks.sort_unstable_by_key(|chunk| chunk.chunk);
    Ok(stand)
}

/// Returns the chunks of a run that was made on another node. Its source table has the sums appended to each: a chunk
/// is completely in one run.
pub(crate) fn chunks_of(run: &Run, summary: &RunSummary, layout: &Layout) -> Vec<ChunkSummary> {
    let mut sums: BTreeMap<ChunkId, BTreeMap<Source, DataSum>> = BTreeMap::new();
    for row in &run.sources {
        sums.entry(row.chunk).or_default().entry(row.source).or_default().add(&row.sum);
    }
    let chunk = |(chunk, sources): (ChunkId, BTreeMap<Source, DataSum>)| {
        let appended_bytes = sources.values().map(|sum| sum.bytes).sum();
        ChunkSummary {
            chunk,
            ifile: run.ifile,
            generation: 0,
            disk: summary.disk,
            // A chunk exceeds the job's chunk size if it was opened for one larger record.
            capacity_bytes: layout.chunk_bytes.max(appended_bytes),
            appended_bytes,
            oversize: appended_bytes > layout.chunk_bytes,
            sources: sources.into_iter().collect(),
        }
    };
    sums.into_iter().map(chunk).collect()
}
