//! Jobs of one task each: no directories, no report, and many of them in one transaction.

use crate::ServerError;
use crate::event_loop::{EventLoop, Reply};
use crate::messages::{UserQuota, job_quota};
use crate::submission::arguments;
use api::JobSpec;
use api::control::{BATCH_JOBS_MAX, JobBatch, JobLogs, SubmittedBatch};
use api::history::{EventKind, JobState};
use api::task::{RUN_RETRIES_MAX, RunTask};
use control::program_jobs::{FileHold, WaitingSpec};
use control::{NewBatch, RoomWanted, task_bytes};
use ids::JobId;
use metastore::{Metastore, StoreError};
use shipped::Hold;
use std::sync::Arc;

/// Maximum number of jobs that are admitted at once, because the event loop has other work.
const ADMIT_AT_ONCE: usize = 1024;
/// Number of rows that are read at once when a server begins.
const ROWS_AT_ONCE: u32 = 1000;
/// Number of last events of a job that are read, among them those with the output of its program.
const EVENTS_MAX: u32 = 100;
/// Maximum number of tasks whose logs are shown.
const TASK_LOGS_MAX: u32 = 10_000;

/// Checks a batch of jobs.
pub(crate) fn checked(batch: JobBatch) -> Result<Box<JobBatch>, ServerError> {
    let count = batch.tasks.len();
    if !(1..=BATCH_JOBS_MAX).contains(&count) {
        return Err(ServerError::BatchSize { count });
    }
    check_retries(&batch.tasks)?;
    batch.tasks.iter().try_for_each(arguments::check_task)?;
    Ok(Box::new(batch))
}

/// Returns an error for programs with too many retries.
pub(crate) fn check_retries(tasks: &[RunTask]) -> Result<(), ServerError> {
    match tasks.iter().map(|task| task.retries).find(|retries| *retries > RUN_RETRIES_MAX) {
        Some(retries) => Err(ServerError::TooManyRetries { retries }),
        None => Ok(()),
    }
}

/// Returns the output of the program of a one-task job in its last finished attempt. For other jobs, returns the last
/// lines of each task on standard error, as far as they are kept, each line after the name of its task.
pub async fn job_logs(store: &Metastore, job: JobId, state: JobState) -> Result<JobLogs, StoreError> {
    let mut logs = JobLogs { over: state.over(), ..JobLogs::default() };
    let stages = store.stages(job).await?;
    for event in store.logs_of_tasks(job, TASK_LOGS_MAX).await? {
        let (Some(stage), Some(task)) = (event.stage, event.task) else { continue };
        let stage = stages.iter().find(|row| row.stage == stage).map_or("", |row| row.kind.word());
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
        match event.kind {
            EventKind::StandardOutput => {
                (logs.standard_output_bytes, logs.standard_output) = (detail.len() as u64, detail)
            }
            EventKind::StandardError => {
                (logs.standard_error_bytes, logs.standard_error) = (detail.len() as u64, detail)
            }
            EventKind::StandardOutputBytes => logs.standard_output_bytes = number(&detail),
            EventKind::StandardErrorBytes => logs.standard_error_bytes = number(&detail),
            _ => {}
        }
    }
    let ended = store.attempts(job).await?.into_iter().filter(|attempt| attempt.ended_ns.is_some());
    let Some(last) = ended.max_by_key(|row| row.attempt.attempt) else { return Ok(logs) };
    logs.attempt = Some(last.attempt.attempt);
    if let Some(failure) = last.failure.filter(|_| logs.standard_error.is_empty()) {
        // From a program in a job of many tasks.
        logs.standard_error = failure.stderr_tail.iter().map(|line| format!("{line}\n")).collect();
        logs.standard_error_bytes = logs.standard_error.len() as u64;
    }
    Ok(logs)
}

impl EventLoop {
    /// Gives the jobs to control; their rows are written with all other changes of this round of the event loop. An
    /// error of the store ends the server.
    pub async fn submit_batch(
        &mut self,
        batch: JobBatch,
        hold: Option<Arc<Hold>>,
        quota: Option<UserQuota>,
        reply: Reply<SubmittedBatch>,
    ) -> Result<(), StoreError> {
        let count = batch.tasks.len() as u32;
        let demanding = batch.tasks.iter().filter(|task| task.is_demanding());
        let specs = demanding.map(|task| JobSpec::of_one_task(String::new(), task.clone()));
        let specs: Vec<JobSpec> = specs.collect();
        let spec_bytes = batch.tasks.iter().map(task_bytes).sum();
        let wanted = RoomWanted { jobs: count, spec_bytes, quota: quota.map(job_quota) };
        let room = self.control.check_room(&batch.user, wanted, &specs.iter().collect::<Vec<_>>());
        if let Err(error) = room {
            self.answer(reply, Err(error.into()));
            return Ok(());
        }
        let first = self.numbers.take(&self.store, self.service, count).await?;
        let (server, file_hold) = (self.owner(), hold.map(|hold| hold as FileHold));
        self.control.begin_batch(&mut self.outbox, NewBatch { first, batch, server, file_hold });
        self.answer(reply, Ok(SubmittedBatch { first, count }));
        Ok(())
    }

    /// Admits jobs whose turn has come. Returns whether there were any. Their specifications are stored already.
    pub async fn admit_waiting(&mut self) -> Result<bool, StoreError> {
        for count in 0..ADMIT_AT_ONCE {
            let Some(queued) = self.control.next_waiting() else { return Ok(count > 0) };
            let spec = match &queued.waiting.spec {
                WaitingSpec::Shared(spec) => Some(Arc::clone(spec)),
                WaitingSpec::Written(text) => {
                    let task = serde_json::from_str::<RunTask>(text).ok();
                    task.map(|task| Arc::new(JobSpec::of_one_task(queued.waiting.name.to_string(), task)))
                }
                WaitingSpec::InStore => self.store.job_spec(queued.job).await?.map(Arc::new),
            };
            self.control.admit_waiting(&mut self.outbox, queued, spec);
        }
        Ok(true)
    }

    /// Restores the jobs that waited when the previous server ended.
    pub async fn recover_waiting(&mut self) -> Result<(), StoreError> {
        let mut last = JobId(0);
        loop {
            let rows = self.store.waiting_jobs(last, ROWS_AT_ONCE).await?;
            let Some(row) = rows.last() else { return Ok(()) };
            last = row.job;
            for row in rows {
                let spec = match row.spec {
                    Some(spec) => Some(spec),
                    // A long specification.
                    None => self.store.job_spec(row.job).await?,
                };
                let Some(spec) = spec else { continue };
                let hold = self.files.hold_what_is_here(&spec);
                let user = row.user.unwrap_or_default();
                self.control.waits_again(row.job, user, row.priority, spec, hold);
            }
        }
    }
}
