//! Ends of attempts: their rows in the history, and the consequences of a winner's result.

use crate::interface::{Ended, Fact, Outbox};
use crate::job::Job;
use crate::job::result_validation::SAID_BYTES_MAX;
use api::history::{AttemptState, EventKind};
use api::task::{MapResult, RunResult, RunSummary};
use api::{TaskFailure, TaskResult};
use ids::AttemptKey;
use mapreduce::AttemptTime;
use rows::Change;

/// Longest reason of a node that is stored, in bytes.
const WHY_BYTES_MAX: usize = 1024;

impl Job {
    /// Records the end of an attempt that won, lost or failed.
    pub(crate) fn attempt_ended(
        &mut self,
        finished: &Ended,
        state: AttemptState,
        result: Result<Option<&TaskResult>, TaskFailure>,
        outbox: &mut Outbox,
    ) {
        let attempt = finished.attempt;
        self.account(finished, outbox);
        self.losses.attempt_ended(attempt);
        self.results.attempts.push(AttemptTime {
            stage: attempt.task.stage,
            task: attempt.task.task,
            started_ns: finished.started_ns,
            ended_ns: finished.ended_ns,
            won: state == AttemptState::Succeeded,
        });
        let opened_ns = match &result {
            Ok(Some(TaskResult::Reduce(reduce))) => reduce.opened_ns,
            _ => None,
        };
        let said = match &result {
            Ok(Some(TaskResult::Map(map))) => &map.said[..],
            Ok(Some(TaskResult::Reduce(reduce))) => &reduce.said[..],
            Ok(_) => &[],
            Err(failure) => &failure.stderr_tail[..],
        };
        let text = self.log_room.text_of(said).filter(|_| !self.is_single());
        if let Some(text) = text {
            outbox.write(Change::AttemptSaid { attempt, text, now_ns: outbox.now_ns() });
        }
        let mut failure = result.err();
        if let Some(failure) = &mut failure {
            if let Some(said) = failure.said.take() {
                self.remember_output(attempt, &said, outbox);
                // Programs of earlier phases of a pipeline have finished, and their outputs are at their paths.
                let is_over = matches!(state, AttemptState::Failed | AttemptState::Cancelled);
                if is_over && said.runs.iter().any(Option::is_some) {
                    outbox.tell(Fact::StepRan { job: self.id, result: said });
                }
            }
            self.last_failure = Some(failure.clone());
        }
        outbox.write(Change::AttemptEnded {
            attempt,
            state,
            started_ns: finished.started_ns,
            opened_ns,
            ended_ns: finished.ended_ns,
            failure,
        });
    }

    /// Stores the output of a program in the history. The output of a later attempt replaces that of an earlier one,
    /// even if it is empty.
    fn remember_output(&self, attempt: AttemptKey, said: &RunResult, outbox: &mut Outbox) {
        let said = [
            (
                EventKind::StandardOutput,
                &said.standard_output,
                EventKind::StandardOutputBytes,
                said.standard_output_bytes,
            ),
            (
                EventKind::StandardError,
                &said.standard_error,
                EventKind::StandardErrorBytes,
                said.standard_error_bytes,
            ),
        ];
        for (kind, text, bytes_kind, bytes) in said {
            if !text.is_empty() || attempt.attempt.0 > 0 {
                // A node of another version may send more. Neither database stores a text with a zero byte.
                let cut = text.ceil_char_boundary(text.len().saturating_sub(SAID_BYTES_MAX));
                outbox.note(self.id, kind, text[cut..].replace('\0', "\u{fffd}"));
            }
            if bytes > text.len() as u64 {
                outbox.note(self.id, bytes_kind, bytes.to_string());
            }
        }
    }

    /// Stores the last status of a task's programs in the history of the job.
    fn remember_status(&self, attempt: AttemptKey, result: &TaskResult, outbox: &mut Outbox) {
        let status = match result {
            TaskResult::Map(map) => map.status.as_ref(),
            TaskResult::Reduce(reduce) => reduce.status.as_ref(),
            TaskResult::Seal(_)
            | TaskResult::Merge(_)
            | TaskResult::Adopt(_)
            | TaskResult::Commit(_)
            | TaskResult::Run(_) => None,
        };
        let Some(status) = status else { return };
        let stage = self.stage_kinds[usize::from(attempt.task.stage.0)];
        let detail = format!("{stage} task {}: {status}", attempt.task.task.0);
        outbox.note(self.id, EventKind::Status, detail);
    }

    /// Stores the result of a winner and passes it to the plan of the next stage.
    pub(crate) fn task_done(&mut self, attempt: AttemptKey, result: TaskResult, outbox: &mut Outbox) {
        let job = self.id;
        outbox.write(Change::TaskDone { attempt, now_ns: outbox.now_ns() });
        self.remember_status(attempt, &result, outbox);
        match &result {
            TaskResult::Map(map) => {
                outbox.write(Change::Sources { attempt, commits: map.commits.clone() });
                remember_not_resent(attempt, map, outbox);
                outbox.write_all(map.part.clone().map(|part| Change::Part { attempt, part }));
            }
            TaskResult::Seal(seal) => {
                let mut seal = seal.clone();
                self.results.retain_committed(&mut seal);
                outbox.write(Change::Chunks { job, chunks: seal.chunks.clone() });
                let runs = seal.runs.iter().map(without_weights).collect();
                outbox.write(Change::Runs { job, runs, replaced: Vec::new() });
            }
            TaskResult::Adopt(adopt) => return self.adopted(attempt, adopt.clone(), outbox),
            TaskResult::Merge(merge) => {
                let dropped = self.results.forget_merged(&merge.replaced);
                self.replicas_dropped(&dropped, outbox);
                let (runs, replaced) = (vec![without_weights(&merge.run)], merge.replaced.clone());
                outbox.write(Change::Runs { job, runs, replaced });
            }
            TaskResult::Reduce(reduce) => {
                outbox.write(Change::Part { attempt, part: reduce.part.clone() });
            }
            TaskResult::Commit(commit) => {
                if let Some(run) = &commit.run {
                    let result = RunResult { runs: vec![Some(run.as_ref().clone())], ..RunResult::default() };
                    outbox.tell(Fact::StepRan { job, result: Box::new(result) });
                }
            }
            TaskResult::Run(run) => {
                self.remember_output(attempt, run, outbox);
                if !run.runs.is_empty() || !run.looked.is_empty() {
                    outbox.tell(Fact::StepRan { job, result: Box::new(run.clone()) });
                }
            }
        }
        self.results.record(attempt, result);
    }
}

/// Notes why the user's program ran again although the node had a spool.
fn remember_not_resent(attempt: AttemptKey, map: &MapResult, outbox: &mut Outbox) {
    let Some(why) = &map.not_resent else { return };
    let cut = &why[..why.floor_char_boundary(WHY_BYTES_MAX)];
    let detail = format!("{attempt} ran the user's program: its spool cannot be sent again ({cut})");
    outbox.note(attempt.task.job, EventKind::SpoolNotSent, detail.replace('\0', "\u{fffd}"));
}

/// Returns a run without its key index. The store keeps no key indexes: copying them would cost more than all other
/// columns.
pub(crate) fn without_weights(run: &RunSummary) -> RunSummary {
    RunSummary { weights: Vec::new(), chunks: run.chunks.clone(), ..*run }
}
