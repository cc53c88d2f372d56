//! What a server that starts again must know: the jobs that are not done with, whole, and the machines. The history is
//! not read, so that the time this takes follows the work in hand and not the years before it.

use crate::database::Row;
use crate::fleet::{DiskRow, NodeRow, ReplicaRow};
use crate::kept::WinningCommits;
use crate::read::{ChunkRow, PlanTaskRow, RunRow, TaskRow};
use crate::{Metastore, StoreError};
use api::history::{AttemptRow, JobRow, JobState, StageRow};
use api::{Boundaries, JobReport, JobSpec, TaskResult};
use ids::{AttemptKey, ChunkId, JobId, NodeId, RunId};
use std::collections::BTreeMap;

/// The owner of the jobs of `sailfish server`, whichever process serves the store. Its row is there from the first.
pub const CLUSTER_OWNER: &str = "cluster";

/// The kind of the event that somebody wants a job to stop.
pub const CANCEL_ASKED_NOTE: &str = "job cancel asked";

/// Everything a server knew that it must know again.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The jobs of the cluster that are not over, and those that are over but not cleaned; oldest first.
    pub jobs: BTreeMap<JobId, RecoveredJob>,
    pub nodes: Vec<NodeRow>,
    pub disks: Vec<(NodeId, DiskRow)>,
}

/// A job as it stood.
#[derive(Debug)]
pub struct RecoveredJob {
    pub row: JobRow,
    pub spec: JobSpec,
    /// Why somebody wants it to stop; None where nobody does.
    pub cancel_asked: Option<String>,
    /// What its commit will publish, or has; None before.
    pub report: Option<JobReport>,
    pub stages: Vec<StageRow>,
    /// With payload and winner, in order of stage and task.
    pub tasks: Vec<TaskRow>,
    /// Every attempt so far, in order; those that run stand as running.
    pub attempts: Vec<AttemptRow>,
    /// What winners gave back, as far as it was stored ([`crate::Change::Result`]).
    pub results: Vec<(AttemptKey, TaskResult)>,
    pub boundaries: Option<Boundaries>,
    /// The tasks of every version of the plan.
    pub plan: Vec<PlanTaskRow>,
    pub commits: WinningCommits,
    pub chunks: Vec<ChunkRow>,
    pub runs: Vec<RunRow>,
    /// Which chunks each run holds.
    pub run_chunks: Vec<(RunId, ChunkId)>,
    pub replicas: Vec<ReplicaRow>,
}

/// Rows of all jobs that are not done with.
struct HotWork {
    stages: Vec<Row>,
    tasks: Vec<Row>,
}

impl RecoveredJob {
    fn new(row: JobRow, spec: JobSpec) -> Self {
        Self {
            row,
            spec,
            cancel_asked: None,
            report: None,
            stages: Vec::new(),
            tasks: Vec::new(),
            attempts: Vec::new(),
            results: Vec::new(),
            boundaries: None,
            plan: Vec::new(),
            commits: WinningCommits::new(),
            chunks: Vec::new(),
            runs: Vec::new(),
            run_chunks: Vec::new(),
            replicas: Vec::new(),
        }
    }

    /// Whether it still has work to do, rather than only directories to remove.
    pub fn goes_on(&self) -> bool {
        matches!(self.row.state, JobState::Running | JobState::Committing)
    }
}

/// A table read for all hot jobs at once. `CROSS JOIN` tells SQLite to begin with the jobs, through their index, and
/// never with the table, which holds the history.
macro_rules! of_hot_jobs {
    ($columns:literal, $table:literal, $order:literal) => {
        of_hot_jobs!($columns, $table, $order, "")
    };
    ($columns:literal, $table:literal, $order:literal, $which:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM jobs CROSS JOIN ",
            $table,
            " WHERE ",
            $table,
            ".job = jobs.job \
             AND jobs.cleaned_ns IS NULL AND jobs.owner = 'cluster'",
            $which,
            " ORDER BY jobs.job",
            $order
        )
    };
}

/// Of those that can have data: a job of one task has no staging directory either, and there may be very many.
macro_rules! of_hot_jobs_with_data {
    ($columns:literal, $table:literal, $order:literal) => {
        of_hot_jobs!($columns, $table, $order, " AND jobs.staging <> ''")
    };
}

impl Metastore {
    /// Reads what the server of a cluster knew. Only the rows of jobs that are not done with are read.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        // Most of the time goes into these, where very many jobs wait.
        let (jobs, work) = tokio::try_join!(self.hot_jobs(), self.hot_work())?;
        let mut recovered = Recovered { jobs, nodes: self.nodes().await?, disks: self.disks().await? };
        self.recover_work(&mut recovered, work).await?;
        self.recover_data(&mut recovered).await?;
        Ok(recovered)
    }

    async fn hot_jobs(&self) -> Result<BTreeMap<JobId, RecoveredJob>, StoreError> {
        let mut jobs = BTreeMap::new();
        // Jobs that were handed in together differ in little, often in nothing.
        let mut before: Option<(String, JobSpec)> = None;
        let statement = of_hot_jobs!("jobs.*, specs.spec", "specs", "");
        for row in self.rows(statement, []).await? {
            let job = self.job_row(&row)?;
            let text: String = self.get(&row, "spec")?;
            let spec = match before {
                Some((same, spec)) if same == text => spec,
                _ => self.json(&row, "spec")?,
            };
            jobs.insert(job.job, RecoveredJob::new(job, spec.clone()));
            before = Some((text, spec));
        }
        Ok(jobs)
    }

    async fn hot_work(&self) -> Result<HotWork, StoreError> {
        let stages = of_hot_jobs!("stages.*, CAST(0 AS BIGINT) AS tasks_done", "stages", ", stages.stage");
        // Which of them run is told by the attempts.
        let tasks = of_hot_jobs!("tasks.*, 1 = 0 AS runs", "tasks", ", tasks.stage, tasks.task");
        Ok(HotWork { stages: self.rows_beside(stages).await?, tasks: self.rows_beside(tasks).await? })
    }

    async fn recover_work(&self, recovered: &mut Recovered, work: HotWork) -> Result<(), StoreError> {
        self.hand_out(recovered, work.stages, |job, row| {
            job.stages.push(self.stage_row(row)?);
            Ok(())
        })?;
        self.hand_out(recovered, work.tasks, |job, row| {
            job.tasks.push(self.task_row(row)?);
            Ok(())
        })?;
        let order =
            of_hot_jobs!("attempts.*", "attempts", ", attempts.stage, attempts.task, attempts.attempt");
        self.each(recovered, order, |job, row| {
            job.attempts.push(self.attempt_row(row)?);
            Ok(())
        })
        .await?;
        let statement = of_hot_jobs!("results.*", "results", ", results.stage, results.task");
        self.each(recovered, statement, |job, row| {
            job.results.push((self.attempt_key(row)?, self.json(row, "result")?));
            Ok(())
        })
        .await?;
        let statement = of_hot_jobs!("reports.*", "reports", "");
        self.each(recovered, statement, |job, row| {
            job.report = Some(self.json(row, "report")?);
            Ok(())
        })
        .await?;
        // There is an index of these events alone, which are few.
        let statement = "SELECT events.job, events.detail FROM events CROSS JOIN jobs \
             WHERE events.kind = 'job cancel asked' AND jobs.job = events.job AND jobs.cleaned_ns IS NULL \
             AND jobs.owner = 'cluster' ORDER BY events.job, events.event";
        self.each(recovered, statement, |job, row| {
            let reason: Option<String> = self.get(row, "detail")?;
            job.cancel_asked.get_or_insert(reason.unwrap_or_default());
            Ok(())
        })
        .await?;
        recovered.jobs.values_mut().for_each(count_tasks);
        Ok(())
    }

    async fn recover_data(&self, recovered: &mut Recovered) -> Result<(), StoreError> {
        let statement = of_hot_jobs_with_data!("boundaries.*", "boundaries", ", boundaries.version");
        self.each(recovered, statement, |job, row| {
            // The latest version comes last.
            job.boundaries = Some(self.boundaries_row(row)?);
            Ok(())
        })
        .await?;
        let statement =
            of_hot_jobs_with_data!("plan_tasks.*", "plan_tasks", ", plan_tasks.version, plan_tasks.part");
        self.each(recovered, statement, |job, row| {
            job.plan.push(self.plan_row(row)?);
            Ok(())
        })
        .await?;
        let statement = of_hot_jobs_with_data!(
            "sources.*",
            "sources",
            ", sources.map_task, sources.ifile, sources.chunk"
        );
        self.each(recovered, statement, |job, row| self.add_commit(&mut job.commits, row)).await?;
        let statement = of_hot_jobs_with_data!("chunks.*", "chunks", ", chunks.chunk, chunks.generation");
        self.each(recovered, statement, |job, row| {
            job.chunks.push(self.chunk_row(row)?);
            Ok(())
        })
        .await?;
        let statement = of_hot_jobs_with_data!("runs.*", "runs", ", runs.run");
        self.each(recovered, statement, |job, row| {
            job.runs.push(self.run_row(row)?);
            Ok(())
        })
        .await?;
        let statement =
            of_hot_jobs_with_data!("run_chunks.*", "run_chunks", ", run_chunks.run, run_chunks.chunk");
        self.each(recovered, statement, |job, row| {
            job.run_chunks.push((RunId(self.number(row, "run")?), ChunkId(self.number(row, "chunk")?)));
            Ok(())
        })
        .await?;
        let statement = of_hot_jobs_with_data!("replicas.*", "replicas", ", replicas.run, replicas.node");
        self.each(recovered, statement, |job, row| {
            job.replicas.push(self.replica_row(row)?);
            Ok(())
        })
        .await
    }

    /// Hands each row of an answer to the job it belongs to.
    async fn each(
        &self,
        recovered: &mut Recovered,
        statement: &'static str,
        add: impl Fn(&mut RecoveredJob, &Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if recovered.jobs.is_empty() {
            return Ok(());
        }
        self.hand_out(recovered, self.rows(statement, []).await?, add)
    }

    fn hand_out(
        &self,
        recovered: &mut Recovered,
        rows: Vec<Row>,
        add: impl Fn(&mut RecoveredJob, &Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for row in rows {
            // A job that was submitted between two of the statements is not one this server must know.
            if let Some(job) = recovered.jobs.get_mut(&JobId(self.get(&row, "job")?)) {
                add(job, &row)?;
            }
        }
        Ok(())
    }
}

/// The states that are told by other rows: which tasks run, and how many of a stage are done.
fn count_tasks(job: &mut RecoveredJob) {
    let running: std::collections::BTreeSet<_> = job
        .attempts
        .iter()
        .filter(|attempt| attempt.state == crate::AttemptState::Running)
        .map(|attempt| attempt.attempt.task)
        .collect();
    for task in &mut job.tasks {
        if task.winner.is_none() && running.contains(&task.task) {
            task.state = "running".to_string();
        }
    }
    for stage in &mut job.stages {
        let done = |task: &&TaskRow| task.task.stage == stage.stage && task.state == "done";
        stage.tasks_done = job.tasks.iter().filter(done).count() as u32;
    }
}
