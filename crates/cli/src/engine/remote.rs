//! A job of a cluster: submitted over HTTP, watched and awaited.

use crate::engine::interrupt::{Interrupt, leave_with};
use crate::engine::phases::{Phase, phases};
use crate::engine::progress::{self, Display};
use crate::engine::{Ended, shipping};
use crate::exit::{Failure, GOES_ON};
use crate::options::connect::{Site, hint};
use crate::show::quantity::seconds;
use crate::show::terminal::tell;
use api::JobReport;
use api::control::{JobOutcome, JobProgress, JobSubmission};
use api::kept::KeptPlace;
use client::{Blocking, ClientError};
use ids::{JobId, StageKind};
use jobspec::Plan;
use node::NodeProgress;
use program::Programs;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Runs a job. Returns when it is over.
pub fn execute(site: &Site, mut plan: Plan, display: Display) -> Result<Ended, Failure> {
    let interrupt = Interrupt::listen(Arc::new(Programs::new()))?;
    let connection = Arc::new(site.connect()?);
    let begin = Instant::now();
    shipping::ship_job(&connection, &mut plan.spec)?;
    let submission = JobSubmission {
        spec: plan.spec.clone(),
        splits: plan.splits,
        user: std::env::var("USER").unwrap_or_default(),
        priority: 0,
    };
    let submitted = connection.run(async |client| client.submit(&submission).await);
    let submitted = submitted.map_err(Failure::from_client)?;
    let job = submitted.job;
    interrupt.goes_on(goes_on(&site.url, job));
    let (cancelling, interrupted) = (Arc::clone(&connection), interrupt.clone());
    interrupt.aim(Arc::new(move || {
        match cancelling.run(async |client| client.cancel(job, "stopped by a signal").await) {
            Ok(()) => interrupted.ends_here(),
            Err(error) => tell_not_stopped(&error),
        }
    }));
    let (stop, stopped) = mpsc::sync_channel(1);
    let input_bytes = plan.spec.input_bytes();
    let outcome = std::thread::scope(|scope| {
        let look = || {
            let progress = connection.run(async |client| client.progress(job).await);
            estimated_phases(&progress.unwrap_or_default(), input_bytes)
        };
        scope.spawn(move || progress::show(display, look, &stopped));
        let outcome = wait_for(&connection, job);
        // The display may have ended already.
        let _ = stop.send(());
        outcome
    });
    interrupt.disarm();
    let outcome = outcome?;
    let elapsed = begin.elapsed();
    let kept = if plan.spec.keep_ifiles { kept_by_nodes(&connection, site, job)? } else { Vec::new() };
    let server = Some(site.url.clone());
    Ok(Ended { submitted, outcome, spec: plan.spec, server, kept, elapsed, interrupt })
}

/// Returns the locations of the kept I-files of a job on nodes, or a note that they are not kept.
fn kept_by_nodes(connection: &Blocking, site: &Site, job: JobId) -> Result<Vec<String>, Failure> {
    let details = connection.run(async |client| client.job(job, 0).await).map_err(Failure::from_client)?;
    if details.job.kept_files.is_none() {
        return Ok(vec![format!("not kept: {} says why", hint(&format!("show {job}"), Some(&site.url)))]);
    }
    let text = |place: KeptPlace| format!("{} on {}", place.dir.path.display(), place.node_name);
    Ok(details.kept.into_iter().map(text).collect())
}

/// Waits for a job that goes on when a signal ends this process.
pub fn wait_or_leave(connection: &Blocking, job: JobId) -> Result<JobOutcome, Failure> {
    let url = connection.run(async |client| client.url().to_string());
    let [wait, cancel] = ["wait", "cancel"].map(|command| hint(&format!("{command} {job}"), Some(&url)));
    let last_words =
        format!("sailfish: job {job} goes on on the server; {wait} waits for it, {cancel} stops it");
    leave_with(Some(last_words))?;
    let outcome = wait_for(connection, job);
    leave_with(None)?;
    outcome
}

/// Waits for a job of a cluster, and reports an outage of the server.
pub fn wait_for(connection: &Blocking, job: JobId) -> Result<JobOutcome, Failure> {
    let url = connection.run(async |client| client.url().to_string());
    let silent = |silence: Duration, error: &ClientError| {
        let silence = seconds(silence.as_secs_f64());
        tell(&format!(
            "sailfish: no server has answered at {url} for {silence}; waiting for job {job} ({error})"
        ));
    };
    let outcome = connection.run(async |client| client.wait_telling(job, silent).await);
    outcome.map_err(|error| match error.may_pass() {
        true => {
            tell(&format!("sailfish: {error}"));
            tell(&goes_on(&url, job));
            Failure::said(GOES_ON)
        }
        false => Failure::from_client(error),
    })
}

/// Returns the last message about a job that is no longer awaited.
fn goes_on(url: &str, job: JobId) -> String {
    format!("sailfish: job {job} continues; {} waits for it", hint(&format!("wait {job}"), Some(url)))
}

fn tell_not_stopped(error: &client::ClientError) {
    crate::show::terminal::tell(&format!("sailfish: the job could not be stopped: {error}"));
}

/// Estimates the phases from the finished tasks, as if each had an equal share of the input and data did not grow or
/// shrink: only the nodes know the bytes.
fn estimated_phases(job: &JobProgress, input_bytes: u64) -> Vec<Phase> {
    let done_bytes = |kinds: &[StageKind]| {
        let stages = || job.stages.iter().filter(|stage| kinds.contains(&stage.kind));
        let tasks: u64 = stages().map(|stage| u64::from(stage.tasks)).sum();
        let done: u64 = stages().map(|stage| u64::from(stage.done)).sum();
        let share = u128::from(input_bytes) * u128::from(done) / u128::from(tasks.max(1));
        share as u64
    };
    let node = NodeProgress {
        input_bytes_read: done_bytes(&[StageKind::Map]),
        input_bytes_total: input_bytes,
        appended_bytes: input_bytes,
        sorted_bytes: done_bytes(&[StageKind::Seal, StageKind::Merge]),
        reduced_bytes: done_bytes(&[StageKind::Reduce]),
    };
    phases(&node, job)
}

/// Returns the report of a job.
pub fn report(site: &Site, job: JobId) -> Result<JobReport, Failure> {
    let connection = site.connect()?;
    connection.run(async |client| client.report(job).await).map_err(Failure::from_client)
}
