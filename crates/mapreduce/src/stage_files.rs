//! Parts that later stages of a flow read: intermediate files on the disks of nodes (intermediate storage system, ISS,
//! section 4; `docs/internals/flows.md`).
//!
//! A part is on the node that made it and, if replicated, on a second one. If both are lost and a stage has yet to read
//! the part, its task runs again, with as much earlier work as this needs. The recomputed bytes must be the same,
//! because other tasks may have read some of them already.

use crate::layout::{self, LayoutError, LayoutRequest};
use crate::{JobResults, expand::part_order, splits};
use api::machine::ReplicatedPart;
use api::orphaned::LeftPart;
use api::task::Part;
use api::{InputFile, JobSpec, LostInput, Split, StageFile, StageFilePlace};
use ids::{NodeId, RunId, TaskIndex};
use std::collections::BTreeSet;

/// Maximum number of replicas of parts that are reported before the ends of their attempts: a poll or two earlier.
const EARLY_REPLICAS_MAX: usize = 4096;

impl JobResults {
    /// Returns the part of a finished task of the stage.
    pub fn part(&self, task: TaskIndex) -> Option<&Part> {
        let of_map = || self.maps.get(&task).and_then(|(_, map)| map.part.as_ref());
        self.reduces.get(&task).map(|reduce| &reduce.part).or_else(of_map)
    }

    fn part_mut(&mut self, task: TaskIndex) -> Option<&mut Part> {
        match self.reduces.get_mut(&task) {
            Some(reduce) => Some(&mut reduce.part),
            None => self.maps.get_mut(&task).and_then(|(_, map)| map.part.as_mut()),
        }
    }

    /// Returns the finished tasks with their parts.
    pub fn parts(&self) -> impl Iterator<Item = (TaskIndex, &Part)> {
        let of_maps = self.maps.iter().filter_map(|(task, (_, map))| Some((*task, map.part.as_ref()?)));
        of_maps.chain(self.reduces.iter().map(|(task, reduce)| (*task, &reduce.part)))
    }

    /// Returns its parts as inputs of a later stage, in their order, without empty ones. `named`: the number of the
    /// whole stage among the inputs of the later one.
    pub fn as_inputs(&self, spec: &JobSpec, named: u32) -> Vec<InputFile> {
        let order: Vec<TaskIndex> = match spec.kind.has_shuffle() {
            true => part_order(spec, self),
            false => self.maps.keys().copied().collect(),
        };
        let stage = spec.stage.as_ref().map_or("", |stage| stage.name.as_str());
        let input = |(place, task): (usize, TaskIndex)| {
            let part = self.part(task).filter(|part| part.bytes > 0)?;
            Some(InputFile {
                path: format!("stage {stage}, part {place}").into(),
                size_bytes: part.bytes,
                mtime_ns: 0,
                compression: None,
                named,
                object: None,
                stage_file: Some(StageFile { job: self.job, task, crc32c: part.crc32c }),
                stored: None,
                content: None,
                seen: None,
            })
        };
        order.into_iter().enumerate().filter_map(input).collect()
    }

    /// Returns the location of the part of a task, as input `file_index` of a job. It names no node while the part is
    /// recomputed.
    pub fn part_place(&self, task: TaskIndex, file_index: u32) -> StageFilePlace {
        let part = self.part(task);
        StageFilePlace {
            file_index,
            name: part.map(|part| part.attempt_name.clone()).unwrap_or_default(),
            node: part.and_then(|part| part.node),
            replica: self.stage_files.replicas.get(&task).copied(),
        }
    }

    /// Records that a node has copied its part to another node. Returns false if this is useless: the part is not its
    /// own, or it has a replica.
    pub fn add_part_replica(&mut self, task: TaskIndex, from: NodeId, to: NodeId) -> bool {
        let is_its_own = self.part(task).is_some_and(|part| part.node == Some(from));
        let is_new = from != to && !self.stage_files.replicas.contains_key(&task);
        if is_its_own && is_new {
            self.stage_files.replicas.insert(task, to);
        }
        is_its_own && is_new
    }

    /// Handles a node's report that it has copied a part. Returns the report if it counts now.
    pub fn take_part_replica(&mut self, from: NodeId, told: ReplicatedPart) -> Option<ReplicatedPart> {
        match self.part(told.task).map(|part| part.attempt_name.as_str()) {
            // An attempt that did not win leaves a file too.
            Some(winner) if winner != told.name => None,
            Some(_) => self.add_part_replica(told.task, from, told.to).then_some(told),
            None => {
                if self.stage_files.early.len() < EARLY_REPLICAS_MAX {
                    self.stage_files.early.insert((told.task, told.name.clone()), (from, told));
                }
                None
            }
        }
    }

    /// Returns the replica of a finished part if it was reported before.
    pub fn take_early_part_replica(&mut self, task: TaskIndex) -> Option<ReplicatedPart> {
        let name = self.part(task)?.attempt_name.clone();
        let (from, told) = self.stage_files.early.remove(&(task, name))?;
        self.add_part_replica(task, from, told.to).then_some(told)
    }

    /// Restores the locations of parts from the stored rows of their replicas: parts of lost nodes are read from their
    /// replicas.
    pub fn restore_parts(
        &mut self,
        replicas: impl Iterator<Item = (TaskIndex, NodeId)>,
        lives: impl Fn(NodeId) -> bool,
    ) {
        for (task, node) in replicas.filter(|(_, node)| lives(*node)) {
            // A store of an earlier version may have the replica of an older part: a missing replica is noticed when it is read.
            if let Some(home) = self.part(task).and_then(|part| part.node) {
                self.add_part_replica(task, home, node);
            }
        }
        let homes: BTreeSet<NodeId> = self.parts().filter_map(|(_, part)| part.node).collect();
        for node in homes.into_iter().filter(|node| !lives(*node)) {
            self.parts_gone(node, None);
        }
    }

    /// Records that an attempt of a later stage did not find a part on the node it was told.
    pub fn part_not_found(&mut self, lost: &LostInput) {
        // If the part was reported lost before, there is another file by now.
        let is_current = self.part(lost.file.task).is_some_and(|part| part.attempt_name == lost.name);
        for node in lost.nodes.iter().filter(|_| is_current) {
            self.parts_gone(*node, Some(lost.file.task));
        }
    }

    /// Returns the parts that only this node has.
    pub fn parts_on(&self, node: NodeId) -> BTreeSet<TaskIndex> {
        let is_only_there = |(task, part): &(TaskIndex, &Part)| {
            part.node == Some(node) && part.bytes > 0 && !self.stage_files.replicas.contains_key(task)
        };
        self.parts().filter(is_only_there).map(|(task, _)| task).collect()
    }

    /// Readmits the parts that another process found on the disks of a node that is about to be abandoned: each is on
    /// `node` from now on, as the original or the replica. Returns their tasks.
    pub fn readmit_parts(&mut self, before: NodeId, node: NodeId, left: &[LeftPart]) -> Vec<TaskIndex> {
        let is_left = |part: &Part| {
            let same = |left: &&LeftPart| (left.bytes, left.crc32c) == (part.bytes, part.crc32c);
            left.iter().filter(same).any(|left| left.name == part.attempt_name)
        };
        let back = self.parts().filter(|(_, part)| is_left(part)).filter(|(task, part)| {
            let replica = self.stage_files.replicas.get(task).copied();
            // A part that another node has too is not changed.
            replica == Some(before) || (replica.is_none() && part.node == Some(before))
        });
        let back: Vec<TaskIndex> = back.map(|(task, _)| task).collect();
        self.stage_files.replicas.extend(back.iter().map(|task| (*task, node)));
        back
    }

    /// Returns the parts with replicas.
    pub fn replicated_parts(&self) -> impl Iterator<Item = (TaskIndex, NodeId)> {
        self.stage_files.replicas.iter().map(|(task, node)| (*task, *node))
    }

    /// Records the loss of this part, or of all parts, on a node: replicas are promoted if there are any. Returns the
    /// tasks of parts that are read from replicas now.
    pub fn parts_gone(&mut self, node: NodeId, only: Option<TaskIndex>) -> Vec<TaskIndex> {
        let is_meant = |task: &TaskIndex| only.is_none_or(|only| only == *task);
        self.stage_files.replicas.retain(|task, replica| !(*replica == node && is_meant(task)));
        let at_home =
            |(task, part): (TaskIndex, &Part)| (part.node == Some(node) && is_meant(&task)).then_some(task);
        let gone: Vec<TaskIndex> = self.parts().filter_map(at_home).collect();
        let mut fallen = Vec::new();
        for task in gone {
            let replica = self.stage_files.replicas.remove(&task);
            if let Some(part) = self.part_mut(task) {
                part.node = replica;
            }
            fallen.extend(replica.map(|_| task));
        }
        fallen
    }

    /// Returns the parts that no node has any more.
    pub fn parts_lost(&self, has_left: impl Fn(NodeId) -> bool) -> BTreeSet<TaskIndex> {
        let is_lost = |(_, part): &(TaskIndex, &Part)| part.bytes > 0 && part.node.is_none_or(&has_left);
        self.parts().filter(is_lost).map(|(task, _)| task).collect()
    }

    /// Forgets parts that will be recomputed.
    pub fn forget_parts(&mut self, tasks: &[TaskIndex]) {
        for task in tasks {
            self.part_is_new(*task);
            self.reduces.remove(task);
            if self.maps.get(task).is_some_and(|(_, map)| map.part.is_some()) {
                self.maps.remove(task);
            }
        }
    }

    /// Forgets the replica of a part that was made anew.
    pub(crate) fn part_is_new(&mut self, task: TaskIndex) {
        self.stage_files.replicas.remove(&task);
    }

    /// Returns the runs on nodes that have left.
    pub fn runs_left_behind(&self, has_left: impl Fn(NodeId) -> bool) -> Vec<RunId> {
        let runs = self.surviving_runs().into_iter().map(|run| run.run);
        runs.filter(|run| has_left(self.replicas.home(*run))).collect()
    }

    /// Returns the intermediate files that map tasks of this stage have yet to read.
    pub fn files_to_read(&self, spec: &JobSpec) -> BTreeSet<StageFile> {
        let is_open = |(index, _): &(usize, &Split)| !self.maps.contains_key(&TaskIndex(*index as u32));
        let open = self.splits.iter().enumerate().filter(is_open);
        let segments = open.flat_map(|(_, split)| &split.segments);
        segments.filter_map(|segment| spec.inputs.get(segment.file_index as usize)?.stage_file).collect()
    }
}

/// Returns the specification of a stage with all its inputs and the resulting sizes, and its splits.
pub fn with_inputs(spec: &JobSpec, more: Vec<InputFile>) -> Result<(JobSpec, Vec<Split>), LayoutError> {
    let mut spec = spec.clone();
    spec.inputs.extend(more);
    spec.layout = layout::derive(&LayoutRequest {
        memory_bytes: spec.memory_bytes,
        slots: spec.slots,
        input_bytes: spec.input_bytes(),
        combines: spec.combiner.is_some(),
    })?;
    let splits = splits::plan(&spec.inputs, spec.layout.split_bytes, spec.formats.input);
    Ok((spec, splits))
}

#[cfg(test)]
mod tests {
    use super::with_inputs;
    use crate::JobResults;
    use crate::test_job::spec;
    use api::FlowStage;
    use api::orphaned::LeftPart;
    use api::task::{Part, ReduceResult, ReduceTask};
    use ids::*;

    fn part(task: u32, node: u32, bytes: u64) -> ReduceResult {
        let part = Part {
            name: format!("part-{task:05}"),
            attempt_name: format!("part-{task:05}.attempt-0.stage"),
            bytes,
            records: bytes / 2,
            sha256: None,
            crc32c: 7 + task,
            node: Some(NodeId(node)),
            stored: None,
        };
        ReduceResult { part, ..ReduceResult::default() }
    }

    fn results() -> (api::JobSpec, JobResults) {
        let mut spec = spec();
        let stage = FlowStage { name: "first".into(), feeds: true, ..FlowStage::default() };
        spec.stage = Some(stage);
        let mut results = JobResults::new(JobId(4), Vec::new());
        for (task, node, bytes) in [(0, 1, 100), (1, 2, 0), (2, 2, 50)] {
            results.reduces.insert(TaskIndex(task), part(task, node, bytes));
            let planned =
                ReduceTask { part_index: task, ifiles: vec![IfileIndex(task)], ..task_of_nothing() };
            results.plan.push(planned);
        }
        (spec, results)
    }

    fn task_of_nothing() -> ReduceTask {
        ReduceTask {
            plan_version: PlanVersion(1),
            part_index: 0,
            ifiles: Vec::new(),
            runs: Vec::new(),
            places: Vec::new(),
            lower_key: None,
            upper_key: None,
            valid_attempts: Vec::new(),
            older_attempts: Vec::new(),
            expected_bytes: 0,
            largest_blocks_bytes: 0,
            audits_sources: false,
        }
    }

    #[test]
    fn parts_become_the_inputs_of_the_next_stage() {
        let (first, results) = results();
        let inputs = results.as_inputs(&first, 3);
        let named: Vec<(&str, u64, u32)> = inputs
            .iter()
            .map(|input| (input.path.to_str().unwrap(), input.size_bytes, input.named))
            .collect();
        assert_eq!(named, [("stage first, part 0", 100, 3), ("stage first, part 2", 50, 3)]);
        let mut second = spec();
        second.memory_bytes = 64 << 20;
        let (second, splits) = with_inputs(&second, inputs).unwrap();
        assert_eq!((second.inputs.len(), splits.len()), (2, 1));
        let mut reader = JobResults::new(JobId(5), splits);
        assert_eq!(reader.files_to_read(&second).len(), 2);
        reader.maps.insert(TaskIndex(0), Default::default());
        assert!(reader.files_to_read(&second).is_empty());
    }

    /// Node 2 died, and comes back as 5; the part of task 1 was empty.
    #[test]
    fn parts_that_come_back_are_read_there() {
        let (_, mut results) = results();
        let whole = |task: u32, bytes| LeftPart {
            name: format!("part-{task:05}.attempt-0.stage"),
            bytes,
            crc32c: 7 + task,
        };
        let (before, node) = (NodeId(2), NodeId(5));
        assert_eq!(results.parts_on(before), [TaskIndex(2)].into());
        let other = LeftPart { crc32c: 1, ..whole(2, 50) };
        assert!(results.readmit_parts(before, node, &[other, whole(0, 100)]).is_empty());
        assert_eq!(results.readmit_parts(before, node, &[whole(2, 50)]), [TaskIndex(2)]);
        assert_eq!(results.parts_gone(before, None), [TaskIndex(2)]);
        assert_eq!(results.part_place(TaskIndex(2), 0).node, Some(node));
        // A second copy comes back as the second copy.
        assert!(results.add_part_replica(TaskIndex(0), NodeId(1), before));
        assert_eq!(results.readmit_parts(before, NodeId(6), &[whole(0, 100)]), [TaskIndex(0)]);
        assert_eq!(results.part_place(TaskIndex(0), 0).replica, Some(NodeId(6)));
    }

    #[test]
    fn replica_takes_the_place_of_lost_part() {
        let (_, mut results) = results();
        let left = |node| node == NodeId(2);
        assert!(results.add_part_replica(TaskIndex(2), NodeId(2), NodeId(3)));
        assert!(!results.add_part_replica(TaskIndex(2), NodeId(2), NodeId(1)), "it has one");
        assert!(!results.add_part_replica(TaskIndex(0), NodeId(2), NodeId(3)), "of another node");
        assert_eq!(results.parts_gone(NodeId(2), None), [TaskIndex(2)]);
        assert!(results.parts_lost(left).is_empty(), "what is empty is never read");
        assert_eq!(results.part_place(TaskIndex(2), 9).node, Some(NodeId(3)));
        results.parts_gone(NodeId(3), None);
        assert_eq!(results.parts_lost(left).into_iter().collect::<Vec<_>>(), [TaskIndex(2)]);
        results.forget_parts(&[TaskIndex(2)]);
        assert_eq!(results.part_place(TaskIndex(2), 9).node, None);
    }
}
