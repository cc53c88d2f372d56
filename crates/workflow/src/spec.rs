//! A workflow that has been read and checked.

use crate::check::{checked, readers, steps_before_in, with_inputs};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{JobRecording, RunTask, StepCaching, TASK_FILES_MAX};
use api::{JobSpec, JsonPart, JsonText};
use ids::StepNumber;
use jobkind::{FinishedSteps, PriorRuns, Step, StepWork};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::path::PathBuf;
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
    /// The program, which takes a tenth of its memory as a text. Most steps wait for most of the time.
    program: JsonPart,
    /// The MapReduce job in place of the program, with its inputs.
    pub job: Option<Arc<JobSpec>>,
    pub after: Box<[StepNumber]>,
    /// Steps that wait for it.
    pub readers: Box<[StepNumber]>,
    /// Steps that need nothing of it but streams, in order.
    pub stream_readers: Box<[StepNumber]>,
    /// Its outputs, as the program declares them.
    pub outputs: Box<[PlannedOutput]>,
    /// Inputs that other steps write.
    pub made_inputs: Box<[MadeInput]>,
}

/// An output of a step.
#[derive(Clone, Debug)]
pub(crate) struct PlannedOutput {
    /// Steps that read it.
    pub readers: Box<[StepNumber]>,
    pub is_temporary: bool,
}

/// An input that another step writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeInput {
    /// Position among the inputs.
    pub input: usize,
    pub writer: StepNumber,
    /// Position among the outputs of the writer.
    pub output: usize,
    /// True if it is the standard output of the writer, and the standard input of the step.
    pub is_standard: bool,
}

impl PlannedStep {
    /// Returns the program.
    pub fn program(&self) -> RunTask {
        let mut program: RunTask = self.program.read().expect("it was read when the workflow was planned");
        if let Some((caching, job)) = program.caching.as_mut().zip(self.job.as_ref()) {
            caching.environment = environment_of(job, caching);
        }
        program
    }

    /// Returns the steps that it waits for without reading their outputs.
    pub fn only_before(&self) -> impl Iterator<Item = StepNumber> {
        let reads = |before: &StepNumber| self.made_inputs.iter().any(|made| made.writer == *before);
        self.after.iter().copied().filter(move |before| !reads(before))
    }

    /// Returns whether an output is removed at the end, because only steps read it.
    pub fn is_removed(&self, output: usize) -> bool {
        self.outputs[output].is_temporary && !self.outputs[output].readers.is_empty()
    }
}

impl<'de> Deserialize<'de> for PlannedWorkflow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        planned(&JsonText::deserialize(deserializer)?).map_err(D::Error::custom)
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

/// Reads the program of a step.
fn read(program: &&RawValue) -> Result<RunTask, String> {
    serde_json::from_str(program.get()).map_err(|error| error.to_string())
}

/// Plans a workflow from its text, which the plan keeps.
pub(crate) fn planned(text: &JsonText) -> Result<PlannedWorkflow, String> {
    let spec: WorkflowSpec<&RawValue> = text.read().map_err(|error| error.to_string())?;
    let only_judges = spec.only_judges;
    let (before, passed) = {
        let graph = checked(&spec.steps, read)?;
        (steps_before_in(&graph)?, graph.passed()?)
    };
    let readers = readers(&before);
    let mut steps = Vec::with_capacity(spec.steps.len());
    let edges = before.into_iter().zip(readers).zip(passed);
    for (step, ((before, readers), passed)) in spec.steps.into_iter().zip(edges) {
        let WorkflowStep { name, program, job, .. } = step;
        let job = match job {
            Some(job) => Some(Arc::new(planned_job(&name, &job, &read(&program)?))),
            None => None,
        };
        steps.push(PlannedStep {
            program: text
                .part(program)
                .ok_or_else(|| format!("the step {name:?} is too far in a long text"))?,
            name: name.into(),
            after: before.into_iter().map(StepNumber).collect(),
            readers: readers.into(),
            stream_readers: passed.stream_readers.into(),
            outputs: all_or_none(job.as_ref(), passed.outputs),
            made_inputs: passed.made_inputs.into(),
            job,
        });
    }
    let removals = removals(&steps).into();
    Ok(PlannedWorkflow { steps: steps.into(), removals, prior: PriorRuns::default(), only_judges })
}

/// Returns the MapReduce job of a step, with the inputs that the step declares.
fn planned_job(name: &str, job: &JobSpec, program: &RunTask) -> JobSpec {
    // The contents of a file with variables are not compared.
    let is_recorded = program.is_remembered() && job.env_file.is_none();
    let recording = program.caching.as_ref().filter(|_| is_recorded).map(|caching| {
        let files = environment_of(job, caching);
        let (directory, reads) = (program.directory.clone(), caching.reads.clone());
        Box::new(JobRecording { directory, files, reads, ..JobRecording::default() })
    });
    JobSpec { name: name.to_string(), recording, ..with_inputs(job, program) }
}

/// Returns the files beside the inputs of a job whose contents count, each once.
fn environment_of(job: &JobSpec, caching: &StepCaching) -> Vec<PathBuf> {
    let others = caching.environment.iter().filter(|file| !job.files.contains(file));
    job.own_files().chain(others).cloned().collect()
}

/// Leaves the parts of a job temporary only if steps read all of them: they are removed with their directory.
fn all_or_none(job: Option<&Arc<JobSpec>>, mut outputs: Box<[PlannedOutput]>) -> Box<[PlannedOutput]> {
    if job.is_some() && outputs.iter().any(|output| output.readers.is_empty()) {
        outputs.iter_mut().for_each(|output| output.is_temporary = false);
    }
    outputs
}

/// Returns the paths of temporary outputs that steps read, and the directories of jobs with such parts.
fn removals(steps: &[PlannedStep]) -> Vec<Vec<PathBuf>> {
    let is_removed = |step: &&PlannedStep| (0..step.outputs.len()).any(|output| step.is_removed(output));
    let temporary = steps.iter().filter(is_removed).flat_map(|step| match &step.job {
        Some(job) => vec![job.output.clone()],
        None => {
            let outputs = step.program().outputs.into_iter().enumerate();
            outputs.filter(|(index, _)| step.is_removed(*index)).map(|(_, output)| output.path).collect()
        }
    });
    let paths: Vec<PathBuf> = temporary.collect();
    paths.chunks(TASK_FILES_MAX).map(<[PathBuf]>::to_vec).collect()
}
