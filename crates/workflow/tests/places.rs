//! Segmentation of a workflow by the places of its stored inputs: Figures 5, 6 and 7 of Clustera.

use api::job::resources::GenericResources;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TaskFile};
use api::{ContentHash, JsonText};
use ids::{NodeId, StepNumber};
use jobkind::{
    FinishedSteps, InputPlace, InputPlaces, Kinds, NodeSize, PipelineNeeds, Step, StepPlan, StepWork,
    WorkingNodes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workflow::Workflow;

const MIB: u64 = 1 << 20;

/// Slots and resources of nodes, by their numbers from 1.
struct Nodes(Vec<(u32, GenericResources)>);

impl Nodes {
    fn of_slots(slots: &[u32]) -> Self {
        Self(slots.iter().map(|slots| (*slots, GenericResources::default())).collect())
    }

    fn size<'a>(&'a self, places: &'a InputPlaces) -> NodeSize<'a> {
        let slots = self.0.iter().map(|(slots, _)| *slots).max().unwrap_or(1);
        NodeSize { slots, memory_bytes: u64::MAX, nodes: Some(self), places: Some(places) }
    }
}

impl WorkingNodes for Nodes {
    fn could_run(&self, needs: &PipelineNeeds, on: Option<NodeId>) -> bool {
        let nodes = self.0.iter().zip(1..).filter(|(_, number)| on.is_none_or(|on| on == NodeId(*number)));
        nodes.map(|(node, _)| node).any(|(slots, has)| needs.slots <= *slots && has.has(&needs.resources))
    }
}

fn content(number: u8) -> ContentHash {
    ContentHash([number; 32])
}

/// Returns places of inputs of so many bytes, each on one node.
fn places(inputs: &[(u8, u64, u32)]) -> InputPlaces {
    let mut places = InputPlaces::default();
    for (number, bytes, node) in inputs.iter().copied() {
        let by_node = BTreeMap::from([(NodeId(node), bytes)]);
        places.insert(content(number), InputPlace { bytes, by_node });
    }
    places
}

/// A step: the stored file that it reads, the step that streams to it, and the steps whose outputs it reads as files.
#[derive(Clone, Copy, Default)]
struct Job {
    stored: Option<u8>,
    stream: Option<usize>,
    files: &'static [usize],
    gpus: u32,
}

fn output(step: usize) -> TaskFile {
    let (name, path) = (format!("f{step}").into(), format!("/w/f{step}").into());
    TaskFile { name, path, temporary: true, ..TaskFile::default() }
}

fn step((index, job): (usize, &Job)) -> WorkflowStep {
    let stored = job.stored.map(|number| {
        let (name, path) = (format!("lf{number}").into(), format!("files:lf{number}").into());
        TaskFile { name, path, content: Some(content(number)), ..TaskFile::default() }
    });
    let made =
        job.files.iter().copied().chain(job.stream).map(|step| TaskFile { temporary: false, ..output(step) });
    let gpus = Some(("gpu".to_string(), job.gpus)).filter(|_| job.gpus > 0);
    let program = RunTask {
        words: vec!["cat".to_string()],
        inputs: stored.into_iter().chain(made).collect(),
        outputs: vec![output(index)],
        stdin: job.stream.map(|stream| output(stream).name),
        stdout: Some(output(index).name),
        resources: gpus.into_iter().collect(),
        ..RunTask::default()
    };
    WorkflowStep { name: format!("J{}", index + 1), program, after: Vec::new(), job: None }
}

fn plan(jobs: &[Job]) -> Arc<dyn StepPlan> {
    let steps = jobs.iter().enumerate().map(step).collect();
    let spec = JsonText::of(&WorkflowSpec { steps, only_judges: false }).expect("it can be written");
    Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it can run")
}

fn pipelines(steps: &[Step]) -> Vec<Vec<u32>> {
    steps.iter().map(|step| step.numbers().map(|number| number.0 + 1).collect()).collect()
}

/// Figure 6: J1 streams to J2; J4 reads the stream of J2 and the file of J3. J1 and J3 read stored files.
fn four_jobs() -> Vec<Job> {
    let job = Job::default();
    vec![
        Job { stored: Some(1), ..job },
        Job { stream: Some(0), ..job },
        Job { stored: Some(2), ..job },
        Job { stream: Some(1), files: &[2], ..job },
    ]
}

#[test]
fn figure_5_is_one_pipeline_at_its_input() {
    let job = |stream: Option<usize>| Job { stream, ..Job::default() };
    let jobs = [Job { stored: Some(1), ..job(None) }, job(Some(0)), job(Some(1))];
    let (nodes, places) = (Nodes::of_slots(&[3, 3]), places(&[(1, 100 * MIB, 2)]));
    assert_eq!(pipelines(&plan(&jobs).first(nodes.size(&places))), [[1, 2, 3]]);
}

#[test]
fn figure_6_is_one_pipeline_at_both_inputs() {
    let (nodes, places) = (Nodes::of_slots(&[1, 4]), places(&[(1, 100 * MIB, 2), (2, 80 * MIB, 2)]));
    let steps = plan(&four_jobs()).first(nodes.size(&places));
    let [StepWork::Program(task)] = &steps.iter().map(|step| &step.work).collect::<Vec<_>>()[..] else {
        panic!("{:?}", pipelines(&steps));
    };
    assert_eq!((task.slots(), task.pipeline.len(), task.check_files()), (4, 3, Ok(())));
    let mut members = pipelines(&steps).remove(0);
    members.sort_unstable();
    assert_eq!(members, [1, 2, 3, 4]);
    // The last one reads a file of another, and a stream.
    assert_eq!(task.edges().iter().filter(|edge| edge.streams).count(), 2);
    assert_eq!(task.edges().len(), 3);
}

#[test]
fn figure_7_is_three_pipelines_for_inputs_apart() {
    let (nodes, places) = (Nodes::of_slots(&[4, 4]), places(&[(1, 100 * MIB, 1), (2, 80 * MIB, 2)]));
    let plan = plan(&four_jobs());
    let size = nodes.size(&places);
    assert_eq!(pipelines(&plan.first(size)), [vec![1, 2], vec![3]]);
    // The third waits for both, in any order of their ends.
    for ends in [[vec![0, 1], vec![2]], [vec![2], vec![0, 1]]] {
        let (mut all, begun) = (BTreeSet::new(), (0..3).map(StepNumber).collect());
        let next = ends.map(|last| {
            let last: Vec<StepNumber> = last.into_iter().map(StepNumber).collect();
            all.extend(&last);
            pipelines(&plan.next(&FinishedSteps { all: &all, last: &last, begun: &begun }, size))
        });
        assert_eq!(next, [vec![], vec![vec![4]]]);
    }
}

#[test]
fn small_nodes_and_small_inputs_change_the_cut() {
    let first = |nodes: &Nodes, inputs: &[(u8, u64, u32)]| {
        let places = places(inputs);
        pipelines(&plan(&four_jobs()).first(nodes.size(&places)))
    };
    // The node of both inputs has too few cores for all, and another one would fetch both.
    let apart = [vec![1, 2], vec![3]];
    assert_eq!(first(&Nodes::of_slots(&[2, 4]), &[(1, 100 * MIB, 1), (2, 80 * MIB, 1)]), apart);
    assert_eq!(first(&Nodes::of_slots(&[3, 3]), &[(1, 100 * MIB, 1), (2, 80 * MIB, 1)]), apart);
    // A small input moves to the large one.
    let all = first(&Nodes::of_slots(&[4, 4]), &[(1, 100 * MIB, 1), (2, 1000, 2)]);
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [4]);
}

#[test]
fn streams_do_not_join_large_inputs_apart() {
    let job = Job::default();
    let jobs = [Job { stored: Some(1), ..job }, Job { stored: Some(2), stream: Some(0), ..job }];
    let nodes = Nodes::of_slots(&[4, 4]);
    let apart = places(&[(1, 100 * MIB, 1), (2, 80 * MIB, 2)]);
    assert_eq!(pipelines(&plan(&jobs).first(nodes.size(&apart))), [[1]]);
    let together = places(&[(1, 100 * MIB, 2), (2, 80 * MIB, 2)]);
    assert_eq!(pipelines(&plan(&jobs).first(nodes.size(&together))), [[1, 2]]);
}

#[test]
fn pipelines_need_the_sum_of_resources() {
    let job = |stream: Option<usize>| Job { stream, gpus: 1, ..Job::default() };
    let first = |gpus: &[u32]| {
        let has = |gpus: &u32| [("gpu".to_string(), *gpus)].into_iter().collect();
        let (nodes, places) = (Nodes(gpus.iter().map(|gpus| (4, has(gpus))).collect()), places(&[]));
        pipelines(&plan(&[job(None), job(Some(0))]).first(nodes.size(&places)))
    };
    assert_eq!(first(&[1, 2]), [[1, 2]]);
    assert_eq!(first(&[1, 1]), [[1]]);
}
