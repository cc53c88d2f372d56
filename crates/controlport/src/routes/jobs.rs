//! Routes for users with jobs.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::Caller;
use crate::port::Port;
use crate::routes::of_others::{hide_in_outcome, hide_in_report, sees_all};
use crate::routes::stored_files::{BegunOutputs, CheckedInputs};
use api::control::{
    CancelRequest, ErrorCode, JobBatch, JobLogs, JobOutcome, JobProgress, JobSubmission, POLL_MS_MAX,
    SubmittedBatch, SubmittedJob, WaitAnswer,
};
use api::flow::{FlowSubmission, SubmittedFlow};
use api::fsck::{FsckAnswer, FsckRequest};
use api::kept::{GcAnswer, GcOptions, GcSelection};
use api::people::Role;
use api::{Blame, JobReport, JobSpec, TaskFailure};
use axum::extract::State;
use ids::JobId;
use metastore::{AttemptState, JobState};
use server::{ControlError, ServerError};
use std::path::Path;
use std::time::Duration;

#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "clients",
    request_body = JobSubmission,
    responses((status = 200, description = "The job is in the store", body = SubmittedJob), (status = "default", response = Refusal))
)]
pub(crate) async fn submit(
    State(port): State<Port>,
    caller: Caller,
    Message(submission): Message<JobSubmission>,
) -> Result<Message<SubmittedJob>, Problem> {
    to_the_end(submitted_job(port, caller, submission)).await
}

/// Lets a submit end also if its client breaks off: a job keeps its stored inputs and its output from the submit on.
async fn to_the_end<T: Send + 'static>(
    submit: impl Future<Output = Result<Message<T>, Problem>> + Send + 'static,
) -> Result<Message<T>, Problem> {
    let ended = tokio::spawn(submit).await;
    ended.unwrap_or_else(|_| Err(Problem::new(ErrorCode::Failed, "a thread of the server failed")))
}

async fn submitted_job(
    port: Port,
    caller: Caller,
    mut submission: JobSubmission,
) -> Result<Message<SubmittedJob>, Problem> {
    if let Some(source) = submission.spec.kind.source() {
        check_owner(&port, &caller, source).await?;
    }
    check_priority(&caller, submission.priority)?;
    check_replaces_own(&port, &caller, &submission.spec).await?;
    submission.user = caller.job_user(submission.user);
    let inputs = CheckedInputs::of(&port, &caller, &[&submission.spec]).await?;
    let (user, spec) = (submission.user.clone(), &mut submission.spec);
    let outputs = BegunOutputs::of(&port, &caller, &user, vec![spec]).await?;
    let submitted = port.server.submit_job(submission, &inputs.submitter(&caller)).await?;
    outputs.have_jobs([submitted.job]);
    inputs.keep_for([submitted.job]);
    Ok(Message(submitted))
}

#[utoipa::path(
    post,
    path = "/v1/flows",
    tag = "clients",
    request_body = FlowSubmission,
    responses((status = 200, description = "The stages are in the store, each a job", body = SubmittedFlow), (status = "default", response = Refusal))
)]
pub(crate) async fn submit_flow(
    State(port): State<Port>,
    caller: Caller,
    Message(flow): Message<FlowSubmission>,
) -> Result<Message<SubmittedFlow>, Problem> {
    to_the_end(submitted_flow(port, caller, flow)).await
}

async fn submitted_flow(
    port: Port,
    caller: Caller,
    mut flow: FlowSubmission,
) -> Result<Message<SubmittedFlow>, Problem> {
    for source in flow.stages.iter().filter_map(|stage| stage.spec.kind.source()) {
        check_owner(&port, &caller, source).await?;
    }
    check_priority(&caller, flow.priority)?;
    for stage in &flow.stages {
        check_replaces_own(&port, &caller, &stage.spec).await?;
    }
    flow.user = caller.job_user(flow.user);
    let specs: Vec<&JobSpec> = flow.stages.iter().map(|stage| &stage.spec).collect();
    let inputs = CheckedInputs::of(&port, &caller, &specs).await?;
    let user = flow.user.clone();
    let specs = flow.stages.iter_mut().map(|stage| &mut stage.spec).collect();
    let outputs = BegunOutputs::of(&port, &caller, &user, specs).await?;
    let submitted = port.server.submit_stages(flow, &inputs.submitter(&caller)).await?;
    outputs.have_jobs(submitted.jobs.iter().map(|stage| stage.job));
    inputs.keep_for(submitted.jobs.iter().map(|stage| stage.job));
    Ok(Message(submitted))
}

/// Returns an error for a priority above 0 from anybody but an administrator; each user may lower the priority of a
/// job.
fn check_priority(caller: &Caller, priority: i32) -> Result<(), Problem> {
    match caller.role == Role::Admin || priority <= 0 {
        true => Ok(()),
        false => {
            let message = format!(
                "the priority {priority} is above 0, which only administrators may give: leave it out, or lower it"
            );
            Err(Problem::new(ErrorCode::Forbidden, message))
        }
    }
}

/// Returns an error for a job whose output would replace an output of another user.
async fn check_replaces_own(port: &Port, caller: &Caller, spec: &JobSpec) -> Result<(), Problem> {
    if caller.role == Role::Admin {
        return Ok(());
    }
    let Some(replaced) = port.server.replaced_job(spec, caller.owner_name()).await? else { return Ok(()) };
    // The report may be a copy, or from another server.
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let row = port.store.job(replaced).await?;
    let row = row.filter(|row| resolved(Path::new(&row.output)) == resolved(&spec.output));
    if row.is_some_and(|row| row.user.as_deref() == caller.user.as_deref()) {
        return Ok(());
    }
    let message = format!(
        "the output {} is not yours as far as this server knows: --overwrite replaces only your own outputs; choose another, or ask an administrator",
        spec.output.display()
    );
    Err(Problem::new(ErrorCode::Forbidden, message))
}

/// Returns an error for a job of another user, or one that reads kept data of such a job; administrators may access
/// all. The caller handles an unknown job.
pub(crate) async fn check_owner(port: &Port, caller: &Caller, job: JobId) -> Result<(), Problem> {
    if caller.role == Role::Admin || caller.program_of == Some(job) {
        return Ok(());
    }
    let is_hidden = port.hides_from(caller);
    let mut next = Some(job);
    while let Some(job) = next {
        let row = port.store.job(job).await?;
        if is_hidden && row.as_ref().is_none_or(|row| row.user.as_deref() != caller.user.as_deref()) {
            return Err(ControlError::UnknownJob { job }.into());
        }
        let Some(row) = row else { return Ok(()) };
        if row.user.as_deref() != caller.user.as_deref() {
            let message = format!("job {job} belongs to another user");
            return Err(Problem::new(ErrorCode::Forbidden, message));
        }
        // A source is an older job.
        next = row.reduce_again.filter(|source| *source < job);
    }
    Ok(())
}

#[utoipa::path(
    post,
    path = "/v1/gc",
    tag = "clients",
    request_body = GcOptions,
    responses((status = 200, description = "The outcome for the kept files of each selected job; a user may remove only their own", body = GcAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn collect(
    State(port): State<Port>,
    caller: Caller,
    Message(options): Message<GcOptions>,
) -> Result<Message<GcAnswer>, Problem> {
    if let GcSelection::Jobs(jobs) = &options.selection {
        for job in jobs {
            check_owner(&port, &caller, *job).await?;
        }
    }
    let only_of = match caller.role {
        Role::Admin => None,
        _ => Some(caller.owner_name().to_string()),
    };
    Ok(Message(port.server.collect(options, only_of).await?))
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/fsck",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = FsckRequest,
    responses((status = 200, description = "The progress of the check of the job's kept I-files, and at its end the report", body = FsckAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn fsck(
    State(port): State<Port>,
    caller: Caller,
    Named(job): Named<i64>,
    Message(request): Message<FsckRequest>,
) -> Result<Message<FsckAnswer>, Problem> {
    let job = JobId(job);
    check_owner(&port, &caller, job).await?;
    Ok(Message(port.server.fsck(job, request.check).await?))
}

#[utoipa::path(
    post,
    path = "/v1/jobs/batch",
    tag = "clients",
    request_body = JobBatch,
    responses((status = 200, description = "The jobs are in the store", body = SubmittedBatch), (status = "default", response = Refusal))
)]
pub(crate) async fn submit_batch(
    State(port): State<Port>,
    caller: Caller,
    Message(batch): Message<JobBatch>,
) -> Result<Message<SubmittedBatch>, Problem> {
    to_the_end(submitted_batch(port, caller, batch)).await
}

async fn submitted_batch(
    port: Port,
    caller: Caller,
    mut batch: JobBatch,
) -> Result<Message<SubmittedBatch>, Problem> {
    check_priority(&caller, batch.priority)?;
    batch.user = caller.job_user(batch.user);
    let inputs = CheckedInputs::of_tasks(&port, &caller, &batch.tasks).await?;
    let submitted = port.server.submit_jobs(batch, &inputs.submitter(&caller)).await?;
    let SubmittedBatch { first, count } = submitted;
    inputs.keep_for((0..i64::from(count)).map(|index| JobId(first.0 + index)));
    Ok(Message(submitted))
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/logs",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    responses((status = 200, description = "The output of the program of a job of one task, or its output so far", body = JobLogs), (status = "default", response = Refusal))
)]
pub(crate) async fn logs(
    State(port): State<Port>,
    Named(job): Named<i64>,
) -> Result<Message<JobLogs>, Problem> {
    let job = JobId(job);
    let row = port.store.job(job).await?.ok_or_else(|| Problem::from(ControlError::UnknownJob { job }))?;
    if !row.state.over()
        && let Some(said) = port.server.job_said(job).await?
    {
        return Ok(Message(said));
    }
    Ok(Message(server::job_logs(&port.store, job, row.state).await?))
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/wait",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    responses((status = 200, description = "The outcome of the job, or nothing if it has not ended within five seconds", body = WaitAnswer), (status = "default", response = Refusal))
)]
pub(crate) async fn wait(
    State(port): State<Port>,
    caller: Caller,
    Named(job): Named<i64>,
) -> Result<Message<WaitAnswer>, Problem> {
    let job = JobId(job);
    let held = tokio::time::timeout(Duration::from_millis(POLL_MS_MAX), port.server.wait_job(job)).await;
    let mut outcome = match held {
        Err(_) => None,
        Ok(Ok(outcome)) => Some(outcome),
        // It may have ended before this server began.
        Ok(Err(ServerError::Control(ControlError::UnknownJob { .. }))) => {
            Some(past_outcome(&port, job).await?)
        }
        Ok(Err(error)) => return Err(error.into()),
    };
    if let Some(outcome) = &mut outcome
        && !sees_all_of(&port, &caller, job).await?
    {
        hide_in_outcome(outcome);
    }
    Ok(Message(WaitAnswer { outcome }))
}

async fn sees_all_of(port: &Port, caller: &Caller, job: JobId) -> Result<bool, Problem> {
    // Administrators see all, and this question is very frequent.
    if sees_all(caller, None) {
        return Ok(true);
    }
    let row = port.store.job(job).await?;
    Ok(sees_all(caller, row.and_then(|row| row.user).as_deref()))
}

/// Returns the outcome of a job that only the store has.
async fn past_outcome(port: &Port, job: JobId) -> Result<JobOutcome, Problem> {
    let row = port.store.job(job).await?.filter(|row| row.state.over());
    let row = row.ok_or_else(|| Problem::from(ControlError::UnknownJob { job }))?;
    let message = row.error.unwrap_or_default();
    Ok(match row.state {
        JobState::Succeeded => {
            let report = port.store.job_report(job).await?;
            // A job of one task has no report.
            report.map_or(JobOutcome::Done, |report| JobOutcome::Succeeded(Box::new(report)))
        }
        JobState::Cancelled => JobOutcome::Cancelled { reason: message },
        _ => {
            let attempts = port.store.attempts(job).await?;
            let failed = attempts.into_iter().filter(|row| row.state == AttemptState::Failed);
            let last = failed.max_by_key(|row| row.ended_ns);
            let attempt = last.as_ref().map(|row| row.attempt);
            let failure = last.and_then(|row| row.failure);
            let failure = failure.unwrap_or_else(|| TaskFailure::new(Blame::Environment, message));
            JobOutcome::Failed { failure, attempt, exit_code: row.exit_code.unwrap_or(1) }
        }
    })
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/progress",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    responses((status = 200, description = "The progress of the stages of a job of this server", body = JobProgress), (status = "default", response = Refusal))
)]
pub(crate) async fn progress(
    State(port): State<Port>,
    Named(job): Named<i64>,
) -> Result<Message<JobProgress>, Problem> {
    let job = JobId(job);
    if let Some(progress) = port.server.progress(job) {
        return Ok(Message(progress));
    }
    // A job behind very many others of its user is in no stage yet.
    match port.store.job(job).await? {
        Some(row) if !row.state.over() => Ok(Message(JobProgress::default())),
        _ => Err(ControlError::UnknownJob { job }.into()),
    }
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/cancel",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = CancelRequest,
    responses((status = 200, description = "The job is told to stop, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn cancel(
    State(port): State<Port>,
    Named(job): Named<i64>,
    Message(request): Message<CancelRequest>,
) -> Result<Message<()>, Problem> {
    let job = JobId(job);
    if port.store.job(job).await?.is_none() {
        return Err(ControlError::UnknownJob { job }.into());
    }
    port.server.cancel_job(job, request.reason).await?;
    Ok(Message(()))
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/report",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    responses((status = 200, description = "The report of a job that has succeeded", body = JobReport), (status = "default", response = Refusal))
)]
pub(crate) async fn report(
    State(port): State<Port>,
    caller: Caller,
    Named(job): Named<i64>,
) -> Result<Message<JobReport>, Problem> {
    let missing = || Problem::new(ErrorCode::NotFound, format!("there is no report of a job {job}"));
    let mut report = port.store.job_report(JobId(job)).await?.ok_or_else(missing)?;
    if !sees_all_of(&port, &caller, JobId(job)).await? {
        hide_in_report(&mut report);
    }
    Ok(Message(report))
}
