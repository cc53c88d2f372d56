//! A workflow that has been read and checked.

use crate::check::{readers, steps_before, with_inputs};
use api::JobSpec;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TASK_FILES_MAX};
use ids::StepNumber;
use jobkind::{FinishedSteps, PriorRuns, Step, StepWork};
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
    steps: Arc<[PlannedStep]>,
    /// Temporary outputs that steps read. They are removed when all steps are done, in lists of limited length.
    removals: Arc<[Vec<PathBuf>]>,
    /// Facts of earlier runs.
    prior: PriorRuns,
    /// True if the job ends when it knows which steps would run.
    pub(crate) only_judges: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub name: Arc<str>,
    pub program: Arc<RunTask>,
    /// The MapReduce job in place of the program, with its inputs.
    pub job: Option<Arc<JobSpec>>,
    pub after: Vec<StepNumber>,
    /// Steps that wait for it.
    pub readers: Vec<StepNumber>,
    /// Steps whose standard input is its standard output, in order.
    pub stream_readers: Vec<StepNumber>,
    /// Steps that read each of its outputs.
    pub output_readers: Vec<Vec<StepNumber>>,
    /// Inputs that other steps write.
    pub made_inputs: Vec<MadeInput>,
}

/// An input that another step writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeInput {
    /// Position among the inputs.
    pub input: usize,
    pub writer: StepNumber,
    /// Position among the outputs of the writer.
    pub output: usize,
}

impl PlannedStep {
    /// Returns the steps that it waits for without reading their outputs.
    pub fn only_before(&self) -> impl Iterator<Item = StepNumber> {
        let reads = |before: &StepNumber| self.made_inputs.iter().any(|made| made.writer == *before);
        self.after.iter().copied().filter(move |before| !reads(before))
    }

    /// Returns whether an output is removed at the end, because only steps read it.
    pub fn is_removed(&self, output: usize) -> bool {
        self.program.outputs[output].temporary && !self.output_readers[output].is_empty()
    }
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

    /// Returns the same steps with facts of earlier runs.
    pub(crate) fn knowing(&self, prior: PriorRuns) -> Self {
        Self { prior, ..self.clone() }
    }

    pub(crate) fn prior(&self) -> &PriorRuns {
        &self.prior
    }

    /// Returns whether all programs have succeeded.
    pub(crate) fn is_done(&self, finished: &FinishedSteps<'_>) -> bool {
        let count = self.steps.len();
        // Steps of the kind itself may be among them.
        finished.all.len() >= count && finished.all.range(..StepNumber(count as u32)).count() >= count
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

    pub(crate) fn count(&self) -> usize {
        self.steps.len()
    }

    /// Returns the numbers of the steps that remove temporary files.
    pub(crate) fn removal_numbers(&self) -> impl Iterator<Item = StepNumber> {
        let first = self.steps.len() as u32;
        (first..first + self.removals.len() as u32).map(StepNumber)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = StepNumber> + use<> {
        (0..self.steps.len() as u32).map(StepNumber)
    }
}

pub(crate) fn planned(spec: WorkflowSpec) -> Result<PlannedWorkflow, String> {
    let only_judges = spec.only_judges;
    let before = steps_before(&spec.steps)?;
    let readers = readers(&before);
    let mut files = FilesOfSteps::new(&spec.steps);
    let mut steps = Vec::with_capacity(spec.steps.len());
    for (number, (step, (before, readers))) in
        spec.steps.into_iter().zip(before.into_iter().zip(readers)).enumerate()
    {
        let job = step.job.map(|job| JobSpec { name: step.name.clone(), ..with_inputs(&job, &step.program) });
        steps.push(PlannedStep {
            job: job.map(Arc::new),
            name: step.name.into(),
            program: Arc::new(step.program),
            after: before.into_iter().map(StepNumber).collect(),
            readers,
            stream_readers: std::mem::take(&mut files.stream_readers[number]),
            output_readers: std::mem::take(&mut files.output_readers[number]),
            made_inputs: std::mem::take(&mut files.made_inputs[number]),
        });
    }
    let removals = removals(&steps).into();
    Ok(PlannedWorkflow { steps: steps.into(), removals, prior: PriorRuns::default(), only_judges })
}

/// Returns the paths of temporary outputs that steps read.
fn removals(steps: &[PlannedStep]) -> Vec<Vec<PathBuf>> {
    let temporary = steps.iter().flat_map(|step| {
        let outputs = step.program.outputs.iter().enumerate();
        outputs.filter(|(index, _)| step.is_removed(*index)).map(|(_, output)| output)
    });
    let paths: Vec<PathBuf> = temporary.map(|output| output.path.clone()).collect();
    paths.chunks(TASK_FILES_MAX).map(<[PathBuf]>::to_vec).collect()
}

/// The files that steps pass to each other, by step.
struct FilesOfSteps {
    /// Steps that read each output.
    output_readers: Vec<Vec<Vec<StepNumber>>>,
    /// Steps whose standard input is the standard output of the step, and nothing else of it.
    stream_readers: Vec<Vec<StepNumber>>,
    made_inputs: Vec<Vec<MadeInput>>,
}

impl FilesOfSteps {
    fn new(steps: &[WorkflowStep]) -> Self {
        let mut places: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
        for (writer, step) in steps.iter().enumerate() {
            for (index, output) in step.program.outputs.iter().enumerate() {
                places.insert(&output.path, (writer, index));
            }
        }
        let output_readers = steps.iter().map(|step| vec![Vec::new(); step.program.outputs.len()]).collect();
        let none = || vec![Vec::new(); steps.len()];
        let mut files =
            Self { output_readers, stream_readers: none(), made_inputs: vec![Vec::new(); steps.len()] };
        for reader in 0..steps.len() {
            files.add_reader(steps, reader, &places);
        }
        files
    }

    fn add_reader(
        &mut self,
        steps: &[WorkflowStep],
        reader: usize,
        places: &BTreeMap<&Path, (usize, usize)>,
    ) {
        let (step, number) = (&steps[reader], StepNumber(reader as u32));
        // Files that it needs of each writer, besides the stream.
        let mut files: Vec<usize> = step.after.iter().map(|before| *before as usize).collect();
        let mut stream = None;
        for (input, file) in step.program.inputs.iter().enumerate() {
            let Some((writer, output)) = places.get(file.path.as_path()).copied() else { continue };
            self.output_readers[writer][output].push(number);
            self.made_inputs[reader].push(MadeInput { input, writer: StepNumber(writer as u32), output });
            let wrote = &steps[writer].program;
            let is_stdin = step.program.stdin.as_ref() == Some(&file.name);
            match is_stdin && wrote.stdout.as_ref() == Some(&wrote.outputs[output].name) {
                true => stream = Some(writer),
                false => files.push(writer),
            }
        }
        if let Some(writer) = stream.filter(|writer| !files.contains(writer)) {
            self.stream_readers[writer].push(number);
        }
    }
}
