//! Merge attempts: extra passes over runs.

use crate::job_data::AttemptData;
use crate::shared::Shared;
use crate::shuffle::local::{merge_need_bytes, read_ahead_bytes, with_lost_beside};
use crate::shuffle::remote::{OtherNodes, RunFailure, RunsToOpen};
use api::TaskFailure;
use api::task::{MergeResult, MergeTask};
use chunkserver::{ChunkServerError, KeyRange, MergeFailure, Run};
use dataport::AnyRun;
use ids::RunId;
use std::sync::Arc;

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
    // The size of their blocks is unknown here; few are larger than those of a whole chunk.
    let away_bytes = OtherNodes::need_bytes(away_count as u64 * job.run.spec.layout.block_bytes);
    let need = merge_need_bytes(job, &runs, away_bytes);
    let pass = job.gate.enter(need, &job.cancelled)?;
    let merged = match others {
        // Runs that move here are merged as they arrive.
        Some(others) if away_count > 0 => {
            let here_bytes = pass.bytes().saturating_sub(away_bytes);
            let read_ahead = read_ahead_bytes(job, &runs, here_bytes);
            let of = RunsToOpen { runs: &task.runs, places, keys: KeyRange::default() };
            let open = || others.open_range(job, of, &runs, read_ahead);
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
