//! Data that an attempt found gone, and a proof that does not agree: what is wrong is made again, before the job fails.

use crate::clock::now_ns;
use crate::event_loop::EventLoop;
use crate::job::{Job, Loss, RunAgain, placement};
use crate::messages::Finished;
use api::task::MapTask;
use api::{Task, TaskFailure, TaskResult};
use ids::{NodeId, RunId, StageIndex, TaskIndex};
use mapreduce::{Gone, Proof, Repair};
use metastore::{AttemptState, Change, READ_AGAIN_NOTE};
use scheduler::{Event, Standing};

/// What an attempt found gone, and with what.
pub(crate) fn evidence(outcome: &Result<TaskResult, TaskFailure>) -> Option<(Gone, String)> {
    match outcome {
        Ok(result) => Job::lost_chunks(result),
        Err(failure) if failure.lost_runs.is_empty() => None,
        Err(failure) => {
            let with = format!("{} runs ({})", failure.lost_runs.len(), failure.message);
            Some((Gone::runs(&failure.lost_runs), with))
        }
    }
}

impl EventLoop {
    /// What goes before an event that lets tasks run again: those whose data is sent again are best sent from where it is.
    pub fn moved_before(&self, event: &Event) -> Option<Event> {
        let (id, stage, tasks) = match event {
            Event::ResultsLost { job, stage, tasks, .. } => (*job, *stage, tasks),
            Event::StageSentBack { job, to, tasks, .. } => (*job, *to, tasks),
            _ => return None,
        };
        let job = self.jobs.get(&id)?;
        let payloads = job.tasks.get(usize::from(stage.0))?;
        let moved = |index: &TaskIndex| match payloads.get(index.0 as usize)? {
            task @ Task::Map(MapTask { again: Some(again), .. }) if again.resend.is_some() => {
                Some((*index, placement(task)))
            }
            _ => None,
        };
        let tasks: Vec<_> = tasks.iter().filter_map(moved).collect();
        (!tasks.is_empty()).then_some(Event::TasksMoved { job: id, stage, tasks })
    }

    /// An attempt found that data is gone. Where the job needs it, it is made again, and the attempt did not count.
    pub fn found_lost(
        &mut self,
        finished: Finished,
        outcome: Result<TaskResult, TaskFailure>,
        gone: &Gone,
        with: &str,
    ) {
        let attempt = finished.attempt;
        let id = attempt.task.job;
        let told_late = self.jobs.get(&id).and_then(|job| job.fell_back_since(gone, finished.started_ns));
        let is_news = told_late.as_ref().is_none_or(|rest| !rest.runs.is_empty());
        if is_news && !self.data_gone(id, told_late.as_ref().unwrap_or(gone), with) {
            return self.ended(finished, outcome);
        }
        self.with_job(id, |job, changes| {
            job.attempt_ended(
                &finished,
                AttemptState::Interrupted,
                outcome.as_ref().map(Some).map_err(Clone::clone),
                changes,
            );
        });
        // First its task is let go again, where it was not; then nothing more is expected of it.
        self.feed(Event::AttemptLost { attempt });
        self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
    }
}

impl Job {
    /// Where an attempt tells of runs that are read from their replicas since it began, it met the files that all know to be lost, and
    /// says nothing of the replicas: what is left of it then. None where it tells of nothing such.
    fn fell_back_since(&self, gone: &Gone, started_ns: u64) -> Option<Gone> {
        let is_late = |run: &RunId| self.fell_back_ns.get(run).is_some_and(|since_ns| *since_ns > started_ns);
        let rest = gone.runs.iter().filter(|run| !is_late(run)).copied().collect();
        gone.runs.iter().any(is_late).then(|| Gone { runs: rest, ..gone.clone() })
    }

    /// What follows from a proof that does not agree, before the stage that would publish the output; None where nothing can be
    /// done about it.
    pub fn repair(
        &mut self,
        proof: &Proof,
        stage: StageIndex,
        has_left: impl Fn(NodeId) -> bool,
        changes: &mut Vec<Change>,
    ) -> Option<Event> {
        let telling = proof.findings.iter().find(|finding| finding.chunk().is_some());
        let found = telling.or(proof.findings.first()).map(ToString::to_string).unwrap_or_default();
        let job = self.id;
        match self.results.repair(proof) {
            Repair::Nothing => None,
            Repair::ReadAgain(tasks) => {
                let detail =
                    format!("the proof did not agree ({found}): {} reduce tasks run again", tasks.len());
                changes.push(Change::Note {
                    job: Some(job),
                    kind: READ_AGAIN_NOTE,
                    detail,
                    now_ns: now_ns(),
                });
                let to = self.reopen_reduces(&tasks, changes)?;
                Some(Event::StageSentBack { job, stage, to, tasks, stands: None })
            }
            Repair::MakeAgain { gone, readers } => {
                let reduce = self.reopen_reduces(&readers, changes)?;
                let with = format!("what the proof found wrong ({found})");
                match self.lose(&gone, &with, has_left, changes)? {
                    Loss::FellBack | Loss::ForGood(_) => {
                        changes.push(self.proofs(proof));
                        Some(Event::StageRefused { job, stage })
                    }
                    Loss::Again(RunAgain { stage: to, tasks, .. }) => {
                        let stands = Some(Standing { stage: reduce, stops: Vec::new(), redo: readers });
                        Some(Event::StageSentBack { job, stage, to, tasks, stands })
                    }
                }
            }
        }
    }

    /// These reduce tasks run again as they are planned now.
    pub fn reopen_reduces(&mut self, tasks: &[TaskIndex], changes: &mut Vec<Change>) -> Option<StageIndex> {
        let stage = self.stage_index("reduce")?;
        let planned = self.tasks.get_mut(usize::from(stage.0))?;
        let mut payloads = Vec::with_capacity(tasks.len());
        for index in tasks {
            let again = self.results.plan.get(index.0 as usize).cloned().map(Task::Reduce);
            if let Some((place, again)) = planned.get_mut(index.0 as usize).zip(again) {
                *place = again;
                payloads.push((*index, place.clone()));
            }
        }
        let job = self.id;
        changes.push(Change::StageReopened { job, stage, tasks: payloads, stands: None, now_ns: now_ns() });
        Some(stage)
    }
}
