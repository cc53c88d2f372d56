//! Recomputation of lost parts that later stages still need.

use crate::interface::{Ended, Outbox, Service};
use crate::job::Job;
use crate::loss::{Loss, RunAgain};
use crate::scheduling::{feed, run_again};
use crate::work::Work;
use api::history::{AttemptState, EventKind};
use api::{Blame, LostInput, TaskFailure};
use ids::{JobId, NodeId, StageIndex, StageKind, TaskIndex};
use mapreduce::flow;
use mapreduce::flow::PartsAgain;
use scheduler::{Event, RetainedStage};
use std::sync::Arc;

/// Handles an attempt that could not read an intermediate file. The attempt does not count as a failure of its task.
pub(crate) fn input_lost(
    work: &mut Work,
    outbox: &mut Outbox,
    finished: Ended,
    failure: TaskFailure,
    lost: &LostInput,
) {
    let attempt = finished.attempt;
    if let Some(before) = work.jobs.get_mut(&lost.file.job).filter(|job| job.outcome().is_none()) {
        before.results_mut().part_not_found(lost);
    }
    let with = failure.message.clone();
    let job = work.jobs.expect_mut(attempt.task.job);
    job.attempt_ended(&finished, AttemptState::Interrupted, Err(failure), outbox);
    feed(work, outbox, Event::AttemptLost { attempt });
    feed(work, outbox, Event::AttemptFailed { attempt, retryable: true, of_node: false });
    mend_flows(work, outbox, &with);
}

/// Recomputes the intermediate files that no node has any more and that some stage still needs.
pub(crate) fn mend_flows(work: &mut Work, outbox: &mut Outbox, with: &str) {
    for id in flow::last_first(work) {
        for (before, again) in flow::lacks(work, id) {
            make_parts_again(work, outbox, before, &again, with);
        }
    }
}

pub(crate) fn make_parts_again(
    work: &mut Work,
    outbox: &mut Outbox,
    id: JobId,
    tasks: &[TaskIndex],
    with: &str,
) {
    let (fleet, service) = (&work.fleet, work.service);
    let has_left = |node| service == Service::Cluster && !fleet.has(node);
    // If several are due at once, the first may have ended the flow.
    let Some(job) = work.jobs.get_mut(&id).filter(|job| job.outcome().is_none()) else { return };
    let (rested, stage) = (job.in_flow().parts_ready, StageIndex(job.tasks().len() as u16));
    let made = job.make_parts_again(tasks, with, has_left, outbox);
    job.in_flow_mut().parts_ready = rested && made.is_none();
    match (made, rested) {
        (None, _) => {}
        (Some(Err(())), true) => feed(work, outbox, Event::StageRefused { job: id, stage }),
        (Some(Err(())), false) => {
            let stage = StageIndex(stage.0.saturating_sub(1));
            feed(work, outbox, Event::StageRefused { job: id, stage });
        }
        (Some(Ok(RunAgain { stage: to, tasks, retained })), true) => {
            feed(work, outbox, Event::StageSentBack { job: id, stage, to, tasks, retained });
        }
        (Some(Ok(again)), false) => run_again(work, outbox, id, again),
    }
}

impl Job {
    /// Runs the tasks of lost parts again. Returns the tasks, or an error if the job must fail instead.
    pub(crate) fn make_parts_again(
        &mut self,
        tasks: &[TaskIndex],
        with: &str,
        has_left: impl Fn(NodeId) -> bool,
        outbox: &mut Outbox,
    ) -> Option<Result<RunAgain, ()>> {
        let (spec, stages) = (Arc::clone(self.spec()), self.tasks().len());
        let again = match self.results_mut().parts_again(&spec, stages, tasks, &has_left) {
            PartsAgain::Anyhow => return None,
            PartsAgain::TooOften => {
                let regenerations_max = spec.max_regenerations;
                let message = format!(
                    "parts of the stage were lost with {with}, and its data was recomputed {regenerations_max} times before, which \
                     is the most that the job allows (--max-regenerations {regenerations_max})"
                );
                self.fails_of(TaskFailure::new(Blame::Environment, message));
                return Some(Err(()));
            }
            again @ (PartsAgain::ByMaps | PartsAgain::ByReduces(_)) => again,
        };
        let detail =
            format!("with {with}: {} parts that later stages still need are recomputed", tasks.len());
        outbox.note(self.id(), EventKind::DataLost, detail);
        let PartsAgain::ByReduces(gone) = again else {
            self.results_mut().regenerations += 1;
            let stage = self.stage_index(StageKind::Map)?;
            self.reopen_maps(tasks, None, outbox);
            return Some(Ok(RunAgain { stage, tasks: tasks.to_vec(), retained: None }));
        };
        let reduce = self.reopen_reduces(tasks, outbox)?;
        Some(match self.lose(&gone, with, has_left, outbox) {
            None | Some(Loss::FellBack) => {
                self.results_mut().regenerations += 1;
                Ok(RunAgain { stage: reduce, tasks: tasks.to_vec(), retained: None })
            }
            Some(Loss::ForGood(_)) => Err(()),
            Some(Loss::Again(RunAgain { stage, tasks: maps, .. })) => {
                let retained = Some(RetainedStage { stage: reduce, stops: Vec::new(), redo: tasks.to_vec() });
                Ok(RunAgain { stage, tasks: maps, retained })
            }
        })
    }
}
