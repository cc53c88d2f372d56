//! Flows of jobs: steps that are MapReduce jobs and read each other's parts begin together. Their parts stay on the nodes
//! that wrote them, and become no files of the workflow; regeneration and replicas are those of the stages of a flow
//! (`docs/internals/flows.md`).
//!
//! A job feeds others if all its parts are temporary, and each step that reads one is a job of the flow that reads all
//! of them, in their order and after its own inputs. So a job reads the same records in the same order as from files.

use crate::PlannedWorkflow;
use crate::spec::{MadeInput, PlannedStep};
use api::flow::FLOW_STAGES_MAX;
use api::{Exchange, FlowStage, InputFile, JobSpec, RecordFormat};
use ids::StepNumber;
use jobkind::{FlowStep, Step, StepWork};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the flow that begins with a step whose predecessors are all finished; None if the step runs on its own.
pub(crate) fn flow(
    spec: &PlannedWorkflow,
    first: StepNumber,
    is_finished: &dyn Fn(StepNumber) -> bool,
    is_free: &dyn Fn(StepNumber) -> bool,
) -> Option<Step> {
    let may_join = |step: StepNumber| {
        let is_job = spec.step_at(step).job.is_some();
        // A step for which a finished run stands must be alone to be skipped.
        is_job && is_free(step) && !spec.prior().may_stand.contains(&step)
    };
    if !may_join(first) {
        return None;
    }
    let mut members = reached(spec, first, &may_join, is_finished);
    // Each removal may leave another job with a reader outside.
    while let Some(step) =
        members.iter().copied().find(|step| *step != first && !belongs(spec, *step, &members, is_finished))
    {
        members.remove(&step);
    }
    (members.len() > 1).then(|| step(spec, first, &members))
}

/// Returns a step with the jobs that read its parts, those that read theirs, and so on, and the jobs that they read besides.
fn reached(
    spec: &PlannedWorkflow,
    first: StepNumber,
    may_join: &dyn Fn(StepNumber) -> bool,
    is_finished: &dyn Fn(StepNumber) -> bool,
) -> BTreeSet<StepNumber> {
    let (mut members, mut next) = (BTreeSet::from([first]), vec![first]);
    while let Some(member) = next.pop() {
        let planned = spec.step_at(member);
        let readers = planned.outputs.iter().flat_map(|output| output.readers.iter().copied());
        let writers = planned.made_inputs.iter().map(|made| made.writer);
        for step in readers.chain(writers.filter(|writer| !is_finished(*writer))) {
            if members.len() < FLOW_STAGES_MAX && may_join(step) && members.insert(step) {
                next.push(step);
            }
        }
    }
    members
}

/// Returns whether a step needs finished steps and members alone, and can read those of the members as a flow.
fn belongs(
    spec: &PlannedWorkflow,
    step: StepNumber,
    members: &BTreeSet<StepNumber>,
    is_finished: &dyn Fn(StepNumber) -> bool,
) -> bool {
    let planned = spec.step_at(step);
    let feeds = |step: &StepNumber| feeds(spec.step_at(*step), members);
    let Some(writers) = planned.job.as_ref().and_then(|job| writers(spec, planned, job, members)) else {
        return false;
    };
    let mut others = planned.after.iter().filter(|before| !writers.contains(before));
    writers.iter().all(feeds) && others.all(|before| is_finished(*before))
}

/// Returns whether a job writes its parts for members alone.
fn feeds(step: &PlannedStep, members: &BTreeSet<StepNumber>) -> bool {
    let is_inside = |output: usize| {
        let mut readers = step.outputs[output].readers.iter();
        step.is_removed(output) && readers.all(|reader| members.contains(reader))
    };
    // Without a number of partitions, the parts depend on the slots.
    let job =
        step.job.as_ref().filter(|job| job.keys.partitions.is_some() && job.formats.output_codec.is_none());
    job.is_some() && (0..step.outputs.len()).all(is_inside)
}

/// Returns the members whose parts a job reads, in order; None if it does not read all parts of each in their order, or reads
/// another file after them.
fn writers(
    spec: &PlannedWorkflow,
    step: &PlannedStep,
    job: &JobSpec,
    members: &BTreeSet<StepNumber>,
) -> Option<Vec<StepNumber>> {
    let made = step.made_inputs.iter().filter(|made| members.contains(&made.writer));
    let parts: BTreeMap<usize, &MadeInput> = made.map(|made| (made.input, made)).collect();
    let own = job.inputs.len() - parts.len();
    let mut parts = (own..job.inputs.len()).map(|input| parts.get(&input)).peekable();
    let mut writers = Vec::new();
    while parts.peek().is_some() {
        let writer = parts.peek().copied().flatten()?.writer;
        if writers.contains(&writer) {
            return None;
        }
        writers.push(writer);
        for output in 0..spec.step_at(writer).outputs.len() {
            parts.next()?.filter(|part| (part.writer, part.output) == (writer, output))?;
        }
    }
    // Programs that read frames see the names and numbers of files.
    let reads_as_files =
        job.formats.exchange == Exchange::Frames || job.formats.input == RecordFormat::Stretches;
    (writers.is_empty() || !reads_as_files).then_some(writers)
}

fn step(spec: &PlannedWorkflow, first: StepNumber, members: &BTreeSet<StepNumber>) -> Step {
    let reads: BTreeMap<StepNumber, Vec<StepNumber>> = members
        .iter()
        .map(|step| {
            let planned = spec.step_at(*step);
            let writers = planned.job.as_ref().and_then(|job| writers(spec, planned, job, members));
            (*step, writers.unwrap_or_default())
        })
        .collect();
    // Each after those that it reads. There is no cycle among steps.
    let mut order: Vec<StepNumber> = vec![first];
    while order.len() < members.len() {
        let is_next = |step: &&StepNumber| {
            !order.contains(step) && reads[*step].iter().all(|writer| order.contains(writer))
        };
        let Some(next) = members.iter().find(is_next) else { break };
        order.push(*next);
    }
    let is_read: BTreeSet<StepNumber> = reads.values().flatten().copied().collect();
    let jobs: Vec<FlowStep> = order
        .iter()
        .map(|number| {
            let place = |writer: &StepNumber| order.iter().position(|step| step == writer);
            let reads = reads[number].iter().filter_map(place).map(|place| place as u32).collect();
            flow_step(spec, *number, reads, members, is_read.contains(number))
        })
        .collect();
    let name = spec.step_at(first).name.clone();
    Step { number: first, name, work: StepWork::Flow(jobs), beside: order[1..].to_vec() }
}

fn flow_step(
    spec: &PlannedWorkflow,
    number: StepNumber,
    reads: Vec<u32>,
    members: &BTreeSet<StepNumber>,
    feeds: bool,
) -> FlowStep {
    let planned = spec.step_at(number);
    let mut job = planned.job.as_deref().cloned().unwrap_or_else(|| JobSpec::named(""));
    let parts = planned.made_inputs.iter().filter(|made| members.contains(&made.writer)).count();
    let streamed: Vec<InputFile> = job.inputs.split_off(job.inputs.len() - parts);
    if let Some(recording) = &mut job.recording {
        recording.streamed = streamed.into_iter().map(|input| input.path).collect();
    }
    let (name, named_inputs) = (planned.name.to_string(), job.inputs.len() as u32);
    job.stage = Some(FlowStage { name, named_inputs, feeds, ..FlowStage::default() });
    FlowStep { number, name: Arc::clone(&planned.name), spec: Arc::new(job), reads }
}
