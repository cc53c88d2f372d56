//! The report of a job, from its results (`_report.json`).

use crate::expand::part_order;
use crate::proof::Proof;
use crate::{JobResults, stages};
use api::report::{
    InputReport, MapReport, PhaseReport, PlanRow, ProofReport, REPORT_VERSION, REPORT_WARNINGS_MAX,
    ReduceReport, ShuffleReport, StoredReport, UNREAD_TASKS_SHOWN_MAX, UnreadTask,
};
use api::task::{ChunkSummary, Part};
use api::{Function, JobReport, JobSpec, Partitioning};
use ids::{ChunkId, IfileIndex, StageKind, TaskIndex};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const NANOS_PER_SECOND: f64 = 1e9;

/// Returns the report before the output is published; it does not contain the commit itself.
pub(crate) fn job_report(spec: &JobSpec, results: &JobResults, proof: &Proof, parts: &[Part]) -> JobReport {
    let partitioning = match (spec.kind.has_shuffle(), spec.partitioning) {
        (false, _) => api::report::MAP_ONLY,
        (true, Partitioning::Hash) => "hash",
        (true, Partitioning::Range) => "range",
        (true, Partitioning::Partitions) => "partitions",
    };
    let total = proof.committed_total();
    let (waste_slot_seconds, idle_slot_seconds) = waste_and_idle(spec, results);
    let warnings = || results.maps.values().flat_map(|(_, map)| &map.warnings);
    JobReport {
        report_version: REPORT_VERSION,
        sailfish_version: env!("CARGO_PKG_VERSION").to_string(),
        job: results.job,
        name: spec.name.clone(),
        mapper: function_text(spec.mapper.as_ref(), "identity"),
        combiner: function_text(spec.combiner.as_ref(), "none"),
        reducer: function_text(spec.reducer.as_ref(), "none"),
        partitioning: partitioning.to_string(),
        memory_bytes: spec.memory_bytes,
        slots: spec.slots,
        synced: spec.sync,
        layout: spec.layout,
        formats: spec.formats.clone(),
        input: input_report(spec, results),
        map: map_report(spec, results),
        shuffle: shuffle_report(spec, results, proof),
        reduce: reduce_report(spec, results),
        phases: phases(spec, results),
        waste_slot_seconds,
        idle_slot_seconds,
        proof: ProofReport {
            agrees: proof.agrees(),
            ifiles: proof.ifiles.len() as u64,
            records: total.records,
            bytes: total.bytes,
            hash_sum: format!("{:032x}", total.hash_sum),
        },
        plan: plan_rows(spec, results),
        parts: parts.to_vec(),
        counters: results.counters(),
        warnings: warnings().take(REPORT_WARNINGS_MAX).cloned().collect(),
        warning_count: warnings().count() as u64,
        reduce_again: spec.kind.source(),
    }
}

fn function_text(function: Option<&Function>, none: &str) -> String {
    function.map_or_else(|| none.to_string(), Function::display)
}

fn input_report(spec: &JobSpec, results: &JobResults) -> InputReport {
    InputReport {
        files: spec.inputs.len() as u64,
        stored_bytes: spec.inputs.iter().map(|file| file.size_bytes).sum(),
        bytes: results.maps.values().map(|(_, map)| map.input_bytes).sum(),
        records: results.maps.values().map(|(_, map)| map.input_records).sum(),
        splits: results.splits.len() as u64,
    }
}

fn attempts_of(spec: &JobSpec, results: &JobResults, stage: StageKind) -> u64 {
    let index = stages(spec).iter().position(|name| *name == stage);
    results.attempts.iter().filter(|attempt| Some(usize::from(attempt.stage.0)) == index).count() as u64
}

fn map_report(spec: &JobSpec, results: &JobResults) -> MapReport {
    // The commits are from the maps of another job; no map ran in this one.
    if spec.kind.source().is_some() {
        return MapReport::default();
    }
    let maps = || results.maps.values().map(|(_, map)| map);
    MapReport {
        tasks: results.maps.len() as u64,
        attempts: attempts_of(spec, results, StageKind::Map),
        output_records: maps().map(|map| map.output_records).sum(),
        output_bytes: maps().map(|map| map.output_bytes).sum(),
        unread_bytes: maps().map(|map| map.unread_bytes).sum(),
        unread_tasks: maps().filter(|map| map.unread_bytes > 0).count() as u64,
        unread: unread_tasks(spec, results),
        stored: stored_report(results),
    }
}

fn stored_report(results: &JobResults) -> Option<StoredReport> {
    let mut report = StoredReport::default();
    for (_, map) in results.maps.values() {
        let (here_bytes, elsewhere_bytes) = (map.stored_here_bytes, map.stored_elsewhere_bytes);
        if (here_bytes, elsewhere_bytes) == (0, 0) {
            continue;
        }
        report.tasks += 1;
        report.near_tasks += u64::from(here_bytes >= elsewhere_bytes);
        report.here_bytes = report.here_bytes.saturating_add(here_bytes);
        report.elsewhere_bytes = report.elsewhere_bytes.saturating_add(elsewhere_bytes);
        report.passed_on_bytes = report.passed_on_bytes.saturating_add(map.stored_passed_on_bytes);
    }
    (report.tasks > 0).then_some(report)
}

fn unread_tasks(spec: &JobSpec, results: &JobResults) -> Vec<UnreadTask> {
    let input_of = |task: TaskIndex| {
        let segment = results.splits.get(task.0 as usize).and_then(|split| split.segments.first());
        let file = segment.and_then(|segment| spec.inputs.get(segment.file_index as usize));
        file.map(|file| file.path.display().to_string()).unwrap_or_default()
    };
    let unread = results.maps.iter().filter(|(_, (_, map))| map.unread_bytes > 0);
    let mut unread: Vec<_> = unread.map(|(task, (_, map))| (Reverse(map.unread_bytes), *task)).collect();
    unread.sort();
    unread.truncate(UNREAD_TASKS_SHOWN_MAX);
    let told = |(bytes, task): (Reverse<u64>, TaskIndex)| UnreadTask {
        task: task.0,
        input: input_of(task),
        unread_bytes: bytes.0,
    };
    unread.into_iter().map(told).collect()
}

fn shuffle_report(spec: &JobSpec, results: &JobResults, proof: &Proof) -> ShuffleReport {
    let Some(seal) = &results.seal else { return ShuffleReport::default() };
    let total = proof.committed_total();
    let runs = results.surviving_runs();
    let maps = || results.maps.values().map(|(_, map)| map);
    let (fill_percent_min, fill_percent_mean) = fill_percent(&seal.chunks);
    ShuffleReport {
        ifiles: u64::from(spec.layout.ifile_count),
        records: total.records,
        bytes: total.bytes,
        chunks: seal.chunks.len() as u64,
        chunks_optimum: chunks_optimum(&seal.chunks, spec.layout.chunk_bytes),
        oversize_chunks: seal.chunks.iter().filter(|chunk| chunk.oversize).count() as u64,
        fill_percent_min,
        fill_percent_mean,
        runs: runs.len() as u64,
        runs_in_memory: runs.iter().filter(|run| run.in_memory).count() as u64,
        run_stored_bytes: runs.iter().map(|run| run.stored_bytes).sum(),
        raw_spills: seal.raw_spills,
        raw_spill_bytes: seal.raw_spill_bytes,
        merged_runs: results.merges.len() as u64,
        sort_seconds: seal.sort_seconds,
        write_seconds: seal.write_seconds,
        spooled_bytes: maps().filter_map(|map| map.spool.as_ref()).map(|spool| spool.bytes).sum(),
        resent_bytes: maps().map(|map| map.resent_bytes).sum(),
    }
}

/// Returns the least number of chunks: a separate chunk for each oversize record, the rest packed without gaps.
fn chunks_optimum(chunks: &[ChunkSummary], chunk_bytes: u64) -> u64 {
    let mut bytes_of: BTreeMap<IfileIndex, u64> = BTreeMap::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.oversize) {
        *bytes_of.entry(chunk.ifile).or_default() += chunk.appended_bytes;
    }
    let packed: u64 = bytes_of.values().map(|bytes| bytes.div_ceil(chunk_bytes)).sum();
    packed + chunks.iter().filter(|chunk| chunk.oversize).count() as u64
}

/// Returns the lowest and the mean fill of the chunks that are not the last of their I-file; 100 if there are none.
/// Chunks are numbered in the order of opening, so the last one has the highest number.
fn fill_percent(chunks: &[ChunkSummary]) -> (f64, f64) {
    let mut last: BTreeMap<IfileIndex, ChunkId> = BTreeMap::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.oversize) {
        let highest = last.entry(chunk.ifile).or_insert(chunk.chunk);
        *highest = (*highest).max(chunk.chunk);
    }
    let counts = |chunk: &&ChunkSummary| !chunk.oversize && last.get(&chunk.ifile) != Some(&chunk.chunk);
    let fill =
        |chunk: &ChunkSummary| 100.0 * chunk.appended_bytes as f64 / chunk.capacity_bytes.max(1) as f64;
    let fills: Vec<f64> = chunks.iter().filter(counts).map(fill).collect();
    if fills.is_empty() {
        return (100.0, 100.0);
    }
    let mean = fills.iter().sum::<f64>() / fills.len() as f64;
    (fills.into_iter().fold(f64::INFINITY, f64::min), mean)
}

fn reduce_report(spec: &JobSpec, results: &JobResults) -> ReduceReport {
    if !spec.kind.has_shuffle() {
        return ReduceReport::default();
    }
    let reduces = || results.reduces.values();
    let retrievals: u64 = reduces().map(|reduce| reduce.retrievals).sum();
    let retrieved_bytes: u64 = reduces().map(|reduce| reduce.retrieved_bytes).sum();
    ReduceReport {
        tasks: results.plan.len() as u64,
        attempts: attempts_of(spec, results, StageKind::Reduce),
        plan_version: results.plan.iter().map(|task| task.plan_version.0).max().unwrap_or(1),
        target_bytes: results.target_bytes,
        groups: reduces().map(|reduce| reduce.groups).sum(),
        dropped_records: reduces().map(|reduce| reduce.dropped_records).sum(),
        unread_bytes: reduces().map(|reduce| reduce.unread_bytes).sum(),
        retrievals,
        retrieved_bytes,
        bytes_per_retrieval: if retrievals == 0 { 0.0 } else { retrieved_bytes as f64 / retrievals as f64 },
        fan_in_max: reduces().map(|reduce| reduce.fan_in).max().unwrap_or(0),
    }
}

/// Returns the stages that ran, without the commit, which is still to come.
fn phases(spec: &JobSpec, results: &JobResults) -> Vec<PhaseReport> {
    let mut phases = Vec::new();
    for (index, stage) in stages(spec).into_iter().enumerate().filter(|(_, kind)| *kind != StageKind::Commit)
    {
        let attempts = || results.attempts.iter().filter(|attempt| usize::from(attempt.stage.0) == index);
        let started_ns = attempts().map(|attempt| attempt.started_ns).min().unwrap_or(0);
        let ended_ns = attempts().map(|attempt| attempt.ended_ns).max().unwrap_or(0);
        phases.push(PhaseReport {
            stage,
            wall_seconds: seconds(started_ns, ended_ns),
            slot_seconds: attempts().map(|attempt| seconds(attempt.started_ns, attempt.ended_ns)).sum(),
            tasks: attempts().filter(|attempt| attempt.won).count() as u64,
        });
    }
    phases
}

/// Returns the slot seconds of attempts that did not win, and the idle slot seconds, from the first start to the last
/// end.
fn waste_and_idle(spec: &JobSpec, results: &JobResults) -> (f64, f64) {
    let attempts = &results.attempts;
    let started_ns = attempts.iter().map(|attempt| attempt.started_ns).min().unwrap_or(0);
    let ended_ns = attempts.iter().map(|attempt| attempt.ended_ns).max().unwrap_or(0);
    let busy: f64 = attempts.iter().map(|attempt| seconds(attempt.started_ns, attempt.ended_ns)).sum();
    let lost = attempts.iter().filter(|attempt| !attempt.won);
    let waste = lost.map(|attempt| seconds(attempt.started_ns, attempt.ended_ns)).sum();
    (waste, (f64::from(spec.slots) * seconds(started_ns, ended_ns) - busy).max(0.0))
}

/// Returns the seconds between two times; 0 if the clock was set back.
fn seconds(started_ns: u64, ended_ns: u64) -> f64 {
    ended_ns.saturating_sub(started_ns) as f64 / NANOS_PER_SECOND
}

/// Returns the rows in the order of the parts, under their final numbers.
fn plan_rows(spec: &JobSpec, results: &JobResults) -> Vec<PlanRow> {
    let merged_bytes = |task: ids::TaskIndex| {
        let result = results.reduces.get(&task);
        result.map_or(0, |result| result.merged.iter().map(|(_, sum)| sum.bytes).sum())
    };
    let row = |(part, index): (u32, ids::TaskIndex)| {
        let task = &results.plan[index.0 as usize];
        PlanRow {
            part,
            ifiles: task.ifiles.clone(),
            lower_key: task.lower_key.clone(),
            upper_key: task.upper_key.clone(),
            runs: task.runs.len() as u64,
            expected_bytes: task.expected_bytes,
            merged_bytes: merged_bytes(index),
        }
    };
    (0..).zip(part_order(spec, results)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{chunks_optimum, fill_percent, job_report, stored_report};
    use crate::proof::prove;
    use crate::test_job::{commit, map_result, seal_of, spec, sum};
    use crate::{AttemptTime, JobResults};
    use api::report::StoredReport;
    use api::task::ChunkSummary;
    use ids::*;

    fn chunk(id: u64, ifile: u32, appended_bytes: u64, oversize: bool) -> ChunkSummary {
        ChunkSummary {
            chunk: ChunkId(id),
            ifile: IfileIndex(ifile),
            generation: 0,
            disk: DiskIndex(0),
            capacity_bytes: 100,
            appended_bytes,
            oversize,
            sources: Vec::new(),
        }
    }

    #[test]
    fn fill_ignores_the_last_chunk_and_large_records() {
        assert_eq!(fill_percent(&[]), (100.0, 100.0));
        assert_eq!(fill_percent(&[chunk(0, 0, 3, false)]), (100.0, 100.0));
        let chunks = [
            chunk(0, 0, 99, false),
            chunk(1, 1, 97, false),
            chunk(2, 0, 100, true),
            chunk(3, 0, 5, false),
            chunk(4, 1, 6, false),
        ];
        assert_eq!(fill_percent(&chunks), (97.0, 98.0));
        assert_eq!(chunks_optimum(&chunks, 100), 2 + 2 + 1);
    }

    #[test]
    fn maps_near_their_data_are_counted() {
        let mut results = JobResults::new(JobId(1), Vec::new());
        assert_eq!(stored_report(&results), None);
        for (task, (here, elsewhere)) in [(100, 0), (50, 50), (1, 2), (0, 0)].into_iter().enumerate() {
            let mut map = map_result(&[]);
            (map.stored_here_bytes, map.stored_elsewhere_bytes) = (here, elsewhere);
            map.stored_passed_on_bytes = elsewhere / 2;
            results.maps.insert(TaskIndex(task as u32), (AttemptNumber(0), map));
        }
        let (here_bytes, elsewhere_bytes, passed_on_bytes) = (151, 52, 26);
        let expected = StoredReport { tasks: 3, near_tasks: 2, here_bytes, elsewhere_bytes, passed_on_bytes };
        assert_eq!(stored_report(&results), Some(expected));
    }

    #[test]
    fn times_come_from_all_attempts() {
        let mut results = JobResults::new(JobId(1), Vec::new());
        results.maps.insert(TaskIndex(0), (AttemptNumber(1), map_result(&[commit(0, 0, sum(1))])));
        results.seal = Some(seal_of(&results));
        let time = |stage, started: u64, ended: u64, won| AttemptTime {
            stage: StageIndex(stage),
            task: TaskIndex(0),
            started_ns: started * 1_000_000_000,
            ended_ns: ended * 1_000_000_000,
            won,
        };
        results.attempts = vec![time(0, 10, 12, false), time(0, 12, 15, true), time(1, 16, 17, true)];
        let spec = spec();
        let report = job_report(&spec, &results, &prove(&results, 4), &[]);
        assert_eq!((report.waste_slot_seconds, report.idle_slot_seconds), (2.0, 2.0 * 7.0 - 6.0));
        assert_eq!((report.phases[0].wall_seconds, report.phases[0].tasks), (5.0, 1));
        assert_eq!(report.map.attempts, 2);
        assert_eq!(report.phases.len(), 4);
    }
}
