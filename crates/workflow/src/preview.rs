//! A look at a run before it begins.

use crate::check::{readers, steps_before};
use crate::kind::Workflow;
use crate::spec::planned;
use api::JsonText;
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use ids::StepNumber;
use jobkind::{FinishedSteps, NodeSize, Step, StepPlanner};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Steps that a run would start as one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedPipeline {
    /// Number of jobs that run one after the other up to this one, from 1.
    pub level: u32,
    /// Positions of its steps.
    pub steps: Vec<usize>,
    pub slots: u32,
}

/// Returns a sentence for a workflow that cannot run.
pub fn check(spec: &WorkflowSpec) -> Result<(), String> {
    steps_before(&spec.steps).map(drop)
}

/// Returns the jobs of a run in which all that may run together do, without those that remove files.
pub fn preview(spec: &WorkflowSpec, slots: u32) -> Result<Vec<PlannedPipeline>, String> {
    let count = spec.steps.len();
    let spec = planned(&text(spec)?)?;
    let size = NodeSize { slots, memory_bytes: u64::MAX, ..NodeSize::default() };
    let (mut all, mut pipelines, mut level) = (BTreeSet::new(), Vec::new(), 0);
    let mut steps = Workflow::plan(&spec, size);
    while steps.iter().any(|step| (step.number.0 as usize) < count) {
        level += 1;
        let last: Vec<StepNumber> = steps.iter().flat_map(Step::numbers).collect();
        all.extend(&last);
        pipelines.extend(steps.iter().map(|step| {
            // A job takes the slots that are free, one at least.
            let slots = step.work.program().map_or(1, |task| task.slots());
            let numbers = step.numbers().map(|number| number.0 as usize).collect();
            PlannedPipeline { level, steps: numbers, slots }
        }));
        steps = Workflow::next(&spec, &FinishedSteps { all: &all, last: &last, begun: &all }, size);
    }
    Ok(pipelines)
}

fn text(spec: &WorkflowSpec) -> Result<JsonText, String> {
    JsonText::of(spec).map_err(|error| error.to_string())
}

/// Returns the positions of steps in an order in which they can run one by one.
pub fn order(steps: &[WorkflowStep]) -> Result<Vec<u32>, String> {
    let before = steps_before(steps)?;
    let readers = readers(&before);
    let mut waits: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut free: BTreeSet<u32> = (0..steps.len() as u32).filter(|step| waits[*step as usize] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(step) = free.pop_first() {
        order.push(step);
        for reader in &readers[step as usize] {
            waits[reader.0 as usize] -= 1;
            if waits[reader.0 as usize] == 0 {
                free.insert(reader.0);
            }
        }
    }
    Ok(order)
}

/// Returns the files that a run removes at its end.
pub fn removed(spec: &WorkflowSpec) -> Result<Vec<PathBuf>, String> {
    Ok(planned(&text(spec)?)?.removals().cloned().collect())
}
