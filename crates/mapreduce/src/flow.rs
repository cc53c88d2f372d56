//! What follows for the stages of a flow from how far each of them is (ISS, section 4; design section 3, "Intermediate files between
//! stages"): which begins, which rests, which may go, which parts are made again, and where each is read.
//!
//! A stage that feeds others is not over when its parts are there. It *rests*: its I-files stay, so that parts which are lost can be
//! made again with as little as that takes, until all who read it are over. What is lost is made again when somebody has yet to
//! read it, and what that takes of stages before in turn; whatever is replicated, or was read, costs nothing.
//!
//! The server asks these questions of its jobs and the simulator of those of its worlds: what is proved there is what runs.

use crate::layout::LayoutError;
use crate::{Gone, JobResults, with_inputs};
use api::task::MapTask;
use api::{InputFile, JobSpec, Split, StageFile, StageFilePlace, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// How far a job is as a stage of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageState {
    /// The scheduler waits for its first tasks.
    pub is_asked: bool,
    /// What it reads of others is known.
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

/// Where decisions find the jobs of flows.
pub trait Flows {
    /// A job, as long as anything is known of it.
    fn stage(&self, job: JobId) -> Option<Stage<'_>>;
    /// The jobs of a flow of which anything is known.
    fn of_flow(&self, flow: JobId) -> Vec<JobId>;
    /// Those of all flows.
    fn of_all_flows(&self) -> BTreeSet<JobId>;
    fn has_left(&self, node: NodeId) -> bool;
}

/// What a job reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// It is known before, or it is nothing of a stage.
    Known,
    /// A stage that it reads is not done.
    NotYet,
    /// All are done: the specification with them, and the splits.
    Are(Box<(JobSpec, Vec<Split>)>),
}

/// What a job may map, when it is to begin.
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

/// What follows when all parts of a stage are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// Nobody will read them.
    Ends,
    /// The stage rests, and these begin unless they wait for another one.
    Begin(Vec<JobId>),
}

/// Asked of a stage whose parts are there, and proved. `is_recovering`: those who read it may not be there yet.
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

/// What follows for others when a job is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterEnd {
    /// These, which rested for it, may go.
    LetEnd(Vec<JobId>),
    /// It did not succeed: nor can these any more.
    Stop(Vec<JobId>),
}

/// Asked of a job that is over.
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

/// Where what a map task reads of other stages lies now.
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

/// What it takes to make parts of a stage again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartsAgain {
    /// What comes before their tasks is made again already: when they are there again, it is looked once more.
    Anyhow,
    /// It was done as often as the job allows.
    TooOften,
    /// Their tasks are map tasks, and run again.
    ByMaps,
    /// Their tasks are reduce tasks, and run again; of what they read this is gone as well.
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
        let reduce = crate::stages(spec).iter().position(|name| *name == "reduce");
        if !spec.map_only && reduce.is_some_and(|reduce| stages_expanded <= reduce) {
            return PartsAgain::Anyhow;
        }
        if self.regenerations >= spec.max_regenerations {
            return PartsAgain::TooOften;
        }
        self.forget_parts(tasks);
        if spec.map_only {
            return PartsAgain::ByMaps;
        }
        PartsAgain::ByReduces(Gone::runs(&self.runs_left_behind(has_left)))
    }
}

#[cfg(test)]
mod tests;
