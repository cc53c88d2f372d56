//! Jobs of one task that wait behind very many others of their user. Their rows are stored, and in memory stands little more than
//! their numbers; those that may run soon are admitted to the scheduler, the oldest first. So a user who hands in a hundred thousand
//! jobs, or such with megabytes of arguments, costs the server a little memory and the other users nothing.

use crate::ServerError;
use crate::arguments;
use crate::clock::now_ns;
use crate::event_loop::EventLoop;
use crate::job::Job;
use crate::messages::{JobRun, Service};
use crate::shipping;
use api::JobSpec;
use api::control::{JobOutcome, PLACES_MAX};
use api::task::RunTask;
use control::program_jobs::{FileHold, QueueKey, Waiting, WaitingSpec, Window};
use control::users::Has;
use ids::JobId;
use mapreduce::JobResults;
use metastore::{Change, JobState, Keep, StoreError, WaitingJobRow};
use scheduler::{Claim, Event};
use std::sync::Arc;

/// Jobs of one user that the scheduler has at once, where nodes have no room for more.
const ADMITTED_MAX: u64 = 8192;
/// Bytes of their specifications, and of those of each slot.
const ADMITTED_BYTES_MAX: u64 = 32 << 20;
const SLOT_BYTES: u64 = 2 << 20;
/// Queues of one user of which the scheduler has jobs at once, where nodes have fewer slots.
const QUEUES_MAX: u64 = 256;
/// Jobs that are admitted at once: the loop has other work.
const ADMIT_AT_ONCE: usize = 1024;
/// Rows that are read at once when a server begins.
const ROWS_AT_ONCE: u32 = 1000;

impl EventLoop {
    /// As much as all nodes could have in their slots and places, twice.
    pub fn window(&self) -> Window {
        let (nodes, slots) = self.fleet.nodes_and_slots();
        let capacity = slots + nodes as u64 * u64::from(PLACES_MAX);
        Window {
            jobs_max: ADMITTED_MAX.max(2 * capacity),
            bytes_max: ADMITTED_BYTES_MAX + 2 * slots * SLOT_BYTES,
            queues_max: QUEUES_MAX.max(2 * slots) as usize,
        }
    }

    /// Gives a job of one task to the scheduler.
    pub fn admit(
        &mut self,
        job: JobId,
        spec: Arc<JobSpec>,
        key: QueueKey,
        (spec_bytes, file_hold): (u64, Option<FileHold>),
        window: Window,
    ) {
        let cancelled = self.shared.add_job(job);
        let run = JobRun { cancelled, ..JobRun::new(spec) };
        let mut new = Job::new(job, Arc::new(run), JobResults::new(job, Vec::new()));
        let claim = key.claim();
        (new.user, new.spec_bytes) = (claim.user, spec_bytes);
        new.seat = Some(self.backlog.admit(key, spec_bytes, window));
        new.file_hold = file_hold;
        let (stages, failures_max) = (new.stage_names.clone(), new.failures_max());
        self.jobs.insert(job, new);
        self.feed(Event::JobSubmitted { job, claim, stages, failures_max });
    }

    /// Writes and replies, and admits those that may run now.
    pub async fn write_and_admit(&mut self) -> Result<(), StoreError> {
        self.write_and_reply().await?;
        if self.admit_waiting().await? {
            self.write_and_reply().await?;
        }
        Ok(())
    }

    /// The process ends. Those of a cluster wait for the next server.
    pub fn interrupt_waiting(&mut self) {
        let waiting = self.backlog.jobs().filter(|_| self.service == Service::Embedded);
        for job in waiting {
            let error = Some("the server was shut down".to_string());
            let (state, now_ns) = (JobState::Interrupted, now_ns());
            self.changes.push(Change::JobEnded { job, state, exit_code: None, error, now_ns });
            self.changes.push(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        }
    }

    /// Admits jobs whose turn has come; whether there were any. What they are has been stored.
    async fn admit_waiting(&mut self) -> Result<bool, StoreError> {
        if self.backlog.is_empty() {
            return Ok(false);
        }
        let window = self.window();
        for count in 0..ADMIT_AT_ONCE {
            let Some((job, key, waiting)) = self.backlog.next(window) else { return Ok(count > 0) };
            let written = |text: &str| serde_json::from_str::<RunTask>(text).ok();
            let spec = match &waiting.spec {
                WaitingSpec::Shared(spec) => Some(Arc::clone(spec)),
                WaitingSpec::Written(text) => {
                    written(text).map(|task| Arc::new(JobSpec::of_one_task(waiting.name.to_string(), task)))
                }
                WaitingSpec::InStore => self.store.job_spec(job).await?.map(Arc::new),
            };
            match spec {
                Some(spec) => self.admit(job, spec, key, (waiting.spec_bytes, waiting.file_hold), window),
                None => self.ends_before_it_began(job, key, &waiting, JobState::Failed, "its row is gone"),
            }
        }
        Ok(true)
    }

    /// Ends a job that waits because somebody wants that; whether it was one.
    pub fn cancel_waiting(&mut self, job: JobId, reason: &str) -> bool {
        let Some((key, waiting)) = self.backlog.take(job) else { return false };
        self.ends_before_it_began(job, key, &waiting, JobState::Cancelled, reason);
        self.has_finished(job, JobOutcome::Cancelled { reason: reason.to_string() });
        true
    }

    fn ends_before_it_began(
        &mut self,
        job: JobId,
        key: QueueKey,
        waiting: &Waiting,
        state: JobState,
        reason: &str,
    ) {
        let (now_ns, exit_code, error) =
            (now_ns(), Some(crate::job::EXIT_CANCELLED), Some(reason.to_string()));
        self.changes.push(Change::JobEnded { job, state, exit_code, error, now_ns });
        self.changes.push(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        self.users.job_over(key.user, waiting.spec_bytes);
    }

    /// Takes over the jobs that waited when the server before this one ended.
    pub async fn recover_waiting(&mut self) -> Result<(), ServerError> {
        let mut last = JobId(0);
        loop {
            let rows = self.store.waiting_jobs(last, ROWS_AT_ONCE).await?;
            let Some(row) = rows.last() else { return Ok(()) };
            last = row.job;
            for row in rows {
                self.waits_again(row).await?;
            }
        }
    }

    async fn waits_again(&mut self, row: WaitingJobRow) -> Result<(), ServerError> {
        let spec = match row.spec {
            Some(spec) => Some(spec),
            // One of the long ones.
            None => self.store.job_spec(row.job).await?,
        };
        let Some(spec) = spec else { return Ok(()) };
        let spec_bytes = arguments::spec_bytes(&spec);
        let needs = self.needs_of(&spec);
        let user = self.users.jobs_begin(row.user.unwrap_or_default(), Has { jobs: 1, spec_bytes });
        let contents = shipping::contents(&spec);
        let depot = self.depot.as_ref().filter(|_| !contents.is_empty());
        let file_hold = depot.map(|depot| Arc::new(depot.hold_what_is_here(&contents)) as FileHold);
        let key = QueueKey::of(&Claim { user, priority: row.priority, needs });
        let name = spec.name.as_str().into();
        let spec = WaitingSpec::of(&Arc::new(spec), false);
        self.backlog.waits(row.job, key, Waiting { name, spec, spec_bytes, file_hold });
        self.any_job_yet = true;
        Ok(())
    }
}
