//! Attempts whose end will not be reported, and tasks that run again.

use crate::interface::{Ended, Outbox};
use crate::job::Jobs;
use crate::loss::RunAgain;
use crate::scheduling::feed;
use crate::work::Work;
use api::history::AttemptState;
use api::task::AttemptUsage;
use ids::{AttemptKey, JobId};
use scheduler::Event;

/// Runs tasks again: attempts that work on lost data are abandoned.
pub(crate) fn run_again(work: &mut Work, outbox: &mut Outbox, job: JobId, again: RunAgain) {
    let is_stale = |attempt: &AttemptKey| attempt.task.job == job && again.ends(attempt.task);
    let stale: Vec<(AttemptKey, u64)> =
        work.fleet.all_mut().flat_map(|node| node.give_up(is_stale)).collect();
    let RunAgain { stage, tasks, retained } = again;
    feed(work, outbox, Event::ResultsLost { job, stage, tasks, retained });
    for (attempt, started_ns) in stale {
        attempt_lost(&mut work.jobs, outbox, attempt, started_ns, AttemptState::Discarded);
    }
}

/// Records an attempt whose end will not be reported.
pub(crate) fn attempt_lost(
    jobs: &mut Jobs,
    outbox: &mut Outbox,
    attempt: AttemptKey,
    started_ns: u64,
    state: AttemptState,
) {
    // Its node would have measured the rest.
    end_unreported(jobs, outbox, attempt, started_ns, (state, Some(AttemptUsage::default())));
}

/// Records an attempt that never ran: its order did not arrive, or its node gave it back.
pub(crate) fn attempt_unrun(jobs: &mut Jobs, outbox: &mut Outbox, attempt: AttemptKey, assigned_ns: u64) {
    end_unreported(jobs, outbox, attempt, assigned_ns, (AttemptState::Interrupted, None));
}

fn end_unreported(
    jobs: &mut Jobs,
    outbox: &mut Outbox,
    attempt: AttemptKey,
    started_ns: u64,
    (state, used): (AttemptState, Option<AttemptUsage>),
) {
    let Some(job) = jobs.get_mut(&attempt.task.job) else { return };
    let ended = Ended { attempt, started_ns, ended_ns: outbox.now_ns(), used };
    job.attempt_ended(&ended, state, Ok(None), outbox);
}
