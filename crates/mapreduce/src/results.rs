//! What the stages of a job gave so far.

use api::task::{AdoptTask, MapResult, MergeResult, ReduceResult, ReduceTask, RunSummary, SealResult};
use api::{SourceCommit, Split, TaskResult};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, PlanVersion, RunId, StageIndex, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Everything the next stage may follow from. The server keeps one per running job.
#[derive(Clone, Debug, Default)]
pub struct JobResults {
    pub job: JobId,
    pub splits: Vec<Split>,
    /// The winning attempt of each map task and its result.
    pub maps: BTreeMap<TaskIndex, (AttemptNumber, MapResult)>,
    /// What an earlier job kept, in a job that reduces it again: a task for each node that has any of it.
    pub adopt: Option<Vec<AdoptTask>>,
    pub seal: Option<SealResult>,
    pub merges: BTreeMap<TaskIndex, MergeResult>,
    /// Of the last plan; 0 before there is one.
    pub plan_version: PlanVersion,
    /// The reduce tasks as planned, in part order.
    pub plan: Vec<ReduceTask>,
    /// What the plan aimed at; 0 before there is one.
    pub target_bytes: u64,
    pub reduces: BTreeMap<TaskIndex, ReduceResult>,
    /// Every ended attempt, winners or not.
    pub attempts: Vec<AttemptTime>,
    /// Nodes that leave, with those that take over their runs. For the next merges; the server knows it.
    pub leaving: BTreeMap<NodeId, Vec<NodeId>>,
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
        commits: BTreeMap<TaskIndex, (AttemptNumber, Vec<SourceCommit>)>,
    ) -> Self {
        let map =
            |(task, (attempt, commits))| (task, (attempt, MapResult { commits, ..MapResult::default() }));
        let maps = commits.into_iter().map(map).collect();
        Self { job, adopt: Some(adopt), maps, ..Self::default() }
    }

    /// Takes the result of the winner of a task.
    pub fn record(&mut self, attempt: AttemptKey, result: TaskResult) {
        let task = attempt.task.task;
        match result {
            TaskResult::Map(result) => drop(self.maps.insert(task, (attempt.attempt, result))),
            TaskResult::Seal(result) => self.add_seal(result),
            TaskResult::Adopt(result) => {
                let (chunks, runs) = (result.chunks, result.runs);
                self.add_seal(SealResult { chunks, runs, ..SealResult::default() });
            }
            TaskResult::Merge(result) => drop(self.merges.insert(task, result)),
            TaskResult::Reduce(result) => drop(self.reduces.insert(task, result)),
            TaskResult::Commit(_) | TaskResult::Run(_) => {}
        }
    }

    /// Each node seals its own chunks, and opens what it kept.
    fn add_seal(&mut self, more: SealResult) {
        let seal = self.seal.get_or_insert_default();
        seal.chunks.extend(more.chunks);
        seal.runs.extend(more.runs);
        seal.raw_spills += more.raw_spills;
        seal.raw_spill_bytes += more.raw_spill_bytes;
        seal.sort_seconds += more.sort_seconds;
        seal.write_seconds += more.write_seconds;
    }

    /// Whether anything that the next stages read lies on a node. `sealed`: the maps are over and their chunks are runs,
    /// which may have moved.
    pub fn needs(&self, node: NodeId, sealed: bool) -> bool {
        match sealed {
            true => self.surviving_runs().iter().any(|run| run.run.node() == node),
            false => self.maps.values().any(|(_, map)| has_chunk(map, |on| on == node)),
        }
    }

    /// The data of a node is gone: the map tasks that must run again, which are those whose winners had put any of it
    /// there, or on nodes that left before. What came after the maps is forgotten. Empty, and nothing forgotten,
    /// where nobody needs the node.
    pub fn lose_node(
        &mut self,
        node: NodeId,
        sealed: bool,
        has_left: impl Fn(NodeId) -> bool,
    ) -> Vec<TaskIndex> {
        if !self.needs(node, sealed) {
            return Vec::new();
        }
        let lost = |map: &MapResult| has_chunk(map, |on| on == node || has_left(on));
        let victims = self.maps.iter().filter(|(_, (_, map))| lost(map)).map(|(task, _)| *task);
        let victims: Vec<TaskIndex> = victims.collect();
        victims.iter().for_each(|task| drop(self.maps.remove(task)));
        self.seal = None;
        self.merges.clear();
        self.plan.clear();
        self.reduces.clear();
        victims
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

/// Whether a map task put anything on such a node.
fn has_chunk(map: &MapResult, is_meant: impl Fn(NodeId) -> bool) -> bool {
    map.commits.iter().any(|commit| is_meant(commit.chunk.node()))
}

#[cfg(test)]
mod tests {
    use crate::JobResults;
    use crate::test_job::{map_result, run, seal_of, sum};
    use api::task::{MergeResult, RunSummary, SealResult};
    use api::{SourceCommit, TaskResult};
    use ids::*;

    #[test]
    fn what_lay_on_a_lost_node_is_made_again() {
        let commit = |node, ifile| SourceCommit {
            ifile: IfileIndex(ifile),
            chunk: ChunkId::on(NodeId(node), ifile.into()),
            sum: sum(1),
        };
        let mut results = JobResults::default();
        for (task, node) in [(0, 1), (1, 2), (2, 2)] {
            let map = map_result(&[commit(node, 0), commit(1, 1)][..if task == 1 { 1 } else { 2 }]);
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map));
        }
        let task = TaskKey { job: JobId(1), stage: StageIndex(1), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        let seal = seal_of(&results);
        results.record(attempt, TaskResult::Seal(seal.clone()));
        results.record(attempt, TaskResult::Seal(seal));
        assert_eq!(results.surviving_runs().len(), 6);
        let nobody = |_| false;
        assert_eq!(results.lose_node(NodeId(3), false, nobody), []);
        assert!(results.seal.is_some());
        assert_eq!(results.lose_node(NodeId(1), false, nobody), [TaskIndex(0), TaskIndex(2)]);
        assert!(results.seal.is_none() && results.maps.len() == 1);
    }

    #[test]
    fn what_has_moved_is_lost_with_the_node_that_took_it() {
        let run_on = |node, number| {
            let moved = run(number, 0, 1 << 16, 100);
            RunSummary { run: RunId::on(NodeId(node), number), ..moved }
        };
        let mut results = JobResults::default();
        for node in [1, 2] {
            let chunk = ChunkId::on(NodeId(node), 0);
            let commit = SourceCommit { ifile: IfileIndex(0), chunk, sum: sum(1) };
            results.maps.insert(TaskIndex(node - 1), (AttemptNumber(0), map_result(&[commit])));
        }
        let seal = SealResult { runs: vec![run_on(1, 0), run_on(2, 0)], ..SealResult::default() };
        results.seal = Some(seal);
        let merge = MergeResult {
            replaced: vec![RunId::on(NodeId(1), 0)],
            run: run_on(3, 7),
            retrievals: 1,
            retrieved_bytes: 100,
        };
        results.merges.insert(TaskIndex(0), merge);
        assert!(!results.needs(NodeId(1), true) && results.needs(NodeId(3), true));
        assert!(results.needs(NodeId(1), false) && !results.needs(NodeId(3), false));
        // The node that was emptied goes, and takes nothing with it.
        assert_eq!(results.lose_node(NodeId(1), true, |_| false), []);
        let left = |node| node == NodeId(1);
        assert_eq!(results.lose_node(NodeId(3), true, left), [TaskIndex(0)]);
        assert!(results.merges.is_empty() && results.maps.contains_key(&TaskIndex(1)));
    }
}
