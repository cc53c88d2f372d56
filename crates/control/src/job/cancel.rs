//! Cancellation of jobs. The request is stored in the history before any attempt is told to stop, so that the next
//! server stops the job if this one dies first.

use crate::interface::Outbox;
use crate::scheduling::feed;
use crate::work::Work;
use api::control::NodeOrder;
use api::history::EventKind;
use ids::JobId;
use scheduler::Event;

/// Cancels a running job. Does nothing if the job is over.
pub(crate) fn cancel(work: &mut Work, outbox: &mut Outbox, id: JobId, reason: String) {
    if work.jobs.get(&id).is_some_and(|job| job.outcome.is_none()) {
        outbox.note(id, EventKind::JobCancelAsked, reason.clone());
        stop(work, outbox, id, reason);
    }
}

/// Stops a job whose cancellation is stored.
pub(crate) fn stop(work: &mut Work, outbox: &mut Outbox, id: JobId, reason: String) {
    let Some(job) = work.jobs.get_mut(&id) else { return };
    job.stop_attempts(outbox);
    job.cancel_reason.get_or_insert(reason);
    work.fleet.order_all(id, NodeOrder::Stop { job: id });
    feed(work, outbox, Event::JobCancelled { job: id });
}
