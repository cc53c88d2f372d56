//! Intermediate data that outlives its job: its owners, its readers, and its removal.

use crate::convert::path_text;
use crate::database::{Row, Rows, Session};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::history::JobRow;
use api::kept::{KeptDir, KeptPlace};
use api::{DataSum, SourceCommit};
use ids::{AttemptNumber, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, RunId, TaskIndex};
use rows::WinningCommits;
use std::path::PathBuf;

impl Metastore {
    /// Returns the bytes of the kept data of a user's jobs.
    pub async fn kept_bytes_of(&self, user: &str) -> Result<u64, StoreError> {
        let statement = "SELECT CAST(coalesce(sum(kept_bytes), 0) AS BIGINT) AS bytes FROM jobs \
                         WHERE ifiles = 'kept' AND user_name = $1";
        let rows = self.rows(statement, [user.into()]).await?;
        rows.first().map_or(Ok(0), |row| self.number(row, "bytes"))
    }

    /// Returns the jobs with kept intermediate data, or with data whose removal has begun; oldest first.
    pub async fn jobs_with_kept_files(&self) -> Result<Vec<JobRow>, StoreError> {
        let statement = "SELECT * FROM jobs WHERE ifiles IN ('kept', 'removing') ORDER BY job";
        self.rows(statement, []).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// Returns an unfinished job that reads the kept data of this one.
    pub async fn reader_of(&self, job: JobId) -> Result<Option<JobId>, StoreError> {
        let statement = "SELECT job FROM jobs WHERE reduce_again = $1 AND state IN ('running', 'committing') ORDER BY job";
        self.rows(statement, [job.0.into()])
            .await?
            .first()
            .map(|row| Ok(JobId(self.get(row, "job")?)))
            .transpose()
    }

    /// Marks the kept data of a job as being removed, durably, before the first file is removed. Returns false if
    /// nothing is kept, or if an unfinished job reads it. It is one statement: a reader is either stored before, and
    /// the statement changes nothing, or it comes later and sees the mark.
    pub async fn begin_to_remove_kept_files(&self, job: JobId) -> Result<bool, StoreError> {
        let statement = "UPDATE jobs SET ifiles = 'removing' WHERE job = $1 AND ifiles IN ('kept', 'removing') \
             AND NOT EXISTS (SELECT 1 FROM jobs AS reader WHERE reader.reduce_again = $1 \
             AND reader.state IN ('running', 'committing')) RETURNING job";
        Ok(self.write_one(statement, vec![job.0.into()]).await?.len() == 1)
    }

    /// Returns the directories that nodes keep of a job, in order of the process that made them and its disk.
    pub async fn kept_places(&self, job: JobId) -> Result<Vec<KeptPlace>, StoreError> {
        let statement = "SELECT * FROM kept_dirs WHERE job = $1 ORDER BY made_by, disk";
        let place = |row: &Row| {
            Ok(KeptPlace {
                made_by: NodeId(self.number(row, "made_by")?),
                node: NodeId(self.number(row, "node")?),
                node_name: self.get(row, "node_name")?,
                dir: KeptDir {
                    job,
                    incarnation: self.get(row, "incarnation")?,
                    disk: DiskIndex(self.number(row, "disk")?),
                    path: PathBuf::from(self.get::<String>(row, "path")?),
                    bytes: self.number(row, "bytes")?,
                },
            })
        };
        self.rows(statement, [job.0.into()]).await?.iter().map(place).collect()
    }

    /// Returns the node of this store that ever had this incarnation.
    pub async fn node_of_incarnation(&self, incarnation: &str) -> Result<Option<NodeId>, StoreError> {
        let statement = "SELECT node FROM nodes WHERE incarnation = $1";
        let rows = self.rows(statement, [incarnation.into()]).await?;
        rows.first().map(|row| Ok(NodeId(self.number(row, "node")?))).transpose()
    }

    /// Returns the chunks in each run of a job.
    pub async fn run_chunks(&self, job: JobId) -> Result<Vec<(RunId, ChunkId)>, StoreError> {
        let statement = "SELECT run, chunk FROM run_chunks WHERE job = $1 ORDER BY run, chunk";
        let pair = |row: &Row| Ok((RunId(self.number(row, "run")?), ChunkId(self.number(row, "chunk")?)));
        self.rows(statement, [job.0.into()]).await?.iter().map(pair).collect()
    }

    /// Returns the commits of the winning attempts of the maps of a job; tasks that appended nothing are left out.
    pub async fn winning_commits(&self, job: JobId) -> Result<WinningCommits, StoreError> {
        let statement = "SELECT * FROM source_sums WHERE job = $1 ORDER BY map_task, ifile, chunk";
        let mut commits = WinningCommits::new();
        for row in self.rows(statement, [job.0.into()]).await? {
            self.add_commit(&mut commits, &row)?;
        }
        Ok(commits)
    }

    pub(crate) fn add_commit(&self, commits: &mut WinningCommits, row: &Row) -> Result<(), StoreError> {
        let task = TaskIndex(self.number(row, "map_task")?);
        let attempt = AttemptNumber(self.number(row, "attempt")?);
        let commit = SourceCommit {
            ifile: IfileIndex(self.number(row, "ifile")?),
            chunk: ChunkId(self.number(row, "chunk")?),
            sum: DataSum {
                records: self.number(row, "records")?,
                bytes: self.number(row, "bytes")?,
                hash_sum: self.hash_sum(row, "hash_sum")?,
            },
        };
        commits.entry(task).or_default().push((attempt, commit));
        Ok(())
    }
}

pub(crate) async fn keep_dirs(
    db: &mut Session<'_>,
    job: JobId,
    places: &[KeptPlace],
) -> Result<(), ApplyError> {
    let mut rows = Rows::default();
    for place in places {
        rows.push([
            job.0.into(),
            place.dir.incarnation.as_str().into(),
            place.dir.disk.0.into(),
            place.made_by.0.into(),
            place.node.0.into(),
            place.node_name.as_str().into(),
            path_text(&place.dir.path)?.into(),
            place.dir.bytes.into(),
        ]);
    }
    let columns = "job, incarnation, disk, made_by, node, node_name, path, bytes";
    let after = "ON CONFLICT (job, incarnation, disk) DO UPDATE SET node = excluded.node, \
                 node_name = excluded.node_name, path = excluded.path, bytes = excluded.bytes";
    db.insert("kept_dirs", columns, after, rows).await?;
    let sum = "UPDATE jobs SET kept_bytes = (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM kept_dirs \
               WHERE kept_dirs.job = jobs.job) WHERE job = $1";
    db.execute(sum, [job.0.into()]).await?;
    Ok(())
}

pub(crate) async fn forget_dirs(db: &mut Session<'_>, job: JobId) -> Result<(), ApplyError> {
    db.execute("DELETE FROM kept_dirs WHERE job = $1", [job.0.into()]).await?;
    Ok(())
}
