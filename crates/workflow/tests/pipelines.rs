//! Segmentation of workflows into pipelines.

use api::JsonText;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TaskFile};
use ids::StepNumber;
use jobkind::{EarlyStep, FinishedSteps, Kinds, NodeSize, PriorRuns, Step, StepPlan, StepWork, laws};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use workflow::Workflow;

/// A step of a random workflow.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The step whose standard output it reads as its standard input.
    stream: Option<usize>,
    /// Steps whose output it reads by name as a stream.
    named: BTreeSet<usize>,
    /// Steps whose output it reads as a file.
    files: BTreeSet<usize>,
    /// True: it writes its output by name as a stream, and not to its standard output.
    writes_by_name: bool,
    cores: u32,
    temporary: bool,
    memory_bytes: u64,
}

impl Node {
    /// Returns the steps whose outputs it reads.
    fn reads(&self) -> impl Iterator<Item = usize> {
        self.stream.into_iter().chain(self.named.iter().copied()).chain(self.files.iter().copied())
    }
}

fn file(step: usize, temporary: bool) -> TaskFile {
    TaskFile {
        name: format!("f{step}").into(),
        path: format!("/w/f{step}").into(),
        temporary,
        ..TaskFile::default()
    }
}

fn workflow_step((index, node): (usize, &Node)) -> WorkflowStep {
    let inputs: BTreeSet<usize> = node.reads().collect();
    let stream = |other: usize| TaskFile { stream: node.named.contains(&other), ..file(other, false) };
    let output = TaskFile { stream: node.writes_by_name, ..file(index, node.temporary) };
    let program = RunTask {
        words: vec!["cat".to_string()],
        inputs: inputs.iter().map(|input| stream(*input)).collect(),
        outputs: vec![output],
        stdin: node.stream.map(|stream| file(stream, false).name),
        stdout: (!node.writes_by_name).then(|| file(index, false).name),
        cores: node.cores,
        memory_bytes: node.memory_bytes,
        ..RunTask::default()
    };
    WorkflowStep { name: format!("s{index}"), program, after: Vec::new(), job: None }
}

fn plan(nodes: &[Node]) -> Arc<dyn StepPlan> {
    let spec =
        WorkflowSpec { steps: nodes.iter().enumerate().map(workflow_step).collect(), only_judges: false };
    let spec = JsonText::of(&spec).expect("a specification can be written");
    Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it has no cycle")
}

fn slots(slots: u32) -> NodeSize<'static> {
    NodeSize { slots, memory_bytes: u64::MAX, ..NodeSize::default() }
}

fn task(step: &Step) -> &RunTask {
    let StepWork::Program(task) = &step.work else { panic!("{} is a job", step.name) };
    task
}

fn numbers(step: &Step) -> Vec<u32> {
    step.numbers().map(|number| number.0).collect()
}

fn chain(length: usize) -> Vec<Node> {
    let node = |index: usize| Node { stream: index.checked_sub(1), temporary: true, ..Node::default() };
    (0..length).map(node).collect()
}

/// Clustera, Figure 5: a linear pipeline.
#[test]
fn a_chain_of_streams_is_one_pipeline() {
    let steps = plan(&chain(4)).first(slots(4));
    assert_eq!(steps.iter().map(numbers).collect::<Vec<_>>(), [[0, 1, 2, 3]]);
    let task = task(&steps[0]);
    assert_eq!((&*steps[0].name, task.slots(), task.edges().len()), ("s0 | s1 | s2 | s3", 4, 3));
    assert_eq!(task.check_files(), Ok(()));
    let temporary: Vec<bool> = task.programs().map(|program| program.outputs[0].temporary).collect();
    // No step reads the last one.
    assert_eq!(temporary, [true, true, true, false]);
}

/// A step that reads two streams by name waits for neither of them.
#[test]
fn fan_in_of_named_streams_is_one_pipeline() {
    let named = |steps: [usize; 2]| Node { named: steps.into(), ..Node::default() };
    let by_name = || Node { writes_by_name: true, temporary: true, ..Node::default() };
    let fan = vec![by_name(), Node { temporary: true, ..Node::default() }, named([0, 1])];
    let steps = plan(&fan).first(slots(3));
    assert_eq!(steps.iter().map(numbers).collect::<Vec<_>>(), [[0, 1, 2]]);
    assert!(task(&steps[0]).edges().iter().all(|edge| edge.streams));
    // Two of them run at the same time, and the third reads files.
    assert_eq!(first(&plan(&fan), slots(2)), [[0], [1]]);
    let mut other = fan.clone();
    other[2].files = BTreeSet::from([1]);
    other[2].named = BTreeSet::from([0]);
    assert_eq!(first(&plan(&other), slots(3)), [[0], [1]], "it needs a finished file");
    // A diamond, whose first step is read by both branches.
    let reader = |of: usize| Node { named: BTreeSet::from([of]), ..by_name() };
    let diamond = vec![by_name(), reader(0), reader(0), named([1, 2])];
    let steps = plan(&diamond).first(slots(4));
    assert_eq!((steps.len(), task(&steps[0]).pipeline.len()), (1, 3));
    assert_eq!(first(&plan(&diamond), slots(3)), [[0, 1, 2]]);
    // The other branch has begun: the reader waits for its file.
    let begun: BTreeSet<StepNumber> = [StepNumber(1)].into();
    let (all, last) = (BTreeSet::new(), []);
    let finished = FinishedSteps { all: &all, last: &last, begun: &begun };
    let next = plan(&fan).next(&finished, slots(3));
    assert!(next.iter().all(|step| step.beside.is_empty()), "{next:?}");
}

#[test]
fn a_long_chain_is_cut_by_the_node() {
    let plan = plan(&chain(5));
    let first = plan.first(slots(2));
    assert_eq!(numbers(&first[0]), [0, 1]);
    // The cut is a file, which the next pipeline reads.
    assert!(!task(&first[0]).pipeline[0].outputs[0].temporary);
    let all: BTreeSet<StepNumber> = first[0].numbers().collect();
    let last: Vec<StepNumber> = first[0].numbers().collect();
    let finished = FinishedSteps { all: &all, last: &last, begun: &all };
    let next = plan.next(&finished, slots(3));
    assert_eq!(next.iter().map(numbers).collect::<Vec<_>>(), [[2, 3, 4]]);
    assert_eq!(plan.first(slots(1)).iter().map(numbers).collect::<Vec<_>>(), [[0]]);
}

/// The part of a chain behind a cut may begin while the part before it runs.
#[test]
fn reader_behind_a_cut_may_begin_early() {
    let plan = plan(&chain(5));
    let begun: BTreeSet<StepNumber> = plan.first(slots(2))[0].numbers().collect();
    let running: Vec<StepNumber> = begun.iter().copied().collect();
    let none = BTreeSet::new();
    let so_far = FinishedSteps { all: &none, last: &[], begun: &begun };
    let early = plan.early(&running, &so_far, slots(2));
    assert_eq!(early.iter().map(|early| numbers(&early.step)).collect::<Vec<_>>(), [[2, 3]]);
    assert_eq!((early[0].writer, early[0].path.to_str()), (StepNumber(1), Some("/w/f1")));
    assert_eq!(plan.early(&[StepNumber(0)], &so_far, slots(2)), [], "its reader has begun");
}

#[test]
fn limited_times_do_not_begin_early() {
    let early = |change: fn(&mut RunTask)| {
        let mut steps: Vec<WorkflowStep> = chain(2).iter().enumerate().map(workflow_step).collect();
        change(&mut steps[1].program);
        let spec = JsonText::of(&WorkflowSpec { steps, only_judges: false }).expect("it can be written");
        let plan = Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it can run");
        let (none, begun) = (BTreeSet::new(), BTreeSet::from([StepNumber(0)]));
        let so_far = FinishedSteps { all: &none, last: &[], begun: &begun };
        plan.early(&[StepNumber(0)], &so_far, slots(1)).len()
    };
    assert_eq!(early(|_| {}), 1);
    assert_eq!(early(|program| program.retries = 1), 1);
    assert_eq!(early(|program| program.limits.seconds = Some(1)), 0);
}

#[test]
fn steps_of_different_needs_do_not_share() {
    let alone = |change: fn(&mut RunTask)| {
        let mut steps: Vec<WorkflowStep> = chain(2).iter().enumerate().map(workflow_step).collect();
        change(&mut steps[1].program);
        let spec = JsonText::of(&WorkflowSpec { steps, only_judges: false }).expect("it can be written");
        let plan = Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it can run");
        let size = NodeSize { slots: 4, memory_bytes: 100, ..NodeSize::default() };
        plan.first(size).iter().map(|step| step.beside.len()).sum::<usize>() == 0
    };
    assert!(!alone(|_| {}));
    assert!(alone(|program| program.cores = 4));
    assert!(alone(|program| program.memory_bytes = 101));
    assert!(!alone(|program| program.memory_bytes = 100));
    assert!(alone(|program| program.retries = 1));
    assert!(alone(|program| program.architecture = Some("arm".to_string())));
    assert!(alone(|program| program.limits.memory_bytes = Some(1)));
    assert!(!alone(|program| program.limits.seconds = Some(1)));
    assert!(alone(|program| program.env_file = Some("/env".into())));
}

/// Steps each of which reads the file of the one before it.
fn file_chain(length: usize) -> Vec<Node> {
    let files = |index: usize| index.checked_sub(1).into_iter().collect();
    let node = |index: usize| Node { files: files(index), temporary: true, ..Node::default() };
    (0..length).map(node).collect()
}

/// Returns the plan when the last runs of these steps wrote so many bytes.
fn knowing(plan: &Arc<dyn StepPlan>, wrote: &[(u32, u64)], may_stand: &[u32]) -> Arc<dyn StepPlan> {
    let wrote = wrote.iter().map(|(step, bytes)| (StepNumber(*step), *bytes)).collect();
    let may_stand = may_stand.iter().copied().map(StepNumber).collect();
    plan.with_prior(&PriorRuns { wrote, may_stand }).expect("workflows remember runs")
}

fn first(plan: &Arc<dyn StepPlan>, size: NodeSize) -> Vec<Vec<u32>> {
    plan.first(size).iter().map(numbers).collect()
}

#[test]
fn files_of_known_size_stay_in_memory() {
    let plan = plan(&file_chain(3));
    assert_eq!(first(&plan, slots(2)), [[0]], "no size is known");
    let known = knowing(&plan, &[(0, 4 << 20), (1, 0)], &[]);
    let steps = known.first(slots(2));
    assert_eq!(steps.iter().map(numbers).collect::<Vec<_>>(), [[0, 1, 2]]);
    let task = task(&steps[0]);
    assert_eq!((&*steps[0].name, task.slots(), task.phases()), ("s0 > s1 > s2", 1, vec![0..1, 1..2, 2..3]));
    assert_eq!(task.check_files(), Ok(()));
    let memory: Vec<u64> = task.programs().map(|program| program.file_memory_bytes).collect();
    assert_eq!((memory, task.memory_bytes), (vec![6 << 20, 1 << 20, 0], 7 << 20));
    let temporary: Vec<bool> = task.programs().map(|program| program.outputs[0].temporary).collect();
    assert_eq!(temporary, [true, true, false]);
    // Half of the share of a slot holds them.
    let size = |memory_bytes| NodeSize { slots: 2, memory_bytes, ..NodeSize::default() };
    assert_eq!(first(&known, size(28 << 20)), [[0, 1, 2]]);
    assert_eq!(first(&known, size((28 << 20) - 1)), [[0, 1]]);
    assert_eq!(first(&known, size(1 << 20)), [[0]]);
    // A finished run may stand for the second, whatever the first writes.
    assert_eq!(first(&knowing(&plan, &[(0, 4), (1, 4)], &[1]), slots(2)), [[0]]);
    assert_eq!(first(&knowing(&plan, &[(0, 4), (1, 4)], &[0]), slots(2)), [[0]]);
}

#[test]
fn next_phase_wastes_no_slots() {
    let joined = |change: fn(&mut Vec<Node>)| {
        let mut nodes = file_chain(2);
        nodes[0].memory_bytes = 1 << 20;
        change(&mut nodes);
        first(&plan(&nodes), slots(2)).contains(&vec![0, 1])
    };
    assert!(joined(|_| {}));
    assert!(!joined(|nodes| nodes[0].memory_bytes = 0));
    assert!(!joined(|nodes| nodes[1].cores = 2));
    assert!(!joined(|nodes| nodes[0].cores = 2));
    assert!(joined(|nodes| nodes.iter_mut().for_each(|node| node.cores = 2)));
    assert!(!joined(|nodes| nodes[0].temporary = false), "the file stays");
    let reader = Node { files: BTreeSet::from([0]), ..Node::default() };
    let add: fn(&mut Vec<Node>, Node) = |nodes, node| nodes.push(node);
    let mut fan = file_chain(2);
    fan[0].memory_bytes = 1 << 20;
    add(&mut fan, reader);
    assert_eq!(first(&plan(&fan), slots(2)), [[0]], "one slot would wait for the other reader");
    fan[0].cores = 2;
    assert_eq!(first(&plan(&fan), slots(2)), [[0, 1, 2]]);
    // A stream needs both slots at once.
    let mut stream = file_chain(2);
    stream[0].memory_bytes = 1 << 20;
    add(&mut stream, Node { stream: Some(1), temporary: true, ..Node::default() });
    assert_eq!(first(&plan(&stream), slots(2)), [[0]]);
    assert_eq!(first(&plan(&stream), slots(1)), [[0, 1]]);
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (
        prop::option::weighted(0.7, any::<prop::sample::Index>()),
        [0..3_usize, 0..2].map(|count| prop::collection::vec(any::<prop::sample::Index>(), count)),
        0..3_u32,
        any::<[bool; 2]>(),
        prop::option::weighted(0.7, 1..100_u64),
    );
    prop::collection::vec(node, 1..25).prop_map(|nodes| {
        let place = |(index, (stream, others, cores, flags, memory))| {
            let (stream, [named, files]): (Option<prop::sample::Index>, [Vec<prop::sample::Index>; 2]) =
                (stream, others);
            let [temporary, writes_by_name] = flags;
            let before = |pick: &prop::sample::Index| (index > 0).then(|| pick.index(index));
            let stream = stream.as_ref().and_then(before);
            // An input is declared once.
            let named: BTreeSet<usize> =
                named.iter().filter_map(before).filter(|file| Some(*file) != stream).collect();
            let is_other = |file: &usize| Some(*file) != stream && !named.contains(file);
            let files = files.iter().filter_map(before).filter(is_other).collect();
            let memory_bytes = Option::unwrap_or_default(memory);
            Node { stream, named, files, writes_by_name, cores, temporary, memory_bytes }
        };
        nodes.into_iter().enumerate().map(place).collect()
    })
}

/// Checks a pipeline against the model: all that a step reads is finished, comes by a stream of its phase, or lies in
/// the memory of an earlier one.
fn check(
    nodes: &[Node],
    step: &Step,
    finished: &BTreeSet<StepNumber>,
    size: NodeSize,
) -> Result<(), TestCaseError> {
    let members: BTreeSet<u32> = step.numbers().map(|number| number.0).collect();
    let task = task(step);
    prop_assert_eq!(members.len(), 1 + task.pipeline.len());
    prop_assert_eq!(task.check_files(), Ok(()));
    prop_assert!(members.len() == 1 || task.slots() <= size.slots);
    let programs: Vec<&RunTask> = task.programs().collect();
    for edge in task.edges() {
        let (writer, reader) = (programs[edge.writer], programs[edge.reader]);
        let in_memory = writer.phase < reader.phase && writer.file_memory_bytes > 0;
        prop_assert!(edge.streams || in_memory, "{:?}", step);
        prop_assert!(edge.streams || writer.outputs[edge.output].temporary, "{:?}", step);
    }
    for phase in task.phases() {
        let cores: u32 = programs[phase].iter().map(|program| program.cores.max(1)).sum();
        prop_assert_eq!(cores, task.slots(), "a slot is idle");
    }
    let phase_of = |other: usize| {
        let place = step.numbers().position(|number| number.0 as usize == other);
        place.map(|place| programs[place].phase)
    };
    for (number, program) in step.numbers().zip(task.programs()) {
        let node = &nodes[number.0 as usize];
        let is_done = |step: &usize| finished.contains(&StepNumber(*step as u32));
        let is_before =
            |step: &usize| is_done(step) || phase_of(*step).is_some_and(|phase| phase < program.phase);
        prop_assert!(node.files.iter().all(is_before), "{:?}", step);
        let streams = |stream: &usize| phase_of(*stream) == Some(program.phase);
        let mut by_stream = node.stream.iter().chain(&node.named);
        prop_assert!(by_stream.all(|stream| is_before(stream) || streams(stream)));
        // A file that a step outside reads is there.
        let reads = |node: &Node| node.reads().any(|read| read == number.0 as usize);
        let mut outside =
            (0..nodes.len()).filter(|other| reads(&nodes[*other]) && !members.contains(&(*other as u32)));
        prop_assert!(!(program.outputs[0].temporary && outside.next().is_some()), "{:?}", step);
    }
    Ok(())
}

/// Checks a step that may begin early: only the stream of its first program is missing.
fn check_early(
    nodes: &[Node],
    early: &EarlyStep,
    finished: &BTreeSet<StepNumber>,
    size: NodeSize,
) -> Result<(), TestCaseError> {
    let EarlyStep { step, writer, path } = early;
    prop_assert!(!finished.contains(writer));
    let expected = format!("/w/f{}", writer.0);
    prop_assert_eq!(path.to_str(), Some(expected.as_str()));
    let reads = |number: StepNumber| nodes[number.0 as usize].stream == Some(writer.0 as usize);
    prop_assert!(!nodes[writer.0 as usize].writes_by_name, "a named pipe leads to no other node");
    let reads_file = |number: StepNumber| {
        let node = &nodes[number.0 as usize];
        node.files.contains(&(writer.0 as usize)) || node.named.contains(&(writer.0 as usize))
    };
    prop_assert!(reads(step.number) && !step.numbers().any(reads_file));
    prop_assert!(!step.beside.iter().any(|number| reads(*number)), "{:?}", step);
    let with_writer = finished.iter().chain([writer]).copied().collect();
    check(nodes, step, &with_writer, size)
}

/// Returns the steps with a temporary output that another one reads.
fn temporary(nodes: &[Node]) -> impl Iterator<Item = usize> {
    let is_read = |step: &usize| nodes.iter().any(|node| node.reads().any(|read| read == *step));
    (0..nodes.len()).filter(|step| nodes[*step].temporary).filter(is_read).collect::<Vec<_>>().into_iter()
}

fn has_temporary(nodes: &[Node]) -> bool {
    temporary(nodes).next().is_some()
}

proptest! {
    #[test]
    fn pipelines_are_complete_and_fit(
        nodes in any_nodes(),
        sizes in prop::collection::vec(1..7_u32, 28),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 28),
    ) {
        let plan = plan(&nodes);
        let (mut finished, mut begun) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<Step> = Vec::new();
        // The writers of the open steps that began early.
        let mut writers: BTreeMap<StepNumber, StepNumber> = BTreeMap::new();
        let mut new = plan.first(slots(sizes[0]));
        for (size, pick) in sizes.iter().zip(&picks) {
            for step in new {
                if step.number.0 as usize == nodes.len() {
                    prop_assert_eq!(begun.len(), finished.len(), "files are removed at the end");
                    prop_assert_eq!(task(&step).removes.len(), temporary(&nodes).count());
                    begun.insert(step.number);
                    open.push(step);
                    continue;
                }
                check(&nodes, &step, &finished, slots(7))?;
                for number in step.numbers() {
                    prop_assert!(begun.insert(number), "{} begins twice", number);
                }
                open.push(step);
            }
            let running: Vec<StepNumber> = open.iter().flat_map(Step::numbers).collect();
            let so_far = FinishedSteps { all: &finished, last: &[], begun: &begun };
            let mut early = plan.early(&running, &so_far, slots(*size));
            for early in &early {
                check_early(&nodes, early, &finished, slots(7))?;
                prop_assert!(running.contains(&early.writer));
            }
            if size % 2 == 0 && !early.is_empty() {
                let EarlyStep { step, writer, .. } = early.swap_remove(pick.index(early.len()));
                begun.extend(step.numbers());
                writers.insert(step.number, writer);
                open.push(step);
            }
            if open.is_empty() {
                break;
            }
            // No reader ends before its writer.
            let ends = |step: &Step| writers.get(&step.number).is_none_or(|writer| finished.contains(writer));
            let may_end: Vec<usize> = (0..open.len()).filter(|place| ends(&open[*place])).collect();
            let place = may_end[pick.index(may_end.len())];
            let last: Vec<StepNumber> = open.swap_remove(place).numbers().collect();
            finished.extend(&last);
            let so_far = FinishedSteps { all: &finished, last: &last, begun: &begun };
            new = plan.next(&so_far, slots(*size));
        }
        prop_assert_eq!(finished.len(), nodes.len() + usize::from(has_temporary(&nodes)));
    }

    #[test]
    fn pipelines_keep_the_laws_of_kinds(
        nodes in any_nodes(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 26),
    ) {
        let mut picks = picks.into_iter();
        let order = laws::check(&*plan(&nodes), |count| picks.next().map_or(0, |pick| pick.index(count)));
        prop_assert_eq!(order.map(|order| order.len()), Ok(nodes.len() + usize::from(has_temporary(&nodes))));
    }
}
