//! The end of a job, and the data that is kept after it.

use crate::interface::{Outbox, Service};
use crate::job::Job;
use api::control::JobOutcome;
use api::history::JobState;
use api::{Blame, JobSpec, TaskFailure};
use ids::{NodeId, RunId, StageIndex, StageKind};
use mapreduce::SealState;
use rows::{Change, Keep};
use scheduler::FailureCause;
use std::collections::BTreeSet;

/// Exit code of a job that failed because of its input, without an exit code of the user's program: `sailfish run` ends
/// with it.
const EXIT_BAD_INPUT: i32 = 2;
const EXIT_JOB_FAILED: i32 = 1;
/// Exit code that a shell reports for a program that was ended by Ctrl-C.
pub(crate) const EXIT_CANCELLED: i32 = 130;
const EXIT_SIGNAL_BASE: i32 = 128;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
impl Job {
    /// Returns whether the intermediate data of the job is kept after its end. The data of a failed job may explain the
    /// failure; nothing is kept of a cancelled job, as its user is told.
    pub(crate) fn keeps_ifiles(&self) -> bool {
        let ran_to_its_end =
            matches!(self.outcome, Some(JobOutcome::Succeeded(_) | JobOutcome::Failed { .. }));
        self.spec.keep_ifiles && ran_to_its_end
    }

    /// Returns for how long data is kept, counted from now.
    pub(crate) fn keep(&self, now_ns: u64) -> Keep {
        if self.keeps_ifiles() { keep_from(&self.spec, now_ns) } else { Keep::Nothing }
    }

    /// Returns how long kept data stays after the directories of the job are removed, and the rows of the data that
    /// nodes keep.
    pub(crate) fn keep_here_or_on_nodes(&self, service: Service, now_ns: u64) -> (Keep, Option<Change>) {
        match (&self.keeping, service) {
            (_, Service::Embedded) => (self.keep(now_ns), None),
            (Some(keeping), Service::Cluster) if keeping.lost.is_none() => {
                let places = keeping.places.clone();
                (keep_from(&self.spec, now_ns), Some(Change::KeptDirs { job: self.id, places }))
            }
            (_, Service::Cluster) => (Keep::Nothing, None),
        }
    }

    /// Returns the runs that nodes must keep; None if the job keeps nothing, or if some of its maps did not end.
    pub(crate) fn runs_to_keep(&self) -> Option<BTreeSet<RunId>> {
        let keeps = self.keeps_ifiles() && self.spec.kind.has_shuffle() && self.is_sealed();
        keeps.then(|| self.results.surviving_runs().iter().map(|run| run.run).collect())
    }

    /// Returns whether the job may still read data on a node. While maps run and chunks are sealed, the last locations
    /// are not known.
    pub(crate) fn may_need(&self, node: NodeId) -> bool {
        let current = self.tasks.len().checked_sub(1).map(|stage| self.stage_kinds[stage]);
        if self.outcome.is_some() || !self.spec.kind.has_shuffle() || self.is_single() {
            return false;
        }
        match current {
            Some(StageKind::Commit) => false,
            // Its parts are complete: runs are read again only if a part is lost.
            _ if self.in_flow.parts_ready => false,
            // No node has data of the job.
            None => false,
            _ if self.is_sealed() => self.results.needs(node, SealState::Sealed),
            _ => true,
        }
    }

    pub(crate) fn failed(&mut self, because: FailureCause, outbox: &mut Outbox) {
        self.stop_attempts(outbox);
        let failure = self.last_failure.clone().unwrap_or_else(|| {
            TaskFailure::new(Blame::Engine, "the job failed without a failure of an attempt")
        });
        let exit_code = exit_code(&failure);
        let attempt = match because {
            FailureCause::Attempt(attempt) => Some(attempt),
            FailureCause::Stage(_) => None,
        };
        self.ended(JobState::Failed, exit_code, Some(failure.message.clone()), outbox);
        self.outcome = Some(JobOutcome::Failed { failure, attempt, exit_code });
    }

    pub(crate) fn succeeded(&mut self, outbox: &mut Outbox) {
        let last = StageIndex((self.stage_kinds.len() - 1) as u16);
        outbox.write(Change::StageEnded { job: self.id, stage: last, now_ns: outbox.now_ns() });
        self.ended(JobState::Succeeded, 0, None, outbox);
        self.outcome = Some(match self.is_single() {
            true => JobOutcome::Done,
            false => {
                let report = self.report.take();
                JobOutcome::Succeeded(report.expect("a job succeeds by its commit, which carries the report"))
            }
        });
    }

    pub(crate) fn cancelled(&mut self, outbox: &mut Outbox) {
        let reason = self.cancel_reason.clone().unwrap_or_default();
        self.ended(JobState::Cancelled, EXIT_CANCELLED, Some(reason.clone()), outbox);
        self.outcome = Some(JobOutcome::Cancelled { reason });
    }

    fn ended(&self, state: JobState, exit_code: i32, error: Option<String>, outbox: &mut Outbox) {
        let (job, exit_code, now_ns) = (self.id, Some(exit_code), outbox.now_ns());
        outbox.write(Change::JobEnded { job, state, exit_code, error, now_ns });
    }
}

/// Returns how long the kept data of a job stays, counted from `now_ns`, in nanoseconds since 1970.
pub fn keep_from(spec: &JobSpec, now_ns: u64) -> Keep {
    match spec.keep_seconds {
        None => Keep::ForGood,
        Some(seconds) => Keep::Until(now_ns.saturating_add(seconds.saturating_mul(NANOS_PER_SECOND))),
    }
}

/// Returns the exit code of a front end for a failure: the code of the user's program, or one that says who caused the
/// failure.
pub(crate) fn exit_code(failure: &TaskFailure) -> i32 {
    match failure.blame {
        Blame::UserProgram => match (failure.exit_code, failure.signal) {
            (Some(code), _) if code != 0 => code,
            (_, Some(signal)) => EXIT_SIGNAL_BASE + signal,
            _ => 1,
        },
        Blame::UserData => EXIT_BAD_INPUT,
        Blame::Environment | Blame::Engine => EXIT_JOB_FAILED,
        Blame::Cancelled => EXIT_CANCELLED,
    }
}
