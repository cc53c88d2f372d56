//! Steps of a job that began before the step that writes their standard input has ended.

use api::control::JobOutcome;
use ids::StepNumber;
use std::collections::BTreeMap;

/// Maximum number of such steps of a job at one time: they only use slots that nothing else wants.
pub(super) const EARLY_MAX: usize = 16;

/// The open steps of a job that began early, and the failures of those that are over.
#[derive(Default)]
pub(super) struct EarlySteps {
    /// The step that writes for each, both by the first one of their pipeline.
    writers: BTreeMap<StepNumber, StepNumber>,
    /// Failures that count when the step that wrote has succeeded: as if its reader began after it.
    failures: BTreeMap<StepNumber, JobOutcome>,
}

impl EarlySteps {
    pub fn has_room(&self) -> bool {
        self.writers.len() < EARLY_MAX
    }

    pub fn began(&mut self, step: StepNumber, writer: StepNumber) {
        self.writers.insert(step, writer);
    }

    /// Records the end of a step. Returns the one that wrote for it, if it began early.
    pub fn ended(&mut self, step: StepNumber) -> Option<StepNumber> {
        self.writers.remove(&step)
    }

    /// Records the failure of a step whose writer has not ended. The first one of a writer counts.
    pub fn failed(&mut self, writer: StepNumber, outcome: JobOutcome) {
        self.failures.entry(writer).or_insert(outcome);
    }

    /// Returns the failure that counts now that a step has succeeded.
    pub fn failure_after(&mut self, writer: StepNumber) -> Option<JobOutcome> {
        self.failures.remove(&writer)
    }
}
