//! Stages and their tasks.

use crate::proof::{Proof, prove};
use crate::report::job_report;
use crate::{JobResults, merge_tasks};
use api::task::{
    CommitTask, MapAgain, MapTask, Part, ReduceTask, RunPlace, RunSummary, SealResult, SealTask,
};
use api::{JobKind, JobSpec, KeyBytes, MapReduce, Partitioning, Task, TasksKind};
use ids::{ChunkId, IfileIndex, NodeId, Placement, RunId, StageKind, TaskIndex};
use keys::{PARTITIONS_MAX, ifile_of_partition, lower_bound_of_partition};
use std::collections::{BTreeMap, BTreeSet};
use workbuilder::{CutRequest, KeyBounds, RunWeights, TaskRange, cut, within};

const MIB: u64 = 1 << 20;
/// Target number of reduce tasks per slot, so that the last tasks wait little for each other.
const TASKS_PER_SLOT: u64 = 3;
const TARGET_BYTES_MIN: u64 = 16 * MIB;
/// Largest target: beyond one full chunk a task gains nothing by being larger, until retrievals get small.
const TARGET_BYTES_MAX: u64 = 128 * MIB;
/// Least bytes that a task should retrieve from each run it opens, so that reading stays sequential.
const RETRIEVAL_BYTES_MIN: u64 = MIB;
const RETRIEVAL_TARGET_BYTES_MAX: u64 = 1024 * MIB;
/// Maximum number of reduce tasks of a plan: a part number has five digits.
pub const REDUCE_TASKS_MAX: u32 = 50_000;
const _: () = assert!(PARTITIONS_MAX <= REDUCE_TASKS_MAX);
/// Maximum number of findings of the proof in a message.
const FINDINGS_SHOWN_MAX: usize = 4;

/// The reason why a stage has no tasks. Always the engine's fault, so never retried.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExpandError {
    #[error("there is no stage {stage} in this kind of job")]
    NoSuchStage { stage: StageKind },
    #[error("the stage {stage} has no result, but the stage after it begins")]
    NoResult { stage: StageKind },
    #[error("the reduce task {task} has no result, but the job is to be committed")]
    NoPart { task: TaskIndex },
    #[error("the job reduces I-files again, but has no source runs")]
    NothingToAdopt,
    #[error("{0} of the kept I-files is lost, and so is its replica")]
    KeptRunMissing(RunId),
    #[error("the proof failed, the output is not published: {}", findings_text(.0))]
    Proof(Box<Proof>),
}

fn findings_text(proof: &Proof) -> String {
    let shown: Vec<String> =
        proof.findings.iter().take(FINDINGS_SHOWN_MAX).map(|finding| finding.to_string()).collect();
    let mut text = shown.join("; ");
    if proof.findings.len() > FINDINGS_SHOWN_MAX {
        text.push_str(&format!("; and {} more findings", proof.findings.len() - FINDINGS_SHOWN_MAX));
    }
    text
}

/// Returns the stages of a job, in order.
pub fn stages(spec: &JobSpec) -> Vec<StageKind> {
    use StageKind::{Adopt, Commit, Map, Merge, Reduce, Run, Seal};
    match &spec.kind {
        JobKind::MapReduce(MapReduce::Shuffled { .. }) => vec![Map, Seal, Merge, Reduce, Commit],
        JobKind::MapReduce(MapReduce::MapOnly { .. }) => vec![Map, Commit],
        JobKind::MapReduce(MapReduce::ReduceAgain { .. }) => vec![Adopt, Merge, Reduce, Commit],
        JobKind::Tasks { kind: TasksKind::Program(_) } => vec![Run],
        // Each of its steps is a job.
        JobKind::Tasks { kind: TasksKind::Steps(_) } => Vec::new(),
    }
}

/// Returns the tasks of a stage, made from the results of earlier stages. Stores the reduce plan in `results`.
pub fn expand(stage: StageKind, spec: &JobSpec, results: &mut JobResults) -> Result<Vec<Task>, ExpandError> {
    let tasks = stage_tasks(stage, spec, results)?;
    Ok(tasks.into_iter().map(|task| results.placed_now(task)).collect())
}

fn stage_tasks(stage: StageKind, spec: &JobSpec, results: &mut JobResults) -> Result<Vec<Task>, ExpandError> {
    match stage {
        StageKind::Map => Ok(map_tasks(spec, results)),
        StageKind::Run => match spec.kind.program() {
            Some(task) => Ok(vec![Task::Run(Box::new(task.clone()))]),
            None => Err(ExpandError::NoSuchStage { stage }),
        },
        StageKind::Seal => Ok(seal_tasks(results)),
        StageKind::Adopt => {
            let adopts = results.adopt.clone().ok_or(ExpandError::NothingToAdopt)?;
            // The results of the tasks are added to this.
            results.seal = Some(SealResult::default());
            Ok(adopts.into_iter().map(Task::Adopt).collect())
        }
        StageKind::Merge => {
            if let Some(run) = results.kept_runs_missing().first() {
                return Err(ExpandError::KeptRunMissing(*run));
            }
            let seal = results.seal.as_ref().ok_or(ExpandError::NoResult { stage: StageKind::Seal })?;
            let tasks = merge_tasks(&seal.runs, &spec.layout, spec.partitioning, &results.leaving, |run| {
                results.replicas.home(run)
            });
            Ok(tasks.into_iter().map(Task::Merge).collect())
        }
        StageKind::Reduce => {
            results.plan_version.0 += 1;
            results.target_bytes = target_bytes(&results.surviving_runs(), spec);
            results.plan = match std::mem::take(&mut results.planned_before) {
                before if before.is_empty() => reduce_tasks(spec, results),
                before => planned_again(results, before),
            };
            Ok(results.plan.iter().cloned().map(Task::Reduce).collect())
        }
        StageKind::Commit => Ok(vec![Task::Commit(commit_task(spec, results)?)]),
    }
}

/// Returns a task for each node with data that a winner appended. Nothing else will be read.
fn seal_tasks(results: &mut JobResults) -> Vec<Task> {
    let commits = results.maps.values().flat_map(|(_, map)| &map.commits);
    let chunks: BTreeSet<ChunkId> = commits.map(|commit| commit.chunk).collect();
    let replicas = &results.replicas;
    let nodes: BTreeSet<NodeId> = chunks.iter().map(|chunk| replicas.chunk_home(*chunk)).collect();
    let seal = |node| Task::Seal(SealTask { node, standing: replicas.standing_on(node, &chunks) });
    let tasks = nodes.into_iter().map(seal).collect();
    // The results of the tasks are added to this.
    results.seal = Some(SealResult::default());
    tasks
}

/// Least share of the runs of an I-file that makes their node the best one to reduce it (numerator, denominator). With
/// replication `selective`, some runs of an I-file are always on another node.
const MOST_RUNS: (usize, usize) = (3, 4);

/// Returns the placement of a task. Chunks are sealed, and runs opened and merged, on their node, unless they move. A
/// reduce task runs best on the node that has all or most of its runs. Data is sent again from the node of its spool.
pub fn placement(task: &Task) -> Placement {
    let nodes = |runs: &[RunId], places: &[RunPlace]| -> BTreeSet<NodeId> {
        runs.iter().map(|run| run_home(*run, places)).collect()
    };
    match task {
        Task::Seal(seal) => Placement::On(seal.node),
        Task::Adopt(adopt) => Placement::On(adopt.node),
        Task::Merge(merge) if !merge.to.is_empty() => Placement::Near(merge.to.clone()),
        Task::Merge(merge) => {
            nodes(&merge.runs, &merge.places).first().map_or(Placement::Anywhere, |node| Placement::On(*node))
        }
        Task::Reduce(reduce) => match nodes(&reduce.runs, &reduce.places) {
            nodes if nodes.len() == 1 => Placement::Near(nodes.into_iter().collect()),
            // Tasks that read all I-files would all prefer the same node.
            _ if reduce.ifiles.len() == 1 => near_most(reduce),
            _ => Placement::Anywhere,
        },
        Task::Map(MapTask { again: Some(MapAgain { resend: Some(resend), .. }), .. }) => {
            Placement::Near(vec![resend.spool.node])
        }
        Task::Map(_) | Task::Commit(_) | Task::Run(_) => Placement::Anywhere,
    }
}

fn near_most(task: &ReduceTask) -> Placement {
    let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
    for run in &task.runs {
        *counts.entry(run_home(*run, &task.places)).or_default() += 1;
    }
    let (part, of) = MOST_RUNS;
    let most = counts.into_iter().find(|(_, count)| count * of >= task.runs.len() * part);
    most.map_or(Placement::Anywhere, |(node, _)| Placement::Near(vec![node]))
}

fn run_home(run: RunId, places: &[RunPlace]) -> NodeId {
    RunPlace::of(run, places).map_or(run.node(), |place| place.node)
}

fn map_tasks(spec: &JobSpec, results: &JobResults) -> Vec<Task> {
    let map_task = |(index, split): (usize, &api::Split)| {
        let part_index = (!spec.kind.has_shuffle()).then_some(index as u32);
        Task::Map(MapTask { split: split.clone(), part_index, again: None, places: Vec::new() })
    };
    results.splits.iter().enumerate().map(map_task).collect()
}

/// Returns the target bytes of a reduce task. They follow from the data and the slots, between 16 MiB and a chunk;
/// larger only if there are so many runs that a task would read less than 1 MiB of each.
fn target_bytes(runs: &[&RunSummary], spec: &JobSpec) -> u64 {
    let total_bytes: u64 = runs.iter().map(|run| run.record_bytes).sum();
    let by_slots = total_bytes / (u64::from(spec.slots.max(1)) * TASKS_PER_SLOT);
    // A hash task opens the runs of one I-file. A range task opens the runs of all, but its keys are mostly in those of
    // one.
    let ifiles = u64::from(spec.layout.ifile_count.max(1));
    let by_retrieval = (runs.len() as u64).div_ceil(ifiles) * RETRIEVAL_BYTES_MIN;
    by_slots.clamp(TARGET_BYTES_MIN, TARGET_BYTES_MAX).max(by_retrieval).min(RETRIEVAL_TARGET_BYTES_MAX)
}

fn reduce_tasks(spec: &JobSpec, results: &JobResults) -> Vec<ReduceTask> {
    if let Some(rule) = &spec.keys.partitions {
        return partition_tasks(rule.count, spec.layout.ifile_count, results);
    }
    let runs = results.surviving_runs();
    let weights = |run: &&RunSummary| -> (ids::RunId, ids::IfileIndex) { (run.run, run.ifile) };
    let request = CutRequest {
        runs: runs
            .iter()
            .filter(|run| run.records > 0)
            .map(|run| {
                let (run_id, ifile) = weights(run);
                RunWeights { run: run_id, ifile, weights: &run.weights }
            })
            .collect(),
        target_bytes: results.target_bytes,
        across_ifiles: spec.partitioning == Partitioning::Range,
        tasks_max: REDUCE_TASKS_MAX,
    };
    if request.runs.is_empty() {
        return Vec::new();
    }
    let (valid_attempts, older_attempts) = (results.valid_attempts(), results.older_attempts());
    let blocks: BTreeMap<RunId, u64> = runs.iter().map(|run| (run.run, run.block_bytes_max)).collect();
    let reduce_task = |(index, range): (usize, TaskRange)| ReduceTask {
        plan_version: results.plan_version,
        part_index: index as u32,
        ifiles: range.ifiles,
        largest_blocks_bytes: range.runs.iter().map(|run| blocks[run]).sum(),
        runs: range.runs,
        places: Vec::new(),
        lower_key: range.lower_key.map(KeyBytes),
        upper_key: range.upper_key.map(KeyBytes),
        valid_attempts: valid_attempts.clone(),
        older_attempts: older_attempts.clone(),
        expected_bytes: range.expected_bytes,
        audits_sources: false,
    };
    cut(&request).into_iter().enumerate().map(reduce_task).collect()
}

/// Returns the same parts over the current runs: finished tasks stay valid, so no range may change.
fn planned_again(results: &JobResults, before: Vec<ReduceTask>) -> Vec<ReduceTask> {
    let runs = results.surviving_runs();
    let (valid_attempts, older_attempts) = (results.valid_attempts(), results.older_attempts());
    let again = |task: ReduceTask| {
        let is_read = |run: &&&RunSummary| run.records > 0 && task.ifiles.contains(&run.ifile);
        let runs: Vec<&RunSummary> = runs.iter().filter(is_read).copied().collect();
        ReduceTask {
            plan_version: results.plan_version,
            runs: runs.iter().map(|run| run.run).collect(),
            largest_blocks_bytes: runs.iter().map(|run| run.block_bytes_max).sum(),
            valid_attempts: valid_attempts.clone(),
            older_attempts: older_attempts.clone(),
            ..task
        }
    };
    before.into_iter().map(again).collect()
}

/// Returns a task for each partition, even an empty one: a reducer runs over it too, as in Hadoop.
fn partition_tasks(count: u32, ifile_count: u32, results: &JobResults) -> Vec<ReduceTask> {
    let mut by_ifile: BTreeMap<IfileIndex, Vec<&RunSummary>> = BTreeMap::new();
    for run in results.surviving_runs().into_iter().filter(|run| run.records > 0) {
        by_ifile.entry(run.ifile).or_default().push(run);
    }
    let (valid_attempts, older_attempts) = (results.valid_attempts(), results.older_attempts());
    let partition_task = |partition: u32| {
        let ifile = ifile_of_partition(partition, count, ifile_count);
        let runs = by_ifile.get(&ifile).map_or(&[][..], Vec::as_slice);
        let bound = |partition| Some(KeyBytes(lower_bound_of_partition(partition).to_vec()));
        ReduceTask {
            plan_version: results.plan_version,
            part_index: partition,
            ifiles: vec![ifile],
            runs: runs.iter().map(|run| run.run).collect(),
            places: Vec::new(),
            lower_key: bound(partition),
            upper_key: bound(partition + 1),
            valid_attempts: valid_attempts.clone(),
            older_attempts: older_attempts.clone(),
            expected_bytes: partition_bytes(runs, partition),
            largest_blocks_bytes: runs.iter().map(|run| run.block_bytes_max).sum(),
            audits_sources: false,
        }
    };
    (0..count).map(partition_task).collect()
}

/// Estimates the bytes of a partition by the weights of the runs.
fn partition_bytes(runs: &[&RunSummary], partition: u32) -> u64 {
    let (lower, upper) = (lower_bound_of_partition(partition), lower_bound_of_partition(partition + 1));
    let range = KeyBounds { lower: Some(&lower), upper: Some(&upper) };
    let inside = runs.iter().flat_map(|run| within(&run.weights, range));
    inside.map(|weight| weight.bytes).sum()
}

/// Returns the tasks of the plan in the order of their parts: by I-file and key. Tasks that were added during the stage
/// are at the end of the plan, but their keys are between those of others.
pub(crate) fn part_order(spec: &JobSpec, results: &JobResults) -> Vec<TaskIndex> {
    let mut order: Vec<TaskIndex> = (0..results.plan.len() as u32).map(TaskIndex).collect();
    if spec.keys.partitions.is_none() {
        order.sort_by_key(|index| {
            let task = &results.plan[index.0 as usize];
            let ifile = (spec.partitioning != Partitioning::Range).then(|| task.ifiles.first());
            (ifile, task.lower_key.as_ref().map(|key| &key.0))
        });
    }
    order
}

/// Returns the parts of the reduce tasks, renumbered if tasks were added.
fn reduced_parts(spec: &JobSpec, results: &JobResults) -> Vec<Part> {
    let part = |index: TaskIndex| results.reduces.get(&index).map(|result| result.part.clone());
    let order = part_order(spec, results);
    let is_moved = order.iter().enumerate().any(|(place, index)| place as u32 != index.0);
    let parts = order.into_iter().filter_map(part);
    match is_moved {
        true => (0..)
            .zip(parts)
            .map(|(place, part)| Part { name: spec.formats.part_name(place), ..part })
            .collect(),
        false => parts.collect(),
    }
}

fn commit_task(spec: &JobSpec, results: &JobResults) -> Result<CommitTask, ExpandError> {
    let ifile_count = if spec.kind.has_shuffle() { spec.layout.ifile_count } else { 0 };
    let proof = prove(results, ifile_count);
    if !proof.agrees() {
        return Err(ExpandError::Proof(Box::new(proof)));
    }
    let planned = (0..results.plan.len() as u32).map(TaskIndex);
    if let Some(task) =
        planned.into_iter().find(|task| spec.kind.has_shuffle() && !results.reduces.contains_key(task))
    {
        return Err(ExpandError::NoPart { task });
    }
    let parts: Vec<Part> = match spec.kind.has_shuffle() {
        true => reduced_parts(spec, results),
        false => results.maps.values().filter_map(|(_, result)| result.part.clone()).collect(),
    };
    let parts = without_empty(spec, parts);
    let report = Box::new(job_report(spec, results, &proof, &parts));
    Ok(CommitTask { parts, report })
}

/// Returns the parts, without empty ones if the job omits them.
fn without_empty(spec: &JobSpec, parts: Vec<Part>) -> Vec<Part> {
    let lazy = spec.streaming.as_ref().is_some_and(|streaming| streaming.lazy_output);
    if !lazy && !spec.formats.omit_empty_parts {
        return parts;
    }
    let stays = parts.first().filter(|_| !lazy && parts.iter().all(|part| part.records == 0)).cloned();
    stays.into_iter().chain(parts.into_iter().filter(|part| part.records > 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::{ExpandError, expand, placement, stages, target_bytes};
    use crate::JobResults;
    use crate::test_job::{commit, finish_reduces, map_result, run, seal_of, spec, split, sum};
    use api::task::{RunSummary, SealTask};
    use api::{MapReduce, PartitionRule, Partitioning, Task};
    use ids::*;
    use ids::{Placement, StageKind};

    const MIB: u64 = 1 << 20;

    fn reduce_stage() -> (api::JobSpec, JobResults) {
        let spec = spec();
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        let first = map_result(&[commit(0, 0, sum(3)), commit(1, 1, sum(4))]);
        results.maps.insert(TaskIndex(0), (AttemptNumber(1), first));
        results.maps.insert(TaskIndex(1), (AttemptNumber(0), map_result(&[])));
        results.seal = Some(seal_of(&results));
        (spec, results)
    }

    #[test]
    fn a_job_goes_through_its_stages() {
        let (spec, mut results) = reduce_stage();
        assert_eq!(
            stages(&spec),
            [StageKind::Map, StageKind::Seal, StageKind::Merge, StageKind::Reduce, StageKind::Commit]
        );
        let maps = expand(StageKind::Map, &spec, &mut results).unwrap();
        assert!(matches!(&maps[..], [Task::Map(first), Task::Map(_)] if first.part_index.is_none()));
        let sealed = results.seal.take();
        let seals = expand(StageKind::Seal, &spec, &mut results).unwrap();
        assert_eq!(seals, [Task::Seal(SealTask { node: NodeId(0), standing: Vec::new() })]);
        assert_eq!(placement(&seals[0]), Placement::On(NodeId(0)));
        results.seal = sealed;
        assert_eq!(expand(StageKind::Merge, &spec, &mut results).unwrap(), []);
        let reduces = expand(StageKind::Reduce, &spec, &mut results).unwrap();
        assert!(!reduces.is_empty());
        let Task::Reduce(reduce) = &reduces[0] else { panic!("not a reduce task") };
        assert_eq!(reduce.valid_attempts, [(TaskIndex(0), AttemptNumber(1))]);
        finish_reduces(&mut results);
        let commit = expand(StageKind::Commit, &spec, &mut results).unwrap();
        let [Task::Commit(commit)] = &commit[..] else { panic!("one commit task") };
        assert_eq!(commit.parts.len(), reduces.len());
        assert!(commit.report.proof.agrees);
        assert_eq!((commit.report.proof.records, commit.report.job), (7, JobId(7)));
    }

    #[test]
    fn rerun_begins_with_the_kept_data_of_another() {
        let (mut spec, done) = reduce_stage();
        spec.kind = MapReduce::ReduceAgain { source: JobId(7) }.into();
        assert_eq!(stages(&spec), [StageKind::Adopt, StageKind::Merge, StageKind::Reduce, StageKind::Commit]);
        assert!(expand(StageKind::Adopt, &spec, &mut JobResults::default()).is_err());
        let seal = done.seal.unwrap();
        let adopt = api::task::AdoptTask {
            source: JobId(7),
            node: NodeId(0),
            dirs: Vec::new(),
            runs: Vec::new(),
            chunks: seal.chunks.clone(),
            copies: Vec::new(),
        };
        let commits = done.maps.into_iter().map(|(task, (number, map))| {
            (task, map.commits.into_iter().map(|commit| (number, commit)).collect())
        });
        let mut results = JobResults::reducing_again(JobId(8), vec![adopt.clone()], commits.collect());
        assert_eq!(expand(StageKind::Adopt, &spec, &mut results).unwrap(), [Task::Adopt(adopt)]);
        let adopted = api::task::AdoptResult { chunks: seal.chunks, runs: seal.runs, ..Default::default() };
        let task = TaskKey { job: JobId(8), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        results.record(attempt, api::TaskResult::Adopt(adopted));
        let reduces = expand(StageKind::Reduce, &spec, &mut results).unwrap();
        assert!(matches!(&reduces[..], [Task::Reduce(first), ..] if !first.valid_attempts.is_empty()));
        finish_reduces(&mut results);
        let commit = expand(StageKind::Commit, &spec, &mut results).unwrap();
        let [Task::Commit(commit)] = &commit[..] else { panic!("one commit task") };
        let report = &commit.report;
        assert_eq!((report.proof.records, report.map.tasks, report.reduce_again), (7, 0, Some(JobId(7))));
    }

    #[test]
    fn failed_proof_names_its_ifile_and_sums() {
        let (spec, mut results) = reduce_stage();
        expand(StageKind::Reduce, &spec, &mut results).unwrap();
        let error = expand(StageKind::Commit, &spec, &mut results).unwrap_err();
        let ExpandError::Proof(proof) = &error else { panic!("{error}") };
        assert_eq!(proof.findings.len(), 2);
        let text = error.to_string();
        assert!(text.contains("in ifile-0 the maps committed 3 records"), "{text}");
        assert!(text.contains("the reduce tasks merged 0 records"), "{text}");
    }

    #[test]
    fn no_data_makes_no_reduce_tasks() {
        let spec = spec();
        let mut results = JobResults::new(JobId(1), Vec::new());
        assert_eq!(expand(StageKind::Map, &spec, &mut results).unwrap(), []);
        assert_eq!(expand(StageKind::Seal, &spec, &mut results).unwrap(), []);
        assert_eq!(expand(StageKind::Reduce, &spec, &mut results).unwrap(), []);
        assert_eq!(expand(StageKind::Commit, &spec, &mut results).unwrap().len(), 1);
        assert!(expand(StageKind::Merge, &spec, &mut JobResults::default()).is_err());
        assert!(expand(StageKind::Run, &spec, &mut results).is_err());
    }

    #[test]
    fn every_partition_has_a_task() {
        let (mut spec, mut results) = reduce_stage();
        spec.partitioning = Partitioning::Partitions;
        spec.keys.partitions = Some(PartitionRule { count: 5, stretches: Vec::new() });
        let check = |results: &mut JobResults, expected: &[(u32, u8, usize)]| {
            let mut spec = spec.clone();
            spec.layout.ifile_count = 2;
            let tasks = expand(StageKind::Reduce, &spec, results).unwrap();
            let rows: Vec<(u32, u8, usize)> = tasks
                .iter()
                .map(|task| {
                    let Task::Reduce(task) = task else { panic!("not a reduce task") };
                    let (lower, upper) = (task.lower_key.clone().unwrap(), task.upper_key.clone().unwrap());
                    assert_eq!((lower.0.len(), upper.0[3]), (4, lower.0[3] + 1));
                    (task.ifiles[0].0, lower.0[3], task.runs.len())
                })
                .collect();
            assert_eq!(rows, expected);
        };
        check(&mut results, &[(0, 0, 1), (0, 1, 1), (0, 2, 1), (1, 3, 1), (1, 4, 1)]);
        // The same holds without any data.
        let mut empty = JobResults::new(JobId(1), Vec::new());
        check(&mut empty, &[(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 3, 0), (1, 4, 0)]);
    }

    #[test]
    fn a_map_only_job_numbers_its_parts() {
        let mut spec = spec();
        spec.kind = MapReduce::MapOnly { generate: None }.into();
        assert_eq!(stages(&spec), [StageKind::Map, StageKind::Commit]);
        let mut results = JobResults::new(JobId(1), vec![split(), split()]);
        let maps = expand(StageKind::Map, &spec, &mut results).unwrap();
        assert!(matches!(&maps[1], Task::Map(second) if second.part_index == Some(1)));
        let commit = expand(StageKind::Commit, &spec, &mut results).unwrap();
        assert!(matches!(&commit[..], [Task::Commit(commit)] if !commit.report.has_shuffle()));
    }

    #[test]
    fn the_target_follows_data_and_slots() {
        let check = |total_mib: u64, runs: u64, slots: u32, expected_mib: u64| {
            let mut spec = spec();
            spec.slots = slots;
            spec.layout.ifile_count = 1;
            let all: Vec<RunSummary> =
                (0..runs).map(|id| run(id, 0, 1 << 16, total_mib * MIB / runs)).collect();
            let target = target_bytes(&all.iter().collect::<Vec<_>>(), &spec);
            assert_eq!(target / MIB, expected_mib, "{total_mib} MiB in {runs} runs with {slots} slots");
        };
        check(10, 1, 2, 16);
        check(100, 1, 2, 16);
        check(600, 5, 2, 100);
        check(5000, 40, 2, 128);
        check(5000, 40, 32, 52);
        check(100_000, 800, 8, 800);
        check(1_000_000, 8000, 8, 1024);
    }
}
