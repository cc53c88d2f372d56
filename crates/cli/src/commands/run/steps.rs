//! Jobs with steps: `sailfish submit --kind`, `sailfish workflow run`.

use crate::commands::run::submit::{SubmitArgs, on_this_machine, print_logs, said_code};
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::{remote, store};
use crate::exit::Failure;
use crate::options::connect::Site;
use crate::show::quantity;
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::control::{JobOutcome, JobSubmission};
use api::history::{EventKind, EventRow, JobsQuestion};
use api::job::resources::GenericResources;
use api::{JobSpec, JsonText, SteppedKind};
use client::Blocking;
use ids::JobId;
use metastore::{JobRow, JobState, Metastore};
use std::path::{Path, PathBuf};

/// Maximum number of steps whose output is printed.
const STEPS_PRINTED_MAX: u32 = 1_000;

/// Maximum number of events that are read of a job: the reasons for its steps are among the latest.
const EVENTS_MAX: u32 = 10_100;

/// Returns the question for the steps of a job.
pub fn of_job(job: JobId) -> JobsQuestion {
    JobsQuestion { limit: Some(STEPS_PRINTED_MAX), steps_of: Some(job), ..JobsQuestion::default() }
}

/// Submits a job with steps. On this machine it is run to its end.
pub fn run(args: &SubmitArgs, state_dir: PathBuf, kind: &str, spec: &Path) -> Result<(), Failure> {
    let name = args.name.clone().unwrap_or_else(|| kind.to_string());
    let steps = SteppedKind { kind: kind.to_string(), spec: read(spec).map_err(Failure::refused)? };
    let spec = JobSpec::of_steps(name, steps);
    let site = args.server.clone().map(|url| Site { url, credentials: args.credentials.clone() });
    let target = Target { priority: args.priority, waits: args.wait, ..Target::at(site, state_dir)? };
    submit(&target, spec).map(drop)
}

/// The place of a run.
pub struct Target {
    /// The server with its credentials; None: this machine.
    pub site: Option<Site>,
    /// None: this machine.
    pub connection: Option<Blocking>,
    pub state_dir: PathBuf,
    pub priority: i32,
    /// Slots of this machine; None: its cores.
    pub slots: Option<u32>,
    /// Generic resources of this machine.
    pub resources: GenericResources,
    /// True: the command waits for the end of the job. On this machine it always does.
    pub waits: bool,
}

impl Target {
    /// Returns a server, or without one this machine.
    pub fn at(site: Option<Site>, state_dir: PathBuf) -> Result<Self, Failure> {
        let connection = site.as_ref().map(Site::connect).transpose()?;
        Ok(Self {
            site,
            connection,
            state_dir,
            priority: 0,
            slots: None,
            resources: GenericResources::default(),
            waits: true,
        })
    }
}

/// Submits a job with steps. Returns its number.
pub fn submit(target: &Target, mut spec: JobSpec) -> Result<JobId, Failure> {
    let front_end = CommandLineFrontEnd { site: target.site.as_ref() };
    // On this machine its pins keep the stored files until the job is over.
    let _pins =
        jobspec::pin_inputs_of_steps(&front_end, &target.state_dir, &mut spec).map_err(Failure::refused)?;
    if let Some(connection) = &target.connection {
        return on_cluster(connection, target, spec);
    }
    let jobs = on_this_machine(&target.state_dir, target.slots, target.resources.clone(), |server| {
        Ok(vec![server.submit(spec, Vec::new())?.job])
    })?;
    Ok(*jobs.first().context("the job has no number")?)
}

/// Prints the reason of a failed step.
pub fn tell_failure(step: &JobRow) {
    if let Some(error) = step.error.as_ref().filter(|_| step.state == JobState::Failed) {
        tell(&format!("sailfish: the step {:?} (job {}) failed: {error}", step.name, step.job));
    }
}

/// Returns the latest events of a job.
pub fn events(target: &Target, job: JobId) -> Result<Vec<EventRow>, Failure> {
    if let Some(connection) = &target.connection {
        let details = connection.run(async |client| client.job(job, EVENTS_MAX).await);
        return Ok(details.map_err(Failure::from_client)?.events);
    }
    let read = async {
        let store = Metastore::open(&target.state_dir).await.map_err(Failure::refused)?;
        Ok(store.events(job, EVENTS_MAX).await?)
    };
    store::run(read)?
}

/// Returns the end of a sentence about steps for which finished runs stood.
pub fn skipped(events: &[EventRow]) -> String {
    let mut counts = events.iter().filter(|event| event.kind == EventKind::StepsSkipped);
    let count = counts.next_back().and_then(|event| event.detail.as_deref());
    let count = count.and_then(|count| count.parse().ok()).map(quantity::count);
    count.map_or(String::new(), |count| format!(", {count} of them skipped: nothing changed for them"))
}

fn read(path: &Path) -> anyhow::Result<JsonText> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    JsonText::of_text(text).with_context(|| format!("reading {} as JSON", path.display()))
}

fn on_cluster(connection: &Blocking, target: &Target, spec: JobSpec) -> Result<JobId, Failure> {
    let user = std::env::var("USER").unwrap_or_default();
    let submission = JobSubmission { spec, splits: Vec::new(), user, priority: target.priority };
    let submitted = connection.run(async |client| client.submit(&submission).await);
    let job = submitted.map_err(Failure::from_client)?.job;
    print(&format!("{job}\n"))?;
    if !target.waits {
        return Ok(job);
    }
    let outcome = remote::wait_or_leave(connection, job)?;
    let list = connection.run(async |client| client.list_jobs(&of_job(job)).await);
    let steps = list.map_err(Failure::from_client)?.jobs;
    let has_succeeded = matches!(outcome, JobOutcome::Succeeded(_) | JobOutcome::Done);
    for step in steps.iter().rev() {
        print_logs(
            &connection.run(async |client| client.logs(step.job).await).map_err(Failure::from_client)?,
        )?;
        // A step whose lost input was made again has failed once.
        if !has_succeeded {
            tell_failure(step);
        }
    }
    let is_unseen = |error: &String| error.contains("--allow-root") || error.ends_with("does not exist");
    let reason = match &outcome {
        JobOutcome::Failed { failure, .. } => Some(&failure.message),
        _ => None,
    };
    if steps.iter().filter_map(|step| step.error.as_ref()).chain(reason).any(is_unseen) && !has_succeeded {
        tell(
            "sailfish: if the nodes do not see the files of this machine: `workflow run --upload` puts them into the cluster",
        );
    }
    said_code(connection, job, &outcome).map_or(Ok(job), |code| Err(Failure::said(code)))
}
