//! `sailfish jobs`: past and current jobs with their outcomes.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{self, counted};
use crate::show::tables::{left, right, table};
use crate::show::terminal::{print, tell};
use api::history::{JobList, JobsQuestion, MORE_JOBS_MAX};
use clap::Args;
use ids::JobId;
use jobspec::state_dir;
use metastore::{JobRow, JobState, KeptFiles};
use serde_json::{Value, json};
use server::kept_bytes;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// Maximum number of jobs to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// Only jobs in this state: running, committing, succeeded, failed, cancelled or interrupted
    #[arg(long, value_name = "STATE", value_parser = job_state)]
    pub job_state: Option<JobState>,
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only jobs whose names contain this text
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The steps of this job, in place of jobs that are no steps
    #[arg(long, value_name = "JOB")]
    pub steps_of: Option<i64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses the state of jobs to list.
fn job_state(word: &str) -> Result<JobState, String> {
    JobState::parse(word).ok_or_else(|| {
        "give running, committing, succeeded, failed, cancelled or interrupted; a state directory is \
         given by --state"
            .to_string()
    })
}

/// Prints the latest jobs, newest first, and the number of other matches.
pub fn run(args: &JobsArgs) -> Result<(), Failure> {
    let question = JobsQuestion {
        limit: Some(args.limit),
        state: args.job_state,
        user: args.user.clone(),
        name: args.name.clone(),
        steps_of: args.steps_of.map(JobId),
    };
    let (list, place) = match args.state.connection()? {
        Some(connection) => {
            let list = connection.run(async |client| client.list_jobs(&question).await);
            (list.map_err(Failure::from_client)?, args.state.server.clone().unwrap_or_default())
        }
        None => of_this_machine(args, &question)?,
    };
    let JobList { jobs: rows, more } = list;
    if args.json {
        let list: Vec<serde_json::Value> = rows.iter().map(as_json).collect();
        let text = serde_json::to_string_pretty(&list).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let is_filtered = JobsQuestion { limit: None, ..question.clone() } != JobsQuestion::default();
    if rows.is_empty() && more == 0 {
        let which = if is_filtered { "no matching job" } else { "no job" };
        return Ok(print(&format!("{which} has run in {place}\n"))?);
    }
    print(&render(&rows, now_ns()))?;
    if more > 0 {
        // Scripts read the table to its end.
        let at_least = if more >= MORE_JOBS_MAX { "at least " } else { "" };
        let are = if more == 1 { "is" } else { "are" };
        tell(&format!("sailfish: {at_least}{} {are} not shown (--limit N)", counted(more, "older job")));
    }
    Ok(())
}

/// Returns the rows, and the searched directory.
fn of_this_machine(args: &JobsArgs, question: &JobsQuestion) -> Result<(JobList, String), Failure> {
    let given = args.state.state.as_deref();
    let state_dir = state_dir::state_dir(given).map_err(Failure::refused)?;
    let list = match store::exists(&state_dir) {
        true => store::look(given, async |store| Ok(store.list_jobs(question).await?))?,
        false => JobList::default(),
    };
    Ok((list, state_dir.display().to_string()))
}

fn render(rows: &[JobRow], now_ns: u64) -> String {
    let kept: Vec<Option<String>> = rows.iter().map(kept_text).collect();
    let mut columns =
        vec![right("job"), left("name"), left("state"), left("started"), right("took"), left("output")];
    // Most jobs keep nothing; the column is left out if it is empty.
    let any_kept = kept.iter().any(Option::is_some);
    if any_kept {
        columns.push(left("I-files"));
    }
    let cells = |(row, kept): (&JobRow, Option<String>)| {
        let mut cells = vec![
            row.job.to_string(),
            escape::cell(&row.name),
            state_text(row),
            quantity::date_and_time(row.started_ns.unwrap_or(row.created_ns)),
            took(row, now_ns).map(quantity::seconds).unwrap_or_default(),
            escape::cell(&row.output.to_string_lossy()),
        ];
        if any_kept {
            cells.push(kept.unwrap_or_default());
        }
        cells
    };
    table(&columns, rows.iter().zip(kept).map(cells).collect())
}

/// Returns the size of the kept intermediate data and its end; None if nothing is kept.
pub fn kept_text(row: &JobRow) -> Option<String> {
    let state = row.kept_files.filter(|state| *state != KeptFiles::Removed)?;
    Some(match (state, kept_bytes(&row.disk_dirs).or(row.kept_bytes), row.keep_until_ns) {
        (KeptFiles::Removing, ..) => "being removed".to_string(),
        (_, None, _) => "gone".to_string(),
        (_, Some(size), None) => quantity::bytes(size),
        (_, Some(size), Some(until_ns)) => {
            format!("{} until {}", quantity::bytes(size), quantity::date_and_time(until_ns))
        }
    })
}

/// Returns the state, with the exit code if that says more.
pub fn state_text(row: &JobRow) -> String {
    match row.exit_code {
        Some(code) if row.state == metastore::JobState::Failed => format!("failed ({code})"),
        _ => row.state.word().to_string(),
    }
}

/// Returns seconds from the start to the end, or to now; None for a job whose owner died.
pub fn took(row: &JobRow, now_ns: u64) -> Option<f64> {
    let start_ns = row.started_ns.unwrap_or(row.created_ns);
    let end_ns = row.ended_ns.or_else(|| (!row.state.over()).then_some(now_ns))?;
    Some(quantity::seconds_between(start_ns, end_ns))
}

/// Returns nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn kept_size(row: &JobRow) -> Option<Value> {
    row.kept_files.filter(|state| *state != KeptFiles::Removed)?;
    kept_bytes(&row.disk_dirs).or(row.kept_bytes).map(Value::from)
}

fn as_json(row: &JobRow) -> serde_json::Value {
    json!({
        "job": row.job,
        "name": row.name,
        "state": row.state.word(),
        "output": row.output.to_string_lossy(),
        "owner": row.owner,
        "exit_code": row.exit_code,
        "error": row.error,
        "created_ns": row.created_ns,
        "started_ns": row.started_ns,
        "ended_ns": row.ended_ns,
        "reduce_again": row.reduce_again,
        "step_of": row.step_of.as_ref().map(|of| of.job),
        "ifiles": row.kept_files.map(KeptFiles::word),
        "ifile_bytes": kept_size(row),
        "keep_until_ns": row.keep_until_ns,
    })
}
