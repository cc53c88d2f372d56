//! Effect of a list of changes on the rows of jobs, stages, tasks and attempts: several changes of one row are merged,
//! and rows of one kind are written by one statement, in the order of their keys.

use crate::convert::{json, path_text};
use crate::database::{Rows, Session, Value};
use crate::tables::shuffle_data::Data;
use crate::{StoreError, stored_spec};
use api::history::{AttemptState, EventKind, JobState, KeptFiles, StageState, StepOf};
use api::{JobSpec, Task, TaskFailure};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, StageKind, TaskKey};
use rows::{AuditRow, Change, Keep, TaskState};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Default)]
pub(crate) struct Batch {
    new_jobs: BTreeMap<JobId, NewJob>,
    jobs: BTreeMap<JobId, JobPatch>,
    jobs_started: BTreeMap<JobId, u64>,
    /// Jobs whose attempts send no more reports: the time, and whether the job succeeded.
    jobs_left: BTreeMap<JobId, (u64, bool)>,
    jobs_over: Vec<JobId>,
    reports: Rows,
    ifiles: Rows,
    /// Specifications that replace the submitted ones.
    whole_specs: BTreeMap<JobId, String>,
    new_stages: BTreeMap<(JobId, StageIndex), StageKind>,
    stages: BTreeMap<(JobId, StageIndex), StagePatch>,
    new_tasks: BTreeMap<TaskKey, String>,
    tasks_done: BTreeMap<TaskKey, AttemptNumber>,
    new_attempts: BTreeMap<AttemptKey, Start>,
    attempts: BTreeMap<AttemptKey, End>,
    events: Vec<[Value; 7]>,
    /// Index in `events` of the last stage end of each job; dropped if the job ends in the same transaction.
    stages_ended: BTreeMap<JobId, usize>,
    /// Events that another event of the same transaction made unnecessary.
    needless: BTreeSet<usize>,
    audit: Rows,
    data: Data,
}

struct NewJob {
    owner: String,
    user: Option<String>,
    priority: i32,
    name: String,
    output: String,
    staging: String,
    disk_dirs: String,
    created_ns: u64,
    reduce_again: Option<i64>,
    waits: bool,
    step_of: Option<StepOf>,
    spec: String,
}

/// Columns of the row of a new job.
const NEW_JOB_COLUMNS: &str = "job, owner, user_name, priority, name, state, output, staging, disk_dirs, created_ns, \
                               started_ns, reduce_again, waits, step_of, step, steps_beside";

/// New values of the row of a job; None keeps the value.
#[derive(Default)]
struct JobPatch {
    state: Option<JobState>,
    exit_code: Option<i32>,
    error: Option<String>,
    ended_ns: Option<u64>,
    cleaned_ns: Option<u64>,
    ifiles: Option<KeptFiles>,
    keep_until_ns: Option<u64>,
}

#[derive(Default)]
struct StagePatch {
    state: Option<StageState>,
    task_count: Option<u64>,
    expanded_ns: Option<u64>,
    ended_ns: Option<u64>,
}

struct Start {
    node: NodeId,
    slot: u32,
    assigned_ns: u64,
}

struct End {
    state: AttemptState,
    started_ns: u64,
    opened_ns: Option<u64>,
    ended_ns: u64,
    failure: Option<String>,
}

/// The subject of a row in the history.
#[derive(Clone, Copy, Default)]
pub(crate) struct Subject {
    job: Option<JobId>,
    stage: Option<StageIndex>,
    task: Option<TaskKey>,
    attempt: Option<AttemptKey>,
}

impl Subject {
    fn stage(job: JobId, stage: StageIndex) -> Self {
        Self { job: Some(job), stage: Some(stage), ..Self::default() }
    }
}

impl From<JobId> for Subject {
    fn from(job: JobId) -> Self {
        Self { job: Some(job), ..Self::default() }
    }
}

impl From<TaskKey> for Subject {
    fn from(task: TaskKey) -> Self {
        Self { task: Some(task), ..Self::stage(task.job, task.stage) }
    }
}

impl From<AttemptKey> for Subject {
    fn from(attempt: AttemptKey) -> Self {
        Self { attempt: Some(attempt), ..Self::from(attempt.task) }
    }
}

impl Batch {
    /// Adds a row of the history that belongs to no job.
    pub fn note(&mut self, kind: EventKind, now_ns: u64, detail: &str) {
        self.event(Subject::default(), kind, now_ns, Some(detail));
    }

    pub fn stage_reopened(&mut self, job: JobId, stage: StageIndex, tasks: usize, now_ns: u64) {
        let detail = format!("{tasks} tasks run again");
        self.event(Subject::stage(job, stage), EventKind::StageReopened, now_ns, Some(&detail));
    }

    fn event(&mut self, subject: impl Into<Subject>, kind: EventKind, now_ns: u64, detail: Option<&str>) {
        let subject = subject.into();
        self.events.push([
            now_ns.into(),
            subject.job.map(|job| job.0).into(),
            subject.stage.map(|stage| stage.0).into(),
            subject.task.map(|key| key.task.0).into(),
            subject.attempt.map(|key| key.attempt.0).into(),
            kind.word().into(),
            detail.into(),
        ]);
    }

    /// Adds a change of the rows of jobs.
    pub fn take(&mut self, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::JobSubmitted { .. } => self.job_submitted(change)?,
            Change::JobInputs { job, spec } => self.job_inputs(*job, spec)?,
            Change::JobCommitting { job, report, now_ns } => {
                self.jobs.entry(*job).or_default().state = Some(JobState::Committing);
                self.reports.push([job.0.into(), json(report.as_ref())?.into()]);
                self.event(*job, EventKind::JobCommitting, *now_ns, None);
            }
            Change::JobEnded { job, state, exit_code, error, now_ns } => {
                self.job_ended(*job, *state, *exit_code, error.as_deref(), *now_ns);
            }
            Change::JobCleaned { job, kept, now_ns } => self.job_cleaned(*job, *kept, *now_ns),
            Change::KeptFilesRemoved { job, bytes, now_ns } => {
                self.jobs.entry(*job).or_default().ifiles = Some(KeptFiles::Removed);
                self.event(*job, EventKind::KeptDataRemoved, *now_ns, Some(&format!("{bytes} bytes")));
            }
            Change::StageExpanded { job, stage, tasks, now_ns } => {
                self.stage_expanded(*job, *stage, tasks, *now_ns)?;
            }
            Change::TaskSplit { key, task, added_key, added } => {
                self.task_split((*key, task), (*added_key, added))?;
            }
            Change::StageEnded { job, stage, now_ns } => self.stage_ended(*job, *stage, *now_ns),
            Change::AttemptStarted { attempt, node, slot, now_ns } => {
                let start = Start { node: *node, slot: *slot, assigned_ns: *now_ns };
                self.new_attempts.insert(*attempt, start);
                self.jobs_started.entry(attempt.task.job).or_insert(*now_ns);
                let on = format!("{node} slot {slot}");
                self.event(*attempt, EventKind::AttemptStarted, *now_ns, Some(&on));
            }
            Change::AttemptEnded { attempt, state, started_ns, opened_ns, ended_ns, failure } => {
                let end = End {
                    state: *state,
                    started_ns: *started_ns,
                    opened_ns: *opened_ns,
                    ended_ns: *ended_ns,
                    failure: failure.as_ref().map(json).transpose()?,
                };
                self.attempt_ended(*attempt, end, failure.as_ref());
            }
            // The history has the winner already: it is the only successful attempt of the task.
            Change::TaskDone { attempt, .. } => {
                self.tasks_done.insert(attempt.task, attempt.attempt);
            }
            Change::TaskRetried { task, now_ns } => self.event(*task, EventKind::TaskRetried, *now_ns, None),
            Change::AttemptSaid { attempt, text, now_ns } => {
                self.event(*attempt, EventKind::StandardError, *now_ns, Some(text));
            }
            Change::Note { job, kind, detail, now_ns } => {
                let subject = Subject { job: *job, ..Subject::default() };
                self.event(subject, *kind, *now_ns, Some(detail));
            }
            Change::Audit { row } => self.audited(row),
            Change::Boundaries { job, boundaries, now_ns } => {
                self.data.take(change)?;
                let detail = format!("version {}, {} keys", boundaries.version.0, boundaries.keys.len());
                self.event(*job, EventKind::BoundariesFixed, *now_ns, Some(&detail));
            }
            Change::Plan { job, version, tasks, now_ns, .. } => {
                self.data.take(change)?;
                let detail = format!("version {}, {} reduce tasks", version.0, tasks.len());
                self.event(*job, EventKind::PlanFixed, *now_ns, Some(&detail));
            }
            data => self.data.take(data)?,
        }
        Ok(())
    }

    fn stage_ended(&mut self, job: JobId, stage: StageIndex, now_ns: u64) {
        let patch = self.stages.entry((job, stage)).or_default();
        (patch.state, patch.ended_ns) = (Some(StageState::Done), Some(now_ns));
        self.stages_ended.insert(job, self.events.len());
        self.event(Subject::stage(job, stage), EventKind::StageEnded, now_ns, None);
    }

    fn audited(&mut self, row: &AuditRow) {
        self.audit.push([
            row.time_ns.into(),
            row.user.as_deref().into(),
            row.source.as_deref().into(),
            row.action.as_str().into(),
            row.target.as_str().into(),
            row.allowed.into(),
            row.detail.as_deref().into(),
        ]);
    }

    fn job_submitted(&mut self, change: &Change) -> Result<(), StoreError> {
        let Change::JobSubmitted {
            job,
            owner,
            spec,
            stages,
            staging,
            disk_dirs,
            user,
            priority,
            waits,
            step_of,
            now_ns,
        } = change
        else {
            unreachable!("{change:?} submits no job");
        };
        let spec: &JobSpec = spec;
        let new = NewJob {
            owner: owner.clone(),
            user: user.clone(),
            priority: *priority,
            name: spec.name.clone(),
            output: path_text(&spec.output)?.to_string(),
            staging: path_text(Path::new(staging))?.to_string(),
            disk_dirs: json(disk_dirs)?,
            created_ns: *now_ns,
            reduce_again: spec.kind.source().map(|source| source.0),
            waits: *waits,
            step_of: step_of.clone(),
            spec: stored_spec::written(spec)?,
        };
        self.new_jobs.insert(*job, new);
        for (index, kind) in stages.iter().copied().enumerate() {
            self.new_stages.insert((*job, StageIndex(index as u16)), kind);
        }
        // The sizes of a stage that reads others depend on their output.
        if spec.reads().is_empty() {
            self.new_ifiles(*job, spec);
        }
        self.event(*job, EventKind::JobSubmitted, *now_ns, Some(&spec.name));
        Ok(())
    }

    fn job_inputs(&mut self, job: JobId, spec: &JobSpec) -> Result<(), StoreError> {
        self.whole_specs.insert(job, json(spec)?);
        self.new_ifiles(job, spec);
        Ok(())
    }

    fn new_ifiles(&mut self, job: JobId, spec: &JobSpec) {
        for ifile in 0..if spec.kind.has_shuffle() { spec.layout.ifile_count } else { 0 } {
            self.ifiles.push([job.0.into(), ifile.into()]);
        }
    }

    fn job_ended(
        &mut self,
        job: JobId,
        state: JobState,
        exit_code: Option<i32>,
        error: Option<&str>,
        now_ns: u64,
    ) {
        let patch = self.jobs.entry(job).or_default();
        patch.state = Some(state);
        patch.exit_code = exit_code;
        patch.error = error.map(str::to_string);
        patch.ended_ns = Some(now_ns);
        // A failed or cancelled job still gets reports of its attempts. A process that finds a job interrupted, or
        // published by a process that died right then, writes its last change.
        if matches!(state, JobState::Interrupted | JobState::Succeeded) {
            self.jobs_left.insert(job, (now_ns, state == JobState::Succeeded));
        }
        if state.over() {
            self.jobs_over.push(job);
            self.needless.extend(self.stages_ended.remove(&job));
        }
        let kind = match state {
            JobState::Succeeded => EventKind::JobSucceeded,
            JobState::Failed => EventKind::JobFailed,
            JobState::Cancelled => EventKind::JobCancelled,
            JobState::Interrupted => EventKind::JobInterrupted,
            JobState::Running | JobState::Committing => EventKind::JobGoesOn,
        };
        self.event(job, kind, now_ns, error);
    }

    fn job_cleaned(&mut self, job: JobId, kept: Keep, now_ns: u64) {
        let patch = self.jobs.entry(job).or_default();
        patch.cleaned_ns = Some(now_ns);
        (patch.ifiles, patch.keep_until_ns) = match kept {
            Keep::Nothing => (None, None),
            Keep::ForGood => (Some(KeptFiles::Kept), None),
            Keep::Until(until) => (Some(KeptFiles::Kept), Some(until)),
        };
        let detail = patch.ifiles.map(|_| "its I-files are kept");
        // A job without directories is clean as soon as it ends.
        if patch.ended_ns.is_none() || detail.is_some() {
            self.event(job, EventKind::JobCleaned, now_ns, detail);
        }
    }

    fn stage_expanded(
        &mut self,
        job: JobId,
        stage: StageIndex,
        tasks: &[Task],
        now_ns: u64,
    ) -> Result<(), StoreError> {
        let patch = self.stages.entry((job, stage)).or_default();
        patch.state = Some(StageState::Running);
        patch.task_count = Some(tasks.len() as u64);
        patch.expanded_ns = Some(now_ns);
        for (index, task) in tasks.iter().enumerate() {
            let key = TaskKey { job, stage, task: ids::TaskIndex(index as u32) };
            self.new_tasks.insert(key, stored_spec::written_task(task)?);
        }
        // The first stage of a job with tasks needs no event: the submit says it.
        if !self.new_jobs.contains_key(&job) {
            let detail = format!("{} tasks", tasks.len());
            self.event(Subject::stage(job, stage), EventKind::StageExpanded, now_ns, Some(&detail));
        }
        Ok(())
    }

    fn task_split(
        &mut self,
        (key, task): (TaskKey, &Task),
        (added_key, added): (TaskKey, &Task),
    ) -> Result<(), StoreError> {
        self.new_tasks.insert(key, json(task)?);
        self.new_tasks.insert(added_key, json(added)?);
        let patch = self.stages.entry((key.job, key.stage)).or_default();
        patch.task_count = Some(u64::from(added_key.task.0) + 1);
        Ok(())
    }

    fn attempt_ended(&mut self, attempt: AttemptKey, end: End, failure: Option<&TaskFailure>) {
        let kind = match end.state {
            AttemptState::Running => EventKind::AttemptGoesOn,
            AttemptState::Succeeded => EventKind::AttemptSucceeded,
            AttemptState::Discarded => EventKind::AttemptDiscarded,
            AttemptState::Failed => EventKind::AttemptFailed,
            AttemptState::Cancelled => EventKind::AttemptCancelled,
            AttemptState::Interrupted => EventKind::AttemptInterrupted,
        };
        let detail = failure.map(|failure| failure.message.as_str());
        self.event(attempt, kind, end.ended_ns, detail);
        self.attempts.insert(attempt, end);
    }

    /// Writes everything: new rows first, from jobs down, after them changes, and last the history.
    pub async fn write(mut self, db: &mut Session<'_>) -> Result<(), sqlx::Error> {
        self.write_new(db).await?;
        self.data.write(db).await?;
        self.write_patches(db).await?;
        db.insert(
            "reports",
            "job, report",
            "ON CONFLICT (job) DO UPDATE SET report = excluded.report",
            self.reports,
        )
        .await?;
        sweep(db, &self.jobs_left, &self.jobs_over).await?;
        let columns = "time_ns, job, stage, task, attempt, kind, detail";
        let needless = self.needless;
        let events = self.events.into_iter().enumerate().filter(|(index, _)| !needless.contains(index));
        db.insert("events", columns, "", events.map(|(_, event)| event).collect()).await?;
        let columns = "time_ns, user_name, source, action, target, allowed, detail";
        db.insert("audit", columns, "", self.audit).await
    }

    /// Writes new rows; changes of them in the same batch are merged already.
    async fn write_new(&mut self, db: &mut Session<'_>) -> Result<(), sqlx::Error> {
        let new_jobs: BTreeSet<JobId> = self.new_jobs.keys().copied().collect();
        let (mut jobs, mut specs) = (Rows::default(), Rows::default());
        for (job, new) in std::mem::take(&mut self.new_jobs) {
            specs.push([job.0.into(), new.spec.into()]);
            jobs.push([
                job.0.into(),
                new.owner.into(),
                new.user.into(),
                new.priority.into(),
                new.name.into(),
                JobState::Running.word().into(),
                new.output.into(),
                new.staging.into(),
                new.disk_dirs.into(),
                new.created_ns.into(),
                self.jobs_started.remove(&job).into(),
                new.reduce_again.into(),
                Some(1_i64).filter(|_| new.waits).into(),
                new.step_of.as_ref().map(|of| of.job.0).into(),
                new.step_of.as_ref().map(|of| of.step.0).into(),
                new.step_of.as_ref().and_then(steps_beside).into(),
            ]);
        }
        db.insert("jobs", NEW_JOB_COLUMNS, "", jobs).await?;
        db.insert("specs", "job, spec", "", specs).await?;
        let stages = std::mem::take(&mut self.new_stages).into_iter().map(|((job, stage), kind)| {
            let patch = self.stages.remove(&(job, stage)).unwrap_or_default();
            [
                job.0.into(),
                stage.0.into(),
                kind.word().into(),
                patch.state.unwrap_or(StageState::Waiting).word().into(),
                patch.task_count.into(),
                patch.expanded_ns.into(),
                patch.ended_ns.into(),
            ]
        });
        let columns = "job, stage, name, state, task_count, expanded_ns, ended_ns";
        db.insert("stages", columns, "", stages.collect()).await?;
        for (job, spec) in std::mem::take(&mut self.whole_specs) {
            db.execute("UPDATE specs SET spec = $2 WHERE job = $1", [job.0.into(), spec.into()]).await?;
        }
        db.insert("ifiles", "job, ifile", "", std::mem::take(&mut self.ifiles)).await?;
        // Only a stage that runs again can have tasks already.
        let (mut tasks, mut tasks_again) = (Rows::default(), Rows::default());
        for (key, payload) in std::mem::take(&mut self.new_tasks) {
            let winner = self.tasks_done.remove(&key);
            let [job, stage, task] = task_values(key);
            let state = if winner.is_some() { TaskState::Done } else { TaskState::Waiting };
            let rows = if new_jobs.contains(&key.job) { &mut tasks } else { &mut tasks_again };
            rows.push([
                job,
                stage,
                task,
                state.word().into(),
                winner.map(|winner| winner.0).into(),
                payload.into(),
            ]);
        }
        let columns = "job, stage, task, state, winner, payload";
        db.insert("tasks", columns, "", tasks).await?;
        // Finished tasks are still valid; all others were deleted.
        let after = "ON CONFLICT (job, stage, task) DO UPDATE SET payload = excluded.payload, \
                     state = CASE WHEN tasks.winner IS NULL THEN excluded.state ELSE tasks.state END, \
                     winner = coalesce(tasks.winner, excluded.winner)";
        db.insert("tasks", columns, after, tasks_again).await?;
        self.write_new_attempts(db).await
    }

    async fn write_new_attempts(&mut self, db: &mut Session<'_>) -> Result<(), sqlx::Error> {
        let attempts = std::mem::take(&mut self.new_attempts).into_iter().map(|(key, start)| {
            let end = self.attempts.remove(&key);
            let end = end.as_ref();
            let [job, stage, task] = task_values(key.task);
            [
                job,
                stage,
                task,
                key.attempt.0.into(),
                start.node.0.into(),
                start.slot.into(),
                end.map_or(AttemptState::Running, |end| end.state).word().into(),
                start.assigned_ns.into(),
                end.map(|end| end.started_ns).into(),
                end.and_then(|end| end.opened_ns).into(),
                end.map(|end| end.ended_ns).into(),
                end.and_then(|end| end.failure.clone()).into(),
            ]
        });
        let columns = "job, stage, task, attempt, node, slot, state, assigned_ns, started_ns, opened_ns, ended_ns, failure";
        db.insert("attempts", columns, "", attempts.collect()).await
    }

    /// Writes changes of existing rows, each row once.
    async fn write_patches(&mut self, db: &mut Session<'_>) -> Result<(), sqlx::Error> {
        let started = self.jobs_started.iter().map(|(job, now_ns)| [job.0.into(), (*now_ns).into()]);
        let head = "UPDATE jobs SET started_ns = v.column2";
        db.update(head, "WHERE jobs.job = v.column1 AND jobs.started_ns IS NULL", started.collect()).await?;
        let stages = std::mem::take(&mut self.stages).into_iter().map(|((job, stage), patch)| {
            let (job, stage) = (job.0.into(), stage.0.into());
            let count = patch.task_count.into();
            [
                job,
                stage,
                patch.state.map(StageState::word).into(),
                count,
                patch.expanded_ns.into(),
                patch.ended_ns.into(),
            ]
        });
        let head = "UPDATE stages SET state = coalesce(v.column3, stages.state), \
                    task_count = coalesce(v.column4, stages.task_count), \
                    expanded_ns = coalesce(v.column5, stages.expanded_ns), \
                    ended_ns = coalesce(v.column6, stages.ended_ns)";
        let tail = "WHERE stages.job = v.column1 AND stages.stage = v.column2";
        db.update(head, tail, stages.collect()).await?;
        let tasks = self.tasks_done.iter().map(|(key, winner)| {
            let [job, stage, task] = task_values(*key);
            [job, stage, task, winner.0.into()]
        });
        let tail = "WHERE tasks.job = v.column1 AND tasks.stage = v.column2 AND tasks.task = v.column3";
        db.update("UPDATE tasks SET state = 'done', winner = v.column4", tail, tasks.collect()).await?;
        let attempts = std::mem::take(&mut self.attempts).into_iter().map(|(key, end)| {
            let [job, stage, task] = task_values(key.task);
            let (number, state) = (key.attempt.0.into(), end.state.word().into());
            let (started, opened) = (end.started_ns.into(), end.opened_ns.into());
            [job, stage, task, number, state, started, opened, end.ended_ns.into(), end.failure.into()]
        });
        let head = "UPDATE attempts SET state = v.column5, started_ns = v.column6, opened_ns = v.column7, \
                    ended_ns = v.column8, failure = v.column9";
        let tail = "WHERE attempts.job = v.column1 AND attempts.stage = v.column2 AND attempts.task = v.column3 \
                    AND attempts.attempt = v.column4";
        db.update(head, tail, attempts.collect()).await?;
        let jobs = std::mem::take(&mut self.jobs).into_iter().map(|(job, patch)| {
            let (code, error) = (patch.exit_code.into(), patch.error.into());
            let (ended, cleaned) = (patch.ended_ns.into(), patch.cleaned_ns.into());
            [
                job.0.into(),
                patch.state.map(JobState::word).into(),
                code,
                error,
                ended,
                cleaned,
                patch.ifiles.map(KeptFiles::word).into(),
                patch.keep_until_ns.into(),
            ]
        });
        let head = "UPDATE jobs SET state = coalesce(v.column2, jobs.state), \
                    exit_code = coalesce(v.column3, jobs.exit_code), error = coalesce(v.column4, jobs.error), \
                    ended_ns = coalesce(v.column5, jobs.ended_ns), cleaned_ns = coalesce(v.column6, jobs.cleaned_ns), \
                    ifiles = coalesce(v.column7, jobs.ifiles), keep_until_ns = coalesce(v.column8, jobs.keep_until_ns), \
                    waits = CASE WHEN v.column5 IS NULL THEN jobs.waits END";
        db.update(head, "WHERE jobs.job = v.column1", jobs.collect()).await
    }
}

fn task_values(key: TaskKey) -> [Value; 3] {
    [key.job.0.into(), key.stage.0.into(), key.task.0.into()]
}

/// Returns the stored form of the steps that run with that of a job.
fn steps_beside(of: &StepOf) -> Option<String> {
    let numbers: Vec<String> = of.beside.iter().map(|step| step.0.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(" "))
}

/// Ends the running attempts of jobs that get no more reports, and deletes the rows that are needed only for a restart.
async fn sweep(
    db: &mut Session<'_>,
    left: &BTreeMap<JobId, (u64, bool)>,
    over: &[JobId],
) -> Result<(), sqlx::Error> {
    let rows = || left.iter().map(|(job, (now_ns, _))| [job.0.into(), (*now_ns).into()]);
    let head = "UPDATE attempts SET state = 'interrupted', ended_ns = v.column2";
    db.update(head, "WHERE attempts.job = v.column1 AND attempts.state = 'running'", rows().collect())
        .await?;
    // If a job succeeded without a report of its last attempt, that attempt published it.
    let succeeded = left.iter().filter(|(_, (_, succeeded))| *succeeded).map(|(job, _)| [job.0.into()]);
    let head = "UPDATE tasks SET state = 'done'";
    db.update(head, "WHERE tasks.job = v.column1 AND tasks.state = 'waiting'", succeeded.collect()).await?;
    let over = over.iter().map(|job| [job.0.into()]).collect();
    db.delete_of_jobs("task_results", over).await
}
