//! Typed reads: for the cleanup of the server, and for `sailfish jobs` and `sailfish show`. Times are nanoseconds since
//! 1970.

use crate::convert::Reader;
use crate::database::{Readable, Row};
use crate::{Metastore, StoreError, stored_spec};
use api::history::{
    AttemptRow, AttemptState, EventKind, EventRow, JobDetails, JobRow, JobState, KeptFiles, StageRow,
    StageState, StepOf,
};
use api::{Boundaries, DataSum, JobReport, JobSpec, KeyBytes};
use ids::{
    AttemptKey, AttemptNumber, BoundariesVersion, ChunkId, DiskIndex, IfileIndex, JobId, NodeId, PlanVersion,
    RunId, StageIndex, StageKind, StepNumber, TaskIndex, TaskKey,
};
use rows::{ChunkRow, PartRow, PlanTaskRow, ProofRow, RunRow, TaskRow, TaskState};
use std::path::PathBuf;

impl Metastore {
    /// Returns the latest jobs, newest first.
    pub async fn jobs(&self, count_max: u32) -> Result<Vec<JobRow>, StoreError> {
        let statement = "SELECT * FROM jobs ORDER BY job DESC LIMIT $1";
        self.rows(statement, [count_max.into()]).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// Returns a job; None if it does not exist.
    pub async fn job(&self, job: JobId) -> Result<Option<JobRow>, StoreError> {
        let statement = "SELECT * FROM jobs WHERE job = $1";
        self.rows(statement, [job.0.into()]).await?.first().map(|row| self.job_row(row)).transpose()
    }

    /// Returns jobs of other processes, except those of `sailfish server`, whose directories may still exist, oldest
    /// first.
    pub async fn jobs_to_clean(&self, own_uuid: &str) -> Result<Vec<JobRow>, StoreError> {
        let statement =
            "SELECT * FROM jobs WHERE cleaned_ns IS NULL AND owner <> $1 AND owner <> 'cluster' ORDER BY job";
        self.rows(statement, [own_uuid.into()]).await?.iter().map(|row| self.job_row(row)).collect()
    }

    /// Returns everything about a job except its report, with at most `events_max` of its latest events; None for an
    /// unknown job.
    pub async fn job_details(&self, job: JobId, events_max: u32) -> Result<Option<JobDetails>, StoreError> {
        let (Some(row), Some(spec)) = (self.job(job).await?, self.job_spec(job).await?) else {
            return Ok(None);
        };
        Ok(Some(JobDetails {
            job: row,
            spec,
            stages: self.stages(job).await?,
            attempts: self.attempts(job).await?,
            events: self.events(job, events_max).await?,
            kept: self.kept_places(job).await?,
        }))
    }

    /// Returns sentences about data that a job lost and the actions that followed, at most `count_max`, oldest first.
    pub async fn losses(&self, job: JobId, count_max: u32) -> Result<Vec<String>, StoreError> {
        self.sentences(
            job,
            [
                EventKind::DataLost,
                EventKind::StandInRefused,
                EventKind::SpoolNotSent,
                EventKind::ReadAgain,
                EventKind::Replication,
                EventKind::ReplicasStandIn,
                EventKind::DataIsBack,
            ],
            count_max,
        )
        .await
    }

    /// Returns sentences about slow attempts of a job, with reasons and decisions, at most `count_max`, oldest first.
    pub async fn slow_attempts(&self, job: JobId, count_max: u32) -> Result<Vec<String>, StoreError> {
        self.sentences(job, [EventKind::Speculation, EventKind::RangeSplit], count_max).await
    }

    /// Returns the details of events of up to seven kinds.
    async fn sentences<const KINDS: usize>(
        &self,
        job: JobId,
        kinds: [EventKind; KINDS],
        count_max: u32,
    ) -> Result<Vec<String>, StoreError> {
        const { assert!(KINDS > 0 && KINDS <= 7, "the statement has a place for each kind") };
        let statement = "SELECT detail FROM events WHERE job = $1 AND kind IN ($2, $3, $4, $5, $6, $7, $8) AND detail IS NOT NULL \
                         ORDER BY event LIMIT $9";
        let [first, second, third, fourth, fifth, sixth, seventh] =
            std::array::from_fn(|index| kinds[index.min(KINDS - 1)].word().into());
        let values = [job.0.into(), first, second, third, fourth, fifth, sixth, seventh, count_max.into()];
        let rows = self.rows(statement, values).await?;
        rows.iter().map(|row| self.get(row, "detail")).collect()
    }

    /// Returns the specification of a job as submitted; for a stage of a flow, with its inputs once they are known.
    pub async fn job_spec(&self, job: JobId) -> Result<Option<JobSpec>, StoreError> {
        let rows = self.rows("SELECT spec FROM specs WHERE job = $1", [job.0.into()]).await?;
        rows.first().map(|row| self.spec(row)).transpose()
    }

    /// Returns the report that a job published, or was about to; None before its commit.
    pub async fn job_report(&self, job: JobId) -> Result<Option<JobReport>, StoreError> {
        let statement = "SELECT report FROM reports WHERE job = $1";
        self.rows(statement, [job.0.into()]).await?.first().map(|row| self.json(row, "report")).transpose()
    }

    /// Returns the stages of a job, in order.
    pub async fn stages(&self, job: JobId) -> Result<Vec<StageRow>, StoreError> {
        let statement = "SELECT stages.*, (SELECT count(*) FROM tasks WHERE tasks.job = stages.job \
             AND tasks.stage = stages.stage AND tasks.state = 'done') AS tasks_done \
             FROM stages WHERE job = $1 ORDER BY stage";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.stage_row(row)).collect()
    }

    /// Returns the tasks of a job, in order of stage and task.
    pub async fn tasks(&self, job: JobId) -> Result<Vec<TaskRow>, StoreError> {
        let statement = "SELECT tasks.*, EXISTS (SELECT 1 FROM attempts WHERE attempts.job = tasks.job \
             AND attempts.stage = tasks.stage AND attempts.task = tasks.task AND attempts.state = 'running') AS runs \
             FROM tasks WHERE job = $1 ORDER BY stage, task";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.task_row(row)).collect()
    }

    /// Returns the attempts of a job, in order of stage, task and number.
    pub async fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        let statement = "SELECT * FROM attempts WHERE job = $1 ORDER BY stage, task, attempt";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.attempt_row(row)).collect()
    }

    /// Returns the latest events of a job, oldest first; without the logs of its tasks ([`Self::logs_of_tasks`]).
    pub async fn events(&self, job: JobId, count_max: u32) -> Result<Vec<EventRow>, StoreError> {
        let statement = "SELECT * FROM (SELECT * FROM events WHERE job = $1 AND (kind <> $2 OR stage IS NULL) \
                         ORDER BY event DESC LIMIT $3) AS latest ORDER BY event";
        let rows = self
            .rows(statement, [job.0.into(), EventKind::StandardError.word().into(), count_max.into()])
            .await?;
        rows.iter().map(|row| self.event_row(row)).collect()
    }

    /// Returns the events with standard error of programs of the tasks of a job, at most `count_max`, oldest first.
    pub async fn logs_of_tasks(&self, job: JobId, count_max: u32) -> Result<Vec<EventRow>, StoreError> {
        let statement =
            "SELECT * FROM events WHERE job = $1 AND kind = $2 AND stage IS NOT NULL ORDER BY event LIMIT $3";
        let rows = self
            .rows(statement, [job.0.into(), EventKind::StandardError.word().into(), count_max.into()])
            .await?;
        rows.iter().map(|row| self.event_row(row)).collect()
    }

    fn event_row(&self, row: &Row) -> Result<EventRow, StoreError> {
        Ok(EventRow {
            event: self.number(row, "event")?,
            time_ns: self.number(row, "time_ns")?,
            stage: self.number_or_none(row, "stage")?.map(StageIndex),
            task: self.number_or_none(row, "task")?.map(TaskIndex),
            attempt: self.number_or_none(row, "attempt")?.map(AttemptNumber),
            kind: self.word(row, "kind", EventKind::parse)?,
            detail: self.get(row, "detail")?,
        })
    }

    /// Returns the chunks of a job.
    pub async fn chunks(&self, job: JobId) -> Result<Vec<ChunkRow>, StoreError> {
        let statement = "SELECT * FROM chunks WHERE job = $1 ORDER BY chunk, generation";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.chunk_row(row)).collect()
    }

    /// Returns the runs of a job.
    pub async fn runs(&self, job: JobId) -> Result<Vec<RunRow>, StoreError> {
        let statement = "SELECT * FROM runs WHERE job = $1 ORDER BY run";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.run_row(row)).collect()
    }

    /// Returns the tasks of every version of a job's plan, by version and part.
    pub async fn plan_tasks(&self, job: JobId) -> Result<Vec<PlanTaskRow>, StoreError> {
        let statement = "SELECT * FROM plan_tasks WHERE job = $1 ORDER BY version, part";
        self.rows(statement, [job.0.into()]).await?.iter().map(|row| self.plan_row(row)).collect()
    }

    /// Returns the proof of each I-file of a job; empty before its commit.
    pub async fn proofs(&self, job: JobId) -> Result<Vec<ProofRow>, StoreError> {
        let statement = "SELECT * FROM proofs WHERE job = $1 ORDER BY ifile";
        let proof_row = |row: &Row| {
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
        self.rows(statement, [job.0.into()]).await?.iter().map(proof_row).collect()
    }

    /// Returns the latest range boundaries of a job; None if there are none.
    pub async fn boundaries(&self, job: JobId) -> Result<Option<Boundaries>, StoreError> {
        let statement = "SELECT * FROM boundaries WHERE job = $1 ORDER BY version DESC LIMIT 1";
        self.rows(statement, [job.0.into()]).await?.first().map(|row| self.boundaries_row(row)).transpose()
    }

    /// Returns the output parts of a job, by name.
    pub async fn parts(&self, job: JobId) -> Result<Vec<PartRow>, StoreError> {
        let statement = "SELECT * FROM parts WHERE job = $1 ORDER BY name";
        let part_row = |row: &Row| {
            Ok(PartRow {
                name: self.get(row, "name")?,
                attempt: self.attempt_key(row)?,
                bytes: self.number(row, "bytes")?,
                records: self.number(row, "records")?,
                crc32c: self.number(row, "crc32c")?,
            })
        };
        self.rows(statement, [job.0.into()]).await?.iter().map(part_row).collect()
    }

    /// Returns the counters of a job, by name.
    pub async fn counters(&self, job: JobId) -> Result<Vec<(String, i64)>, StoreError> {
        let statement = "SELECT * FROM counters WHERE job = $1 ORDER BY name";
        let counter = |row: &Row| Ok((self.get(row, "name")?, self.get(row, "value")?));
        self.rows(statement, [job.0.into()]).await?.iter().map(counter).collect()
    }

    fn reader(&self) -> Reader<'_> {
        Reader { database: &self.path }
    }

    pub(crate) fn get<'r, T: Readable<'r>>(
        &self,
        row: &'r Row,
        column: &'static str,
    ) -> Result<T, StoreError> {
        row.get(column).map_err(|error| self.driver_error(error))
    }

    pub(crate) fn damaged(&self, column: &'static str, value: impl ToString) -> StoreError {
        self.reader().damaged(column, value)
    }

    /// Converts a word of a column to a state.
    pub(crate) fn word<T>(
        &self,
        row: &Row,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        let word: String = self.get(row, column)?;
        parse(&word).ok_or_else(|| self.damaged(column, word))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, row: &Row, column: &'static str) -> Result<T, StoreError> {
        self.reader().number(column, self.get(row, column)?)
    }

    pub(crate) fn number_or_none<T: TryFrom<i64>>(
        &self,
        row: &Row,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        self.reader().number_or_none(column, self.get(row, column)?)
    }

    pub(crate) fn hash_sum(&self, row: &Row, column: &'static str) -> Result<u128, StoreError> {
        self.reader().hash_sum(column, &self.get::<Vec<u8>>(row, column)?)
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(
        &self,
        row: &Row,
        column: &'static str,
    ) -> Result<T, StoreError> {
        let text: String = self.get(row, column)?;
        serde_json::from_str(&text).map_err(|error| self.reader().damaged(column, error))
    }

    /// Reads the specification of a job, also as an earlier version wrote it.
    pub(crate) fn spec(&self, row: &Row) -> Result<JobSpec, StoreError> {
        let text: String = self.get(row, "spec")?;
        stored_spec::parse(&text).map_err(|error| self.damaged("specs.spec", error))
    }

    pub(crate) fn task_key(&self, row: &Row) -> Result<TaskKey, StoreError> {
        Ok(TaskKey {
            job: JobId(self.get(row, "job")?),
            stage: StageIndex(self.number(row, "stage")?),
            task: TaskIndex(self.number(row, "task")?),
        })
    }

    pub(crate) fn attempt_key(&self, row: &Row) -> Result<AttemptKey, StoreError> {
        Ok(AttemptKey { task: self.task_key(row)?, attempt: AttemptNumber(self.number(row, "attempt")?) })
    }

    pub(crate) fn stage_row(&self, row: &Row) -> Result<StageRow, StoreError> {
        Ok(StageRow {
            stage: StageIndex(self.number(row, "stage")?),
            kind: self.word(row, "name", StageKind::parse)?,
            state: self.word(row, "state", StageState::parse)?,
            task_count: self.number_or_none(row, "task_count")?,
            tasks_done: self.number(row, "tasks_done")?,
            expanded_ns: self.number_or_none(row, "expanded_ns")?,
            ended_ns: self.number_or_none(row, "ended_ns")?,
        })
    }

    pub(crate) fn task_row(&self, row: &Row) -> Result<TaskRow, StoreError> {
        let winner = self.number_or_none(row, "winner")?.map(AttemptNumber);
        let state = self.word(row, "state", TaskState::parse)?;
        let runs = state == TaskState::Waiting && self.get::<bool>(row, "runs")?;
        Ok(TaskRow {
            task: self.task_key(row)?,
            state: if runs { TaskState::Running } else { state },
            payload: self.json(row, "payload")?,
            winner,
        })
    }

    pub(crate) fn attempt_row(&self, row: &Row) -> Result<AttemptRow, StoreError> {
        let failure: Option<String> = self.get(row, "failure")?;
        Ok(AttemptRow {
            attempt: self.attempt_key(row)?,
            node: NodeId(self.number(row, "node")?),
            slot: self.number(row, "slot")?,
            state: self.word(row, "state", AttemptState::parse)?,
            assigned_ns: self.number(row, "assigned_ns")?,
            started_ns: self.number_or_none(row, "started_ns")?,
            opened_ns: self.number_or_none(row, "opened_ns")?,
            ended_ns: self.number_or_none(row, "ended_ns")?,
            failure: failure.map(|_| self.json(row, "failure")).transpose()?,
        })
    }

    pub(crate) fn chunk_row(&self, row: &Row) -> Result<ChunkRow, StoreError> {
        Ok(ChunkRow {
            chunk: ChunkId(self.number(row, "chunk")?),
            generation: self.number(row, "generation")?,
            disk: DiskIndex(self.number(row, "disk")?),
            ifile: IfileIndex(self.number(row, "ifile")?),
            capacity_bytes: self.number(row, "capacity_bytes")?,
            appended_bytes: self.number(row, "appended_bytes")?,
            oversize: self.number::<i64>(row, "oversize")? != 0,
        })
    }

    pub(crate) fn run_row(&self, row: &Row) -> Result<RunRow, StoreError> {
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
    }

    pub(crate) fn plan_row(&self, row: &Row) -> Result<PlanTaskRow, StoreError> {
        Ok(PlanTaskRow {
            version: PlanVersion(self.number(row, "version")?),
            part: self.number(row, "part")?,
            ifiles: self.json(row, "ifiles")?,
            runs: self.json(row, "runs")?,
            lower_key: self.get::<Option<Vec<u8>>>(row, "lower_key")?.map(KeyBytes),
            upper_key: self.get::<Option<Vec<u8>>>(row, "upper_key")?.map(KeyBytes),
            expected_bytes: self.number(row, "expected_bytes")?,
        })
    }

    pub(crate) fn boundaries_row(&self, row: &Row) -> Result<Boundaries, StoreError> {
        Ok(Boundaries {
            version: BoundariesVersion(self.number(row, "version")?),
            keys: self.json(row, "keys")?,
        })
    }

    pub(crate) fn job_row(&self, row: &Row) -> Result<JobRow, StoreError> {
        let kept_files: Option<String> = self.get(row, "ifiles")?;
        Ok(JobRow {
            job: JobId(self.get(row, "job")?),
            owner: self.get(row, "owner")?,
            user: self.get(row, "user_name")?,
            priority: self.number(row, "priority")?,
            name: self.get(row, "name")?,
            state: self.word(row, "state", JobState::parse)?,
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
            kept_bytes: self.number_or_none(row, "kept_bytes")?,
            step_of: self.step_of(row)?,
        })
    }

    fn step_of(&self, row: &Row) -> Result<Option<StepOf>, StoreError> {
        let job = self.get::<Option<i64>>(row, "step_of")?.map(JobId);
        let step = self.number_or_none(row, "step")?.map(StepNumber);
        let beside = self.steps_beside(row)?;
        Ok(job.zip(step).map(|(job, step)| StepOf { job, step, beside }))
    }

    /// Returns the steps that run with that of a job as one pipeline.
    pub(crate) fn steps_beside(&self, row: &Row) -> Result<Vec<StepNumber>, StoreError> {
        let Some(text) = self.get::<Option<String>>(row, "steps_beside")? else { return Ok(Vec::new()) };
        let number = |word: &str| word.parse().map(StepNumber);
        let numbers: Result<Vec<_>, _> = text.split(' ').map(number).collect();
        numbers.map_err(|_| self.reader().damaged("jobs.steps_beside", text))
    }
}
