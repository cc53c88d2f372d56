//! Results of the stages of a job so far.

mod copies;
mod replicas;

pub use copies::{KeptCopies, StageFiles};
pub use replicas::{FallenBack, Gone, Replica, Replicas};

use api::task::{
    AdoptTask, MapAgain, MapResult, MergeResult, ReduceResult, ReduceTask, RunSummary, SealResult,
};
use api::{SourceCommit, Split, TaskResult};
use ids::{AttemptKey, AttemptNumber, IfileIndex, JobId, NodeId, PlanVersion, RunId, StageIndex, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Everything the next stage may follow from. The server keeps one per running job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    pub job: JobId,
    pub splits: Vec<Split>,
    /// The winning attempt of each map task and its result; with what stands of attempts before it.
    pub maps: BTreeMap<TaskIndex, (AttemptNumber, MapResult)>,
    /// In these I-files an earlier attempt of a map task counts than the winning one.
    pub older: BTreeMap<TaskIndex, BTreeMap<IfileIndex, AttemptNumber>>,
    /// Map tasks that run again, with what stands of them.
    pub again: BTreeMap<TaskIndex, MapAgain>,
    /// Tasks that open the data kept by an earlier job, one for each node that has any; only in a job that reduces it
    /// again.
    pub adopt: Option<Vec<AdoptTask>>,
    /// Replicas of that data, as far as they are known.
    pub kept_copies: KeptCopies,
    pub seal: Option<SealResult>,
    pub merges: BTreeMap<TaskIndex, MergeResult>,
    /// Version of the last plan; 0 before there is one.
    pub plan_version: PlanVersion,
    /// The reduce tasks as planned, in part order.
    pub plan: Vec<ReduceTask>,
    /// Reduce tasks of the plan before, if data was lost since: the ranges of the next plan are the same.
    pub planned_before: Vec<ReduceTask>,
    /// Bytes per reduce task that the plan aimed at; 0 before there is one.
    pub target_bytes: u64,
    pub reduces: BTreeMap<TaskIndex, ReduceResult>,
    /// How often data was lost and made again.
    pub regenerations: u32,
    /// The runs are of use when the job is over.
    pub keeps_runs: bool,
    /// Every ended attempt, winners or not.
    pub attempts: Vec<AttemptTime>,
    /// Nodes that leave, with those that take over their runs. For the next merges; the server knows it.
    pub leaving: BTreeMap<NodeId, Vec<NodeId>>,
    /// Runs that lie on a second node.
    pub replicas: Replicas,
    /// Replicas of its parts, as far as they are known, if later stages read the parts.
    pub stage_files: StageFiles,
}

/// When an attempt ran, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTime {
    pub stage: StageIndex,
    pub task: TaskIndex,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    pub won: bool,
}

impl JobResults {
    /// The results of a job that has just been submitted.
    pub fn new(job: JobId, splits: Vec<Split>) -> Self {
        Self { job, splits, ..Self::default() }
    }

    /// The results of a job that reduces again what an earlier one kept: the commits of its winning map attempts
    /// stand for those of maps, so that the proof and the plan are made as ever.
    pub fn reducing_again(
        job: JobId,
        adopt: Vec<AdoptTask>,
        commits: BTreeMap<TaskIndex, Vec<(AttemptNumber, SourceCommit)>>,
    ) -> Self {
        let mut results = Self { job, adopt: Some(adopt), ..Self::default() };
        for (task, commits) in commits {
            let Some(latest) = commits.iter().map(|(attempt, _)| *attempt).max() else { continue };
            let earlier = commits.iter().filter(|(attempt, _)| *attempt != latest);
            let older: BTreeMap<IfileIndex, AttemptNumber> =
                earlier.map(|(attempt, commit)| (commit.ifile, *attempt)).collect();
            if !older.is_empty() {
                results.older.insert(task, older);
            }
            let commits = commits.into_iter().map(|(_, commit)| commit).collect();
            results.maps.insert(task, (latest, MapResult { commits, ..MapResult::default() }));
        }
        results
    }

    /// Takes the result of the winner of a task.
    pub fn record(&mut self, attempt: AttemptKey, result: TaskResult) {
        let task = attempt.task.task;
        match result {
            TaskResult::Map(result) => self.record_map(task, attempt.attempt, result),
            TaskResult::Seal(mut result) => {
                self.retain_committed(&mut result);
                self.add_seal(result);
            }
            TaskResult::Adopt(result) => self.record_adopted(task, result),
            TaskResult::Merge(result) => drop(self.merges.insert(task, result)),
            TaskResult::Reduce(result) => {
                self.part_is_new(task);
                self.reduces.insert(task, result);
            }
            TaskResult::Commit(_) | TaskResult::Run(_) => {}
        }
    }

    /// Each node seals its own chunks, and opens what it kept.
    pub(crate) fn add_seal(&mut self, more: SealResult) {
        let seal = self.seal.get_or_insert_default();
        seal.chunks.extend(more.chunks);
        seal.runs.extend(more.runs);
        seal.raw_spills += more.raw_spills;
        seal.raw_spill_bytes += more.raw_spill_bytes;
        seal.sort_seconds += more.sort_seconds;
        seal.write_seconds += more.write_seconds;
    }

    /// The runs to reduce: those of the seal that no merge replaced, and those the merges made.
    pub fn surviving_runs(&self) -> Vec<&RunSummary> {
        let replaced: BTreeSet<RunId> =
            self.merges.values().flat_map(|merge| merge.replaced.iter().copied()).collect();
        let sealed = self.seal.iter().flat_map(|seal| &seal.runs);
        let merged = self.merges.values().map(|merge| &merge.run);
        sealed.filter(|run| !replaced.contains(&run.run)).chain(merged).collect()
    }

    /// The winning attempt of each map task that put anything out, in map task order.
    pub fn valid_attempts(&self) -> Vec<(TaskIndex, AttemptNumber)> {
        let with_output = self.maps.iter().filter(|(_, (_, result))| !result.commits.is_empty());
        with_output.map(|(task, (attempt, _))| (*task, *attempt)).collect()
    }

    /// The counters of all winners, added up.
    pub fn counters(&self) -> BTreeMap<String, i64> {
        let of_maps = self.maps.values().flat_map(|(_, result)| &result.counters);
        let of_reduces = self.reduces.values().flat_map(|result| &result.counters);
        let mut counters = BTreeMap::new();
        for (name, value) in of_maps.chain(of_reduces) {
            let sum: &mut i64 = counters.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_add(*value);
        }
        counters
    }
}
