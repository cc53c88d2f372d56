//! Typed reads: what the server needs to clean up, and what `sailfish jobs` and `sailfish show` print.
//! Times are nanoseconds since 1970.

use crate::change::{AttemptState, JobState, KeptFiles, ProofRow};
use crate::convert::Reader;
use crate::{Metastore, StoreError};
use api::{Boundaries, DataSum, JobReport, JobSpec, KeyBytes, Task, TaskFailure};
use ids::{
    AttemptKey, AttemptNumber, BoundariesVersion, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, PlanVersion,
    RunId, StageIndex, TaskIndex, TaskKey,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use std::path::PathBuf;

/// A job without its specification and report; see [`Metastore::job_spec`] and [`Metastore::job_report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub job: JobId,
    pub owner: String,
    pub name: String,
    pub state: JobState,
    pub output: PathBuf,
    pub staging: PathBuf,
    pub disk_dirs: Vec<PathBuf>,
    pub exit_code: Option<i32>,
    pub error: Option<String>,
    pub created_ns: u64,
    pub started_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    /// None: its directories may still exist.
    pub cleaned_ns: Option<u64>,
    /// The job whose kept I-files this one reads.
    pub reduce_again: Option<JobId>,
    /// None where nothing was kept.
    pub kept_files: Option<KeptFiles>,
    /// When kept files may go by themselves; None: never.
    pub keep_until_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRow {
    pub stage: StageIndex,
    pub name: String,
    /// `waiting`, `running` or `done`.
    pub state: String,
    /// None before the stage is expanded.
    pub task_count: Option<u32>,
    pub tasks_done: u32,
    pub expanded_ns: Option<u64>,
    pub ended_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub task: TaskKey,
    /// `waiting`, `running` or `done`.
    pub state: String,
    pub payload: Task,
    pub winner: Option<AttemptNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub attempt: AttemptKey,
    pub node: NodeId,
    pub slot: u32,
    pub state: AttemptState,
    pub assigned_ns: u64,
    pub started_ns: Option<u64>,
    /// When the runs of a reduce attempt were open; None for others, and where it failed.
    pub opened_ns: Option<u64>,
    pub ended_ns: Option<u64>,
    pub failure: Option<TaskFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Grows with time.
    pub event: u64,
    pub time_ns: u64,
    pub stage: Option<StageIndex>,
    pub task: Option<TaskIndex>,
    pub attempt: Option<AttemptNumber>,
    pub kind: String,
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRow {
    pub chunk: ChunkId,
    pub generation: u32,
    pub disk: DiskIndex,
    pub ifile: IfileIndex,
    pub capacity_bytes: u64,
    pub appended_bytes: u64,
    pub oversize: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub run: RunId,
    pub ifile: IfileIndex,
    pub disk: DiskIndex,
    pub records: u64,
    pub record_bytes: u64,
    pub stored_bytes: u64,
    pub in_memory: bool,
    pub replaced_by: Option<RunId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTaskRow {
    pub version: PlanVersion,
    pub part: u32,
    pub ifiles: Vec<IfileIndex>,
    pub runs: Vec<RunId>,
    pub lower_key: Option<KeyBytes>,
    pub upper_key: Option<KeyBytes>,
    pub expected_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRow {
    pub name: String,
    pub attempt: AttemptKey,
    pub bytes: u64,
    pub records: u64,
    pub crc32c: u32,
}

impl Metastore {
    /// The latest jobs, newest first.
    pub async fn jobs(&self, count_max: u32) -> Result<Vec<JobRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM jobs ORDER BY job DESC LIMIT $1").bind(i64::from(count_max));
        self.rows(query).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// One job, where it exists.
    pub async fn job(&self, job: JobId) -> Result<Option<JobRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM jobs WHERE job = $1").bind(job.0);
        self.rows(query).await?.first().map(|row| self.job_row(row)).transpose()
    }

    /// Jobs of other owners whose directories may still exist, oldest first.
    pub async fn jobs_to_clean(&self, own_uuid: &str) -> Result<Vec<JobRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM jobs WHERE cleaned_ns IS NULL AND owner <> $1 ORDER BY job")
            .bind(own_uuid);
        self.rows(query).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// What a job was submitted as.
    pub async fn job_spec(&self, job: JobId) -> Result<Option<JobSpec>, StoreError> {
        let rows = self.rows(sqlx::query("SELECT spec FROM jobs WHERE job = $1").bind(job.0)).await?;
        rows.first().map(|row| self.json(row, "spec")).transpose()
    }

    /// The report a job published, or was about to; None before its commit.
    pub async fn job_report(&self, job: JobId) -> Result<Option<JobReport>, StoreError> {
        let query = sqlx::query("SELECT report FROM jobs WHERE job = $1 AND report IS NOT NULL").bind(job.0);
        self.rows(query).await?.first().map(|row| self.json(row, "report")).transpose()
    }

    /// The stages of a job, in order.
    pub async fn stages(&self, job: JobId) -> Result<Vec<StageRow>, StoreError> {
        let query = sqlx::query(
            "SELECT stages.*, (SELECT count(*) FROM tasks WHERE tasks.job = stages.job \
             AND tasks.stage = stages.stage AND tasks.state = 'done') AS tasks_done \
             FROM stages WHERE job = $1 ORDER BY stage",
        );
        let stage_row = |row: &SqliteRow| {
            Ok(StageRow {
                stage: StageIndex(self.number(row, "stage")?),
                name: self.get(row, "name")?,
                state: self.get(row, "state")?,
                task_count: self.number_or_none(row, "task_count")?,
                tasks_done: self.number(row, "tasks_done")?,
                expanded_ns: self.number_or_none(row, "expanded_ns")?,
                ended_ns: self.number_or_none(row, "ended_ns")?,
            })
        };
        self.rows(query.bind(job.0)).await?.iter().map(stage_row).collect()
    }

    /// The tasks of a job, in order of stage and task.
    pub async fn tasks(&self, job: JobId) -> Result<Vec<TaskRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM tasks WHERE job = $1 ORDER BY stage, task").bind(job.0);
        let task_row = |row: &SqliteRow| {
            Ok(TaskRow {
                task: self.task_key(row)?,
                state: self.get(row, "state")?,
                payload: self.json(row, "payload")?,
                winner: self.number_or_none(row, "winner")?.map(AttemptNumber),
            })
        };
        self.rows(query).await?.iter().map(task_row).collect()
    }

    /// The attempts of a job, in order of stage, task and number.
    pub async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        let query =
            sqlx::query("SELECT * FROM attempts WHERE job = $1 ORDER BY stage, task, attempt").bind(job.0);
        let attempt_row = |row: &SqliteRow| {
            let state: String = self.get(row, "state")?;
            let failure: Option<String> = self.get(row, "failure")?;
            Ok(AttemptRow {
                attempt: self.attempt_key(row)?,
                node: NodeId(self.number(row, "node")?),
                slot: self.number(row, "slot")?,
                state: AttemptState::parse(&state)
                    .ok_or_else(|| self.reader().damaged("attempts.state", state))?,
                assigned_ns: self.number(row, "assigned_ns")?,
                started_ns: self.number_or_none(row, "started_ns")?,
                opened_ns: self.number_or_none(row, "opened_ns")?,
                ended_ns: self.number_or_none(row, "ended_ns")?,
                failure: failure.map(|_| self.json(row, "failure")).transpose()?,
            })
        };
        self.rows(query).await?.iter().map(attempt_row).collect()
    }

    /// The latest events of a job, oldest first.
    pub async fn events(&self, job: JobId, count_max: u32) -> Result<Vec<EventRow>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM (SELECT * FROM events WHERE job = $1 ORDER BY event DESC LIMIT $2) ORDER BY event",
        );
        let event_row = |row: &SqliteRow| {
            Ok(EventRow {
                event: self.number(row, "event")?,
                time_ns: self.number(row, "time_ns")?,
                stage: self.number_or_none(row, "stage")?.map(StageIndex),
                task: self.number_or_none(row, "task")?.map(TaskIndex),
                attempt: self.number_or_none(row, "attempt")?.map(AttemptNumber),
                kind: self.get(row, "kind")?,
                detail: self.get(row, "detail")?,
            })
        };
        self.rows(query.bind(job.0).bind(i64::from(count_max))).await?.iter().map(event_row).collect()
    }

    /// The chunks of a job.
    pub async fn chunks(&self, job: JobId) -> Result<Vec<ChunkRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM chunks WHERE job = $1 ORDER BY chunk, generation").bind(job.0);
        let chunk_row = |row: &SqliteRow| {
            Ok(ChunkRow {
                chunk: ChunkId(self.number(row, "chunk")?),
                generation: self.number(row, "generation")?,
                disk: DiskIndex(self.number(row, "disk")?),
                ifile: IfileIndex(self.number(row, "ifile")?),
                capacity_bytes: self.number(row, "capacity_bytes")?,
                appended_bytes: self.number(row, "appended_bytes")?,
                oversize: self.number::<i64>(row, "oversize")? != 0,
            })
        };
        self.rows(query).await?.iter().map(chunk_row).collect()
    }

    /// The runs of a job.
    pub async fn runs(&self, job: JobId) -> Result<Vec<RunRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM runs WHERE job = $1 ORDER BY run").bind(job.0);
        let run_row = |row: &SqliteRow| {
            Ok(RunRow {
                run: RunId(self.number(row, "run")?),
                ifile: IfileIndex(self.number(row, "ifile")?),
                disk: DiskIndex(self.number(row, "disk")?),
                records: self.number(row, "records")?,
                record_bytes: self.number(row, "record_bytes")?,
                stored_bytes: self.number(row, "stored_bytes")?,
                in_memory: self.number::<i64>(row, "in_memory")? != 0,
                replaced_by: self.number_or_none(row, "replaced_by")?.map(RunId),
            })
        };
        self.rows(query).await?.iter().map(run_row).collect()
    }

    /// The tasks of every version of a job's plan, by version and part.
    pub async fn plan_tasks(&self, job: JobId) -> Result<Vec<PlanTaskRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM plan_tasks WHERE job = $1 ORDER BY version, part").bind(job.0);
        let plan_row = |row: &SqliteRow| {
            Ok(PlanTaskRow {
                version: PlanVersion(self.number(row, "version")?),
                part: self.number(row, "part")?,
                ifiles: self.json(row, "ifiles")?,
                runs: self.json(row, "runs")?,
                lower_key: self.get::<Option<Vec<u8>>>(row, "lower_key")?.map(KeyBytes),
                upper_key: self.get::<Option<Vec<u8>>>(row, "upper_key")?.map(KeyBytes),
                expected_bytes: self.number(row, "expected_bytes")?,
            })
        };
        self.rows(query).await?.iter().map(plan_row).collect()
    }

    /// The proof of each I-file of a job; empty before its commit.
    pub async fn proofs(&self, job: JobId) -> Result<Vec<ProofRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM proofs WHERE job = $1 ORDER BY ifile").bind(job.0);
        let proof_row = |row: &SqliteRow| {
            Ok(ProofRow {
                ifile: IfileIndex(self.number(row, "ifile")?),
                committed: DataSum {
                    records: self.number(row, "committed_records")?,
                    bytes: self.number(row, "committed_bytes")?,
                    hash_sum: self.hash_sum(row, "committed_hash_sum")?,
                },
                merged: DataSum {
                    records: self.number(row, "merged_records")?,
                    bytes: self.number(row, "merged_bytes")?,
                    hash_sum: self.hash_sum(row, "merged_hash_sum")?,
                },
            })
        };
        self.rows(query).await?.iter().map(proof_row).collect()
    }

    /// The range boundaries of a job, the latest version; None where none are fixed.
    pub async fn boundaries(&self, job: JobId) -> Result<Option<Boundaries>, StoreError> {
        let query =
            sqlx::query("SELECT * FROM boundaries WHERE job = $1 ORDER BY version DESC LIMIT 1").bind(job.0);
        let boundaries_row = |row: &SqliteRow| {
            Ok(Boundaries {
                version: BoundariesVersion(self.number(row, "version")?),
                keys: self.json(row, "keys")?,
            })
        };
        self.rows(query).await?.first().map(boundaries_row).transpose()
    }

    /// The output parts of a job, by name.
    pub async fn parts(&self, job: JobId) -> Result<Vec<PartRow>, StoreError> {
        let query = sqlx::query("SELECT * FROM parts WHERE job = $1 ORDER BY name").bind(job.0);
        let part_row = |row: &SqliteRow| {
            Ok(PartRow {
                name: self.get(row, "name")?,
                attempt: self.attempt_key(row)?,
                bytes: self.number(row, "bytes")?,
                records: self.number(row, "records")?,
                crc32c: self.number(row, "crc32c")?,
            })
        };
        self.rows(query).await?.iter().map(part_row).collect()
    }

    /// The counters of a job, by name.
    pub async fn counters(&self, job: JobId) -> Result<Vec<(String, i64)>, StoreError> {
        let query = sqlx::query("SELECT * FROM counters WHERE job = $1 ORDER BY name").bind(job.0);
        let counter = |row: &SqliteRow| Ok((self.get(row, "name")?, self.get(row, "value")?));
        self.rows(query).await?.iter().map(counter).collect()
    }

    pub(crate) async fn rows(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut connection = self.connection.lock().await;
        query.fetch_all(&mut *connection).await.map_err(|error| self.driver_error(error))
    }

    fn reader(&self) -> Reader<'_> {
        Reader { database: &self.path }
    }

    pub(crate) fn get<'r, T>(&self, row: &'r SqliteRow, column: &'static str) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        row.try_get(column).map_err(|error| self.driver_error(error))
    }

    pub(crate) fn number<T: TryFrom<i64>>(
        &self,
        row: &SqliteRow,
        column: &'static str,
    ) -> Result<T, StoreError> {
        self.reader().number(column, self.get(row, column)?)
    }

    fn number_or_none<T: TryFrom<i64>>(
        &self,
        row: &SqliteRow,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        self.reader().number_or_none(column, self.get(row, column)?)
    }

    pub(crate) fn hash_sum(&self, row: &SqliteRow, column: &'static str) -> Result<u128, StoreError> {
        self.reader().hash_sum(column, &self.get::<Vec<u8>>(row, column)?)
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        row: &SqliteRow,
        column: &'static str,
    ) -> Result<T, StoreError> {
        let text: String = self.get(row, column)?;
        serde_json::from_str(&text).map_err(|error| self.reader().damaged(column, error))
    }

    fn task_key(&self, row: &SqliteRow) -> Result<TaskKey, StoreError> {
        Ok(TaskKey {
            job: JobId(self.get(row, "job")?),
            stage: StageIndex(self.number(row, "stage")?),
            task: TaskIndex(self.number(row, "task")?),
        })
    }

    fn attempt_key(&self, row: &SqliteRow) -> Result<AttemptKey, StoreError> {
        Ok(AttemptKey { task: self.task_key(row)?, attempt: AttemptNumber(self.number(row, "attempt")?) })
    }

    pub(crate) fn job_row(&self, row: &SqliteRow) -> Result<JobRow, StoreError> {
        let state: String = self.get(row, "state")?;
        let kept_files: Option<String> = self.get(row, "ifiles")?;
        Ok(JobRow {
            job: JobId(self.get(row, "job")?),
            owner: self.get(row, "owner")?,
            name: self.get(row, "name")?,
            state: JobState::parse(&state).ok_or_else(|| self.reader().damaged("jobs.state", state))?,
            output: PathBuf::from(self.get::<String>(row, "output")?),
            staging: PathBuf::from(self.get::<String>(row, "staging")?),
            disk_dirs: self.json(row, "disk_dirs")?,
            exit_code: self.number_or_none(row, "exit_code")?,
            error: self.get(row, "error")?,
            created_ns: self.number(row, "created_ns")?,
            started_ns: self.number_or_none(row, "started_ns")?,
            ended_ns: self.number_or_none(row, "ended_ns")?,
            cleaned_ns: self.number_or_none(row, "cleaned_ns")?,
            reduce_again: self.get::<Option<i64>>(row, "reduce_again")?.map(JobId),
            kept_files: kept_files
                .map(|word| KeptFiles::parse(&word).ok_or_else(|| self.reader().damaged("jobs.ifiles", word)))
                .transpose()?,
            keep_until_ns: self.number_or_none(row, "keep_until_ns")?,
        })
    }
}
