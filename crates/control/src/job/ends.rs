//! Jobs that are over, and the callers that wait for the end of a job.

use crate::interface::{ControlError, Outbox, Reply, Service};
use crate::job::Job;
use api::control::JobOutcome;
use api::history::EventKind;
use ids::JobId;
use rows::Change;
use std::collections::VecDeque;

/// Number of jobs whose end is remembered for late callers.
const FINISHED_JOBS_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct JobEnds {
    finished: VecDeque<(JobId, JobOutcome)>,
    waiters: Vec<(JobId, Reply<JobOutcome>)>,
}

impl JobEnds {
    /// Records that only rows are left of a job. `problem`: the reason why files of the job could not be removed.
    pub fn job_cleaned(&mut self, outbox: &mut Outbox, job: Job, service: Service, problem: Option<String>) {
        let id = job.id;
        match problem {
            None => {
                let (kept, places) = job.keep_here_or_on_nodes(service, outbox.now_ns());
                if let Some(Change::KeptDirs { places, .. }) = &places {
                    job.account_kept(places, outbox);
                }
                outbox.write_all(places);
                outbox.write(Change::JobCleaned { job: id, kept, now_ns: outbox.now_ns() });
            }
            Some(detail) => {
                outbox.warn(format!("cannot remove the files of job {id}: {detail}"));
                outbox.note(id, EventKind::JobNotCleaned, detail);
            }
        }
        let outcome = job.outcome.expect("a job is cleaned after its end");
        self.has_finished(outbox, id, outcome);
    }

    /// Remembers the end of a job.
    pub fn has_finished(&mut self, outbox: &mut Outbox, job: JobId, outcome: JobOutcome) {
        self.finished.push_back((job, outcome));
        if self.finished.len() > FINISHED_JOBS_MAX
            && let Some((oldest, _)) = self.finished.pop_front()
        {
            outbox.forget(oldest);
        }
    }

    pub fn wait(&mut self, job: JobId, reply: Reply<JobOutcome>) {
        self.waiters.push((job, reply));
    }

    /// Answers the callers that wait for a job that is over or unknown.
    pub fn answer_waiters(&mut self, outbox: &mut Outbox, is_known: impl Fn(JobId) -> bool) {
        if self.waiters.is_empty() {
            return;
        }
        for (job, reply) in std::mem::take(&mut self.waiters) {
            // A remote caller hangs up from time to time, and asks again.
            if reply.is_gone() {
                continue;
            }
            let finished = self.finished.iter().find(|(other, _)| *other == job);
            match finished {
                Some((_, outcome)) => outbox.answer(reply, Ok(outcome.clone())),
                None if is_known(job) => self.waiters.push((job, reply)),
                None => outbox.answer(reply, Err(ControlError::UnknownJob { job })),
            }
        }
    }
}
