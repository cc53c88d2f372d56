//! Intermediate data that outlives its job: who keeps some, who reads it, and how it goes.

use crate::apply::{ApplyError, Happening, event};
use crate::change::Keep;
use crate::convert::stored;
use crate::read::JobRow;
use crate::{Metastore, StoreError};
use api::{DataSum, SourceCommit};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, TaskIndex};
use sqlx::sqlite::SqliteConnection;
use std::collections::BTreeMap;

/// What the winning attempt of each map task committed.
pub type WinningCommits = BTreeMap<TaskIndex, (AttemptNumber, Vec<SourceCommit>)>;

impl Metastore {
    /// The jobs that keep intermediate data, or whose data somebody began to remove; oldest first.
    pub async fn jobs_with_kept_files(&self) -> Result<Vec<JobRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM jobs WHERE ifiles IN ('kept', 'removing') ORDER BY job");
        self.rows(query).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// A job that is not over and reads what this one kept.
    pub async fn reader_of(&self, job: JobId) -> Result<Option<JobId>, StoreError> {
        let query = sqlx::query(
            "SELECT job FROM jobs WHERE reduce_again = $1 AND state IN ('running', 'committing') ORDER BY job",
        );
        self.rows(query.bind(job.0)).await?.first().map(|row| Ok(JobId(self.get(row, "job")?))).transpose()
    }

    /// Marks what a job kept as going, durably, before the first file goes. False where nothing is kept, or where a
    /// job that is not over reads it. One statement: a reader either stands in the store before it, and then it
    /// changes nothing, or comes after it and sees the mark.
    pub async fn begin_to_remove_kept_files(&self, job: JobId) -> Result<bool, StoreError> {
        let mut connection = self.connection.lock().await;
        let done = sqlx::query(
            "UPDATE jobs SET ifiles = 'removing' WHERE job = $1 AND ifiles IN ('kept', 'removing') AND NOT EXISTS \
             (SELECT 1 FROM jobs AS reader WHERE reader.reduce_again = $1 \
             AND reader.state IN ('running', 'committing'))",
        )
        .bind(job.0)
        .execute(&mut *connection)
        .await;
        Ok(done.map_err(|error| self.driver_error(error))?.rows_affected() == 1)
    }

    /// What the winning attempts of the maps of a job appended; tasks that appended nothing are left out.
    pub async fn winning_commits(&self, job: JobId) -> Result<WinningCommits, StoreError> {
        let query =
            sqlx::query("SELECT * FROM sources WHERE job = $1 ORDER BY map_task, ifile, chunk").bind(job.0);
        let mut commits = WinningCommits::new();
        for row in self.rows(query).await? {
            let task = TaskIndex(self.number(&row, "map_task")?);
            let attempt = AttemptNumber(self.number(&row, "attempt")?);
            commits.entry(task).or_insert((attempt, Vec::new())).1.push(SourceCommit {
                ifile: IfileIndex(self.number(&row, "ifile")?),
                chunk: ChunkId(self.number(&row, "chunk")?),
                sum: DataSum {
                    records: self.number(&row, "records")?,
                    bytes: self.number(&row, "bytes")?,
                    hash_sum: self.hash_sum(&row, "hash_sum")?,
                },
            });
        }
        Ok(commits)
    }
}

pub(crate) async fn job_cleaned(
    db: &mut SqliteConnection,
    job: JobId,
    kept: Keep,
    now: u64,
) -> Result<(), ApplyError> {
    let (state, until) = match kept {
        Keep::Nothing => (None, None),
        Keep::ForGood => (Some("kept"), None),
        Keep::Until(until) => (Some("kept"), Some(stored(until))),
    };
    sqlx::query("UPDATE jobs SET cleaned_ns = $2, ifiles = $3, keep_until_ns = $4 WHERE job = $1")
        .bind(job.0)
        .bind(stored(now))
        .bind(state)
        .bind(until)
        .execute(&mut *db)
        .await?;
    let detail = state.map(|_| "its I-files are kept");
    event(db, &Happening::of_job(job, "job cleaned", now), detail).await
}

pub(crate) async fn files_removed(
    db: &mut SqliteConnection,
    job: JobId,
    bytes: u64,
    now: u64,
) -> Result<(), ApplyError> {
    sqlx::query("UPDATE jobs SET ifiles = 'removed' WHERE job = $1").bind(job.0).execute(&mut *db).await?;
    event(db, &Happening::of_job(job, "I-files removed", now), Some(&format!("{bytes} bytes"))).await
}
