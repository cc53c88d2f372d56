//! Steps that are MapReduce jobs and read each other's parts: which of them begin together.

use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, StepCaching, TaskFile};
use api::{Exchange, Function, JobSpec, JsonText, KeyRules, PartitionRule};
use ids::StepNumber;
use jobkind::{FlowStep, Kinds, NodeSize, PriorRuns, Step, StepPlan, StepWork, laws};
use proptest::prelude::*;
use std::sync::Arc;
use workflow::Workflow;

const PARTS: usize = 2;

fn file(path: &str) -> TaskFile {
    TaskFile { name: path.trim_start_matches('/').into(), path: path.into(), ..TaskFile::default() }
}

/// Returns the paths of the parts of a step.
fn parts(step: &str) -> Vec<String> {
    (0..PARTS).map(|part| format!("/{step}/part-{part:05}")).collect()
}

/// Returns a job that reads these files: its parts are temporary.
fn job(name: &str, inputs: &[String]) -> WorkflowStep {
    let temporary = |path: &String| TaskFile { temporary: true, ..file(path) };
    let program = RunTask {
        inputs: inputs.iter().map(|path| file(path)).collect(),
        outputs: parts(name).iter().map(temporary).collect(),
        caching: Some(Box::<StepCaching>::default()),
        ..RunTask::default()
    };
    let partitions = Some(PartitionRule { count: PARTS as u32, stretches: Vec::new() });
    let job = JobSpec {
        mapper: Function::parse("builtin:words").ok(),
        output: format!("/{name}").into(),
        keys: KeyRules { partitions, ..KeyRules::default() },
        ..JobSpec::named(name)
    };
    WorkflowStep { name: name.to_string(), program, after: Vec::new(), job: Some(Box::new(job)) }
}

fn program(name: &str, inputs: &[String]) -> WorkflowStep {
    let program = RunTask {
        words: vec!["true".to_string()],
        inputs: inputs.iter().map(|path| file(path)).collect(),
        outputs: vec![file(&format!("/{name}-out"))],
        ..RunTask::default()
    };
    WorkflowStep { name: name.to_string(), program, after: Vec::new(), job: None }
}

fn planned(steps: Vec<WorkflowStep>) -> Arc<dyn StepPlan> {
    let spec = JsonText::of(&WorkflowSpec { steps, only_judges: false }).expect("a text");
    Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it can run")
}

fn first(steps: Vec<WorkflowStep>) -> Vec<Step> {
    planned(steps).first(NodeSize::default())
}

/// Returns the steps that begin, each with those beside it.
fn together(steps: Vec<WorkflowStep>) -> Vec<Vec<u32>> {
    first(steps).iter().map(|step| step.numbers().map(|number| number.0).collect()).collect()
}

fn flow(step: &Step) -> &[FlowStep] {
    let StepWork::Flow(jobs) = &step.work else { panic!("{} is no flow", step.name) };
    jobs
}

fn text() -> Vec<String> {
    vec!["/text".to_string()]
}

/// A chain of three jobs; the last one has no reader, so its parts stay.
fn chain() -> Vec<WorkflowStep> {
    let with_more = [vec!["/more".to_string()], parts("a")].concat();
    vec![job("a", &text()), job("b", &with_more), job("c", &parts("b"))]
}

#[test]
fn consecutive_jobs_are_one_flow() {
    let steps = first(chain());
    assert_eq!(steps.len(), 1);
    let [a, b, c] = flow(&steps[0]) else { panic!("{steps:?}") };
    assert_eq!([&a.reads, &b.reads, &c.reads], [&vec![], &vec![0], &vec![1]]);
    assert_eq!([a.spec.feeds(), b.spec.feeds(), c.spec.feeds()], [true, true, false]);
    let paths = |job: &FlowStep| -> Vec<String> {
        job.spec.inputs.iter().map(|input| input.path.display().to_string()).collect()
    };
    assert_eq!([paths(a), paths(b), paths(c)], [text(), vec!["/more".to_string()], Vec::new()]);
    let streamed = |job: &FlowStep| job.spec.recording.clone().expect("it is remembered").streamed;
    assert_eq!([streamed(a).len(), streamed(b).len(), streamed(c).len()], [0, PARTS, PARTS]);
    assert_eq!(b.spec.stage.as_ref().map(|stage| stage.named_inputs), Some(1));
    for job in [a, b, c] {
        assert_eq!(jobkind::check_flow_step(job), Ok(()));
    }
}

#[test]
fn branches_of_jobs_join() {
    let both = [parts("b"), parts("a")].concat();
    let mut steps = vec![job("d", &both), job("a", &text()), job("b", &parts("a"))];
    assert_eq!(together(steps.clone()), [[1, 2, 0]], "each after those that it reads");
    let steps_of = first(steps.clone());
    assert_eq!(flow(&steps_of[0])[2].reads, [1, 0], "in the order of its inputs");
    let two = vec![job("a", &text()), job("b", &text()), job("c", &both), program("p", &text())];
    assert_eq!(together(two), [vec![0, 1, 2], vec![3]], "jobs that begin side by side");
    // A second reader that waits for a step on its own keeps the first one out as well.
    steps.push(job("e", &[parts("a"), vec!["/slow-out".to_string()]].concat()));
    steps.push(program("slow", &text()));
    assert_eq!(together(steps), [vec![1], vec![4]]);
}

#[test]
fn files_that_others_read_are_written() {
    let alone = |change: &dyn Fn(&mut Vec<WorkflowStep>)| {
        let mut steps = chain();
        change(&mut steps);
        assert_eq!(together(steps)[0], [0]);
    };
    alone(&|steps| steps[0].program.outputs.iter_mut().for_each(|output| output.temporary = false));
    alone(&|steps| steps.push(program("reads", &parts("a")[..1])));
    alone(&|steps| drop(steps[1].program.inputs.pop()));
    alone(&|steps| steps[1].program.inputs.reverse());
    alone(&|steps| steps[1].program.inputs.rotate_left(1));
    let with_job = |index: usize, change: &dyn Fn(&mut JobSpec)| {
        alone(&|steps| steps[index].job.iter_mut().for_each(|job| change(job)));
    };
    with_job(1, &|job| job.formats.exchange = Exchange::Frames);
    with_job(0, &|job| job.keys.partitions = None);
}

#[test]
fn remembered_runs_keep_jobs_apart() {
    let plan = planned(chain());
    let prior = |step: u32| PriorRuns { may_stand: [StepNumber(step)].into(), ..PriorRuns::default() };
    let begins = |step: u32| {
        let plan = plan.with_prior(&prior(step)).expect("it depends on earlier runs");
        let steps = plan.first(NodeSize::default());
        steps.iter().flat_map(Step::numbers).map(|number| number.0).collect::<Vec<_>>()
    };
    assert_eq!(begins(0), [0]);
    assert_eq!(begins(1), [0]);
    assert_eq!(begins(2), [0, 1], "b writes files for c");
}

/// A step as random numbers: kept, the writers that it reads, a part of one of them alone, a program.
type Random = (bool, Vec<prop::sample::Index>, u8);

fn any_steps() -> impl Strategy<Value = Vec<Random>> {
    let writers = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    prop::collection::vec((prop::bool::weighted(0.2), writers, 0..8_u8), 1..16)
}

fn written(random: &[Random]) -> Vec<WorkflowStep> {
    let name = |index: usize| format!("s{index}");
    let outputs = |index: usize| match random[index].2 {
        0 => vec![format!("/s{index}-out")],
        _ => parts(&name(index)),
    };
    let step = |(index, (is_kept, writers, kind)): (usize, &Random)| {
        let mut inputs = text();
        if index > 0 {
            let mut read: Vec<usize> = writers.iter().map(|writer| writer.index(index)).collect();
            read.sort_unstable();
            read.dedup();
            inputs.extend(read.into_iter().flat_map(outputs));
        }
        if *kind == 1 && inputs.len() > 1 {
            inputs.pop();
        }
        let mut step = if *kind == 0 { program(&name(index), &inputs) } else { job(&name(index), &inputs) };
        if *is_kept {
            step.program.outputs.iter_mut().for_each(|output| output.temporary = false);
        }
        step
    };
    random.iter().enumerate().map(step).collect()
}

proptest! {
    /// Each step runs once, after those before it or in a flow with them; what leaves a flow is written.
    #[test]
    fn random_jobs_form_sound_flows(random in any_steps(), picks in prop::collection::vec(any::<prop::sample::Index>(), 16)) {
        let steps = written(&random);
        let plan = planned(steps.clone());
        let mut picks = picks.into_iter();
        let order = laws::check(plan.as_ref(), |count| picks.next().map_or(0, |pick| pick.index(count))).unwrap();
        let own = order.iter().filter(|step| (step.0 as usize) < steps.len());
        prop_assert_eq!(own.count(), steps.len());
        for step in plan.first(NodeSize::default()) {
            let StepWork::Flow(jobs) = &step.work else { continue };
            prop_assert!(jobs.len() > 1);
            for (place, job) in jobs.iter().enumerate() {
                prop_assert!(job.reads.iter().all(|read| (*read as usize) < place));
                let of_steps = &steps[job.number.0 as usize].program;
                let parts = job.reads.len() * PARTS;
                prop_assert_eq!(job.spec.inputs.len() + parts, of_steps.inputs.len());
                let is_read = jobs.iter().any(|other| other.reads.contains(&(place as u32)));
                prop_assert_eq!(job.spec.feeds(), is_read);
                if is_read {
                    let outside = steps.iter().enumerate().filter(|(number, _)| {
                        jobs.iter().all(|member| member.number.0 as usize != *number)
                    });
                    let reads = |step: &WorkflowStep| {
                        step.program.inputs.iter().any(|input| input.path.starts_with(&job.spec.output))
                    };
                    prop_assert!(!outside.map(|(_, step)| step).any(reads));
                    prop_assert!(of_steps.outputs.iter().all(|output| output.temporary));
                }
            }
        }
    }
}
