//! A workflow that has been read and checked.

use crate::check::{readers, steps_before};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TASK_FILES_MAX};
use ids::StepNumber;
use jobkind::{FinishedSteps, Step, StepWork};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the steps that remove temporary files.
const REMOVAL: &str = "remove temporary files";

/// A workflow that can run: names are unique, each output has one writer, and no step waits for itself.
#[derive(Clone, Debug)]
pub struct PlannedWorkflow {
    steps: Vec<PlannedStep>,
    /// Temporary outputs that steps read. They are removed when all steps are done, in lists of limited length.
    removals: Vec<Vec<PathBuf>>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub name: Arc<str>,
    pub program: Arc<RunTask>,
    pub after: Vec<StepNumber>,
    /// Steps that wait for it.
    pub readers: Vec<StepNumber>,
    /// Steps whose standard input is its standard output.
    pub stream_readers: Vec<StepNumber>,
    /// Steps that read each of its outputs.
    pub output_readers: Vec<Vec<StepNumber>>,
}

impl<'de> Deserialize<'de> for PlannedWorkflow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        planned(WorkflowSpec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl PlannedWorkflow {
    /// Returns a step. Its number is one of this workflow's.
    pub(crate) fn step_at(&self, number: StepNumber) -> &PlannedStep {
        &self.steps[number.0 as usize]
    }

    /// Returns whether all programs have succeeded.
    pub(crate) fn is_done(&self, finished: &FinishedSteps<'_>) -> bool {
        finished.all.len() >= self.steps.len()
    }

    /// Returns the steps that remove temporary files. They follow when all others are finished.
    pub(crate) fn removal_steps(&self) -> impl Iterator<Item = Step> {
        let first = self.steps.len() as u32;
        self.removals.iter().zip(first..).map(|(removes, number)| {
            let work =
                StepWork::Program(Arc::new(RunTask { removes: removes.clone(), ..RunTask::default() }));
            Step { number: StepNumber(number), name: REMOVAL.into(), work, beside: Vec::new() }
        })
    }

    /// Returns the paths of all temporary files.
    pub(crate) fn removals(&self) -> impl Iterator<Item = &PathBuf> {
        self.removals.iter().flatten()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = StepNumber> + use<> {
        (0..self.steps.len() as u32).map(StepNumber)
    }
}

pub(crate) fn planned(spec: WorkflowSpec) -> Result<PlannedWorkflow, String> {
    let before = steps_before(&spec.steps)?;
    let readers = readers(&before);
    let (of_outputs, of_streams) = readers_of_outputs(&spec.steps);
    let edges = before.into_iter().zip(readers).zip(of_outputs.into_iter().zip(of_streams));
    let mut steps = Vec::with_capacity(spec.steps.len());
    for (step, ((before, readers), (output_readers, stream_readers))) in spec.steps.into_iter().zip(edges) {
        steps.push(PlannedStep {
            name: step.name.into(),
            program: Arc::new(step.program),
            after: before.into_iter().map(StepNumber).collect(),
            readers,
            stream_readers,
            output_readers,
        });
    }
    let removals = removals(&steps);
    Ok(PlannedWorkflow { steps, removals })
}

/// Returns the paths of temporary outputs that steps read.
fn removals(steps: &[PlannedStep]) -> Vec<Vec<PathBuf>> {
    let outputs = steps.iter().flat_map(|step| step.program.outputs.iter().zip(&step.output_readers));
    let temporary = outputs.filter(|(output, readers)| output.temporary && !readers.is_empty());
    let paths: Vec<PathBuf> = temporary.map(|(output, _)| output.path.clone()).collect();
    paths.chunks(TASK_FILES_MAX).map(<[PathBuf]>::to_vec).collect()
}

/// Returns for each step the steps that read each of its outputs, and those whose standard input is its standard output
/// and nothing else of it.
fn readers_of_outputs(steps: &[WorkflowStep]) -> (Vec<Vec<Vec<StepNumber>>>, Vec<Vec<StepNumber>>) {
    let mut places: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
    for (writer, step) in steps.iter().enumerate() {
        for (index, output) in step.program.outputs.iter().enumerate() {
            places.insert(&output.path, (writer, index));
        }
    }
    let mut of_outputs: Vec<Vec<Vec<StepNumber>>> =
        steps.iter().map(|step| vec![Vec::new(); step.program.outputs.len()]).collect();
    let mut of_streams = vec![Vec::new(); steps.len()];
    for (reader, step) in steps.iter().enumerate() {
        let number = StepNumber(reader as u32);
        // Files that it needs of each writer, besides the stream.
        let mut files: Vec<usize> = step.after.iter().map(|before| *before as usize).collect();
        let mut stream = None;
        for input in &step.program.inputs {
            let Some((writer, index)) = places.get(input.path.as_path()).copied() else { continue };
            of_outputs[writer][index].push(number);
            let wrote = &steps[writer].program;
            let is_stdin = step.program.stdin.as_ref() == Some(&input.name);
            match is_stdin && wrote.stdout.as_ref() == Some(&wrote.outputs[index].name) {
                true => stream = Some(writer),
                false => files.push(writer),
            }
        }
        if let Some(writer) = stream.filter(|writer| !files.contains(writer)) {
            of_streams[writer].push(number);
        }
    }
    (of_outputs, of_streams)
}
