//! Results of the stages of a job so far.

mod known_copies;
mod replicas;

pub use known_copies::{KeptCopies, PartReplicas};
pub use replicas::{FallenBack, LostData, Replica, Replicas};

use api::task::{
    AdoptTask, MapAgain, MapResult, MergeResult, ReduceResult, ReduceTask, RunSummary, SealResult,
};
use api::{SourceCommit, Split, TaskResult};
use ids::{AttemptKey, AttemptNumber, IfileIndex, JobId, NodeId, PlanVersion, RunId, StageIndex, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// All results that determine the next stage. The server keeps one per running job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    pub job: JobId,
    pub splits: Vec<Split>,
    /// The winning attempt of each map task and its result, with valid data of earlier attempts.
    pub maps: BTreeMap<TaskIndex, (AttemptNumber, MapResult)>,
    /// I-files of map tasks in which an earlier attempt than the winning one counts.
    pub older: BTreeMap<TaskIndex, BTreeMap<IfileIndex, AttemptNumber>>,
    /// Map tasks that run again, with their valid data.
    pub again: BTreeMap<TaskIndex, MapAgain>,
    /// Tasks that open the kept data of an earlier job, one for each node that has any; only in a job that reduces it
    /// again.
    pub adopt: Option<Vec<AdoptTask>>,
    /// Known replicas of that data.
    pub kept_copies: KeptCopies,
    pub seal: Option<SealResult>,
    pub merges: BTreeMap<TaskIndex, MergeResult>,
    /// Version of the last plan; 0 before there is one.
    pub plan_version: PlanVersion,
    /// The reduce tasks as planned, in part order.
    pub plan: Vec<ReduceTask>,
    /// Reduce tasks of the previous plan, if data was lost since: the ranges of the next plan are the same.
    pub planned_before: Vec<ReduceTask>,
    /// Target bytes per reduce task of the plan; 0 before there is a plan.
    pub target_bytes: u64,
    pub reduces: BTreeMap<TaskIndex, ReduceResult>,
    /// Number of times that lost data was recomputed.
    pub regenerations: u32,
    /// True if the runs are kept after the job.
    pub keeps_runs: bool,
    /// All ended attempts, winners or not.
    pub attempts: Vec<AttemptTime>,
    /// Nodes that are being drained, with the nodes that can take over their runs. The server sets it for the next
    /// merges.
    pub leaving: BTreeMap<NodeId, Vec<NodeId>>,
    /// Replicas of runs.
    pub replicas: Replicas,
    /// Known replicas of its parts, if later stages read the parts.
    pub stage_files: PartReplicas,
}

/// The time of an attempt, for the report.
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
    /// Creates the results of a job that has just been submitted.
    pub fn new(job: JobId, splits: Vec<Split>) -> Self {
        Self { job, splits, ..Self::default() }
    }

    /// Creates the results of a job that reduces the kept I-files of an earlier one: the commits of its winning map
    /// attempts replace maps, so that the proof and the plan are made as usual.
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

    /// Records the result of the winner of a task.
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

    /// Adds the seal of a node, or the kept data that a node opened.
    pub(crate) fn add_seal(&mut self, more: SealResult) {
        let seal = self.seal.get_or_insert_default();
        seal.chunks.extend(more.chunks);
        seal.runs.extend(more.runs);
        seal.raw_spills += more.raw_spills;
        seal.raw_spill_bytes += more.raw_spill_bytes;
        seal.sort_seconds += more.sort_seconds;
        seal.write_seconds += more.write_seconds;
    }

    /// Returns the runs to reduce: runs of the seal that no merge replaced, and merged runs.
    pub fn surviving_runs(&self) -> Vec<&RunSummary> {
        let replaced: BTreeSet<RunId> =
            self.merges.values().flat_map(|merge| merge.replaced.iter().copied()).collect();
        let sealed = self.seal.iter().flat_map(|seal| &seal.runs);
        let merged = self.merges.values().map(|merge| &merge.run);
        sealed.filter(|run| !replaced.contains(&run.run)).chain(merged).collect()
    }

    /// Returns the winning attempt of each map task that emitted anything, in map task order.
    pub fn valid_attempts(&self) -> Vec<(TaskIndex, AttemptNumber)> {
        let with_output = self.maps.iter().filter(|(_, (_, result))| !result.commits.is_empty());
        with_output.map(|(task, (attempt, _))| (*task, *attempt)).collect()
    }

    /// Returns the sums of the counters of all winners.
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
