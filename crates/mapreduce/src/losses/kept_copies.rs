//! Replicas of kept data of an earlier job, in a job that reduces it again: each node opens its own files, and other
//! nodes their replicas of them. If a file cannot be opened, its replica is read from the beginning; if it is found
//! damaged later, the replica is read from there.

use crate::{JobResults, Replica};
use api::task::{AdoptResult, ChunkSummary, RunSummary, SealResult};
use ids::{ChunkId, NodeId, RunId, TaskIndex};
use std::collections::BTreeSet;

impl JobResults {
    /// Records the kept data that a node has opened.
    pub(crate) fn record_adopted(&mut self, task: TaskIndex, result: AdoptResult) {
        let node = self.adopt.iter().flatten().nth(task.0 as usize).map_or(NodeId(0), |adopt| adopt.node);
        let AdoptResult { chunks, runs, copies, missing, .. } = result;
        self.add_seal(SealResult { chunks, runs, ..SealResult::default() });
        self.kept_copies.missing.extend(missing);
        self.kept_copies.copies.extend(copies.into_iter().map(|copy| (copy.run.run, (node, copy))));
        self.use_kept_copies();
    }

    /// Returns the runs that no node could open, not even a replica.
    pub fn kept_runs_missing(&self) -> Vec<RunId> {
        let is_read = |run: &RunId| self.replicas.get(*run).is_some_and(|replica| replica.promoted);
        self.kept_copies.missing.iter().filter(|run| !is_read(run)).copied().collect()
    }

    /// Decides for each known run whether its file or its replica is read.
    fn use_kept_copies(&mut self) {
        let known = std::mem::take(&mut self.kept_copies);
        let seal = self.seal.get_or_insert_default();
        let opened: BTreeSet<RunId> = seal.runs.iter().map(|run| run.run).collect();
        let mut standing: Vec<(RunSummary, Vec<ChunkSummary>)> = Vec::new();
        for (run, (node, copy)) in &known.copies {
            let promoted = known.missing.contains(run);
            if self.replicas.get(*run).is_some() || (!promoted && !opened.contains(run)) {
                continue;
            }
            let chunks: Vec<ChunkId> = copy.run.chunks.clone();
            self.replicas.add(*run, Replica { node: *node, chunks, single_ns: 0, promoted, second: None });
            if promoted {
                standing.push((copy.run.clone(), copy.chunks.clone()));
            }
        }
        self.kept_copies = known;
        let Some(seal) = self.seal.as_mut().filter(|_| !standing.is_empty()) else { return };
        for (run, chunks) in standing {
            // A node that lacks the run has reported its chunks, but not their content.
            let told: BTreeSet<ChunkId> = chunks.iter().map(|chunk| chunk.chunk).collect();
            seal.chunks.retain(|chunk| !told.contains(&chunk.chunk));
            seal.chunks.extend(chunks);
            seal.runs.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::JobResults;
    use crate::test_job::{map_result, seal_of, split, sum};
    use api::task::{AdoptResult, AdoptTask, AdoptedCopy, SealResult};
    use api::{SourceCommit, TaskResult};
    use ids::*;

    /// Returns two runs of nodes 1 and 2, which both have a replica of the other's run.
    fn opened() -> (JobResults, SealResult) {
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        for task in 0..2 {
            let chunk = ChunkId::on(NodeId(task + 1), 0);
            let commit = SourceCommit { ifile: IfileIndex(0), chunk, sum: sum(3) };
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map_result(&[commit])));
        }
        let seal = seal_of(&results);
        let (dirs, runs, chunks, copies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let adopt = |node| AdoptTask {
            source: JobId(7),
            node: NodeId(node),
            dirs: dirs.clone(),
            runs: runs.clone(),
            chunks: chunks.clone(),
            copies: copies.clone(),
        };
        results.adopt = Some(vec![adopt(1), adopt(2)]);
        (results, seal)
    }

    /// Returns the answer of the node of a task: its own run or its loss, and whether it has the replica of the other
    /// run.
    fn told(seal: &SealResult, task: usize, is_missing: bool, has_copy: bool) -> AdoptResult {
        let other = 1 - task;
        let mut chunk = seal.chunks[task].clone();
        let (mut runs, mut missing) = (vec![seal.runs[task].clone()], Vec::new());
        if is_missing {
            chunk.sources.clear();
            missing = runs.drain(..).map(|run| run.run).collect();
        }
        let copy = AdoptedCopy { run: seal.runs[other].clone(), chunks: vec![seal.chunks[other].clone()] };
        let copies = if has_copy { vec![copy] } else { Vec::new() };
        AdoptResult { chunks: vec![chunk], runs, copies, missing, missing_because: None }
    }

    fn record(results: &mut JobResults, task: usize, result: AdoptResult) {
        let task = TaskKey { job: JobId(8), stage: StageIndex(0), task: TaskIndex(task as u32) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        results.record(attempt, TaskResult::Adopt(result));
    }

    #[test]
    fn missing_runs_are_read_at_their_replicas() {
        for order in [[0, 1], [1, 0]] {
            let (mut results, mut expected) = opened();
            order
                .into_iter()
                .for_each(|task| record(&mut results, task, told(&expected, task, task == 0, true)));
            let first = expected.runs[0].run;
            assert_eq!(results.replicas.home(first), NodeId(2), "{order:?}");
            assert!(
                results.replicas.is_on_two(expected.runs[1].run) && results.kept_runs_missing().is_empty()
            );
            let mut seal = results.seal.unwrap();
            seal.chunks.sort_by_key(|chunk| chunk.chunk);
            seal.runs.sort_by_key(|run| run.run);
            expected.chunks.sort_by_key(|chunk| chunk.chunk);
            expected.runs.sort_by_key(|run| run.run);
            assert_eq!((seal.chunks, seal.runs), (expected.chunks, expected.runs), "{order:?}");
        }
    }

    #[test]
    fn runs_missing_everywhere_are_named() {
        let (mut results, expected) = opened();
        record(&mut results, 0, told(&expected, 0, true, true));
        record(&mut results, 1, told(&expected, 1, false, false));
        assert_eq!(results.kept_runs_missing(), [expected.runs[0].run]);
    }
}
