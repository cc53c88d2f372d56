//! A workflow that has been read and checked.

use crate::check::{readers, steps_before};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::RunTask;
use ids::StepNumber;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::sync::Arc;

/// A workflow that can run: names are unique, each output has one writer, and no step waits for itself.
#[derive(Clone, Debug)]
pub struct PlannedWorkflow {
    pub(crate) steps: Vec<PlannedStep>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub name: Arc<str>,
    pub program: Arc<RunTask>,
    pub after: Vec<StepNumber>,
    /// Steps that wait for it.
    pub readers: Vec<StepNumber>,
}

impl<'de> Deserialize<'de> for PlannedWorkflow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        planned(WorkflowSpec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn planned(spec: WorkflowSpec) -> Result<PlannedWorkflow, String> {
    let before = steps_before(&spec.steps)?;
    let readers = readers(&before);
    let all = spec.steps.into_iter().zip(before.into_iter().zip(readers));
    let planned = |(step, (before, readers)): (WorkflowStep, (Vec<u32>, Vec<StepNumber>))| PlannedStep {
        name: step.name.into(),
        program: Arc::new(step.program),
        after: before.into_iter().map(StepNumber).collect(),
        readers,
    };
    Ok(PlannedWorkflow { steps: all.map(planned).collect() })
}
