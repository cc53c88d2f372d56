//! Ends of attempts: results are checked, and count or not.

use crate::flows::{check_same_part, input_lost};
use crate::interface::{Ended, Finished, Outbox, Service};
use crate::job::Job;
use crate::job::range_cuts::covers_task;
use crate::loss::{evidence, found_lost};
use crate::replication::weigh_replication;
use crate::scheduling::feed::{HandedIn, feed_with};
use crate::scheduling::{all_done, feed, run_again};
use crate::work::Work;
use api::history::AttemptState;
use api::{Blame, LostFile, TaskFailure, TaskResult};
use ids::AttemptKey;
use scheduler::Event;

pub(crate) fn attempt_finished(work: &mut Work, outbox: &mut Outbox, finished: Finished) {
    let (ended_attempt, outcome) = finished.split();
    let attempt = ended_attempt.attempt;
    let Some(job) = work.jobs.get(&attempt.task.job) else { return };
    if !job.knows(attempt.task.stage, attempt.task.task) {
        job.account(&ended_attempt, outbox);
        return;
    }
    let checked = outcome.and_then(|result| check(work, job, attempt, &result).map(|()| result));
    if let Some((gone, with)) = evidence(job, &checked) {
        return found_lost(work, outbox, ended_attempt, checked, &gone, &with);
    }
    ended(work, outbox, ended_attempt, checked);
}

/// Returns an error for an impossible result, or for one on lost nodes.
fn check(work: &Work, job: &Job, attempt: AttemptKey, result: &TaskResult) -> Result<(), TaskFailure> {
    job.check_result(attempt, result)?;
    if work.service == Service::Cluster {
        work.fleet.check_homes(result, &job.results().replicas, job.losses().given_up())?;
    }
    check_same_part(work, attempt, result)
}

/// Handles the end of an attempt that found no data lost.
pub(crate) fn ended(
    work: &mut Work,
    outbox: &mut Outbox,
    finished: Ended,
    outcome: Result<TaskResult, TaskFailure>,
) {
    match outcome {
        Ok(result) => succeeded(work, outbox, finished, result),
        Err(failure) => match failure.lost_file.as_deref().cloned() {
            Some(LostFile::Intermediate(lost)) => input_lost(work, outbox, finished, failure, &lost),
            Some(LostFile::Stored(_)) | None => failed(work, outbox, finished, failure),
        },
    }
}

fn succeeded(work: &mut Work, outbox: &mut Outbox, finished: Ended, result: TaskResult) {
    let attempt = finished.attempt;
    let is_whole = covers_task(work, outbox, attempt, &result);
    let Some(job) = work.jobs.get_mut(&attempt.task.job) else { return };
    // Its writer has not succeeded: no node reports this.
    let is_early = work.scheduling.early().get(attempt.task.job).is_some();
    if !is_whole || is_early {
        job.attempt_ended(&finished, AttemptState::Discarded, Ok(Some(&result)), outbox);
        return feed(work, outbox, Event::AttemptLost { attempt });
    }
    match job.refuse_stand_in(attempt, &result, outbox) {
        None => {
            all_done(work, outbox, attempt, &result);
            weigh_replication(work, outbox, &finished, &result);
            let mut in_hand = Some(HandedIn { ended: finished, result });
            feed_with(work, outbox, Event::AttemptSucceeded { attempt }, &mut in_hand);
        }
        Some(again) => {
            job.attempt_ended(&finished, AttemptState::Discarded, Ok(Some(&result)), outbox);
            feed(work, outbox, Event::AttemptLost { attempt });
            run_again(work, outbox, attempt.task.job, again);
        }
    }
}

fn failed(work: &mut Work, outbox: &mut Outbox, finished: Ended, failure: TaskFailure) {
    let attempt = finished.attempt;
    let Some(job) = work.jobs.get_mut(&attempt.task.job) else { return };
    // The job was not told to stop: its node stopped the attempt because it had abandoned it, or nobody needs it.
    let stopped_alone = failure.blame == Blame::Cancelled && !job.is_stopping();
    let of_node = failure.blame == Blame::Environment;
    let missed = failure.unreachable.filter(|node| of_node && work.fleet.has(*node));
    let is_first = missed.is_some_and(|node| job.losses_mut().first_to_miss(attempt.task, node));
    let may_be_excused = || {
        let is_excused = work.fleet.may_excuse(finished.started_ns, failure.unreachable, outbox.moment());
        work.service == Service::Cluster && (is_excused || is_first)
    };
    // This failure is not counted: the suspect node either polls again or its lease ends.
    let reads_stream = work.scheduling.early().get(attempt.task.job).is_some();
    let is_interrupted = failure.stream_broke && job.is_single() || stopped_alone && reads_stream;
    if is_interrupted
        || (of_node || stopped_alone)
            && (job.may_lack_data(attempt) || job.knows_lost(&failure.lost_runs) || may_be_excused())
    {
        job.attempt_ended(&finished, AttemptState::Interrupted, Err(failure), outbox);
        return feed(work, outbox, Event::AttemptLost { attempt });
    }
    let retryable = failure.retryable() || stopped_alone;
    let state = match failure.blame {
        Blame::Cancelled => AttemptState::Cancelled,
        _ => AttemptState::Failed,
    };
    job.attempt_ended(&finished, state, Err(failure), outbox);
    feed(work, outbox, Event::AttemptFailed { attempt, retryable, of_node });
}
