//! A list of changes as one transaction: jobs, stages, tasks, attempts and their history.

use crate::change::{AttemptState, Change, JobState};
use crate::convert::{json, path_text, stored};
use crate::{Metastore, StoreError};
use crate::{intermediate, kept};
use api::{JobSpec, Task, TaskFailure};
use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskKey};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use std::path::PathBuf;

/// What goes wrong inside a transaction, before the path of the database is known.
pub(crate) enum ApplyError {
    Driver(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for ApplyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<StoreError> for ApplyError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Metastore {
    /// Takes the number of a new job. A number that is never used is no harm.
    pub async fn reserve_job_id(&self) -> Result<JobId, StoreError> {
        let mut connection = self.connection.lock().await;
        let value: i64 =
            sqlx::query_scalar("UPDATE sequences SET value = value + 1 WHERE name = 'job' RETURNING value")
                .fetch_one(&mut *connection)
                .await
                .map_err(|error| self.driver_error(error))?;
        Ok(JobId(value))
    }

    /// Writes all changes or none. They are durable when this returns.
    pub async fn apply(&self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut connection = self.connection.lock().await;
        self.apply_all(&mut connection, changes).await.map_err(|error| match error {
            ApplyError::Driver(error) => self.driver_error(error),
            ApplyError::Store(error) => error,
        })
    }

    async fn apply_all(
        &self,
        connection: &mut SqliteConnection,
        changes: &[Change],
    ) -> Result<(), ApplyError> {
        // The write lock is taken at once: a transaction that starts as a reader cannot wait for it later.
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for change in changes {
            apply_one(&mut transaction, change).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

async fn apply_one(db: &mut SqliteConnection, change: &Change) -> Result<(), ApplyError> {
    match change {
        Change::OwnerStarted { uuid, pid, now_ns } => owner_started(db, uuid, *pid, *now_ns).await,
        Change::OwnerEnded { uuid, now_ns } => owner_ended(db, uuid, *now_ns).await,
        Change::JobSubmitted { job, owner, spec, stages, staging, disk_dirs, now_ns } => {
            let new = NewJob { job: *job, owner, spec, stages, staging, disk_dirs, now_ns: *now_ns };
            job_submitted(db, &new).await
        }
        Change::JobCommitting { job, report, now_ns } => {
            job_committing(db, *job, &json(report.as_ref())?, *now_ns).await
        }
        Change::JobEnded { job, state, exit_code, error, now_ns } => {
            job_ended(db, *job, *state, *exit_code, error.as_deref(), *now_ns).await
        }
        Change::JobCleaned { job, kept, now_ns } => kept::job_cleaned(db, *job, *kept, *now_ns).await,
        Change::KeptFilesRemoved { job, bytes, now_ns } => {
            kept::files_removed(db, *job, *bytes, *now_ns).await
        }
        Change::StageExpanded { job, stage, tasks, now_ns } => {
            stage_expanded(db, *job, *stage, tasks, *now_ns).await
        }
        Change::StageEnded { job, stage, now_ns } => stage_ended(db, *job, *stage, *now_ns).await,
        Change::AttemptStarted { attempt, node, slot, now_ns } => {
            attempt_started(db, *attempt, *node, *slot, *now_ns).await
        }
        Change::AttemptEnded { attempt, state, started_ns, opened_ns, ended_ns, failure } => {
            let times = AttemptTimes { started_ns: *started_ns, opened_ns: *opened_ns, ended_ns: *ended_ns };
            attempt_ended(db, *attempt, *state, times, failure.as_ref()).await
        }
        Change::TaskDone { attempt, now_ns } => task_done(db, *attempt, *now_ns).await,
        Change::TaskRetried { task, now_ns } => task_retried(db, *task, *now_ns).await,
        Change::Note { job, kind, detail, now_ns } => {
            event(db, &Happening { job: *job, ..Happening::new(kind, *now_ns) }, Some(detail)).await
        }
        data => intermediate::apply_one(db, data).await,
    }
}

/// The subject of a row in the history.
pub(crate) struct Happening {
    pub job: Option<JobId>,
    pub stage: Option<StageIndex>,
    pub attempt: Option<AttemptKey>,
    pub task: Option<TaskKey>,
    pub kind: &'static str,
    pub now_ns: u64,
}

impl Happening {
    pub fn new(kind: &'static str, now_ns: u64) -> Self {
        Self { job: None, stage: None, attempt: None, task: None, kind, now_ns }
    }

    pub fn of_job(job: JobId, kind: &'static str, now_ns: u64) -> Self {
        Self { job: Some(job), ..Self::new(kind, now_ns) }
    }

    fn of_attempt(attempt: AttemptKey, kind: &'static str, now_ns: u64) -> Self {
        Self { attempt: Some(attempt), ..Self::of_task(attempt.task, kind, now_ns) }
    }

    fn of_task(task: TaskKey, kind: &'static str, now_ns: u64) -> Self {
        Self { job: Some(task.job), stage: Some(task.stage), task: Some(task), ..Self::new(kind, now_ns) }
    }
}

pub(crate) async fn event(
    db: &mut SqliteConnection,
    happening: &Happening,
    detail: Option<&str>,
) -> Result<(), ApplyError> {
    sqlx::query(
        "INSERT INTO events (time_ns, job, stage, task, attempt, kind, detail) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(stored(happening.now_ns))
    .bind(happening.job.map(|job| job.0))
    .bind(happening.stage.map(|stage| i64::from(stage.0)))
    .bind(happening.task.map(|task| i64::from(task.task.0)))
    .bind(happening.attempt.map(|attempt| i64::from(attempt.attempt.0)))
    .bind(happening.kind)
    .bind(detail)
    .execute(db)
    .await?;
    Ok(())
}

async fn owner_started(db: &mut SqliteConnection, uuid: &str, pid: u32, now: u64) -> Result<(), ApplyError> {
    sqlx::query("INSERT INTO owners (uuid, pid, started_ns) VALUES ($1, $2, $3)")
        .bind(uuid)
        .bind(i64::from(pid))
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    event(db, &Happening::new("owner started", now), Some(uuid)).await
}

async fn owner_ended(db: &mut SqliteConnection, uuid: &str, now: u64) -> Result<(), ApplyError> {
    sqlx::query("UPDATE owners SET ended_ns = $2 WHERE uuid = $1 AND ended_ns IS NULL")
        .bind(uuid)
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    event(db, &Happening::new("owner ended", now), Some(uuid)).await
}

struct NewJob<'a> {
    job: JobId,
    owner: &'a str,
    spec: &'a JobSpec,
    stages: &'a [&'static str],
    staging: &'a PathBuf,
    disk_dirs: &'a [PathBuf],
    now_ns: u64,
}

async fn job_submitted(db: &mut SqliteConnection, new: &NewJob<'_>) -> Result<(), ApplyError> {
    sqlx::query(
        "INSERT INTO jobs (job, owner, name, state, spec, output, staging, disk_dirs, created_ns, reduce_again) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(new.job.0)
    .bind(new.owner)
    .bind(&new.spec.name)
    .bind(JobState::Running.word())
    .bind(json(new.spec)?)
    .bind(path_text(&new.spec.output)?)
    .bind(path_text(new.staging)?)
    .bind(json(new.disk_dirs)?)
    .bind(stored(new.now_ns))
    .bind(new.spec.reduce_again.map(|source| source.0))
    .execute(&mut *db)
    .await?;
    for (index, name) in new.stages.iter().enumerate() {
        sqlx::query("INSERT INTO stages (job, stage, name, state) VALUES ($1, $2, $3, 'waiting')")
            .bind(new.job.0)
            .bind(index as i64)
            .bind(*name)
            .execute(&mut *db)
            .await?;
    }
    for ifile in 0..if new.spec.map_only { 0 } else { new.spec.layout.ifile_count } {
        sqlx::query("INSERT INTO ifiles (job, ifile) VALUES ($1, $2)")
            .bind(new.job.0)
            .bind(i64::from(ifile))
            .execute(&mut *db)
            .await?;
    }
    event(db, &Happening::of_job(new.job, "job submitted", new.now_ns), Some(&new.spec.name)).await
}

async fn job_committing(
    db: &mut SqliteConnection,
    job: JobId,
    report: &str,
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query("UPDATE jobs SET state = $2, report = $3 WHERE job = $1")
        .bind(job.0)
        .bind(JobState::Committing.word())
        .bind(report)
        .execute(&mut *db)
        .await?;
    event(db, &Happening::of_job(job, "job committing", now), None).await
}

async fn job_ended(
    db: &mut SqliteConnection,
    job: JobId,
    state: JobState,
    exit_code: Option<i32>,
    error: Option<&str>,
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query("UPDATE jobs SET state = $2, exit_code = $3, error = $4, ended_ns = $5 WHERE job = $1")
        .bind(job.0)
        .bind(state.word())
        .bind(exit_code.map(i64::from))
        .bind(error)
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    // A failed or cancelled job still hears from its attempts. Whoever finds a job interrupted, or published by a
    // process that died right then, is the last to speak of them.
    if matches!(state, JobState::Interrupted | JobState::Succeeded) {
        sqlx::query("UPDATE attempts SET state = $2, ended_ns = $3 WHERE job = $1 AND state = 'running'")
            .bind(job.0)
            .bind(AttemptState::Interrupted.word())
            .bind(stored(now))
            .execute(&mut *db)
            .await?;
        let task_state = if state == JobState::Succeeded { "done" } else { "waiting" };
        sqlx::query("UPDATE tasks SET state = $2 WHERE job = $1 AND state = 'running'")
            .bind(job.0)
            .bind(task_state)
            .execute(&mut *db)
            .await?;
        sqlx::query("UPDATE pipelines SET ended_ns = $2 WHERE job = $1 AND ended_ns IS NULL")
            .bind(job.0)
            .bind(stored(now))
            .execute(&mut *db)
            .await?;
    }
    let kind = match state {
        JobState::Succeeded => "job succeeded",
        JobState::Failed => "job failed",
        JobState::Cancelled => "job cancelled",
        JobState::Interrupted => "job interrupted",
        JobState::Running | JobState::Committing => "job goes on",
    };
    event(db, &Happening::of_job(job, kind, now), error).await
}

async fn stage_expanded(
    db: &mut SqliteConnection,
    job: JobId,
    stage: StageIndex,
    tasks: &[Task],
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query(
        "UPDATE stages SET state = 'running', task_count = $3, expanded_ns = $4 WHERE job = $1 AND stage = $2",
    )
    .bind(job.0)
    .bind(i64::from(stage.0))
    .bind(tasks.len() as i64)
    .bind(stored(now))
    .execute(&mut *db)
    .await?;
    for (index, task) in tasks.iter().enumerate() {
        sqlx::query(
            "INSERT INTO tasks (job, stage, task, state, payload) VALUES ($1, $2, $3, 'waiting', $4)",
        )
        .bind(job.0)
        .bind(i64::from(stage.0))
        .bind(index as i64)
        .bind(json(task)?)
        .execute(&mut *db)
        .await?;
    }
    let happening = Happening { stage: Some(stage), ..Happening::of_job(job, "stage expanded", now) };
    event(db, &happening, Some(&format!("{} tasks", tasks.len()))).await
}

async fn stage_ended(
    db: &mut SqliteConnection,
    job: JobId,
    stage: StageIndex,
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query("UPDATE stages SET state = 'done', ended_ns = $3 WHERE job = $1 AND stage = $2")
        .bind(job.0)
        .bind(i64::from(stage.0))
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    event(db, &Happening { stage: Some(stage), ..Happening::of_job(job, "stage ended", now) }, None).await
}

async fn attempt_started(
    db: &mut SqliteConnection,
    attempt: AttemptKey,
    node: NodeId,
    slot: u32,
    now: u64,
) -> Result<(), ApplyError> {
    let pipeline: i64 = sqlx::query_scalar(
        "INSERT INTO pipelines (job, node, slot, started_ns) VALUES ($1, $2, $3, $4) RETURNING pipeline",
    )
    .bind(attempt.task.job.0)
    .bind(i64::from(node.0))
    .bind(i64::from(slot))
    .bind(stored(now))
    .fetch_one(&mut *db)
    .await?;
    sqlx::query(
        "INSERT INTO attempts (job, stage, task, attempt, pipeline, node, slot, state, assigned_ns) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', $8)",
    )
    .bind(attempt.task.job.0)
    .bind(i64::from(attempt.task.stage.0))
    .bind(i64::from(attempt.task.task.0))
    .bind(i64::from(attempt.attempt.0))
    .bind(pipeline)
    .bind(i64::from(node.0))
    .bind(i64::from(slot))
    .bind(stored(now))
    .execute(&mut *db)
    .await?;
    set_task_state(db, attempt.task, "running").await?;
    sqlx::query("UPDATE jobs SET started_ns = $2 WHERE job = $1 AND started_ns IS NULL")
        .bind(attempt.task.job.0)
        .bind(stored(now))
        .execute(&mut *db)
        .await?;
    let place = format!("{node} slot {slot}");
    event(db, &Happening::of_attempt(attempt, "attempt started", now), Some(&place)).await
}

/// When an attempt started, when the runs of a reduce attempt were open, and when it ended.
struct AttemptTimes {
    started_ns: u64,
    opened_ns: Option<u64>,
    ended_ns: u64,
}

async fn attempt_ended(
    db: &mut SqliteConnection,
    attempt: AttemptKey,
    state: AttemptState,
    times: AttemptTimes,
    failure: Option<&TaskFailure>,
) -> Result<(), ApplyError> {
    let failure_json = failure.map(json).transpose()?;
    let pipeline: Option<i64> = sqlx::query_scalar(
        "UPDATE attempts SET state = $5, started_ns = $6, ended_ns = $7, failure = $8, opened_ns = $9 \
         WHERE job = $1 AND stage = $2 AND task = $3 AND attempt = $4 RETURNING pipeline",
    )
    .bind(attempt.task.job.0)
    .bind(i64::from(attempt.task.stage.0))
    .bind(i64::from(attempt.task.task.0))
    .bind(i64::from(attempt.attempt.0))
    .bind(state.word())
    .bind(stored(times.started_ns))
    .bind(stored(times.ended_ns))
    .bind(failure_json)
    .bind(times.opened_ns.map(stored))
    .fetch_optional(&mut *db)
    .await?;
    sqlx::query("UPDATE pipelines SET ended_ns = $2 WHERE pipeline = $1")
        .bind(pipeline)
        .bind(stored(times.ended_ns))
        .execute(&mut *db)
        .await?;
    let kind = match state {
        AttemptState::Running => "attempt goes on",
        AttemptState::Succeeded => "attempt succeeded",
        AttemptState::Discarded => "attempt discarded",
        AttemptState::Failed => "attempt failed",
        AttemptState::Cancelled => "attempt cancelled",
        AttemptState::Interrupted => "attempt interrupted",
    };
    let detail = failure.map(|failure| failure.message.as_str());
    event(db, &Happening::of_attempt(attempt, kind, times.ended_ns), detail).await
}

async fn task_done(db: &mut SqliteConnection, attempt: AttemptKey, now: u64) -> Result<(), ApplyError> {
    set_task_state(db, attempt.task, "done").await?;
    sqlx::query("UPDATE tasks SET winner = $4 WHERE job = $1 AND stage = $2 AND task = $3")
        .bind(attempt.task.job.0)
        .bind(i64::from(attempt.task.stage.0))
        .bind(i64::from(attempt.task.task.0))
        .bind(i64::from(attempt.attempt.0))
        .execute(&mut *db)
        .await?;
    event(db, &Happening::of_attempt(attempt, "task done", now), None).await
}

async fn task_retried(db: &mut SqliteConnection, task: TaskKey, now: u64) -> Result<(), ApplyError> {
    set_task_state(db, task, "waiting").await?;
    event(db, &Happening::of_task(task, "task retried", now), None).await
}

async fn set_task_state(
    db: &mut SqliteConnection,
    task: TaskKey,
    state: &'static str,
) -> Result<(), ApplyError> {
    sqlx::query("UPDATE tasks SET state = $4 WHERE job = $1 AND stage = $2 AND task = $3")
        .bind(task.job.0)
        .bind(i64::from(task.stage.0))
        .bind(i64::from(task.task.0))
        .bind(state)
        .execute(db)
        .await?;
    Ok(())
}
