//! Repair: data that an attempt found lost, or that a failed proof points to, is recomputed before the job fails.

use crate::interface::{Ended, Outbox};
use crate::job::Job;
use crate::loss::{Loss, RunAgain, data_gone};
use crate::scheduling::{ended, feed};
use crate::work::Work;
use api::history::{AttemptState, EventKind};
use api::machine::{AttemptRead, LostOnDisk, READS_TOLD_MAX};
use api::{Task, TaskFailure, TaskResult};
use ids::{AttemptKey, ChunkId, NodeId, RunId, StageIndex, StageKind, TaskIndex};
use mapreduce::{LostData, Proof, Repair, Replica};
use scheduler::{Event, RetainedStage};

/// Longest error text of a node about a disk that is shown, in bytes.
const WHY_BYTES_MAX: usize = 1000;

/// Returns the data that an attempt found gone, and a text about the cause.
pub(crate) fn evidence(job: &Job, outcome: &Result<TaskResult, TaskFailure>) -> Option<(LostData, String)> {
    match outcome {
        Ok(result) => job.lost_chunks(result),
        Err(failure) if failure.lost_runs.is_empty() => None,
        Err(failure) => {
            let with = format!("{} runs ({})", failure.lost_runs.len(), failure.message);
            Some((LostData::runs(&failure.lost_runs), with))
        }
    }
}

/// Handles an attempt that found data lost. If the job needs the data, it is recomputed, and the attempt does not
/// count.
pub(crate) fn found_lost(
    work: &mut Work,
    outbox: &mut Outbox,
    finished: Ended,
    outcome: Result<TaskResult, TaskFailure>,
    gone: &LostData,
    with: &str,
) {
    let attempt = finished.attempt;
    let id = attempt.task.job;
    let told_late = work.jobs.get(&id).and_then(|job| job.fell_back_since(gone, finished.started_ns));
    let is_news = told_late.as_ref().is_none_or(|rest| !rest.runs.is_empty());
    if is_news && !data_gone(work, outbox, id, told_late.as_ref().unwrap_or(gone), with) {
        return ended(work, outbox, finished, outcome);
    }
    let result = outcome.as_ref().map(Some).map_err(Clone::clone);
    work.jobs.expect_mut(id).attempt_ended(&finished, AttemptState::Interrupted, result, outbox);
    // First its task becomes runnable again, if it was not; after that nothing more is expected of the attempt.
    feed(work, outbox, Event::AttemptLost { attempt });
    feed(work, outbox, Event::AttemptFailed { attempt, retryable: true, of_node: false });
}

/// Handles a node's report of runs that it can no longer read, before any attempt has tried.
pub(crate) fn lost_on_disk(work: &mut Work, outbox: &mut Outbox, node: NodeId, told: Vec<LostOnDisk>) {
    for told in told {
        let Some(known) = work.fleet.get_mut(node) else { return };
        let name = known.info().name.clone();
        let id = told.job;
        let Some(job) = work.jobs.get_mut(&id) else { continue };
        let mut why = told.why.clone();
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        let with = format!("{} runs of the node {name} ({why})", told.runs.len());
        if let Some(gone) = job.gone_with_disk(node, told, &with, outbox) {
            data_gone(work, outbox, id, &gone, &with);
        }
    }
}

impl Job {
    /// Returns the data that a node lost with a disk and that must be replaced.
    fn gone_with_disk(
        &mut self,
        node: NodeId,
        told: LostOnDisk,
        with: &str,
        outbox: &mut Outbox,
    ) -> Option<LostData> {
        if self.outcome().is_some() {
            return None;
        }
        for AttemptRead { attempt, runs } in told.read.into_iter().take(READS_TOLD_MAX) {
            if attempt.task.job == self.id() {
                self.losses_mut().had_read(attempt, runs);
            }
        }
        // A node reports only about runs that are read from it.
        let replicas = &self.results().replicas;
        let runs: Vec<RunId> = told.runs.into_iter().filter(|run| replicas.home(*run) == node).collect();
        if !self.is_sealed() {
            // Runs are not known before the seal. A replica of a run replaces the chunks of that run.
            let covered: Vec<&Replica> = runs.iter().filter_map(|run| replicas.get(*run)).collect();
            let is_covered = |chunk: &ChunkId| {
                let has_other = |replica: &Replica| !replica.promoted || replica.second.is_some();
                covered.iter().any(|replica| has_other(replica) && replica.chunks.contains(chunk))
            };
            let is_there = |chunk: &ChunkId| replicas.chunk_home(*chunk) == node && !is_covered(chunk);
            let chunks: Vec<ChunkId> = told.chunks.into_iter().filter(is_there).collect();
            return Some(LostData { runs: LostData::runs(&runs).runs, ..LostData::chunks(&chunks) });
        }
        let gone = LostData::runs(&runs);
        let (readers, done) = (self.readers_of(&gone), &self.results().reduces);
        let mut waiting = readers.iter().filter(|task| !done.contains_key(task)).peekable();
        let is_reducing = self
            .stage_index(StageKind::Reduce)
            .is_some_and(|stage| usize::from(stage.0) + 1 == self.tasks().len());
        if !is_reducing || self.results().keeps_runs || waiting.peek().is_none() {
            return Some(gone);
        }
        let all_have_read = waiting.all(|task| {
            self.has_read_all(*task, &gone) && !gone.runs.iter().any(|run| replicas.get(*run).is_some())
        });
        if !all_have_read {
            return Some(gone);
        }
        // An attempt that starts again finds the runs lost; they are recomputed then.
        let detail =
            format!("with {with}: all their reduce tasks have read them already, and nothing runs again");
        outbox.note(self.id(), EventKind::DataLost, detail);
        None
    }

    /// Returns whether a running attempt of a reduce task has already read all of these lost runs.
    pub(crate) fn has_read_all(&self, task: TaskIndex, gone: &LostData) -> bool {
        let Some(stage) = self.stage_index(StageKind::Reduce).filter(|_| gone.node.is_none()) else {
            return false;
        };
        let is_of_task = |attempt: &AttemptKey| attempt.task.stage == stage && attempt.task.task == task;
        let mut attempts = self.losses().reads().filter(|(attempt, _)| is_of_task(attempt));
        attempts.any(|(attempt, read)| match self.task(*attempt) {
            Some(Task::Reduce(reduce)) => {
                let mut lost = reduce.runs.iter().filter(|run| gone.takes(**run, &self.results().replicas));
                lost.all(|run| read.contains(run))
            }
            _ => false,
        })
    }

    /// Returns whether these runs, which an attempt could not read, are all known to be lost. If so, the attempts that
    /// read them earlier do not matter.
    pub(crate) fn knows_lost(&self, runs: &[RunId]) -> bool {
        !runs.is_empty() && runs.iter().all(|run| self.losses().is_lost(*run))
    }

    /// Returns the rest of a loss that an attempt reports late. Runs that have been read from replicas since the
    /// attempt began are left out: the attempt saw their old files, which are known to be lost, and says nothing about
    /// the replicas. None if the report names no such run.
    fn fell_back_since(&self, gone: &LostData, started_ns: u64) -> Option<LostData> {
        let is_late = |run: &RunId| self.losses().fell_back_after(*run, started_ns);
        let rest = gone.runs.iter().filter(|run| !is_late(run)).copied().collect();
        gone.runs.iter().any(is_late).then(|| LostData { runs: rest, ..gone.clone() })
    }

    /// Repairs the cause of a failed proof, before the stage that would publish the output. Returns None if no repair
    /// is possible.
    pub(crate) fn repair(
        &mut self,
        proof: &Proof,
        stage: StageIndex,
        has_left: impl Fn(NodeId) -> bool,
        outbox: &mut Outbox,
    ) -> Option<Event> {
        let telling = proof.findings.iter().find(|finding| finding.chunk().is_some());
        let found = telling.or(proof.findings.first()).map(ToString::to_string).unwrap_or_default();
        let job = self.id();
        match self.results_mut().repair(proof) {
            Repair::Nothing => None,
            Repair::ReadAgain(tasks) => {
                let detail =
                    format!("the proof did not agree ({found}): {} reduce tasks run again", tasks.len());
                outbox.note(job, EventKind::ReadAgain, detail);
                let to = self.reopen_reduces(&tasks, outbox)?;
                Some(Event::StageSentBack { job, stage, to, tasks, retained: None })
            }
            Repair::MakeAgain { gone, readers } => {
                let reduce = self.reopen_reduces(&readers, outbox)?;
                let with = format!("the data that the proof found wrong ({found})");
                match self.lose(&gone, &with, has_left, outbox)? {
                    Loss::FellBack | Loss::ForGood(_) => {
                        outbox.write(self.proofs(proof));
                        Some(Event::StageRefused { job, stage })
                    }
                    Loss::Again(RunAgain { stage: to, tasks, .. }) => {
                        let retained =
                            Some(RetainedStage { stage: reduce, stops: Vec::new(), redo: readers });
                        Some(Event::StageSentBack { job, stage, to, tasks, retained })
                    }
                }
            }
        }
    }
}
