//! A reduce task that is cut while it runs: its unread end becomes a task of its own (design section 3, "Elastic").

use crate::JobResults;
use crate::expand::REDUCE_TASKS_MAX;
use api::task::ReduceTask;
use api::{JobSpec, KeyBytes, is_object_url};
use ids::TaskIndex;
use workbuilder::{TailCut, tail_cuts};

/// A tail with less than this is not worth a task.
const TAIL_BYTES_MIN: u64 = 64 << 10;

/// Whether reduce tasks of a job may be cut. Not where its user has set the partitions, for each is one part; nor where parts are objects,
/// which keep the names that they were begun with.
pub fn may_split(spec: &JobSpec) -> bool {
    let has_own_partitions = spec.keys.partitions.is_some() || spec.streaming.is_some();
    spec.elastic
        && !has_own_partitions
        && spec.single.is_none()
        && !spec.map_only
        && !is_object_url(&spec.output)
}

/// What became of a cut: the tasks as they are now.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    pub head: ReduceTask,
    pub tail: ReduceTask,
}

impl JobResults {
    /// Where a task of the plan may be cut, of which so much has been read: in order, the best first.
    pub fn split_keys(&self, task: TaskIndex, done_bytes: u64, keys_max: usize) -> Vec<KeyBytes> {
        let cuts = self.cuts(task, done_bytes, keys_max);
        let worth_it = cuts.into_iter().filter(|cut| cut.tail_bytes >= TAIL_BYTES_MIN);
        worth_it.map(|cut| KeyBytes(cut.key)).collect()
    }

    fn cuts(&self, task: TaskIndex, done_bytes: u64, cuts_max: usize) -> Vec<TailCut> {
        let Some(task) = self.plan.get(task.0 as usize) else { return Vec::new() };
        let runs = self.surviving_runs();
        let own = runs.iter().filter(|run| task.runs.contains(&run.run));
        let weights: Vec<_> = own.map(|run| run.weights.as_slice()).collect();
        let bound = |key: &Option<KeyBytes>| key.as_ref().map(|key| key.0.clone());
        let (lower, upper) = (bound(&task.lower_key), bound(&task.upper_key));
        tail_cuts(&weights, (lower.as_deref(), upper.as_deref()), done_bytes, cuts_max)
    }

    /// Cuts a task of the plan, which is not done, at a key: its attempt ends there. None where the key does not lie within its
    /// range, or there can be no more tasks.
    pub fn split(&mut self, task: TaskIndex, key: &KeyBytes) -> Option<Split> {
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
        Some(Split { head, tail })
    }

    fn tail_bytes(&self, task: TaskIndex, key: &KeyBytes) -> u64 {
        let Some(task) = self.plan.get(task.0 as usize) else { return 0 };
        let runs = self.surviving_runs();
        let own = runs.iter().filter(|run| task.runs.contains(&run.run));
        let of_run = |weights: &[api::task::KeyWeight]| -> u64 {
            let first = weights.partition_point(|weight| weight.first_key < *key);
            let is_before = |weight: &api::task::KeyWeight| {
                task.upper_key.as_ref().is_none_or(|upper| weight.first_key < *upper)
            };
            let end = weights.partition_point(is_before);
            weights.get(first..end).unwrap_or_default().iter().map(|weight| weight.bytes).sum()
        };
        own.map(|run| of_run(&run.weights)).sum()
    }
}
