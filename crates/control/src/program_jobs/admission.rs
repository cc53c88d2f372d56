//! Admission of jobs of one task, of which a user may have very many. Their rows are stored, and memory holds little
//! more than their numbers; the oldest are admitted to the scheduler when they may run soon. So a hundred thousand jobs
//! of one user, or jobs with megabytes of arguments, cost the server little memory and do not delay other users.

use crate::interface::{JobDirs, Outbox};
use crate::job::{EXIT_CANCELLED, Job};
use crate::membership::Fleet;
use crate::program_jobs::steps::NearStep;
use crate::program_jobs::{FileHold, QueueKey, Seat, Waiting, Window};
use crate::scheduling::feed;
use crate::users::{JobOwner, Users};
use crate::work::Work;
use api::JobSpec;
use api::control::PLACES_MAX;
use api::history::JobState;
use ids::JobId;
use mapreduce::JobResults;
use rows::{Change, Keep};
use scheduler::{Claim, Event, StepRank};
use std::sync::Arc;

/// Jobs of one user that the scheduler has at once; more if the nodes have room for more.
const ADMITTED_MAX: u64 = 8192;
/// Bytes of the specifications of admitted jobs, and the bytes added for each slot.
const ADMITTED_BYTES_MAX: u64 = 32 << 20;
const SLOT_BYTES: u64 = 2 << 20;
/// Queues of one user with admitted jobs; more if the nodes have more slots.
const QUEUES_MAX: u64 = 256;

/// Returns the window of a user: twice the number of slots and places of all nodes, and at least the limits above.
pub(crate) fn window(fleet: &Fleet) -> Window {
    let (nodes, slots) = fleet.nodes_and_slots();
    let capacity = slots + nodes as u64 * u64::from(PLACES_MAX);
    Window {
        jobs_max: ADMITTED_MAX.max(2 * capacity),
        bytes_max: ADMITTED_BYTES_MAX + 2 * slots * SLOT_BYTES,
        queues_max: QUEUES_MAX.max(2 * slots) as usize,
    }
}

/// A job of one task whose turn has come.
pub(crate) struct Turn {
    pub job: JobId,
    pub spec: Arc<JobSpec>,
    pub key: QueueKey,
    /// Its place among the steps of its job; None if it is no step.
    pub step: Option<StepRank>,
    pub owner: JobOwner,
    pub seat: Seat,
    pub file_hold: Option<FileHold>,
    /// Nodes near its inputs; None if any node will do.
    pub near: Option<NearStep>,
}

/// Submits a job of one task to the scheduler.
pub(crate) fn admit(work: &mut Work, outbox: &mut Outbox, turn: Turn) {
    let Turn { job, spec, key, step, owner, seat, file_hold, near } = turn;
    let mut new = Job::new(job, spec, JobDirs::default(), JobResults::new(job, Vec::new()));
    let claim = Claim { step, ..key.claim() };
    new.belongs_to(owner, file_hold);
    new.take_seat(seat);
    new.comes_near(near);
    let (stages, failures_max) = (new.stage_kinds().to_vec(), new.failures_max());
    work.jobs.insert(new);
    feed(work, outbox, Event::JobSubmitted { job, claim, stages, failures_max });
}

/// Ends a waiting job.
pub(crate) fn end_before_begin(
    users: &mut Users,
    outbox: &mut Outbox,
    waiting: &Queued,
    state: JobState,
    reason: &str,
) {
    let (job, now_ns, exit_code, error) =
        (waiting.job, outbox.now_ns(), Some(EXIT_CANCELLED), Some(reason.to_string()));
    outbox.write(Change::JobEnded { job, state, exit_code, error, now_ns });
    outbox.write(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
    users.job_over(waiting.key.user, waiting.waiting.spec_bytes);
}

/// A job that was taken out of its queue.
pub struct Queued {
    pub job: JobId,
    pub key: QueueKey,
    pub waiting: Waiting,
}
