//! Jobs of one task each: no directories, no report, and many of them in one transaction.

use crate::ServerError;
use crate::arguments;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use crate::job::{STDERR_BYTES_NOTE, STDOUT_BYTES_NOTE, STDOUT_NOTE};
use crate::messages::{UserQuota, job_quota};
use api::JobSpec;
use api::control::{BATCH_JOBS_MAX, JobBatch, JobLogs, SubmittedBatch};
use api::task::{RUN_RETRIES_MAX, RunTask};
use control::program_jobs::{FileHold, QueueKey, Waiting, WaitingSpec};
use control::users::Has;
use ids::JobId;
use metastore::{Change, Metastore, STDERR_NOTE, StoreError};
use scheduler::Claim;
use shipped::Hold;
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers of jobs that are taken at once: each taking is a transaction of its own. Those that are left when the
/// server ends are never used.
const NUMBERS_AT_ONCE: u32 = 1_000;
/// The last events of a job, among which are those that tell what its program wrote.
const EVENTS_MAX: u32 = 100;
/// Tasks whose logs are shown.
const TASK_LOGS_MAX: u32 = 10_000;

/// Refuses what is no batch.
pub(crate) fn checked(batch: JobBatch) -> Result<Box<JobBatch>, ServerError> {
    let count = batch.tasks.len();
    if !(1..=BATCH_JOBS_MAX).contains(&count) {
        return Err(ServerError::BatchSize { count });
    }
    check_retries(&batch.tasks)?;
    batch.tasks.iter().try_for_each(arguments::check_task)?;
    Ok(Box::new(batch))
}

/// Refuses programs that are to run more often than anybody wants.
pub(crate) fn check_retries(tasks: &[RunTask]) -> Result<(), ServerError> {
    match tasks.iter().map(|task| task.retries).find(|retries| *retries > RUN_RETRIES_MAX) {
        Some(retries) => Err(ServerError::TooManyRetries { retries }),
        None => Ok(()),
    }
}

/// Returns the output of the program of a one-task job in its last attempt that ended. Of other jobs, returns the
/// last lines that each task wrote to standard error, as far as they are kept, each line after the name of its task.
pub async fn job_logs(store: &Metastore, job: JobId, over: bool) -> Result<JobLogs, StoreError> {
    let mut logs = JobLogs { over, ..JobLogs::default() };
    let stages = store.stages(job).await?;
    for event in store.logs_of_tasks(job, TASK_LOGS_MAX).await? {
        let (Some(stage), Some(task)) = (event.stage, event.task) else { continue };
        let stage = stages.iter().find(|row| row.stage == stage).map_or("", |row| &row.name);
        let again = event.attempt.filter(|attempt| attempt.0 > 0);
        let again = again.map_or(String::new(), |attempt| format!(", attempt {}", attempt.0));
        for line in event.detail.unwrap_or_default().lines() {
            logs.standard_error.push_str(&format!("{stage} {}{again}: {line}\n", task.0));
        }
    }
    if !logs.standard_error.is_empty() {
        logs.standard_error_bytes = logs.standard_error.len() as u64;
        return Ok(logs);
    }
    let number = |text: &str| text.parse().unwrap_or(0);
    for event in store.events(job, EVENTS_MAX).await? {
        let detail = event.detail.unwrap_or_default();
        match event.kind.as_str() {
            STDOUT_NOTE => (logs.standard_output_bytes, logs.standard_output) = (detail.len() as u64, detail),
            STDERR_NOTE => (logs.standard_error_bytes, logs.standard_error) = (detail.len() as u64, detail),
            STDOUT_BYTES_NOTE => logs.standard_output_bytes = number(&detail),
            STDERR_BYTES_NOTE => logs.standard_error_bytes = number(&detail),
            _ => {}
        }
    }
    let ended = store.attempts(job).await?.into_iter().filter(|attempt| attempt.ended_ns.is_some());
    let Some(last) = ended.max_by_key(|row| row.attempt.attempt) else { return Ok(logs) };
    logs.attempt = Some(last.attempt.attempt);
    if let Some(failure) = last.failure.filter(|_| logs.standard_error.is_empty()) {
        // Of a program in a job of many tasks.
        logs.standard_error = failure.stderr_tail.iter().map(|line| format!("{line}\n")).collect();
        logs.standard_error_bytes = logs.standard_error.len() as u64;
    }
    Ok(logs)
}

impl EventLoop {
    /// Hands the jobs to the scheduler; their rows go with the rows of all else that happens in this round of the
    /// loop. An error of the store ends the server.
    pub async fn submit_batch(
        &mut self,
        batch: JobBatch,
        hold: Option<Arc<Hold>>,
        quota: Option<UserQuota>,
        reply: Reply<SubmittedBatch>,
    ) -> Result<(), StoreError> {
        let count = batch.tasks.len() as u32;
        let specs = batch.tasks.iter().filter(|task| task.memory_bytes > 0 || task.architecture.is_some());
        let mut specs = specs.map(|task| JobSpec::of_one_task(String::new(), task.clone()));
        let spec_bytes = batch.tasks.iter().map(arguments::task_bytes).sum();
        let more = Has { jobs: count, spec_bytes };
        let file_hold = hold.map(|hold| hold as FileHold);
        let has_room = self.users.check_room(&batch.user, more, quota.map(job_quota));
        let has_room = has_room.map_err(|error| ServerError::of_quota(&batch.user, error));
        if let Err(error) = has_room.and_then(|()| specs.try_for_each(|spec| self.check_fits(&spec))) {
            drop(reply.send(Err(error)));
            return Ok(());
        }
        let first = self.take_job_ids(count).await?;
        let user = Some(batch.user.clone()).filter(|user| !user.is_empty());
        let user_number = self.users.jobs_begin(batch.user, more);
        let (priority, name) = (batch.priority, Arc::<str>::from(batch.name.as_str()));
        let (mut before, window): (Option<Arc<JobSpec>>, _) = (None, self.window());
        for (index, task) in batch.tasks.into_iter().enumerate() {
            let job = JobId(first.0 + index as i64);
            // Equal jobs share one specification in memory.
            let same = before.take().filter(|spec| spec.single.as_ref() == Some(&task));
            let is_shared = same.is_some();
            let spec = same.unwrap_or_else(|| Arc::new(JobSpec::of_one_task(batch.name.clone(), task)));
            before = Some(Arc::clone(&spec));
            let key = QueueKey::of(&Claim { user: user_number, priority, needs: self.needs_of(&spec) });
            let spec_bytes = arguments::spec_bytes(&spec);
            let waits = self.backlog.must_wait(&key, spec_bytes, window);
            self.changes.push(Change::JobSubmitted {
                job,
                owner: self.owner(),
                spec: Arc::clone(&spec),
                stages: mapreduce::stages(&spec),
                staging: PathBuf::new(),
                disk_dirs: Vec::new(),
                user: user.clone(),
                priority,
                waits,
                now_ns: now_ns(),
            });
            if waits {
                let spec = WaitingSpec::of(&spec, is_shared);
                let waiting =
                    Waiting { name: Arc::clone(&name), spec, spec_bytes, file_hold: file_hold.clone() };
                self.backlog.waits(job, key, waiting);
            } else {
                self.admit(job, spec, key, (spec_bytes, file_hold.clone()), window);
            }
        }
        self.any_job_yet = true;
        self.replies.push(Box::new(move || drop(reply.send(Ok(SubmittedBatch { first, count })))));
        Ok(())
    }

    /// The first of so many numbers that follow each other.
    pub async fn take_job_ids(&mut self, count: u32) -> Result<JobId, StoreError> {
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
