//! Intermediate data that outlives its job: who keeps some, who reads it, and how it goes.

use crate::database::Row;
use crate::{Metastore, StoreError};
use api::history::JobRow;
use api::{DataSum, SourceCommit};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, TaskIndex};
use std::collections::BTreeMap;

/// What the winning attempt of each map task committed.
pub type WinningCommits = BTreeMap<TaskIndex, (AttemptNumber, Vec<SourceCommit>)>;

impl Metastore {
    /// The jobs that keep intermediate data, or whose data somebody began to remove; oldest first.
    pub async fn jobs_with_kept_files(&self) -> Result<Vec<JobRow>, StoreError> {
        let statement = "SELECT * FROM jobs WHERE ifiles IN ('kept', 'removing') ORDER BY job";
        self.rows(statement, []).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// A job that is not over and reads what this one kept.
    pub async fn reader_of(&self, job: JobId) -> Result<Option<JobId>, StoreError> {
        let statement = "SELECT job FROM jobs WHERE reduce_again = $1 AND state IN ('running', 'committing') ORDER BY job";
        self.rows(statement, [job.0.into()])
            .await?
            .first()
            .map(|row| Ok(JobId(self.get(row, "job")?)))
            .transpose()
    }

    /// Marks what a job kept as going, durably, before the first file goes. False where nothing is kept, or where a
    /// job that is not over reads it. One statement: a reader either stands in the store before it, and then it
    /// changes nothing, or comes after it and sees the mark.
    pub async fn begin_to_remove_kept_files(&self, job: JobId) -> Result<bool, StoreError> {
        let statement = "UPDATE jobs SET ifiles = 'removing' WHERE job = $1 AND ifiles IN ('kept', 'removing') \
             AND NOT EXISTS (SELECT 1 FROM jobs AS reader WHERE reader.reduce_again = $1 \
             AND reader.state IN ('running', 'committing')) RETURNING job";
        Ok(self.write_one(statement, vec![job.0.into()]).await?.len() == 1)
    }

    /// What the winning attempts of the maps of a job appended; tasks that appended nothing are left out.
    pub async fn winning_commits(&self, job: JobId) -> Result<WinningCommits, StoreError> {
        let statement = "SELECT * FROM sources WHERE job = $1 ORDER BY map_task, ifile, chunk";
        let mut commits = WinningCommits::new();
        for row in self.rows(statement, [job.0.into()]).await? {
            self.add_commit(&mut commits, &row)?;
        }
        Ok(commits)
    }

    pub(crate) fn add_commit(&self, commits: &mut WinningCommits, row: &Row) -> Result<(), StoreError> {
        let task = TaskIndex(self.number(row, "map_task")?);
        let attempt = AttemptNumber(self.number(row, "attempt")?);
        commits.entry(task).or_insert((attempt, Vec::new())).1.push(SourceCommit {
            ifile: IfileIndex(self.number(row, "ifile")?),
            chunk: ChunkId(self.number(row, "chunk")?),
            sum: DataSum {
                records: self.number(row, "records")?,
                bytes: self.number(row, "bytes")?,
                hash_sum: self.hash_sum(row, "hash_sum")?,
            },
        });
        Ok(())
    }
}
