//! Decisions about the stages of a flow from the state of each (intermediate storage system, ISS, section 4;
//! `docs/internals/flows.md`): when stages begin, rest and end, which parts are recomputed, and where each part is
//! read.
//!
//! A stage that feeds others is not over when its parts are complete. It *rests*: its I-files stay until all stages
//! that read it are over, so that lost parts can be recomputed with the least work. A lost part is recomputed only if a
//! stage has yet to read it, with the lost data of earlier stages that this needs. A loss costs nothing if the part has
//! a replica or was read.
//!
//! The server asks for these decisions about its jobs, and the simulator about those of its worlds: the code tested
//! there is the code that runs.

use crate::layout::LayoutError;
use crate::{JobResults, LostData, with_inputs};
use api::task::MapTask;
use api::{InputFile, JobSpec, Split, StageFile, StageFilePlace, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageKind, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// State of a job as a stage of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// True if the scheduler waits for its first tasks.
    pub is_asked: bool,
    /// True if its inputs from other stages are known.
    pub has_inputs: bool,
    /// True if its parts are complete and wait for their readers.
    pub parts_ready: bool,
    /// True if a stage has begun to read its parts: recomputed parts must be the same.
    pub is_read: bool,
}

impl FlowState {
    /// Returns whether a stage that it reads is not done, so that its inputs are not known yet.
    pub fn waits(&self, spec: &JobSpec) -> bool {
        !spec.reads().is_empty() && !self.has_inputs
    }
}

/// A job for the decisions about its flow.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    pub spec: &'a JobSpec,
    pub results: &'a JobResults,
    pub state: FlowState,
    /// True if it has ended, in any way.
    pub is_over: bool,
}

impl Stage<'_> {
    fn waits(&self) -> bool {
        self.state.waits(self.spec)
    }
}

/// Access to the jobs of flows.
pub trait Flows {
    /// Returns a job, as long as it is known.
    fn stage(&self, job: JobId) -> Option<Stage<'_>>;
    /// Returns the known jobs of a flow.
    fn of_flow(&self, flow: JobId) -> Vec<JobId>;
    /// Returns the jobs of all flows.
    fn of_all_flows(&self) -> BTreeSet<JobId>;
    fn has_left(&self, node: NodeId) -> bool;
}

/// The inputs of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// The inputs are known already, or none of them comes from a stage.
    Known,
    /// A stage that it reads is not done.
    NotYet,
    /// All stages are done: the specification with their parts as inputs, and the splits.
    Are(Box<(JobSpec, Vec<Split>)>),
}

/// Returns the inputs of a job that is about to begin.
pub fn inputs(flows: &impl Flows, job: JobId) -> Result<Inputs, LayoutError> {
    let Some(stage) = flows.stage(job).filter(Stage::waits) else { return Ok(Inputs::Known) };
    let mut inputs: Vec<InputFile> = Vec::new();
    let of_its_own = stage.spec.stage.as_ref().map_or(0, |stage| stage.named_inputs);
    for (position, read) in stage.spec.reads().iter().enumerate() {
        let Some(before) = flows.stage(*read).filter(|before| before.state.parts_ready) else {
            return Ok(Inputs::NotYet);
        };
        inputs.extend(before.results.as_inputs(before.spec, of_its_own.saturating_add(position as u32)));
    }
    with_inputs(stage.spec, inputs).map(|planned| Inputs::Are(Box::new(planned)))
}

/// Returns the jobs that read the output of a job.
pub fn readers(flows: &impl Flows, job: JobId) -> Vec<JobId> {
    let flow = flows.stage(job).and_then(|stage| Some(stage.spec.stage.as_ref()?.flow));
    let of_flow = flow.map(|flow| flows.of_flow(flow)).unwrap_or_default();
    let reads = |other: &JobId| flows.stage(*other).is_some_and(|other| other.spec.reads().contains(&job));
    of_flow.into_iter().filter(reads).collect()
}

/// Returns whether a job needs nothing any more: an unknown job is over.
fn is_over(flows: &impl Flows, job: JobId) -> bool {
    flows.stage(job).is_none_or(|stage| stage.is_over)
}

fn readers_are_over(flows: &impl Flows, job: JobId) -> bool {
    readers(flows, job).into_iter().all(|reader| is_over(flows, reader))
}

/// The next step for a stage whose parts are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// The stage ends: no job will read its parts.
    Ends,
    /// The stage waits with its parts, and these stages begin unless they wait for another one.
    Begin(Vec<JobId>),
}

/// The recovery of jobs after the start of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Jobs are being restored: a missing one may follow.
    Running,
    #[default]
    Over,
}

/// Decides about a stage whose parts are complete and proved.
pub fn at_rest(flows: &impl Flows, job: JobId, recovery: Recovery) -> AtRest {
    if recovery == Recovery::Over && readers_are_over(flows, job) {
        return AtRest::Ends;
    }
    // A stage that is still being submitted is asked later.
    let begins = |stage: &Stage<'_>| !stage.is_over && stage.waits() && stage.state.is_asked;
    let is_to_begin = |reader: &JobId| flows.stage(*reader).as_ref().is_some_and(begins);
    AtRest::Begin(readers(flows, job).into_iter().filter(is_to_begin).collect())
}

/// Returns whether no stage needs the parts of a resting stage any more.
pub fn may_end(flows: &impl Flows, job: JobId) -> bool {
    let parts_ready = flows.stage(job).is_some_and(|stage| stage.state.parts_ready && !stage.is_over);
    parts_ready && readers_are_over(flows, job)
}

/// Returns the stages that rested for a job that succeeded, and may end now.
pub fn released_by(flows: &impl Flows, job: JobId) -> Vec<JobId> {
    let of_flow = flows.stage(job).and_then(|stage| stage.spec.stage.as_ref());
    let reads = of_flow.into_iter().flat_map(|of_flow| of_flow.reads.iter().copied());
    reads.filter(|read| may_end(flows, *read)).collect()
}

/// Returns the jobs of a flow that are stopped because another job of the flow did not succeed.
pub fn stopped_by(flows: &impl Flows, job: JobId) -> Vec<JobId> {
    let Some(of_flow) = flows.stage(job).and_then(|stage| stage.spec.stage.as_ref()) else {
        return Vec::new();
    };
    let goes_on = |other: &JobId| *other != job && !is_over(flows, *other);
    flows.of_flow(of_flow.flow).into_iter().filter(goes_on).collect()
}

/// Returns whether a job can never get its inputs, because a stage that it reads ended too early.
pub fn is_cut_off(flows: &impl Flows, job: JobId) -> bool {
    let goes_on = flows.stage(job).filter(|stage| !stage.is_over);
    goes_on.is_some_and(|stage| stage.spec.reads().iter().any(|read| is_over(flows, *read)))
}

/// Returns the current locations of the parts of other stages that a map task reads.
pub fn places(flows: &impl Flows, job: JobId, map: &MapTask) -> Vec<StageFilePlace> {
    let Some(stage) = flows.stage(job).filter(|stage| !stage.spec.reads().is_empty()) else {
        return Vec::new();
    };
    let files: BTreeSet<u32> = map.split.segments.iter().map(|segment| segment.file_index).collect();
    let place = |index: u32| {
        let file = stage.spec.inputs.get(index as usize)?.stage_file?;
        let before = flows.stage(file.job)?;
        let mut place = before.results.part_place(file.task, index);
        place.node = place.node.filter(|node| !flows.has_left(*node));
        Some(place)
    };
    files.into_iter().filter_map(place).collect()
}

/// Returns the preferred nodes of each of these tasks; empty if there is no preference.
pub fn near(flows: &impl Flows, job: JobId, tasks: &[Task]) -> Vec<Vec<NodeId>> {
    let near = |task: &Task| {
        let Task::Map(map) = task else { return Vec::new() };
        let places = places(flows, job, map);
        let nodes = places.iter().flat_map(|place| place.node.into_iter().chain(place.replica));
        let nodes: BTreeSet<NodeId> = nodes.collect();
        nodes.into_iter().collect()
    };
    tasks.iter().map(near).collect()
}

/// Returns the jobs of all flows in the order in which to ask for their missing parts: readers before the stages that
/// they read, because recomputing a part may need more parts of earlier stages.
pub fn last_first(flows: &impl Flows) -> Vec<JobId> {
    flows.of_all_flows().into_iter().rev().collect()
}

/// Returns the lost parts that a job has yet to read, by the stages that must recompute them.
pub fn lacks(flows: &impl Flows, job: JobId) -> Vec<(JobId, Vec<TaskIndex>)> {
    let mut wanted: BTreeMap<JobId, BTreeSet<TaskIndex>> = BTreeMap::new();
    for file in files_to_read(flows, job) {
        wanted.entry(file.job).or_default().insert(file.task);
    }
    let mut lacks = Vec::new();
    for (before, wanted) in wanted {
        let Some(stage) = flows.stage(before).filter(|stage| !stage.is_over) else { continue };
        let lost = stage.results.parts_lost(|node| flows.has_left(node));
        let again: Vec<TaskIndex> = lost.intersection(&wanted).copied().collect();
        if !again.is_empty() {
            lacks.push((before, again));
        }
    }
    lacks
}

/// Returns the files that a job has yet to read: all of them before it begins.
fn files_to_read(flows: &impl Flows, job: JobId) -> BTreeSet<StageFile> {
    let Some(stage) = flows.stage(job).filter(|stage| !stage.is_over) else { return BTreeSet::new() };
    if !stage.waits() {
        return stage.results.files_to_read(stage.spec);
    }
    let before = stage.spec.reads().iter().filter_map(|read| flows.stage(*read));
    let files = before.flat_map(|before| {
        let job = before.results.job;
        before.results.parts().map(move |(task, part)| StageFile { job, task, crc32c: part.crc32c })
    });
    files.collect()
}

/// Returns whether the result of an attempt differs from the part announced to its readers, or comes from maps that
/// are not deterministic while a stage has begun to read their output.
pub fn differs_from_told(flows: &impl Flows, attempt: AttemptKey, result: &TaskResult) -> bool {
    let (job, task) = (attempt.task.job, attempt.task.task);
    let Some(stage) = flows.stage(job).filter(|stage| stage.state.is_read) else { return false };
    let (part, differs) = match result {
        TaskResult::Map(map) => (map.part.as_ref(), stage.results.differs(task, map)),
        TaskResult::Reduce(reduce) => (Some(&reduce.part), false),
        _ => return false,
    };
    let is_other = |input: &InputFile| {
        let file = input.stage_file.filter(|file| file.job == job && file.task == task);
        file.zip(part)
            .is_some_and(|(file, part)| (file.crc32c, input.size_bytes) != (part.crc32c, part.bytes))
    };
    let is_told_otherwise =
        |reader: JobId| flows.stage(reader).is_some_and(|stage| stage.spec.inputs.iter().any(is_other));
    differs || readers(flows, job).into_iter().any(is_told_otherwise)
}

/// The way to recompute parts of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartsAgain {
    /// Their input data is already being recomputed. When it is ready, the parts are checked again.
    Anyhow,
    /// The limit of the job is reached.
    TooOften,
    /// Their tasks are map tasks, and run again.
    ByMaps,
    /// Their tasks are reduce tasks, and run again; this part of their input is lost too.
    ByReduces(LostData),
}

impl JobResults {
    /// Decides how to recompute these parts of a job with `stages_expanded` expanded stages. If they will be
    /// recomputed, their results are forgotten.
    pub fn parts_again(
        &mut self,
        spec: &JobSpec,
        stages_expanded: usize,
        tasks: &[TaskIndex],
        has_left: impl Fn(NodeId) -> bool,
    ) -> PartsAgain {
        let reduce = crate::stages(spec).iter().position(|kind| *kind == StageKind::Reduce);
        if spec.kind.has_shuffle() && reduce.is_some_and(|reduce| stages_expanded <= reduce) {
            return PartsAgain::Anyhow;
        }
        if self.regenerations >= spec.max_regenerations {
            return PartsAgain::TooOften;
        }
        self.forget_parts(tasks);
        if !spec.kind.has_shuffle() {
            return PartsAgain::ByMaps;
        }
        PartsAgain::ByReduces(LostData::runs(&self.runs_left_behind(has_left)))
    }
}

#[cfg(test)]
mod tests;
