//! The segmentation of a workflow into pipelines (Clustera, section 3.4): a step that may begin takes along the steps
//! that read its standard output, theirs, and so on, as long as their cores fit on one node.
//!
//! All programs of such a pipeline start together, so no slot waits for a file. A step is left out if it needs a file or
//! another step that is not finished; it begins later, as the start of another pipeline. Where one node has the stored
//! inputs of two branches, a step that reads both takes the second one along.

use crate::PlannedWorkflow;
use crate::places::Placed;
use crate::spec::PlannedStep;
use api::ShippedFile;
use api::control::NAME_BYTES_MAX;
use api::shipping::SHIPPED_FILES_MAX;
use api::task::{PIPELINE_PROGRAMS_MAX, RunTask, TASK_FILES_MAX};
use ids::StepNumber;
use jobkind::{NodeSize, Step, StepWork};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Returns the pipelines that begin with these steps, whose predecessors are all finished. Of two that belong to one
/// pipeline the first takes the second along.
pub(crate) fn pipelines(
    spec: &PlannedWorkflow,
    ready: impl Iterator<Item = StepNumber>,
    is_finished: impl Fn(StepNumber) -> bool,
    begun: &BTreeSet<StepNumber>,
    size: NodeSize,
) -> Vec<Step> {
    let mut taken = BTreeSet::new();
    let mut pipelines = Vec::new();
    for first in ready {
        if begun.contains(&first) || !taken.insert(first) {
            continue;
        }
        let mut pipeline = Growing::new(spec, first);
        let mut place = 0;
        while let Some(writer) = pipeline.members.get(place).copied() {
            place += 1;
            for reader in spec.step_at(writer).stream_readers.iter().copied() {
                let others = spec.step_at(reader).after.iter().filter(|before| **before != writer);
                let may_begin = others.into_iter().all(|before| is_finished(*before));
                let is_free = |step: &StepNumber| !begun.contains(step) && !taken.contains(step);
                if may_begin && is_free(&reader) && pipeline.takes(reader, size) {
                    taken.insert(reader);
                } else if !may_begin && pipeline.placed.has_inputs() {
                    let missing = pipeline.missing(reader, &is_finished, is_free);
                    taken.extend(
                        missing
                            .and_then(|missing| pipeline.takes_branch(missing, size))
                            .into_iter()
                            .flatten(),
                    );
                }
            }
        }
        pipelines.push(pipeline.step());
    }
    pipelines
}

/// A pipeline that grows from its first step.
#[derive(Clone)]
struct Growing<'a> {
    spec: &'a PlannedWorkflow,
    members: Vec<StepNumber>,
    placed: Placed,
    files: usize,
    shipped: BTreeMap<&'a Path, &'a ShippedFile>,
}

impl<'a> Growing<'a> {
    fn new(spec: &'a PlannedWorkflow, first: StepNumber) -> Self {
        let program = &spec.step_at(first).program;
        let shipped = program.shipped.iter().map(|file| (file.path.as_path(), file)).collect();
        Self { spec, members: vec![first], placed: Placed::of(program), files: files_of(program), shipped }
    }

    /// Takes a step if the pipeline still fits on a node, and both may be one attempt.
    fn takes(&mut self, step: StepNumber, size: NodeSize) -> bool {
        let first = &self.spec.step_at(self.members[0]).program;
        let program = &self.spec.step_at(step).program;
        let more = Placed::of(program);
        let placed = self.placed.with(&more);
        let files = self.files + files_of(program);
        let fits = placed.fits(size) && files <= TASK_FILES_MAX && !self.placed.moves_more_with(&more, size);
        if !fits || self.members.len() >= PIPELINE_PROGRAMS_MAX || !may_share(first, program) {
            return false;
        }
        let differs = |file: &ShippedFile| {
            self.shipped.get(file.path.as_path()).is_some_and(|same| same.sha256 != file.sha256)
        };
        let more = program.shipped.iter().filter(|file| !self.shipped.contains_key(file.path.as_path()));
        if program.shipped.iter().any(differs) || self.shipped.len() + more.count() > SHIPPED_FILES_MAX {
            return false;
        }
        self.shipped.extend(program.shipped.iter().map(|file| (file.path.as_path(), file)));
        (self.placed, self.files) = (placed, files);
        self.members.push(step);
        true
    }

    /// Returns a step with all steps whose files it needs and that are neither finished nor in the pipeline; None if one of
    /// them is not free, must end before another one without writing a file for it, or they are too many.
    fn missing(
        &self,
        step: StepNumber,
        is_finished: impl Fn(StepNumber) -> bool,
        is_free: impl Fn(&StepNumber) -> bool,
    ) -> Option<Vec<StepNumber>> {
        let (mut missing, mut next) = (vec![step], 0);
        while let Some(step) = missing.get(next).copied() {
            next += 1;
            let planned = self.spec.step_at(step);
            let waits = planned.only_before().any(|before| !is_finished(before));
            if waits || !is_free(&step) || self.members.len() + missing.len() > PIPELINE_PROGRAMS_MAX {
                return None;
            }
            for before in planned.after.iter().copied() {
                if !is_finished(before) && !self.members.contains(&before) && !missing.contains(&before) {
                    missing.push(before);
                }
            }
        }
        missing.reverse();
        Some(missing)
    }

    /// Takes a branch that ends in a reader of the pipeline, if one node has the stored inputs of all. Returns its steps.
    fn takes_branch(&mut self, branch: Vec<StepNumber>, size: NodeSize<'_>) -> Option<Vec<StepNumber>> {
        let mut all = self.clone();
        let is_taken = branch.iter().all(|step| all.takes(*step, size));
        let programs = branch.iter().map(|step| Placed::of(&self.spec.step_at(*step).program));
        let has_inputs = programs.into_iter().any(|placed| placed.has_inputs());
        if !is_taken || !has_inputs || !all.placed.has_a_home(size) {
            return None;
        }
        *self = all;
        Some(branch)
    }

    fn step(self) -> Step {
        let spec = self.spec;
        let (number, first) = (self.members[0], spec.step_at(self.members[0]));
        let beside = self.members[1..].to_vec();
        if beside.is_empty() && !first.program.outputs.iter().any(|output| output.temporary) {
            let (name, work) = (Arc::clone(&first.name), StepWork::Program(Arc::clone(&first.program)));
            return Step { number, name, work, beside };
        }
        let inside: BTreeSet<StepNumber> = self.members.iter().copied().collect();
        let mut programs = self.members.iter().map(|member| program(spec.step_at(*member), &inside));
        let mut task = programs.next().unwrap_or_default();
        task.memory_bytes = self.placed.needs.memory_bytes;
        task.shipped = self.shipped.into_values().cloned().collect();
        for mut other in programs {
            other.shipped.clear();
            (other.memory_bytes, other.architecture, other.retries) = (0, None, 0);
            task.pipeline.push(other);
        }
        let names = self.members.iter().map(|member| &*spec.step_at(*member).name);
        let mut name = names.collect::<Vec<_>>().join(" | ");
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        Step { number, name: name.into(), work: StepWork::Program(Arc::new(task)), beside }
    }
}

/// Returns the program of a step. An output stays temporary only if all steps that read it are in its pipeline.
fn program(step: &PlannedStep, inside: &BTreeSet<StepNumber>) -> RunTask {
    let mut program = step.program.as_ref().clone();
    for (output, readers) in program.outputs.iter_mut().zip(&step.output_readers) {
        output.temporary &= !readers.is_empty() && readers.iter().all(|reader| inside.contains(reader));
    }
    program
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
