//! Jobs that somebody wants to stop. That is a row of their history, written before anybody is told that they stop, so that
//! the next server stops them where this one dies first.

use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use api::control::NodeOrder;
use ids::JobId;
use metastore::{CANCEL_ASKED_NOTE, Change};
use scheduler::Event;

impl EventLoop {
    /// Tells a job to stop; nothing happens where it is over. The answer goes when the row stands.
    pub fn cancel(&mut self, id: JobId, reason: String, reply: Option<Reply<()>>) {
        if self.cancel_waiting(id, &reason) {
            // It had not begun.
        } else if self.jobs.get(&id).is_some_and(|job| job.outcome.is_none()) {
            let (kind, detail) = (CANCEL_ASKED_NOTE, reason.clone());
            self.changes.push(Change::Note { job: Some(id), kind, detail, now_ns: now_ns() });
            self.stop(id, reason);
        }
        if let Some(reply) = reply {
            // Also where it is over: the end may be in the same transaction.
            self.replies.push(Box::new(move || drop(reply.send(Ok(())))));
        }
    }

    /// Stops a job of which it is stored that somebody wants that.
    pub fn stop(&mut self, id: JobId, reason: String) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.stop_attempts();
        job.cancel_reason.get_or_insert(reason);
        self.fleet.order_all(id, NodeOrder::Stop { job: id });
        self.feed(Event::JobCancelled { job: id });
    }
}
