//! Steps of a job.

use api::JobSpec;
use api::task::RunTask;
use ids::StepNumber;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A step, which becomes a job of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub number: StepNumber,
    /// Name of its job.
    pub name: Arc<str>,
    pub work: StepWork,
    /// Steps that run with it as one pipeline: they begin and end with it.
    pub beside: Vec<StepNumber>,
}

impl Step {
    /// Returns the numbers of all steps that its job runs.
    pub fn numbers(&self) -> impl Iterator<Item = StepNumber> {
        std::iter::once(self.number).chain(self.beside.iter().copied())
    }
}

/// A step that may begin while a step runs whose standard output it reads, and no other.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyStep {
    pub step: Step,
    /// The step that writes.
    pub writer: StepNumber,
    /// File of the stream: an output of the writer, and the standard input of the step.
    pub path: PathBuf,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepWork {
    /// A program runs once, or all programs of a pipeline do.
    Program(Arc<RunTask>),
    /// A MapReduce job runs. Of its inputs only the paths are known: the server looks at them when the step begins.
    /// [`check_job_step`](crate::check_job_step) accepts it.
    MapReduce(Arc<JobSpec>),
    /// Jobs run that read each other's parts: the first one is the job of the step, the others are those of the steps
    /// beside it. They begin together, and each is a job of its own.
    Flow(Vec<FlowStep>),
}

/// A MapReduce job of a flow of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStep {
    pub number: StepNumber,
    pub name: Arc<str>,
    /// As in [`StepWork::MapReduce`], with the inputs that no job of the flow writes, and its stage: the server fills in the
    /// jobs that it reads. [`check_flow_step`](crate::check_flow_step) accepts it.
    pub spec: Arc<JobSpec>,
    /// Positions of the jobs whose parts it reads after its inputs, each before its own.
    pub reads: Vec<u32>,
}

impl StepWork {
    /// Returns the program, or the programs of a pipeline; None for MapReduce jobs.
    pub fn program(&self) -> Option<&Arc<RunTask>> {
        match self {
            Self::Program(task) => Some(task),
            Self::MapReduce(_) | Self::Flow(_) => None,
        }
    }

    /// Returns the number of jobs that run.
    pub fn jobs(&self) -> usize {
        match self {
            Self::Program(_) | Self::MapReduce(_) => 1,
            Self::Flow(jobs) => jobs.len(),
        }
    }

    /// Returns the specifications of its MapReduce jobs.
    pub fn map_reduce(&self) -> Vec<&Arc<JobSpec>> {
        match self {
            Self::Program(_) => Vec::new(),
            Self::MapReduce(spec) => vec![spec],
            Self::Flow(jobs) => jobs.iter().map(|job| &job.spec).collect(),
        }
    }
}

/// The steps of a job that have succeeded.
#[derive(Clone, Copy, Debug)]
pub struct FinishedSteps<'a> {
    pub all: &'a BTreeSet<StepNumber>,
    /// The steps that have just finished together; none after a restart.
    pub last: &'a [StepNumber],
    /// All steps that have begun, also the finished ones. None of them may be beside another step again.
    pub begun: &'a BTreeSet<StepNumber>,
}

impl FinishedSteps<'_> {
    /// Returns whether a step has succeeded.
    pub fn has(&self, step: StepNumber) -> bool {
        self.all.contains(&step)
    }
}
