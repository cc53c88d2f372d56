//! Artificial jobs for the unit tests of this crate.

use crate::JobResults;
use api::task::{ChunkSummary, KeyWeight, MapResult, Part, ReduceResult, RunSummary, SealResult};
use api::{Codec, DataSum, JobSpec, KeyBytes, Layout, Segment, SourceCommit, Split};
use ids::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) fn layout() -> Layout {
    let request =
        crate::layout::LayoutRequest { memory_bytes: 1 << 30, slots: 2, input_bytes: 0, combines: false };
    crate::layout::derive(&request).unwrap()
}

pub(crate) fn spec() -> JobSpec {
    JobSpec {
        output: PathBuf::from("/out"),
        codec: Codec::Lz4,
        memory_bytes: 1 << 30,
        slots: 2,
        disks: vec![PathBuf::from("/disk")],
        sync: true,
        layout: layout(),
        ..JobSpec::named("made up")
    }
}

pub(crate) fn split() -> Split {
    Split { segments: vec![Segment { file_index: 0, offset_bytes: 0, length_bytes: 10 }] }
}

/// Returns a sum of `records` records whose hashes are all 1.
pub(crate) fn sum(records: u64) -> DataSum {
    DataSum { records, bytes: 10 * records, hash_sum: u128::from(records) }
}

pub(crate) fn commit(ifile: u32, chunk: u64, sum: DataSum) -> SourceCommit {
    SourceCommit { ifile: IfileIndex(ifile), chunk: ChunkId(chunk), sum }
}

pub(crate) fn map_result(commits: &[SourceCommit]) -> MapResult {
    MapResult { commits: commits.to_vec(), input_records: 1, input_bytes: 10, ..MapResult::default() }
}

pub(crate) fn run(id: u64, ifile: u32, block_bytes_max: u64, record_bytes: u64) -> RunSummary {
    RunSummary {
        run: RunId(id),
        ifile: IfileIndex(ifile),
        chunks: vec![ChunkId(id)],
        records: 1,
        record_bytes,
        stored_bytes: 0,
        in_memory: true,
        disk: DiskIndex(0),
        block_bytes_max,
        weights: vec![KeyWeight { first_key: KeyBytes(b"a".to_vec()), bytes: record_bytes, records: 1 }],
    }
}

/// Seals the commits of the maps: one run per chunk, with correct accounts.
pub(crate) fn seal_of(results: &JobResults) -> SealResult {
    let mut chunks: BTreeMap<ChunkId, ChunkSummary> = BTreeMap::new();
    for (map_task, (attempt, result)) in &results.maps {
        for commit in &result.commits {
            let chunk = chunks.entry(commit.chunk).or_insert_with(|| ChunkSummary {
                chunk: commit.chunk,
                ifile: commit.ifile,
                generation: 0,
                disk: DiskIndex(0),
                capacity_bytes: 1 << 27,
                appended_bytes: 0,
                oversize: false,
                sources: Vec::new(),
            });
            chunk.appended_bytes += commit.sum.bytes;
            let attempt = results.attempt_in(*map_task, *attempt, commit.ifile);
            chunk.sources.push((Source { map_task: *map_task, attempt }, commit.sum));
        }
    }
    let chunks: Vec<ChunkSummary> = chunks.into_values().collect();
    let runs = chunks.iter().map(|chunk| run(chunk.chunk.0, chunk.ifile.0, 1 << 16, chunk.appended_bytes));
    SealResult { runs: runs.collect(), chunks, ..SealResult::default() }
}

pub(crate) fn reduce_result(part: u32, merged: &[(u32, DataSum)]) -> ReduceResult {
    ReduceResult {
        part: Part { name: format!("part-{part:05}"), ..Part::default() },
        merged: merged.iter().map(|(ifile, sum)| (IfileIndex(*ifile), *sum)).collect(),
        ..ReduceResult::default()
    }
}

/// Lets the planned reduce tasks merge all commits: the first task of an I-file gets everything.
pub(crate) fn finish_reduces(results: &mut JobResults) {
    let mut left: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
    for commit in results.maps.values().flat_map(|(_, result)| &result.commits) {
        left.entry(commit.ifile).or_default().add(&commit.sum);
    }
    for task in &results.plan {
        let merged: Vec<(u32, DataSum)> =
            task.ifiles.iter().filter_map(|ifile| left.remove(ifile).map(|sum| (ifile.0, sum))).collect();
        results.reduces.insert(TaskIndex(task.part_index), reduce_result(task.part_index, &merged));
    }
}
