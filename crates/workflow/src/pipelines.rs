//! The segmentation of a workflow into pipelines (Clustera, section 3.4): a step that may begin takes along the steps
//! that read its streams, theirs, and so on, as long as their cores fit on one node. A step that reads streams of several
//! steps takes along the others. They start together: the first phase of the pipeline.
//!
//! Further phases follow one after the other while no slot of the pipeline is idle in them: the steps that wait for it
//! need nothing else, and their cores are its slots. So the files between them can lie in memory: they are temporary, are
//! read in the pipeline alone, and their sizes are bounded before they are written.
//!
//! A step is left out if it needs a file or another step that is not finished; it begins later, as the start of another
//! pipeline. Where one node has the stored inputs of two branches, a step that reads both takes the second one along.

use crate::PlannedWorkflow;
use crate::flows;
use crate::places::Placed;
use crate::spec::{PlannedOutput, PlannedStep};
use api::ShippedFile;
use api::control::NAME_BYTES_MAX;
use api::shipping::SHIPPED_FILES_MAX;
use api::task::{PIPELINE_PROGRAMS_MAX, PIPELINE_STREAMS_MAX, RunTask, TASK_FILES_MAX};
use ids::StepNumber;
use jobkind::{NodeSize, Step, StepWork};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of phases of a pipeline: a lost node takes all of them along.
const PHASES_MAX: u32 = 16;
/// Bytes that a step may write beyond those of its last run, besides a quarter of them.
const MORE_BYTES: u64 = 1 << 20;

/// Returns the pipelines that begin with these steps, whose predecessors are all finished. Of two that belong to one
/// pipeline the first takes the second along.
pub(crate) fn pipelines(
    spec: &PlannedWorkflow,
    ready: impl Iterator<Item = StepNumber>,
    is_finished: impl Fn(StepNumber) -> bool,
    begun: &BTreeSet<StepNumber>,
    size: NodeSize,
) -> Vec<Step> {
    let mut taken: BTreeSet<StepNumber> = BTreeSet::new();
    let mut pipelines = Vec::new();
    for first in ready {
        if begun.contains(&first) || taken.contains(&first) {
            continue;
        }
        let is_free = |step: StepNumber| !begun.contains(&step) && !taken.contains(&step);
        let around = Around { is_finished: &is_finished, is_free: &is_free, size };
        if let Some(flow) = flows::flow(spec, first, &is_finished, &is_free) {
            taken.extend(flow.numbers());
            pipelines.push(flow);
            continue;
        }
        let mut pipeline = Growing::new(spec, first);
        pipeline.grow_along_streams(&around);
        while let Some(longer) = pipeline.with_next_phase(&around) {
            pipeline = longer;
        }
        taken.extend(pipeline.members.keys());
        pipelines.push(pipeline.step());
    }
    pipelines
}

/// The state of the workflow around a pipeline.
struct Around<'a> {
    is_finished: &'a dyn Fn(StepNumber) -> bool,
    /// Returns whether a step is in no pipeline.
    is_free: &'a dyn Fn(StepNumber) -> bool,
    size: NodeSize<'a>,
}

/// The files that a step of a branch may need of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Streams,
    Any,
}

/// A pipeline that grows from its first step.
#[derive(Clone)]
struct Growing<'a> {
    spec: &'a PlannedWorkflow,
    /// Its steps in their order.
    order: Vec<StepNumber>,
    /// Their phases.
    members: BTreeMap<StepNumber, u32>,
    phase: u32,
    /// Needs of the steps of the present phase, and the stored inputs of all.
    placed: Placed,
    /// The most memory that the steps of a phase claim.
    memory_bytes: u64,
    /// Memory for the files of its steps, which lasts until the end.
    file_memory: BTreeMap<StepNumber, u64>,
    files: usize,
    /// Number of streams that its programs open by name.
    named_streams: usize,
    shipped: BTreeMap<PathBuf, ShippedFile>,
    /// The program of its first step.
    first: Arc<RunTask>,
}

impl<'a> Growing<'a> {
    fn new(spec: &'a PlannedWorkflow, first: StepNumber) -> Self {
        let program = spec.step_at(first).program();
        let shipped = program.shipped.iter().map(|file| (file.path.clone(), file.clone())).collect();
        Self {
            spec,
            order: vec![first],
            members: BTreeMap::from([(first, 0)]),
            phase: 0,
            placed: Placed::of(&program),
            memory_bytes: program.memory_bytes,
            file_memory: BTreeMap::new(),
            files: files_of(&program),
            named_streams: program.named_streams().count(),
            shipped,
            first: Arc::new(program),
        }
    }

    /// Takes the steps that read streams of the present phase, theirs, and so on.
    fn grow_along_streams(&mut self, around: &Around<'_>) {
        let mut place = self.order.iter().position(|step| self.members[step] == self.phase).unwrap_or(0);
        while let Some(writer) = self.order.get(place).copied() {
            place += 1;
            for reader in self.spec.step_at(writer).stream_readers.iter().copied() {
                if self.members.contains_key(&reader) || !(around.is_free)(reader) {
                    continue;
                }
                let before = &self.spec.step_at(reader).after;
                if before.iter().all(|before| self.streams_or_is_over(*before, reader, around)) {
                    self.takes(reader, around.size);
                } else if self.phase == 0 {
                    self.takes_other_branches(reader, around);
                }
            }
        }
    }

    /// Takes a reader with the other steps before it, if all of these can stream, or if one node has the stored inputs.
    fn takes_other_branches(&mut self, reader: StepNumber, around: &Around<'_>) {
        if let Some(streaming) = self.missing(reader, Before::Streams, around) {
            let mut all = self.clone();
            if streaming.iter().all(|step| all.takes(*step, around.size)) {
                *self = all;
                return;
            }
        }
        if self.placed.has_inputs() {
            let branch = self.missing(reader, Before::Any, around);
            branch.into_iter().for_each(|branch| self.takes_branch(&branch, around.size));
        }
    }

    /// Returns whether a step need not be waited for by a step of the present phase: it is over, or runs in this phase and
    /// passes nothing but streams.
    fn streams_or_is_over(&self, before: StepNumber, reader: StepNumber, around: &Around<'_>) -> bool {
        let runs_now = self.members.get(&before) == Some(&self.phase);
        self.is_over(before, around) || runs_now && self.passes_streams(before, reader)
    }

    /// Returns whether a step needs nothing of another but streams.
    fn passes_streams(&self, writer: StepNumber, reader: StepNumber) -> bool {
        self.spec.step_at(writer).stream_readers.binary_search(&reader).is_ok()
    }

    /// Returns whether a step is finished when the present phase begins.
    fn is_over(&self, step: StepNumber, around: &Around<'_>) -> bool {
        (around.is_finished)(step) || self.members.get(&step).is_some_and(|phase| *phase < self.phase)
    }

    /// Returns the pipeline with all steps that wait for it as its next phase. None: one of them needs something else, a
    /// slot would be idle, or the files between them do not fit in memory.
    fn with_next_phase(&self, around: &Around<'_>) -> Option<Self> {
        let has_bounds = || self.order.iter().any(|step| self.bytes_max(*step).is_some());
        // A step for which a finished run stands must be alone to be skipped.
        let may_stand = |step: &StepNumber| self.spec.prior().may_stand.contains(step);
        let first = self.spec.step_at(self.order[0]);
        let retries = self.first.retries;
        if first.job.is_some()
            || self.phase + 1 == PHASES_MAX
            || retries > 0
            || !has_bounds()
            || self.order.iter().any(may_stand)
        {
            return None;
        }
        let waiting = self.waiting(around);
        let mut longer = Self { phase: self.phase + 1, placed: self.placed.next_phase(), ..self.clone() };
        for step in &waiting {
            let may_begin =
                self.spec.step_at(*step).after.iter().all(|before| longer.is_over(*before, around));
            if !may_begin || may_stand(step) || !(around.is_free)(*step) || !longer.takes(*step, around.size)
            {
                return None;
            }
        }
        longer.grow_along_streams(around);
        let is_as_wide = longer.placed.needs.slots == self.placed.needs.slots;
        (is_as_wide && longer.holds_files(around.size)).then_some(longer)
    }

    /// Returns the steps outside that wait for steps of the pipeline, in order.
    fn waiting(&self, around: &Around<'_>) -> BTreeSet<StepNumber> {
        let readers = self.order.iter().flat_map(|step| &self.spec.step_at(*step).readers).copied();
        let is_outside = |reader: &StepNumber| !self.members.contains_key(reader);
        readers.filter(|reader| is_outside(reader) && !(around.is_finished)(*reader)).collect()
    }

    /// Claims memory for the files that the present phase reads. Returns whether there are any, and all fit.
    fn holds_files(&mut self, size: NodeSize) -> bool {
        let mut writers = BTreeSet::new();
        for reader in self.order.iter().filter(|step| self.members[step] == self.phase) {
            let made = &self.spec.step_at(*reader).made_inputs;
            let earlier = made
                .iter()
                .filter(|made| self.members.get(&made.writer).is_some_and(|phase| *phase < self.phase));
            writers.extend(earlier.map(|made| (made.writer, made.output)));
        }
        let is_inside = |(writer, output): &(StepNumber, usize)| {
            let step = self.spec.step_at(*writer);
            let mut readers = step.outputs[*output].readers.iter();
            step.is_removed(*output) && readers.all(|reader| self.members.contains_key(reader))
        };
        if writers.is_empty() || !writers.iter().all(is_inside) {
            return false;
        }
        for (writer, _) in writers {
            let Some(bytes) = self.bytes_max(writer) else { return false };
            self.file_memory.insert(writer, bytes);
        }
        let share_bytes =
            size.memory_bytes / u64::from(size.slots.max(1)) * u64::from(self.placed.needs.slots);
        self.file_memory_bytes() <= share_bytes / 2 && self.claim_bytes() <= size.memory_bytes
    }

    fn file_memory_bytes(&self) -> u64 {
        self.file_memory.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn claim_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.file_memory_bytes())
    }

    /// Returns the most bytes that a step is expected to write: by its last run, or else the memory that it declares.
    fn bytes_max(&self, writer: StepNumber) -> Option<u64> {
        let wrote = self.spec.prior().wrote.get(&writer);
        let by_run = wrote.map(|bytes| bytes.saturating_add(bytes / 4).saturating_add(MORE_BYTES));
        let declared = || self.spec.step_at(writer).program().memory_bytes;
        by_run.or_else(|| Some(declared()).filter(|bytes| *bytes > 0))
    }

    /// Takes a step into the present phase if the pipeline still fits on a node, and both may be one attempt.
    fn takes(&mut self, step: StepNumber, size: NodeSize) -> bool {
        let program = &self.spec.step_at(step).program();
        let more = Placed::of(program);
        let placed = self.placed.with(&more);
        let files = self.files + files_of(program);
        let named_streams = self.named_streams + program.named_streams().count();
        let has_room = files <= TASK_FILES_MAX && named_streams <= PIPELINE_STREAMS_MAX;
        let fits = placed.fits(size) && has_room && !self.placed.moves_more_with(&more, size);
        if !fits || self.order.len() >= PIPELINE_PROGRAMS_MAX || !may_share(&self.first, program) {
            return false;
        }
        let differs =
            |file: &ShippedFile| self.shipped.get(&file.path).is_some_and(|same| same.sha256 != file.sha256);
        let more = program.shipped.iter().filter(|file| !self.shipped.contains_key(&file.path));
        if program.shipped.iter().any(differs) || self.shipped.len() + more.count() > SHIPPED_FILES_MAX {
            return false;
        }
        self.shipped.extend(program.shipped.iter().map(|file| (file.path.clone(), file.clone())));
        self.memory_bytes = self.memory_bytes.max(placed.needs.memory_bytes);
        (self.placed, self.files, self.named_streams) = (placed, files, named_streams);
        self.order.push(step);
        self.members.insert(step, self.phase);
        true
    }

    /// Returns a step with all steps whose files it needs and that are neither finished nor in the pipeline; None if one of
    /// them is not free, must end before another one without writing a file for it, passes more than is `wanted`, or they
    /// are too many.
    fn missing(&self, step: StepNumber, wanted: Before, around: &Around<'_>) -> Option<Vec<StepNumber>> {
        let (mut missing, mut next) = (vec![step], 0);
        while let Some(step) = missing.get(next).copied() {
            next += 1;
            let planned = self.spec.step_at(step);
            let is_unfinished = |before: &StepNumber| !(around.is_finished)(*before);
            let waits = match wanted {
                Before::Streams => {
                    let mut unfinished = planned.after.iter().filter(|before| is_unfinished(before));
                    unfinished.any(|before| !self.passes_streams(*before, step))
                }
                Before::Any => planned.only_before().any(|before| is_unfinished(&before)),
            };
            let is_free = (around.is_free)(step) && !self.members.contains_key(&step);
            if waits || !is_free || self.order.len() + missing.len() > PIPELINE_PROGRAMS_MAX {
                return None;
            }
            for before in planned.after.iter().copied().filter(is_unfinished) {
                let is_known = self.members.contains_key(&before) || missing.contains(&before);
                if !is_known {
                    missing.push(before);
                }
            }
        }
        missing.reverse();
        Some(missing)
    }

    /// Takes a branch that ends in a reader of the pipeline, if one node has the stored inputs of all.
    fn takes_branch(&mut self, branch: &[StepNumber], size: NodeSize<'_>) {
        let mut all = self.clone();
        let is_taken = branch.iter().all(|step| all.takes(*step, size));
        let has_inputs = |step: &StepNumber| Placed::of(&self.spec.step_at(*step).program()).has_inputs();
        if is_taken && branch.iter().any(has_inputs) && all.placed.has_a_home(size) {
            *self = all;
        }
    }

    fn step(self) -> Step {
        let spec = self.spec;
        let (number, first) = (self.order[0], spec.step_at(self.order[0]));
        let beside = self.order[1..].to_vec();
        if let Some(job) = &first.job {
            let (name, work) = (Arc::clone(&first.name), StepWork::MapReduce(Arc::clone(job)));
            return Step { number, name, work, beside };
        }
        if beside.is_empty() && !first.outputs.iter().any(|output| output.is_temporary) {
            let (name, work) = (Arc::clone(&first.name), StepWork::Program(self.first));
            return Step { number, name, work, beside };
        }
        let (name, claim_bytes) = (self.name(), self.claim_bytes());
        let mut programs = self.order.iter().map(|member| self.program(*member));
        let mut task = programs.next().unwrap_or_default();
        let others: Vec<RunTask> = programs.collect();
        task.memory_bytes = claim_bytes;
        task.shipped = self.shipped.into_values().collect();
        for mut other in others {
            other.shipped.clear();
            (other.memory_bytes, other.architecture, other.retries) = (0, None, 0);
            task.pipeline.push(other);
        }
        Step { number, name, work: StepWork::Program(Arc::new(task)), beside }
    }

    /// Returns the names of the steps: `|` between those that run together, `>` before a phase.
    fn name(&self) -> Arc<str> {
        let (mut name, mut last) = (String::new(), 0);
        for member in &self.order {
            let phase = self.members[member];
            if !name.is_empty() {
                name.push_str(if phase == last { " | " } else { " > " });
            }
            name.push_str(&self.spec.step_at(*member).name);
            last = phase;
        }
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        name.into()
    }

    /// Returns the program of a step. An output stays temporary only if all steps that read it are in the pipeline.
    fn program(&self, number: StepNumber) -> RunTask {
        let step: &PlannedStep = self.spec.step_at(number);
        let mut program = step.program();
        for (output, PlannedOutput { readers, .. }) in program.outputs.iter_mut().zip(&step.outputs) {
            output.temporary &=
                !readers.is_empty() && readers.iter().all(|reader| self.members.contains_key(reader));
        }
        program.phase = self.members[&number];
        program.file_memory_bytes = self.file_memory.get(&number).copied().unwrap_or_default();
        program
    }
}

fn files_of(program: &RunTask) -> usize {
    program.inputs.len() + program.outputs.len()
}

/// Returns whether two programs may run in one attempt: nothing that holds for an attempt as a whole tells them apart.
fn may_share(first: &RunTask, other: &RunTask) -> bool {
    let limits = !first.is_limited_as_a_whole() && !other.is_limited_as_a_whole();
    limits
        && (first.retries, &first.env_file) == (other.retries, &other.env_file)
        // The largest node may have another architecture.
        && first.architecture.is_none()
        && other.architecture.is_none()
        && first.pinned.is_empty()
        && other.pinned.is_empty()
        && !other.words.is_empty()
        && !first.in_place
        && !other.in_place
        && first.pipeline.is_empty()
        && other.pipeline.is_empty()
}
