//! Steps of a job.

use api::task::RunTask;
use ids::StepNumber;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A step, which becomes a job of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepWork {
    /// A program runs once, or all programs of a pipeline do.
    Program(Arc<RunTask>),
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
