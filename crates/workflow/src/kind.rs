//! The steps of a workflow, for the engine.

use crate::PlannedWorkflow;
use ids::StepNumber;
use jobkind::{FinishedSteps, Step, StepPlanner, StepWork};
use std::sync::Arc;

/// The kind `workflow`.
pub struct Workflow;

impl StepPlanner for Workflow {
    type Spec = PlannedWorkflow;
    const NAME: &'static str = "workflow";

    fn check(_: &PlannedWorkflow) -> Result<(), String> {
        // Reading it has checked it.
        Ok(())
    }

    fn plan(spec: &PlannedWorkflow) -> Vec<Step> {
        let first = all(spec).filter(|number| spec.steps[number.0 as usize].after.is_empty());
        first.map(|number| spec.step(number)).collect()
    }

    fn next(spec: &PlannedWorkflow, finished: &FinishedSteps<'_>) -> Vec<Step> {
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

fn all(spec: &PlannedWorkflow) -> impl Iterator<Item = StepNumber> + use<> {
    (0..spec.steps.len() as u32).map(StepNumber)
}

impl PlannedWorkflow {
    fn step(&self, number: StepNumber) -> Step {
        let step = &self.steps[number.0 as usize];
        Step { number, name: Arc::clone(&step.name), work: StepWork::Program(Arc::clone(&step.program)) }
    }
}
