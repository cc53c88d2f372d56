//! The steps of a workflow, for the engine.

use crate::WorkflowSpec;
use ids::StepNumber;
use jobkind::{Finished, Kind, Step, StepWork};
use std::sync::Arc;

/// The kind `workflow`.
pub struct Workflow;

impl Kind for Workflow {
    type Spec = WorkflowSpec;
    const NAME: &'static str = "workflow";

    fn check(_: &WorkflowSpec) -> Result<(), String> {
        // Reading it has checked it.
        Ok(())
    }

    fn plan(spec: &WorkflowSpec) -> Vec<Step> {
        let first = all(spec).filter(|number| spec.steps[number.0 as usize].after.is_empty());
        first.map(|number| spec.step(number)).collect()
    }

    fn next(spec: &WorkflowSpec, finished: &Finished<'_>) -> Vec<Step> {
        // The latest is the most likely to be missing.
        let may_begin = |step: &StepNumber| {
            let mut before = spec.steps[step.0 as usize].after.iter().rev();
            before.all(|before| finished.has(*before))
        };
        let ready = |numbers: &mut dyn Iterator<Item = StepNumber>| -> Vec<Step> {
            numbers.filter(may_begin).map(|number| spec.step(number)).collect()
        };
        match finished.last {
            Some(last) => ready(&mut spec.steps[last.0 as usize].readers.iter().copied()),
            None => ready(&mut all(spec).filter(|number| !finished.has(*number))),
        }
    }
}

fn all(spec: &WorkflowSpec) -> impl Iterator<Item = StepNumber> + use<> {
    (0..spec.steps.len() as u32).map(StepNumber)
}

impl WorkflowSpec {
    fn step(&self, number: StepNumber) -> Step {
        let step = &self.steps[number.0 as usize];
        Step { number, name: Arc::clone(&step.name), work: StepWork::Program(Arc::clone(&step.program)) }
    }
}
