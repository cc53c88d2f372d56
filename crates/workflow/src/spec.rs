//! The specification of a workflow.

use crate::check::{checked, readers};
use api::task::RunTask;
use ids::StepNumber;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A workflow, as a front end submits it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    pub steps: Vec<StepSpec>,
}

/// A step as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Unique in its workflow.
    pub name: String,
    pub program: RunTask,
    /// Positions of the steps that must succeed before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// A workflow that can run: names are unique, and no step waits for itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct WorkflowSpec {
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

impl TryFrom<Written> for WorkflowSpec {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        checked(&written.steps)?;
        let readers = readers(&written.steps);
        let planned = |(step, readers): (StepSpec, Vec<StepNumber>)| PlannedStep {
            name: step.name.into(),
            program: Arc::new(step.program),
            after: step.after.into_iter().map(StepNumber).collect(),
            readers,
        };
        Ok(Self { steps: written.steps.into_iter().zip(readers).map(planned).collect() })
    }
}
