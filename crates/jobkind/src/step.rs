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
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepWork {
    /// A program runs once.
    Program(Arc<RunTask>),
}

/// The steps of a job that have succeeded.
#[derive(Clone, Copy, Debug)]
pub struct FinishedSteps<'a> {
    pub all: &'a BTreeSet<StepNumber>,
    /// The step that has just finished; None after a restart.
    pub last: Option<StepNumber>,
}

impl FinishedSteps<'_> {
    /// Returns whether a step has succeeded.
    pub fn has(&self, step: StepNumber) -> bool {
        self.all.contains(&step)
    }
}
