//! Flows among the open steps of a job. Their jobs begin together, and steps after them begin when all have succeeded.

use api::control::JobOutcome;
use ids::StepNumber;
use jobkind::FlowStep;
use std::collections::{BTreeMap, BTreeSet};

/// The open flows of a job. After a restart there are none: their steps go on one by one.
#[derive(Default)]
pub(super) struct StepFlows {
    /// By their first steps.
    flows: BTreeMap<StepNumber, OpenFlow>,
    /// The flow of each step that is not over.
    of: BTreeMap<StepNumber, StepNumber>,
}

struct OpenFlow {
    /// Each after those that it reads.
    steps: Vec<StepNumber>,
    open: BTreeSet<StepNumber>,
    /// The reason for which it does not succeed.
    outcome: Option<JobOutcome>,
}

/// The consequence of the end of a step for its flow.
#[derive(Debug, PartialEq)]
pub(super) enum FlowOver {
    NotYet,
    Succeeded(Vec<StepNumber>),
    Ends(JobOutcome),
}

impl StepFlows {
    pub fn begin(&mut self, flow: &[FlowStep]) {
        let Some(first) = flow.first().map(|step| step.number) else { return };
        let steps: Vec<StepNumber> = flow.iter().map(|step| step.number).collect();
        self.of.extend(steps.iter().map(|step| (*step, first)));
        let open = steps.iter().copied().collect();
        self.flows.insert(first, OpenFlow { steps, open, outcome: None });
    }

    pub fn has(&self, step: StepNumber) -> bool {
        self.of.contains_key(&step)
    }

    /// Records the end of a step of a flow. `ends`: the reason for which it did not succeed.
    pub fn over(&mut self, step: StepNumber, ends: Option<JobOutcome>) -> FlowOver {
        let first = self.of.remove(&step);
        let Some((first, flow)) = first.and_then(|first| Some((first, self.flows.get_mut(&first)?))) else {
            return FlowOver::NotYet;
        };
        flow.open.remove(&step);
        // A failure stops the others, whose ends may be told before it.
        let is_first_failure = matches!(ends, Some(JobOutcome::Failed { .. }))
            && !matches!(flow.outcome, Some(JobOutcome::Failed { .. }));
        if flow.outcome.is_none() || is_first_failure {
            flow.outcome = ends;
        }
        if !flow.open.is_empty() {
            return FlowOver::NotYet;
        }
        match self.flows.remove(&first) {
            Some(OpenFlow { outcome: Some(outcome), .. }) => FlowOver::Ends(outcome),
            Some(OpenFlow { steps, .. }) => FlowOver::Succeeded(steps),
            None => FlowOver::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FlowOver, StepFlows};
    use api::control::JobOutcome;
    use api::{Blame, JobSpec, TaskFailure};
    use ids::StepNumber;
    use jobkind::FlowStep;
    use std::sync::Arc;

    fn begun() -> StepFlows {
        let step = |number: u32| {
            let spec = Arc::new(JobSpec::named("a"));
            FlowStep { number: StepNumber(number), name: "a".into(), spec, reads: Vec::new() }
        };
        let mut flows = StepFlows::default();
        flows.begin(&[4, 2].map(step));
        flows
    }

    #[test]
    fn flow_ends_with_its_last_step() {
        let mut flows = begun();
        assert_eq!(flows.over(StepNumber(2), None), FlowOver::NotYet);
        assert!(!flows.has(StepNumber(2)) && flows.has(StepNumber(4)));
        let both = vec![StepNumber(4), StepNumber(2)];
        assert_eq!(flows.over(StepNumber(4), None), FlowOver::Succeeded(both));
    }

    #[test]
    fn failure_counts_more_than_its_consequences() {
        let stopped = || JobOutcome::Cancelled { reason: "stopped".to_string() };
        let failed = JobOutcome::Failed {
            failure: TaskFailure::new(Blame::UserProgram, "exit code 1"),
            attempt: None,
            exit_code: 1,
        };
        for order in [[Some(stopped()), Some(failed.clone())], [Some(failed.clone()), Some(stopped())]] {
            let mut flows = begun();
            let [first, second] = order;
            assert_eq!(flows.over(StepNumber(2), first), FlowOver::NotYet);
            assert_eq!(flows.over(StepNumber(4), second), FlowOver::Ends(failed.clone()));
        }
        let mut flows = begun();
        flows.over(StepNumber(4), Some(stopped()));
        assert_eq!(flows.over(StepNumber(2), None), FlowOver::Ends(stopped()));
    }
}
