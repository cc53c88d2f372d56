//! The steps of a workflow in the order of a run, as lines of a table.

use api::job::workflow::WorkflowSpec;
use std::collections::BTreeSet;

/// A step in the order of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Number of steps that run one after the other up to this one, from 1.
    pub level: u32,
    /// Names of the steps, more than one if they stream to each other.
    pub names: Vec<String>,
    /// Names of the steps that must be finished before.
    pub after: Vec<String>,
    pub slots: u32,
}

/// Returns the jobs that a run on nodes of this size would have, in the order of their levels.
pub fn lines(spec: &WorkflowSpec, slots: u32) -> Result<Vec<StepLine>, String> {
    let name = |number: usize| spec.steps.get(number).map(|step| step.name.clone()).unwrap_or_default();
    let before = workflow::steps_before(&spec.steps)?;
    let line = |planned: workflow::PlannedPipeline| {
        let members: BTreeSet<usize> = planned.steps.iter().copied().collect();
        let after = planned.steps.iter().flat_map(|step| &before[*step]).map(|before| *before as usize);
        let after: BTreeSet<usize> = after.filter(|before| !members.contains(before)).collect();
        StepLine {
            level: planned.level,
            names: planned.steps.iter().map(|step| name(*step)).collect(),
            after: after.into_iter().map(name).collect(),
            slots: planned.slots,
        }
    };
    Ok(workflow::preview(spec, slots)?.into_iter().map(line).collect())
}
