//! Jobs of one task each: no directories, no report, and many of them in one transaction.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use crate::job::{Job, STDERR_NOTE, STDOUT_NOTE};
use crate::messages::JobRun;
use api::JobSpec;
use api::control::{BATCH_JOBS_MAX, JobBatch, JobLogs, SubmittedBatch};
use ids::JobId;
use mapreduce::JobResults;
use metastore::{Change, Metastore, StoreError};
use scheduler::{Claim, Event};
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers of jobs that are taken at once: each taking is a transaction of its own. Those that are left when the
/// server ends are never used.
const NUMBERS_AT_ONCE: u32 = 1_000;
/// The last events of a job, among which are those that tell what its program wrote.
const EVENTS_MAX: u32 = 100;

/// Refuses what is no batch.
pub(crate) fn checked(batch: JobBatch) -> Result<Box<JobBatch>, ServerError> {
    match batch.tasks.len() {
        1..=BATCH_JOBS_MAX => Ok(Box::new(batch)),
        count => Err(ServerError::BatchSize { count }),
    }
}

/// What the program of a one-task job wrote; of one that failed, the end of its standard error.
pub async fn job_logs(store: &Metastore, job: JobId) -> Result<JobLogs, StoreError> {
    let mut logs = JobLogs::default();
    for event in store.events(job, EVENTS_MAX).await? {
        let detail = event.detail.unwrap_or_default();
        match event.kind.as_str() {
            STDOUT_NOTE => logs.standard_output = detail,
            STDERR_NOTE => logs.standard_error = detail,
            _ => {}
        }
    }
    if logs.standard_error.is_empty() {
        let mut failures = store.attempts(job).await?.into_iter().filter_map(|attempt| attempt.failure);
        if let Some(failure) = failures.next_back() {
            logs.standard_error = failure.stderr_tail.iter().map(|line| format!("{line}\n")).collect();
        }
    }
    Ok(logs)
}

impl EventLoop {
    /// Hands the jobs to the scheduler; their rows go with the rows of all else that happens in this round of the
    /// loop. An error of the store ends the server.
    pub async fn submit_batch(
        &mut self,
        batch: JobBatch,
        jobs_max: Option<u32>,
        reply: Reply<SubmittedBatch>,
    ) -> Result<(), StoreError> {
        let count = batch.tasks.len() as u32;
        if let Err(error) = self.users.check_room(&batch.user, count, jobs_max) {
            drop(reply.send(Err(error)));
            return Ok(());
        }
        let first = self.take_job_ids(count).await?;
        let user = Some(batch.user.clone()).filter(|user| !user.is_empty());
        let claim = Claim { user: self.users.jobs_begin(batch.user, count), priority: batch.priority };
        let mut before: Option<Arc<JobSpec>> = None;
        for (index, task) in batch.tasks.into_iter().enumerate() {
            let job = JobId(first.0 + index as i64);
            // Equal jobs share one specification in memory.
            let spec = match before.take() {
                Some(spec) if spec.single.as_ref() == Some(&task) => spec,
                _ => Arc::new(JobSpec::of_one_task(batch.name.clone(), task)),
            };
            before = Some(Arc::clone(&spec));
            self.changes.push(Change::JobSubmitted {
                job,
                owner: self.owner(),
                spec: Arc::clone(&spec),
                stages: mapreduce::stages(&spec),
                staging: PathBuf::new(),
                disk_dirs: Vec::new(),
                user: user.clone(),
                priority: batch.priority,
                now_ns: now_ns(),
            });
            let cancelled = self.shared.add_job(job);
            let run = JobRun { spec, staging: PathBuf::new(), disk_dirs: Vec::new(), cancelled };
            let mut new = Job::new(job, Arc::new(run), JobResults::new(job, Vec::new()));
            new.user = claim.user;
            let stages = new.stage_names.clone();
            self.jobs.insert(job, new);
            self.feed(Event::JobSubmitted { job, claim, stages });
        }
        self.any_job_yet = true;
        self.replies.push(Box::new(move || drop(reply.send(Ok(SubmittedBatch { first, count })))));
        Ok(())
    }

    /// The first of so many numbers that follow each other.
    async fn take_job_ids(&mut self, count: u32) -> Result<JobId, StoreError> {
        let range = &mut self.job_ids;
        if range.end.0 - range.start.0 < i64::from(count) {
            // On one machine nobody is in a hurry, and people like their jobs numbered without gaps.
            let at_once = match self.service {
                crate::Service::Embedded => count,
                crate::Service::Cluster => count.max(NUMBERS_AT_ONCE),
            };
            *range = self.store.reserve_job_ids(at_once).await?;
        }
        let first = range.start;
        range.start.0 += i64::from(count);
        Ok(first)
    }
}
