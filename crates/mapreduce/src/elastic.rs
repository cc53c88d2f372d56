//! Splitting of a running reduce task: its unread end becomes a separate task (`docs/internals/elastic.md`).

use crate::JobResults;
use crate::expand::REDUCE_TASKS_MAX;
use api::task::{ReduceTask, RunSummary};
use api::{JobSpec, KeyBytes, is_object_url};
use ids::{RunId, TaskIndex};
use std::collections::BTreeSet;
use workbuilder::{KeyBounds, TailCut, tail_cuts, within};

/// Least bytes of a tail that is worth a task.
const TAIL_BYTES_MIN: u64 = 64 << 10;
/// Number of tasks below the maximum at which no attempt is asked any more.
const TASKS_LEFT_FREE: u32 = 4096;

/// Returns whether reduce tasks of a job may be split. Not if its user has set the partitions, because each is one
/// part; nor if parts are objects, whose names are fixed when they are begun.
pub fn may_split(spec: &JobSpec) -> bool {
    let has_own_partitions = spec.keys.partitions.is_some() || spec.streaming.is_some();
    spec.elastic
        && !has_own_partitions
        && spec.kind.program().is_none()
        && spec.kind.has_shuffle()
        && !is_object_url(&spec.output)
}

/// Result of a split: the two tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeCut {
    pub head: ReduceTask,
    pub tail: ReduceTask,
}

impl JobResults {
    /// Returns keys at which a task of the plan may be split after `done_bytes` of it have been read, the best first.
    pub fn split_keys(&self, task: TaskIndex, done_bytes: u64, keys_max: usize) -> Vec<KeyBytes> {
        // An attempt cannot take back a tail: there must also be room for the tails of earlier requests.
        if self.plan.len() as u32 >= REDUCE_TASKS_MAX - TASKS_LEFT_FREE {
            return Vec::new();
        }
        let cuts = self.cuts(task, done_bytes, keys_max);
        let worth_it = cuts.into_iter().filter(|cut| cut.tail_bytes >= TAIL_BYTES_MIN);
        worth_it.map(|cut| KeyBytes(cut.key)).collect()
    }

    fn cuts(&self, task: TaskIndex, done_bytes: u64, cuts_max: usize) -> Vec<TailCut> {
        let Some(task) = self.plan.get(task.0 as usize) else { return Vec::new() };
        let runs = self.runs_of(task);
        let weights: Vec<_> = runs.iter().map(|run| run.weights.as_slice()).collect();
        let lower = task.lower_key.as_ref().map(|key| key.0.as_slice());
        let upper = task.upper_key.as_ref().map(|key| key.0.as_slice());
        tail_cuts(&weights, KeyBounds { lower, upper }, done_bytes, cuts_max)
    }

    /// Splits an unfinished task of the plan at a key: its attempt ends there. Returns None if the key is not within
    /// its range, or if the maximum number of tasks is reached.
    pub fn split(&mut self, task: TaskIndex, key: &KeyBytes) -> Option<RangeCut> {
        let added = self.plan.len() as u32;
        let is_done = self.reduces.contains_key(&task);
        let tail_bytes = self.tail_bytes(task, key);
        let planned = self.plan.get_mut(task.0 as usize)?;
        let is_inside = planned.lower_key.as_ref().is_none_or(|lower| key > lower)
            && planned.upper_key.as_ref().is_none_or(|upper| key < upper);
        if is_done || !is_inside || added >= REDUCE_TASKS_MAX {
            return None;
        }
        self.plan_version.0 += 1;
        planned.plan_version = self.plan_version;
        let tail_bytes = tail_bytes.min(planned.expected_bytes);
        planned.expected_bytes -= tail_bytes;
        let upper_key = planned.upper_key.replace(key.clone());
        let head = planned.clone();
        let tail = ReduceTask {
            part_index: added,
            lower_key: Some(key.clone()),
            upper_key,
            expected_bytes: tail_bytes,
            ..head.clone()
        };
        self.plan.push(tail.clone());
        Some(RangeCut { head, tail })
    }

    fn tail_bytes(&self, task: TaskIndex, key: &KeyBytes) -> u64 {
        let Some(task) = self.plan.get(task.0 as usize) else { return 0 };
        let runs = self.runs_of(task);
        let upper = task.upper_key.as_ref().map(|key| key.0.as_slice());
        let tail = KeyBounds { lower: Some(&key.0), upper };
        let inside = runs.iter().flat_map(|run| within(&run.weights, tail));
        inside.map(|weight| weight.bytes).sum()
    }

    fn runs_of(&self, task: &ReduceTask) -> Vec<&RunSummary> {
        let own: BTreeSet<RunId> = task.runs.iter().copied().collect();
        self.surviving_runs().into_iter().filter(|run| own.contains(&run.run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand;
    use crate::test_job::{commit, finish_reduces, map_result, seal_of, spec, split, sum};
    use api::task::KeyWeight;
    use api::{MapReduce, Partitioning, Task};
    use ids::StageKind;
    use ids::*;

    fn key(text: &str) -> KeyBytes {
        KeyBytes(text.as_bytes().to_vec())
    }

    /// Two I-files with a task each, of keys from a to h.
    fn planned() -> (JobSpec, JobResults) {
        let spec = spec();
        let mut results = JobResults::new(JobId(7), vec![split()]);
        let first = map_result(&[commit(0, 0, sum(3)), commit(1, 1, sum(4))]);
        results.maps.insert(TaskIndex(0), (AttemptNumber(0), first));
        let mut seal = seal_of(&results);
        for run in &mut seal.runs {
            let weight = |letter: &str| KeyWeight { first_key: key(letter), bytes: 100 << 10, records: 1 };
            run.weights = ["a", "b", "c", "d", "e", "f", "g", "h"].map(weight).to_vec();
        }
        results.seal = Some(seal);
        assert_eq!(expand(StageKind::Reduce, &spec, &mut results).unwrap().len(), 2);
        (spec, results)
    }

    #[test]
    fn range_is_cut_within_its_unread_part() {
        let (_, mut results) = planned();
        let first = TaskIndex(0);
        assert_eq!(results.split_keys(first, 0, 1), [key("e")]);
        assert_eq!(results.split_keys(first, 400 << 10, 9), [key("g"), key("h")]);
        assert_eq!(results.split_keys(first, 800 << 10, 9), []);
        let RangeCut { head, tail } = results.split(first, &key("e")).unwrap();
        assert_eq!((&head.lower_key, &head.upper_key, head.part_index), (&None, &Some(key("e")), 0));
        assert_eq!((&tail.lower_key, &tail.upper_key, tail.part_index), (&Some(key("e")), &None, 2));
        assert_eq!((head.expected_bytes, tail.expected_bytes), (400 << 10, 400 << 10));
        assert_eq!(
            (results.plan_version, head.plan_version, tail.plan_version.0),
            (PlanVersion(2), PlanVersion(2), 2)
        );
        assert_eq!(results.plan, [head, results.plan[1].clone(), tail]);
        // Keys outside of the range are refused.
        for outside in ["e", "f"] {
            assert_eq!(results.split(first, &key(outside)), None);
        }
        assert_eq!(results.split(TaskIndex(2), &key("e")), None);
        assert_eq!(results.split(TaskIndex(9), &key("b")), None);
        assert!(results.split(TaskIndex(2), &key("g")).is_some());
        // Finished tasks are not split either.
        finish_reduces(&mut results);
        assert_eq!(results.split(first, &key("b")), None);
    }

    #[test]
    fn parts_are_numbered_by_key_at_the_end() {
        let check = |partitioning: Partitioning, expected: &[&str]| {
            let (mut spec, mut results) = planned();
            spec.partitioning = partitioning;
            results.split(TaskIndex(0), &key("e")).unwrap();
            results.split(TaskIndex(2), &key("g")).unwrap();
            results.split(TaskIndex(0), &key("c")).unwrap();
            finish_reduces(&mut results);
            for (task, result) in &mut results.reduces {
                result.part.attempt_name = task.0.to_string();
            }
            let commit = expand(StageKind::Commit, &spec, &mut results).unwrap();
            let [Task::Commit(commit)] = &commit[..] else { panic!("one commit task") };
            let tasks: Vec<&str> = commit.parts.iter().map(|part| part.attempt_name.as_str()).collect();
            assert_eq!(tasks, expected);
            let names: Vec<&str> = commit.parts.iter().map(|part| part.name.as_str()).collect();
            assert_eq!(names, ["part-00000", "part-00001", "part-00002", "part-00003", "part-00004"]);
        };
        check(Partitioning::Hash, &["0", "4", "2", "3", "1"]);
    }

    #[test]
    fn ranges_are_cut_only_where_jobs_permit() {
        let check = |change: fn(&mut JobSpec), expected| {
            let mut spec = spec();
            change(&mut spec);
            assert_eq!(may_split(&spec), expected);
        };
        check(|_| {}, true);
        check(|spec| spec.elastic = false, false);
        check(|spec| spec.kind = MapReduce::MapOnly { generate: None }.into(), false);
        check(|spec| spec.output = "s3://bucket/out".into(), false);
        check(
            |spec| spec.keys.partitions = Some(api::PartitionRule { count: 2, stretches: Vec::new() }),
            false,
        );
    }
}
