//! Routes for reading the stored history.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::Caller;
use crate::port::Port;
use crate::routes::of_others::{hide_in_details, hide_in_row, sees_all};
use api::console::ConsoleQuestion;
use api::control::ErrorCode;
use api::history::lineage::{Lineage, LineageQuestion};
use api::history::{JobDetails, JobList, JobState, JobsQuestion, Limit, StateQuestion, Table};
use api::placement::JobPlacements;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use ids::JobId;
use server::ControlError;
use std::time::Duration;

/// Maximum number of jobs, events or rows of an answer, so that it is never much larger than a person can read.
const ROWS_MAX: u32 = 100_000;
/// Longest time of a statement; a longer one would delay the store's work for jobs.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(10);

type Asked = Result<Query<Limit>, QueryRejection>;

#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "clients",
    params(("limit" = Option<u32>, Query, description = "Jobs to list; the default is 20"),
        ("state" = Option<JobState>, Query, description = "Only jobs in this state"),
        ("user" = Option<String>, Query, description = "Only jobs of this user"),
        ("name" = Option<String>, Query, description = "Only jobs whose names contain this"),
        ("steps_of" = Option<i64>, Query, description = "The steps of this job, in place of jobs that are no steps")),
    responses((status = 200, description = "The latest jobs, newest first, and how many others there are", body = JobList),
        (status = "default", response = Refusal))
)]
pub(crate) async fn list(
    State(port): State<Port>,
    caller: Caller,
    question: Result<Query<JobsQuestion>, QueryRejection>,
) -> Result<Message<JobList>, Problem> {
    let Query(question) = question.map_err(|error| Problem::new(ErrorCode::BadRequest, error.body_text()))?;
    let limit = question.limit.map(|limit| limit.min(ROWS_MAX));
    let is_own = |user: &str| !user.is_empty() && caller.user.as_deref() == Some(user);
    let user = match question.user {
        user if !port.hides_from(&caller) => user,
        None => Some(caller.owner_name().to_string()),
        user => user,
    };
    if port.hides_from(&caller) && !user.as_deref().is_some_and(is_own) {
        return Ok(Message(JobList::default()));
    }
    let mut list = port.store.list_jobs(&JobsQuestion { limit, user, ..question }).await?;
    let of_others = list.jobs.iter_mut().filter(|row| !sees_all(&caller, row.user.as_deref()));
    of_others.for_each(hide_in_row);
    Ok(Message(list))
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job"),
        ("limit" = Option<u32>, Query, description = "Number of events, the latest ones; the default is 20")),
    responses((status = 200, description = "Everything about a job except its report", body = JobDetails),
        (status = "default", response = Refusal))
)]
pub(crate) async fn details(
    State(port): State<Port>,
    caller: Caller,
    Named(job): Named<i64>,
    limit: Asked,
) -> Result<Message<JobDetails>, Problem> {
    let details = port.store.job_details(JobId(job), rows_max(limit)?).await?;
    let mut details = details.ok_or_else(|| Problem::from(ControlError::UnknownJob { job: JobId(job) }))?;
    if !sees_all(&caller, details.job.user.as_deref()) {
        hide_in_details(&mut details);
    }
    Ok(Message(details))
}

async fn known_job(port: &Port, job: i64) -> Result<JobId, Problem> {
    let job = JobId(job);
    match port.store.job(job).await? {
        Some(_) => Ok(job),
        None => Err(ControlError::UnknownJob { job }.into()),
    }
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/placements",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of the job")),
    responses((status = 200, description = "The attempts of a job, with the reasons for their placement", body = JobPlacements),
        (status = "default", response = Refusal))
)]
pub(crate) async fn placements(
    State(port): State<Port>,
    Named(job): Named<i64>,
) -> Result<Message<JobPlacements>, Problem> {
    let job = known_job(&port, job).await?;
    let placements = server::job_placements(&port.store, job).await?;
    Ok(Message(JobPlacements { waits_for: port.server.job_waits_for(job).await?, ..placements }))
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/runs",
    tag = "clients",
    params(("job" = i64, Path, description = "Number of a job with steps")),
    responses((status = 200, description = "The remembered runs of its steps, with their files", body = Lineage),
        (status = "default", response = Refusal))
)]
pub(crate) async fn runs(
    State(port): State<Port>,
    Named(job): Named<i64>,
) -> Result<Message<Lineage>, Problem> {
    let job = known_job(&port, job).await?;
    Ok(Message(server::runs_of_steps(&port.store, job).await?))
}

#[utoipa::path(
    post,
    path = "/v1/lineage",
    tag = "clients",
    request_body = LineageQuestion,
    responses((status = 200, description = "The finished runs behind a file, or those that read it", body = Lineage),
        (status = "default", response = Refusal))
)]
pub(crate) async fn lineage(
    State(port): State<Port>,
    caller: Caller,
    Message(question): Message<LineageQuestion>,
) -> Result<Message<Lineage>, Problem> {
    let user = port.hides_from(&caller).then(|| caller.owner_name());
    Ok(Message(server::lineage(&port.store, user, &question).await?))
}

#[utoipa::path(
    post,
    path = "/v1/state",
    tag = "clients",
    request_body = StateQuestion,
    responses((status = 200, description = "The rows of a read-only statement", body = Table),
        (status = "default", response = Refusal))
)]
pub(crate) async fn ask(
    State(port): State<Port>,
    caller: Caller,
    Message(question): Message<StateQuestion>,
) -> Result<Message<Table>, Problem> {
    if port.hides_from(&caller) {
        let message = "this server is private: only administrators may ask in SQL, because the tables have rows of all users";
        return Err(Problem::new(ErrorCode::Forbidden, message));
    }
    let program = port
        .access
        .console
        .ok_or_else(|| Problem::new(ErrorCode::Refused, "this server answers no questions of SQL"))?;
    let question = ConsoleQuestion {
        database: port.store.console_database(),
        statement: question.statement,
        rows_max: question.rows_max.min(ROWS_MAX) as usize,
        time_max_ms: QUESTION_TIME_MAX.as_millis() as u64,
    };
    Ok(Message(port.console.ask(program, &question).await?))
}

fn rows_max(limit: Asked) -> Result<u32, Problem> {
    let Query(limit) = limit.map_err(|error| Problem::new(ErrorCode::BadRequest, error.body_text()))?;
    Ok(limit.limit.unwrap_or(20).min(ROWS_MAX))
}
