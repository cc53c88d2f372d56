//! State that a server loads when it restarts: unfinished jobs, complete, and the nodes. The history is not read, so
//! the time to start depends on the current work and not on the age of the store.

use crate::database::Row;
use crate::{Metastore, StoreError};
use api::JobSpec;
use api::history::JobState;
use ids::{ChunkId, JobId, PlanVersion, RunId, StepNumber};
use rows::{Recovered, RecoveredJob, StepRow, TaskRow, TaskState, WaitingJobRow};
use std::collections::BTreeMap;

type HotJobs = BTreeMap<JobId, RecoveredJob>;

/// See [`spans`].
type Spans<'a> = Option<&'a [(JobId, JobId)]>;

/// Rows of all unfinished jobs.
struct HotWork {
    stages: Vec<Row>,
    tasks: Vec<Row>,
}

/// A table, read for all hot jobs at once.
struct OfHotJobs {
    /// Statement for the jobs in a span of numbers, `$1` to `$2`; some of them may not be hot.
    in_span: &'static str,
    /// Statement for the hot jobs, wherever they are.
    anywhere: &'static str,
}

/// Condition for hot jobs: unfinished jobs of the cluster. A job that waited has tasks since it was admitted. Its row
/// shows this only at its end, because an update of each row would cost more than everything else that an admission
/// writes.
macro_rules! hot {
    () => {
        "jobs.cleaned_ns IS NULL AND jobs.owner = 'cluster' \
         AND (jobs.waits IS NULL OR EXISTS (SELECT 1 FROM tasks AS begun WHERE begun.job = jobs.job))"
    };
}

/// `CROSS JOIN` makes SQLite begin with the jobs, through their index, and never with the table, which contains the
/// history.
macro_rules! of_hot_jobs {
    ($columns:literal, $table:literal, $order:literal) => {
        of_hot_jobs!($columns, $table, $order, "")
    };
    ($columns:literal, $table:literal, $order:literal, $which:literal) => {
        OfHotJobs {
            in_span: concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $table,
                " WHERE ",
                $table,
                ".job BETWEEN $1 AND $2 ORDER BY ",
                $table,
                ".job",
                $order
            ),
            anywhere: concat!(
                "SELECT ",
                $columns,
                " FROM jobs CROSS JOIN ",
                $table,
                " WHERE ",
                $table,
                ".job = jobs.job AND ",
                hot!(),
                $which,
                " ORDER BY jobs.job",
                $order
            ),
        }
    };
}

/// Selects rows of the hot jobs that can have data. Jobs of one task have none, and no staging directory either; there
/// may be very many of them.
macro_rules! of_hot_jobs_with_data {
    ($columns:literal, $table:literal, $order:literal) => {
        of_hot_jobs!($columns, $table, $order, " AND jobs.staging <> ''")
    };
}

/// Largest difference between the numbers of neighbouring hot jobs in one span.
const SPAN_GAP_MAX: i64 = 8;
/// Maximum number of spans of hot jobs; beyond it, the jobs are looked up one by one.
const SPANS_MAX: usize = 64;

/// Returns the numbers of the hot jobs as a few spans, first and last of each; None if they are too far apart. A span
/// is read by one sweep of an index, while a join looks up each job.
fn spans(jobs: impl IntoIterator<Item = JobId>) -> Option<Vec<(JobId, JobId)>> {
    let mut spans: Vec<(JobId, JobId)> = Vec::new();
    for job in jobs {
        match spans.last_mut() {
            Some((_, last)) if job.0 - last.0 <= SPAN_GAP_MAX => *last = job,
            _ => spans.push((job, job)),
        }
        if spans.len() > SPANS_MAX {
            return None;
        }
    }
    Some(spans)
}

/// Longest specification, in bytes, that is read together with those of many other jobs.
const SHORT_SPEC_BYTES: u32 = 8 << 10;

impl Metastore {
    /// Returns the oldest `count_max` waiting jobs with numbers above this one.
    pub async fn waiting_jobs(&self, above: JobId, count_max: u32) -> Result<Vec<WaitingJobRow>, StoreError> {
        let statement = "SELECT jobs.job, jobs.user_name, jobs.priority, \
             CASE WHEN length(specs.spec) <= $1 THEN specs.spec END AS spec FROM jobs CROSS JOIN specs \
             WHERE jobs.cleaned_ns IS NULL AND jobs.owner = 'cluster' AND jobs.waits IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.job = jobs.job) AND jobs.job > $2 AND specs.job = jobs.job ORDER BY jobs.job LIMIT $3";
        let values = [SHORT_SPEC_BYTES.into(), above.0.into(), count_max.into()];
        let waiting_row = |row: &Row| {
            let text: Option<String> = self.get(row, "spec")?;
            Ok(WaitingJobRow {
                job: JobId(self.number(row, "job")?),
                user: self.get(row, "user_name")?,
                priority: self.number(row, "priority")?,
                spec: text.map(|_| self.spec(row)).transpose()?,
            })
        };
        self.rows(statement, values).await?.iter().map(waiting_row).collect()
    }

    /// Reads the state of the server of a cluster: rows of unfinished jobs, and few others.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let statement = concat!("SELECT job FROM jobs WHERE ", hot!(), " ORDER BY job");
        let hot = self.rows(statement, []).await?;
        let hot: Vec<JobId> =
            hot.iter().map(|row| Ok(JobId(self.number(row, "job")?))).collect::<Result<_, StoreError>>()?;
        let mut recovered =
            Recovered { nodes: self.nodes().await?, disks: self.disks().await?, ..Recovered::default() };
        if hot.is_empty() {
            return Ok(recovered);
        }
        let spans = spans(hot);
        // If very many jobs wait, most of the time is spent on them.
        let (jobs, work) =
            tokio::try_join!(self.hot_jobs(spans.as_deref()), self.hot_work(spans.as_deref()))?;
        for job in jobs.values().filter(|job| job.spec.kind.steps().is_some()) {
            recovered.steps.insert(job.row.job, self.steps_of(job.row.job).await?);
        }
        recovered.jobs = jobs;
        self.recover_work(&mut recovered.jobs, work)?;
        self.recover_data(&mut recovered.jobs, spans.as_deref()).await?;
        Ok(recovered)
    }

    /// Returns all steps of a job, oldest first.
    async fn steps_of(&self, job: JobId) -> Result<Vec<StepRow>, StoreError> {
        let statement = "SELECT job, step, steps_beside, name, state, exit_code FROM jobs WHERE step_of = $1 ORDER BY job";
        let step_row = |row: &Row| {
            Ok(StepRow {
                job: JobId(self.number(row, "job")?),
                step: StepNumber(self.number(row, "step")?),
                beside: self.steps_beside(row)?,
                name: self.get(row, "name")?,
                state: self.word(row, "state", JobState::parse)?,
                exit_code: self.number_or_none(row, "exit_code")?,
            })
        };
        self.rows(statement, [job.0.into()]).await?.iter().map(step_row).collect()
    }

    /// Returns the hot jobs with their own data and their attempts.
    async fn hot_jobs(&self, spans: Spans<'_>) -> Result<HotJobs, StoreError> {
        let statement = concat!("SELECT * FROM jobs WHERE ", hot!(), " ORDER BY job");
        let mut rows = BTreeMap::new();
        for row in self.rows(statement, []).await? {
            let row = self.job_row(&row)?;
            rows.insert(row.job, row);
        }
        let mut jobs = HotJobs::new();
        // Jobs that were submitted together differ in little, often in nothing.
        let mut before: Option<(String, JobSpec)> = None;
        for row in self.hot_rows(of_hot_jobs!("specs.*", "specs", ""), spans).await? {
            let Some(job) = rows.remove(&JobId(self.number(&row, "job")?)) else { continue };
            let text: String = self.get(&row, "spec")?;
            let spec = match before {
                Some((same, spec)) if same == text => spec,
                _ => self.spec(&row)?,
            };
            jobs.insert(job.job, RecoveredJob::new(job, spec.clone()));
            before = Some((text, spec));
        }
        if let Some(job) = rows.into_keys().next() {
            return Err(self.damaged("specs.spec", format!("nothing for job {job}")));
        }
        self.hot_outcomes(&mut jobs, spans).await?;
        Ok(jobs)
    }

    async fn hot_outcomes(&self, jobs: &mut HotJobs, spans: Spans<'_>) -> Result<(), StoreError> {
        let table =
            of_hot_jobs!("attempts.*", "attempts", ", attempts.stage, attempts.task, attempts.attempt");
        self.each(jobs, table, spans, |job, row| {
            job.attempts.push(self.attempt_row(row)?);
            Ok(())
        })
        .await?;
        let table = of_hot_jobs!("task_results.*", "task_results", ", task_results.stage, task_results.task");
        self.each(jobs, table, spans, |job, row| {
            job.results.push((self.attempt_key(row)?, self.json(row, "result")?));
            Ok(())
        })
        .await?;
        self.each(jobs, of_hot_jobs!("reports.*", "reports", ""), spans, |job, row| {
            job.report = Some(self.json(row, "report")?);
            Ok(())
        })
        .await?;
        // An index covers only these events, which are few.
        let statement = "SELECT events.job, events.detail FROM events CROSS JOIN jobs \
             WHERE events.kind = 'job cancel asked' AND jobs.job = events.job AND jobs.cleaned_ns IS NULL \
             AND jobs.owner = 'cluster' ORDER BY events.job, events.event";
        self.hand_out(jobs, self.rows(statement, []).await?, |job, row| {
            let reason: Option<String> = self.get(row, "detail")?;
            job.cancel_asked.get_or_insert(reason.unwrap_or_default());
            Ok(())
        })
    }

    async fn hot_work(&self, spans: Spans<'_>) -> Result<HotWork, StoreError> {
        let stages = of_hot_jobs!("stages.*, CAST(0 AS BIGINT) AS tasks_done", "stages", ", stages.stage");
        // The attempts show which of them run.
        let tasks = of_hot_jobs!("tasks.*, 1 = 0 AS runs", "tasks", ", tasks.stage, tasks.task");
        Ok(HotWork {
            stages: self.hot_rows_beside(stages, spans).await?,
            tasks: self.hot_rows_beside(tasks, spans).await?,
        })
    }

    fn recover_work(&self, jobs: &mut HotJobs, work: HotWork) -> Result<(), StoreError> {
        self.hand_out(jobs, work.stages, |job, row| {
            job.stages.push(self.stage_row(row)?);
            Ok(())
        })?;
        self.hand_out(jobs, work.tasks, |job, row| {
            job.tasks.push(self.task_row(row)?);
            Ok(())
        })?;
        jobs.values_mut().for_each(count_tasks);
        Ok(())
    }

    async fn recover_data(&self, jobs: &mut HotJobs, spans: Spans<'_>) -> Result<(), StoreError> {
        let table = of_hot_jobs_with_data!("boundaries.*", "boundaries", ", boundaries.version");
        self.each(jobs, table, spans, |job, row| {
            // The latest version is last.
            job.boundaries = Some(self.boundaries_row(row)?);
            Ok(())
        })
        .await?;
        let table = of_hot_jobs_with_data!("plans.job, plans.version", "plans", ", plans.version");
        self.each(jobs, table, spans, |job, row| {
            job.plan_versions.push(PlanVersion(self.number(row, "version")?));
            Ok(())
        })
        .await?;
        let table =
            of_hot_jobs_with_data!("plan_tasks.*", "plan_tasks", ", plan_tasks.version, plan_tasks.part");
        self.each(jobs, table, spans, |job, row| {
            job.plan.push(self.plan_row(row)?);
            Ok(())
        })
        .await?;
        let table = of_hot_jobs_with_data!(
            "source_sums.*",
            "source_sums",
            ", source_sums.map_task, source_sums.ifile, source_sums.chunk"
        );
        self.each(jobs, table, spans, |job, row| self.add_commit(&mut job.commits, row)).await?;
        let table = of_hot_jobs_with_data!("chunks.*", "chunks", ", chunks.chunk, chunks.generation");
        self.each(jobs, table, spans, |job, row| {
            job.chunks.push(self.chunk_row(row)?);
            Ok(())
        })
        .await?;
        let table = of_hot_jobs_with_data!("runs.*", "runs", ", runs.run");
        self.each(jobs, table, spans, |job, row| {
            job.runs.push(self.run_row(row)?);
            Ok(())
        })
        .await?;
        let table =
            of_hot_jobs_with_data!("run_chunks.*", "run_chunks", ", run_chunks.run, run_chunks.chunk");
        self.each(jobs, table, spans, |job, row| {
            job.run_chunks.push((RunId(self.number(row, "run")?), ChunkId(self.number(row, "chunk")?)));
            Ok(())
        })
        .await?;
        let table =
            of_hot_jobs_with_data!("run_replicas.*", "run_replicas", ", run_replicas.run, run_replicas.node");
        self.each(jobs, table, spans, |job, row| {
            job.replicas.push(self.replica_row(row)?);
            Ok(())
        })
        .await?;
        let table = of_hot_jobs_with_data!("part_replicas.*", "part_replicas", ", part_replicas.task");
        self.each(jobs, table, spans, |job, row| {
            job.part_replicas.push(self.part_replica_row(row)?);
            Ok(())
        })
        .await
    }

    /// Passes each row of a table to its job.
    async fn each(
        &self,
        jobs: &mut HotJobs,
        table: OfHotJobs,
        spans: Spans<'_>,
        add: impl Fn(&mut RecoveredJob, &Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.hand_out(jobs, self.hot_rows(table, spans).await?, add)
    }

    async fn hot_rows(&self, table: OfHotJobs, spans: Spans<'_>) -> Result<Vec<Row>, StoreError> {
        let Some(spans) = spans else { return self.rows(table.anywhere, []).await };
        let mut rows = Vec::new();
        for (first, last) in spans {
            rows.append(&mut self.rows(table.in_span, [first.0.into(), last.0.into()]).await?);
        }
        Ok(rows)
    }

    /// Reads beside [`Self::hot_rows`], if the store can do both at a time.
    async fn hot_rows_beside(&self, table: OfHotJobs, spans: Spans<'_>) -> Result<Vec<Row>, StoreError> {
        let Some(spans) = spans else { return self.rows_beside(table.anywhere, []).await };
        let mut rows = Vec::new();
        for (first, last) in spans {
            rows.append(&mut self.rows_beside(table.in_span, [first.0.into(), last.0.into()]).await?);
        }
        Ok(rows)
    }

    fn hand_out(
        &self,
        jobs: &mut HotJobs,
        rows: Vec<Row>,
        add: impl Fn(&mut RecoveredJob, &Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for row in rows {
            // A span may contain finished jobs, and one that was submitted between two of the statements.
            if let Some(job) = jobs.get_mut(&JobId(self.number(&row, "job")?)) {
                add(job, &row)?;
            }
        }
        Ok(())
    }
}

/// Computes the states that other rows determine: the running tasks, and the number of finished ones of each stage.
fn count_tasks(job: &mut RecoveredJob) {
    let running: std::collections::BTreeSet<_> = job
        .attempts
        .iter()
        .filter(|attempt| attempt.state == crate::AttemptState::Running)
        .map(|attempt| attempt.attempt.task)
        .collect();
    for task in &mut job.tasks {
        if task.winner.is_none() && running.contains(&task.task) {
            task.state = TaskState::Running;
        }
    }
    for stage in &mut job.stages {
        let done = |task: &&TaskRow| task.task.stage == stage.stage && task.state == TaskState::Done;
        stage.tasks_done = job.tasks.iter().filter(done).count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_lie_close_are_one_span() {
        let spans = |jobs: &[i64]| spans(jobs.iter().copied().map(JobId));
        let span = |first, last| (JobId(first), JobId(last));
        assert_eq!(spans(&[]), Some(vec![]));
        assert_eq!(spans(&[3]), Some(vec![span(3, 3)]));
        assert_eq!(spans(&[3, 4, 4 + SPAN_GAP_MAX]), Some(vec![span(3, 4 + SPAN_GAP_MAX)]));
        assert_eq!(spans(&[3, 4 + SPAN_GAP_MAX, 50]), Some(vec![span(3, 3), span(12, 12), span(50, 50)]));
        let apart: Vec<i64> = (0..=SPANS_MAX as i64).map(|place| place * (SPAN_GAP_MAX + 1)).collect();
        assert_eq!(spans(&apart[1..]).map(|spans| spans.len()), Some(SPANS_MAX));
        assert_eq!(spans(&apart), None);
    }
}
