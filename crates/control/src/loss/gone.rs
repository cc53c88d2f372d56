//! Consequences of lost data: each job that needs the data reads replicas, or recomputes it.

use crate::interface::{Outbox, Service};
use crate::loss::Loss;
use crate::replication::replicate_again;
use crate::scheduling::{feed, run_again};
use crate::work::Work;
use ids::JobId;
use mapreduce::LostData;
use scheduler::Event;

/// Handles the loss of data of a job; `with` names the cause. Returns whether the job needed the data.
pub(crate) fn data_gone(
    work: &mut Work,
    outbox: &mut Outbox,
    id: JobId,
    gone: &LostData,
    with: &str,
) -> bool {
    let (fleet, service) = (&work.fleet, work.service);
    // The embedded engine has one node, which never leaves.
    let is_gone = |node| service == Service::Cluster && !fleet.has(node);
    let Some(job) = work.jobs.get_mut(&id) else { return false };
    let given_up = job.losses().given_up().clone();
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
