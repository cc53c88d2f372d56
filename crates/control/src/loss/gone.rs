//! Data is gone: each job that needs it reads it elsewhere, or makes it again.

use crate::interface::{Outbox, Service};
use crate::loss::Loss;
use crate::replication::replicate_again;
use crate::scheduling::{feed, run_again};
use crate::work::Work;
use ids::JobId;
use mapreduce::Gone;
use scheduler::Event;

/// Data of a job is gone, `with` what; whether the job needed it.
pub(crate) fn data_gone(work: &mut Work, outbox: &mut Outbox, id: JobId, gone: &Gone, with: &str) -> bool {
    let (fleet, service) = (&work.fleet, work.service);
    // On one machine there is nobody who could have left.
    let is_gone = |node| service == Service::Cluster && !fleet.has(node);
    let Some(job) = work.jobs.get_mut(&id) else { return false };
    let given_up = job.given_up.clone();
    let has_left = |node| is_gone(node) || given_up.contains(&node);
    let loss = job.lose(gone, with, has_left, outbox);
    let is_needed = loss.is_some();
    match loss {
        None | Some(Loss::FellBack) => {}
        Some(Loss::ForGood(stage)) => feed(work, outbox, Event::StageRefused { job: id, stage }),
        Some(Loss::Again(again)) => run_again(work, outbox, id, again),
    }
    replicate_again(work, id);
    is_needed
}
