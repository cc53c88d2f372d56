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
    /// Steps that run with it as one pipeline: they begin and end with its job.
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
}

impl StepWork {
    /// Returns the program, or the programs of a pipeline; None for a job.
    pub fn program(&self) -> Option<&Arc<RunTask>> {
        match self {
            Self::Program(task) => Some(task),
            Self::MapReduce(_) => None,
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
