//! Tests of a flow of four stages: a <- b, a <- c, (b, c) <- d. Jobs are numbered in that order from 1.

use super::{
    AtRest, FlowState, Flows, Inputs, PartsAgain, Recovery, Stage, at_rest, differs_from_told, inputs,
    is_cut_off, lacks, last_first, may_end, near, places, readers, released_by, stopped_by,
};
use crate::test_job::{map_result, spec, split};
use crate::{JobResults, LostData};
use api::task::{MapAgain, MapTask, Part, ReduceResult, ReduceTask};
use api::{FlowStage, JobSpec, MapReduce, Task, TaskResult};
use ids::*;
use std::collections::{BTreeMap, BTreeSet};

const A: JobId = JobId(1);
const B: JobId = JobId(2);
const C: JobId = JobId(3);
const D: JobId = JobId(4);
/// Nodes with this number or a higher one have left.
const LEFT: u32 = 50;

struct Known {
    spec: JobSpec,
    results: JobResults,
    state: FlowState,
    is_over: bool,
}

#[derive(Default)]
struct Jobs(BTreeMap<JobId, Known>);

impl Flows for Jobs {
    fn stage(&self, job: JobId) -> Option<Stage<'_>> {
        let Known { spec, results, state, is_over } = self.0.get(&job)?;
        Some(Stage { spec, results, state: *state, is_over: *is_over })
    }

    fn of_flow(&self, flow: JobId) -> Vec<JobId> {
        assert_eq!(flow, A);
        self.0.keys().copied().collect()
    }

    fn of_all_flows(&self) -> BTreeSet<JobId> {
        self.0.keys().copied().collect()
    }

    fn has_left(&self, node: NodeId) -> bool {
        node.0 >= LEFT
    }
}

impl Jobs {
    fn of(&mut self, job: JobId) -> &mut Known {
        self.0.get_mut(&job).unwrap()
    }

    /// Records parts of a stage on these nodes.
    fn puts_out(&mut self, job: JobId, nodes: &[u32]) {
        self.of(job).results.plan = (0..).zip(nodes).map(|(part_index, _)| planned(part_index)).collect();
        for (task, node) in (0..).zip(nodes) {
            self.of(job).results.reduces.insert(TaskIndex(task), part(task, *node, 7));
        }
    }

    /// Begins a stage as the server does.
    fn begins(&mut self, job: JobId) {
        let Ok(Inputs::Are(planned)) = inputs(self, job) else { panic!("job {job} cannot begin") };
        let known = self.of(job);
        (known.spec, known.results.splits) = *planned;
        known.state.has_inputs = true;
        for read in self.of(job).spec.reads().to_vec() {
            self.of(read).state.is_read = true;
        }
    }
}

fn planned(part_index: u32) -> ReduceTask {
    ReduceTask {
        plan_version: PlanVersion(1),
        part_index,
        ifiles: vec![IfileIndex(part_index)],
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

fn part(task: u32, node: u32, crc32c: u32) -> ReduceResult {
    let name = format!("part-{task:05}");
    let attempt_name = api::flow::stage_file_name(TaskIndex(task), AttemptNumber(0));
    let part = Part {
        name,
        attempt_name,
        bytes: 100,
        records: 50,
        crc32c,
        node: Some(NodeId(node)),
        ..Part::default()
    };
    ReduceResult { part, ..ReduceResult::default() }
}

/// Returns the flow: all stages are submitted, and the scheduler has asked for the first tasks of each.
fn flow() -> Jobs {
    let mut jobs = Jobs::default();
    for (job, reads) in [(A, &[][..]), (B, &[A]), (C, &[A]), (D, &[B, C])] {
        let of_flow = FlowStage {
            flow: A,
            name: format!("{job}"),
            reads: reads.to_vec(),
            named_inputs: 2,
            feeds: job != D,
        };
        let spec = JobSpec { stage: Some(of_flow), max_regenerations: 2, ..spec() };
        let splits = if reads.is_empty() { vec![split()] } else { Vec::new() };
        let state = FlowState { is_asked: true, ..FlowState::default() };
        jobs.0.insert(job, Known { spec, results: JobResults::new(job, splits), state, is_over: false });
    }
    jobs
}

/// Returns the flow in which a is complete with two parts, and b reads them.
fn b_reads() -> Jobs {
    let mut jobs = flow();
    jobs.puts_out(A, &[1, 2]);
    jobs.of(A).state.parts_ready = true;
    jobs.begins(B);
    jobs
}

#[test]
fn stage_begins_when_its_sources_are_complete() {
    let mut jobs = flow();
    assert_eq!(readers(&jobs, A), [B, C]);
    assert_eq!(inputs(&jobs, A), Ok(Inputs::Known));
    assert_eq!(inputs(&jobs, B), Ok(Inputs::NotYet));
    jobs.puts_out(A, &[1, 2]);
    jobs.of(A).state.parts_ready = true;
    // A stage begins only after the scheduler has asked for it.
    jobs.of(C).state.is_asked = false;
    assert_eq!(at_rest(&jobs, A, Recovery::Over), AtRest::Begin(vec![B]));
    jobs.begins(B);
    assert_eq!(inputs(&jobs, B), Ok(Inputs::Known));
    assert_eq!(jobs.of(B).spec.inputs.len(), 2);
    jobs.of(B).state.parts_ready = true;
    assert_eq!(inputs(&jobs, D), Ok(Inputs::NotYet), "c does not rest");
    jobs.of(C).state.parts_ready = true;
    assert!(matches!(inputs(&jobs, D), Ok(Inputs::Are(_))));
}

#[test]
fn stage_stays_until_its_readers_are_over() {
    let mut jobs = b_reads();
    assert!(!may_end(&jobs, A));
    for (reader, ends) in [(B, vec![]), (C, vec![A])] {
        jobs.of(reader).is_over = true;
        assert_eq!(released_by(&jobs, reader), ends);
    }
    assert!(may_end(&jobs, A));
    assert_eq!(at_rest(&jobs, A, Recovery::Over), AtRest::Ends);
    // A stage that has ended may be unknown.
    jobs.0.remove(&B);
    assert!(may_end(&jobs, A));
    assert_eq!(
        at_rest(&jobs, A, Recovery::Running),
        AtRest::Begin(vec![]),
        "who reads it may not be there yet"
    );
    jobs.of(A).state.parts_ready = false;
    assert!(!may_end(&jobs, A));
}

#[test]
fn with_a_stage_that_fails_all_others_end() {
    let mut jobs = b_reads();
    jobs.of(B).is_over = true;
    assert_eq!(stopped_by(&jobs, B), [A, C, D]);
    assert!(is_cut_off(&jobs, D) && !is_cut_off(&jobs, C) && !is_cut_off(&jobs, A));
    jobs.0.remove(&B);
    assert!(is_cut_off(&jobs, D), "nobody knows what it reads");
    jobs.of(D).is_over = true;
    assert!(!is_cut_off(&jobs, D));
}

#[test]
fn lost_parts_are_regenerated_for_later_readers() {
    let mut jobs = b_reads();
    assert_eq!(last_first(&jobs), [D, C, B, A]);
    let lost = |jobs: &Jobs| [B, C, D].map(|job| lacks(jobs, job));
    assert_eq!(lost(&jobs), [vec![], vec![], vec![]]);
    jobs.puts_out(A, &[1, LEFT]);
    // c has not begun, and will read all parts; the map task of b has not read its part yet.
    let second = vec![(A, vec![TaskIndex(1)])];
    assert_eq!(lost(&jobs), [second.clone(), second.clone(), vec![]]);
    jobs.of(B).results.maps.insert(TaskIndex(0), Default::default());
    assert_eq!(lost(&jobs), [vec![], second, vec![]]);
    jobs.of(C).is_over = true;
    assert_eq!(lost(&jobs), [vec![], vec![], vec![]]);
}

#[test]
fn task_learns_the_current_places_of_its_parts() {
    let mut jobs = b_reads();
    let map = MapTask {
        split: jobs.of(B).results.splits[0].clone(),
        part_index: None,
        again: None,
        places: Vec::new(),
    };
    let nodes = |jobs: &Jobs| -> Vec<_> {
        places(jobs, B, &map).iter().map(|place| (place.node.map(|node| node.0), place.replica)).collect()
    };
    assert_eq!(nodes(&jobs), [(Some(1), None), (Some(2), None)]);
    assert!(jobs.of(A).results.add_part_replica(TaskIndex(0), NodeId(1), NodeId(3)));
    jobs.of(A).results.reduces.get_mut(&TaskIndex(1)).unwrap().part.node = Some(NodeId(LEFT));
    assert_eq!(nodes(&jobs), [(Some(1), Some(NodeId(3))), (None, None)]);
    let tasks = [Task::Map(map.clone())];
    assert_eq!(near(&jobs, B, &tasks), [vec![NodeId(1), NodeId(3)]]);
    assert_eq!(near(&jobs, A, &tasks), [vec![]], "it reads no other stage");
}

#[test]
fn another_part_than_was_told_is_noticed() {
    let mut jobs = flow();
    jobs.puts_out(A, &[1, 2]);
    let differs = |jobs: &Jobs, result: &TaskResult| {
        let task = TaskKey { job: A, stage: StageIndex(3), task: TaskIndex(1) };
        differs_from_told(jobs, AttemptKey { task, attempt: AttemptNumber(1) }, result)
    };
    let other = TaskResult::Reduce(part(1, 9, 8));
    assert!(!differs(&jobs, &other), "nobody was told");
    jobs = b_reads();
    assert!(differs(&jobs, &other));
    assert!(!differs(&jobs, &TaskResult::Reduce(part(1, 9, 7))));
    // A map that runs again where it had a sum, and has another.
    let again = MapAgain { expected: vec![(IfileIndex(0), Default::default())], ..Default::default() };
    jobs.of(A).results.again.insert(TaskIndex(1), again);
    assert!(differs(&jobs, &TaskResult::Map(map_result(&[]))));
}

#[test]
fn parts_are_regenerated_within_limits() {
    let mut jobs = b_reads();
    let (all, tasks) = (5, [TaskIndex(1)]);
    let Known { spec, results, .. } = jobs.of(A);
    let left = |node: NodeId| node.0 >= LEFT;
    assert_eq!(results.parts_again(spec, 3, &tasks, left), PartsAgain::Anyhow);
    assert!(results.part(tasks[0]).is_some(), "nothing is forgotten");
    let nothing = PartsAgain::ByReduces(LostData::runs(&[]));
    assert_eq!(results.parts_again(spec, all, &tasks, left), nothing);
    assert!(results.part(tasks[0]).is_none());
    results.regenerations = spec.max_regenerations;
    assert_eq!(results.parts_again(spec, all, &tasks, left), PartsAgain::TooOften);
    results.regenerations = 0;
    spec.kind = MapReduce::MapOnly { generate: None }.into();
    assert_eq!(results.parts_again(spec, 1, &tasks, left), PartsAgain::ByMaps);
}
