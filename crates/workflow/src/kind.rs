//! The steps of a workflow, for the engine.

use crate::PlannedWorkflow;
use crate::early::early_readers;
use crate::pipelines::pipelines;
use crate::spec::planned;
use api::JsonText;
use ids::StepNumber;
use jobkind::{EarlyStep, FinishedSteps, KnownRuns, NodeSize, PriorRuns, RunMemory, Step, StepPlanner};
use serde::de::Error;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The kind `workflow`.
pub struct Workflow;

impl StepPlanner for Workflow {
    type Spec = PlannedWorkflow;
    const NAME: &'static str = "workflow";

    fn read(spec: &JsonText) -> Result<PlannedWorkflow, serde_json::Error> {
        planned(spec).map_err(serde_json::Error::custom)
    }

    fn check(_: &PlannedWorkflow) -> Result<(), String> {
        // Reading it has checked it.
        Ok(())
    }

    fn plan(spec: &PlannedWorkflow, size: NodeSize) -> Vec<Step> {
        if spec.only_judges {
            return Vec::new();
        }
        let first = spec.numbers().filter(|number| spec.step_at(*number).after.is_empty());
        pipelines(spec, first, |_| false, &BTreeSet::new(), size)
    }

    fn next(spec: &PlannedWorkflow, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step> {
        if spec.only_judges {
            return Vec::new();
        }
        // The latest is the most likely to be missing.
        let may_begin = |step: &StepNumber| {
            let mut before = spec.step_at(*step).after.iter().rev();
            !finished.begun.contains(step) && before.all(|before| finished.has(*before))
        };
        let is_finished = |step| finished.has(step);
        if spec.is_done(finished) {
            return spec.removal_steps().filter(|step| !finished.begun.contains(&step.number)).collect();
        }
        match finished.last {
            [] => pipelines(spec, spec.numbers().filter(may_begin), is_finished, finished.begun, size),
            last => {
                // The steps that remove files have no readers.
                let own = last.iter().filter(|last| (last.0 as usize) < spec.count());
                let readers = own.flat_map(|last| &spec.step_at(*last).readers).copied();
                pipelines(spec, readers.filter(may_begin), is_finished, finished.begun, size)
            }
        }
    }

    fn early(
        spec: &PlannedWorkflow,
        running: &[StepNumber],
        finished: &FinishedSteps<'_>,
        size: NodeSize,
    ) -> Vec<EarlyStep> {
        let own = running.iter().copied().filter(|step| (step.0 as usize) < spec.count());
        own.flat_map(|writer| early_readers(spec, writer, finished, size)).collect()
    }

    fn memory(spec: &PlannedWorkflow) -> Option<&dyn RunMemory> {
        Some(spec)
    }

    fn writes(spec: &PlannedWorkflow) -> Vec<PathBuf> {
        if spec.only_judges {
            return Vec::new();
        }
        let outputs = |step| spec.step_at(step).program().outputs.into_iter().map(|output| output.path);
        spec.numbers().flat_map(outputs).collect()
    }

    fn ranks(spec: &PlannedWorkflow, known: &KnownRuns) -> Vec<u64> {
        spec.ranks(known)
    }

    fn with_prior(spec: &PlannedWorkflow, prior: &PriorRuns) -> Option<PlannedWorkflow> {
        (*prior != PriorRuns::default()).then(|| spec.knowing(prior.clone()))
    }
}
