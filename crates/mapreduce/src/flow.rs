//! Decisions about the stages of a flow, by the state of each (ISS, section 4; `docs/internals/flows.md`): which stages begin, rest, or
//! may go, which parts are made again, and where each part is read.
//!
//! A stage that feeds others is not over when its parts are there. It *rests*: its I-files stay until all stages that
//! read it are over, so that lost parts can be made again with the least work. A lost part is made again only if a
//! stage has yet to read it, and so is the data of earlier stages that this work needs. A loss costs nothing if the
//! part has a replica or was read.
//!
//! The server asks for these decisions about its jobs, and the simulator about those of its worlds: the code that is
//! proved there is the code that runs.

use crate::layout::LayoutError;
use crate::{Gone, JobResults, with_inputs};
use api::task::MapTask;
use api::{InputFile, JobSpec, Split, StageFile, StageFilePlace, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageKind, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// How far a job is as a stage of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageState {
    /// The scheduler waits for its first tasks.
    pub is_asked: bool,
    /// The inputs that it reads from other stages are known.
    pub has_inputs: bool,
    /// Its parts are there and wait for those who read them.
    pub rests: bool,
    /// Somebody has begun to read its parts: those that are made again must be the same.
    pub is_read: bool,
}

impl StageState {
    /// Whether the stages that it reads are not done, so that nobody knows its inputs.
    pub fn waits(&self, spec: &JobSpec) -> bool {
        !spec.reads().is_empty() && !self.has_inputs
    }
}

/// A job as its flow sees it.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    pub spec: &'a JobSpec,
    pub results: &'a JobResults,
    pub state: StageState,
    /// It has ended, however that was.
    pub is_over: bool,
}

impl Stage<'_> {
    fn waits(&self) -> bool {
        self.state.waits(self.spec)
    }
}

/// The jobs of flows, as the decisions find them.
pub trait Flows {
    /// A job, as long as anything is known of it.
    fn stage(&self, job: JobId) -> Option<Stage<'_>>;
    /// The jobs of a flow of which anything is known.
    fn of_flow(&self, flow: JobId) -> Vec<JobId>;
    /// Returns the jobs of all flows.
    fn of_all_flows(&self) -> BTreeSet<JobId>;
    fn has_left(&self, node: NodeId) -> bool;
}

/// The inputs of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// They are known already, or none of them comes from a stage.
    Known,
    /// A stage that it reads is not done.
    NotYet,
    /// All are done: the specification with them, and the splits.
    Are(Box<(JobSpec, Vec<Split>)>),
}

/// Returns the inputs of a job that is to begin.
pub fn inputs(flows: &impl Flows, job: JobId) -> Result<Inputs, LayoutError> {
    let Some(stage) = flows.stage(job).filter(Stage::waits) else { return Ok(Inputs::Known) };
    let mut inputs: Vec<InputFile> = Vec::new();
    let of_its_own = stage.spec.stage.as_ref().map_or(0, |stage| stage.named_inputs);
    for (position, read) in stage.spec.reads().iter().enumerate() {
        let Some(before) = flows.stage(*read).filter(|before| before.state.rests) else {
            return Ok(Inputs::NotYet);
        };
        inputs.extend(before.results.as_inputs(before.spec, of_its_own.saturating_add(position as u32)));
    }
    with_inputs(stage.spec, inputs).map(|planned| Inputs::Are(Box::new(planned)))
}

/// The jobs that read what a job puts out.
pub fn readers(flows: &impl Flows, job: JobId) -> Vec<JobId> {
    let flow = flows.stage(job).and_then(|stage| Some(stage.spec.stage.as_ref()?.flow));
    let of_flow = flow.map(|flow| flows.of_flow(flow)).unwrap_or_default();
    let reads = |other: &JobId| flows.stage(*other).is_some_and(|other| other.spec.reads().contains(&job));
    of_flow.into_iter().filter(reads).collect()
}

/// Whether a job needs nothing any more: of one that is over nothing may be known.
fn is_over(flows: &impl Flows, job: JobId) -> bool {
    flows.stage(job).is_none_or(|stage| stage.is_over)
}

fn readers_are_over(flows: &impl Flows, job: JobId) -> bool {
    readers(flows, job).into_iter().all(|reader| is_over(flows, reader))
}

/// The next step when all parts of a stage are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// The stage ends: no job will read its parts.
    Ends,
    /// The stage rests, and these begin unless they wait for another one.
    Begin(Vec<JobId>),
}

/// Decides about a stage whose parts are there, and proved. `is_recovering`: the jobs that read it may not be there
/// yet.
pub fn at_rest(flows: &impl Flows, job: JobId, is_recovering: bool) -> AtRest {
    if !is_recovering && readers_are_over(flows, job) {
        return AtRest::Ends;
    }
    // One that is only coming in is asked when it is there.
    let begins = |stage: &Stage<'_>| !stage.is_over && stage.waits() && stage.state.is_asked;
    let is_to_begin = |reader: &JobId| flows.stage(*reader).as_ref().is_some_and(begins);
    AtRest::Begin(readers(flows, job).into_iter().filter(is_to_begin).collect())
}

/// Whether nobody needs the parts of a resting stage any more.
pub fn may_end(flows: &impl Flows, job: JobId) -> bool {
    let rests = flows.stage(job).is_some_and(|stage| stage.state.rests && !stage.is_over);
    rests && readers_are_over(flows, job)
}

/// The next step for other jobs of a flow when a job is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterEnd {
    /// These stages, which rested for it, may go.
    LetEnd(Vec<JobId>),
    /// The job did not succeed: these jobs stop, because they cannot succeed any more.
    Stop(Vec<JobId>),
}

/// Decides about the other jobs of a flow when a job is over.
pub fn after_end(flows: &impl Flows, job: JobId, succeeded: bool) -> AfterEnd {
    let Some(of_flow) = flows.stage(job).and_then(|stage| stage.spec.stage.as_ref()) else {
        return AfterEnd::LetEnd(Vec::new());
    };
    if succeeded {
        return AfterEnd::LetEnd(
            of_flow.reads.iter().copied().filter(|read| may_end(flows, *read)).collect(),
        );
    }
    let goes_on = |other: &JobId| *other != job && !is_over(flows, *other);
    AfterEnd::Stop(flows.of_flow(of_flow.flow).into_iter().filter(goes_on).collect())
}

/// Whether a job can never have its inputs: a stage that it reads is over before it.
pub fn is_cut_off(flows: &impl Flows, job: JobId) -> bool {
    let goes_on = flows.stage(job).filter(|stage| !stage.is_over);
    goes_on.is_some_and(|stage| stage.spec.reads().iter().any(|read| is_over(flows, *read)))
}

/// Returns the current places of the parts of other stages that a map task reads.
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

/// The nodes near which each of these tasks runs best; none where it is all the same.
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

/// The jobs of all flows as it is to be asked of them what they lack. Who reads comes behind what it reads: what it lacks of those
/// may take more of ones before, so the last are asked first.
pub fn last_first(flows: &impl Flows) -> Vec<JobId> {
    flows.of_all_flows().into_iter().rev().collect()
}

/// The parts that a job has yet to read and that lie nowhere any more, by the stages that must make them again.
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

/// The files that a job has yet to read: where it has not begun, all that there are.
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

/// Whether what an attempt gives is another part than those who read it were told of, or comes of maps that give other data each time
/// where somebody has begun to read what came of them.
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

/// The way in which parts of a stage are made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartsAgain {
    /// The data before their tasks is being made again already. When it is there, the parts are looked at once more.
    Anyhow,
    /// It was done as often as the job allows.
    TooOften,
    /// Their tasks are map tasks, and run again.
    ByMaps,
    /// Their tasks are reduce tasks, and run again; this part of the data that they read is gone as well.
    ByReduces(Gone),
}

impl JobResults {
    /// These parts are to be made again, of a job with so many stages that have their tasks. Where that is to be done, they are
    /// forgotten.
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
        PartsAgain::ByReduces(Gone::runs(&self.runs_left_behind(has_left)))
    }
}

#[cfg(test)]
mod tests;
