//! Flows among the open steps of a job. Their jobs begin together, and steps after them begin when all have succeeded.

use api::control::JobOutcome;
use api::task::FinishedRun;
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
    /// Steps whose jobs will tell their runs.
    to_record: BTreeSet<StepNumber>,
    runs: BTreeMap<StepNumber, FinishedRun>,
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
        let recorded = flow.iter().filter(|step| step.spec.recording.is_some());
        let (open, to_record) = (steps.iter().copied().collect(), recorded.map(|step| step.number).collect());
        let open = OpenFlow { steps, open, to_record, runs: BTreeMap::new(), outcome: None };
        self.flows.insert(first, open);
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

    /// Takes the run of a step. Returns the runs of all steps of its flow when they are there, each after those whose parts it
    /// read: a stage ends before the stages that it reads.
    pub fn ran(
        &mut self,
        step: StepNumber,
        run: Option<FinishedRun>,
    ) -> Vec<(StepNumber, Option<FinishedRun>)> {
        let first = self.of.get(&step);
        let Some(flow) = first.and_then(|first| self.flows.get_mut(first)) else { return Vec::new() };
        flow.runs.extend(run.map(|run| (step, run)));
        match flow.to_record.iter().all(|step| flow.runs.contains_key(step)) {
            true => {
                let mut runs = std::mem::take(&mut flow.runs);
                flow.steps.iter().map(|step| (*step, runs.remove(step))).collect()
            }
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FlowOver, StepFlows};
    use api::control::JobOutcome;
    use api::task::{FinishedRun, JobRecording};
    use api::{Blame, JobSpec, TaskFailure};
    use ids::StepNumber;
    use jobkind::FlowStep;
    use std::sync::Arc;

    fn begun(recorded: [bool; 2]) -> StepFlows {
        let step = |(number, is_recorded): (u32, bool)| {
            let recording = is_recorded.then(|| Box::new(JobRecording::default()));
            let spec = Arc::new(JobSpec { recording, ..JobSpec::named("a") });
            FlowStep { number: StepNumber(number), name: "a".into(), spec, reads: Vec::new() }
        };
        let mut flows = StepFlows::default();
        flows.begin(&[(4, recorded[0]), (2, recorded[1])].map(step));
        flows
    }

    #[test]
    fn flow_ends_with_its_last_step() {
        let mut flows = begun([true; 2]);
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
            let mut flows = begun([true; 2]);
            let [first, second] = order;
            assert_eq!(flows.over(StepNumber(2), first), FlowOver::NotYet);
            assert_eq!(flows.over(StepNumber(4), second), FlowOver::Ends(failed.clone()));
        }
        let mut flows = begun([true; 2]);
        flows.over(StepNumber(4), Some(stopped()));
        assert_eq!(flows.over(StepNumber(2), None), FlowOver::Ends(stopped()));
    }

    #[test]
    fn runs_are_told_together_and_in_order() {
        let run = || Some(FinishedRun::default());
        let mut flows = begun([true; 2]);
        assert_eq!(flows.ran(StepNumber(2), run()), Vec::new());
        assert_eq!(flows.over(StepNumber(2), None), FlowOver::NotYet);
        let both = vec![(StepNumber(4), run()), (StepNumber(2), run())];
        assert_eq!(flows.ran(StepNumber(4), run()), both);
        let mut flows = begun([false, true]);
        let one = vec![(StepNumber(4), None), (StepNumber(2), run())];
        assert_eq!(flows.ran(StepNumber(2), run()), one);
    }
}
