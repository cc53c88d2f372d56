//! `sailfish run --job FILE` for a file with stages: all of them are submitted together, and shown one after the other.

use crate::commands::run;
use crate::engine::embedded::Embedded;
use crate::engine::interrupt::Interrupt;
use crate::engine::progress::{self, Display};
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::{self, Ended, machine, remote, shipping, stored_outputs};
use crate::exit::Failure;
use crate::options::connect::Site;
use crate::show::quantity::{bytes, counted, seconds};
use crate::show::summary;
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::JobReport;
use api::control::JobProgress;
use api::flow::{FlowSubmission, StageSubmission};
use client::Blocking;
use filestore::FileStore;
use ids::{JobId, StageKind};
use jobspec::{JobOptions, Plan, StagePlace, standard_output};
use node::{Node, NodeOptions};
use program::{Containment, Programs};
use server::{JobOutcome, Server, ServerOptions, SubmittedJob};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval between two checks of the stages.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A stage and its job.
struct Stage {
    place: StagePlace,
    plan: Plan,
}

/// Access to jobs, which run here or in a cluster.
trait Jobs: Sync {
    fn progress(&self, job: JobId) -> Option<JobProgress>;
    fn wait(&self, job: JobId) -> Result<JobOutcome, Failure>;
}

impl Jobs for Server {
    fn progress(&self, job: JobId) -> Option<JobProgress> {
        Server::progress(self, job)
    }

    fn wait(&self, job: JobId) -> Result<JobOutcome, Failure> {
        Server::wait(self, job).map_err(Failure::from_server)
    }
}

impl Jobs for Blocking {
    fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.run(async |client| client.progress(job).await).ok()
    }

    fn wait(&self, job: JobId) -> Result<JobOutcome, Failure> {
        remote::wait_for(self, job)
    }
}

/// Checks all stages, submits them, waits, and prints the result.
pub fn run(stages: Vec<JobOptions>, site: Option<Site>, containment: Containment) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    let mut planned = Vec::with_capacity(stages.len());
    for options in stages {
        let place = options.stage.clone().unwrap_or_default();
        let front_end = CommandLineFrontEnd { site: site.as_ref() };
        let plan = jobspec::plan(options, &front_end).with_context(|| format!("the stage {:?}", place.name));
        planned.push(Stage { place, plan: plan.map_err(Failure::refused)? });
    }
    let begin = Instant::now();
    let json = planned.iter().any(|stage| stage.plan.json);
    let display = Display::choose(planned.iter().map(|stage| &stage.plan));
    let first = &planned[0].plan;
    standard_output::sweep(&first.spec.disks);
    stored_outputs::sweep(&first.state_dir);
    let (submitted, outcomes, interrupt) = match &site {
        Some(site) => in_cluster(site, &mut planned, display)?,
        None => embedded(&planned, display, containment)?,
    };
    let elapsed = begin.elapsed();
    conclude(planned, site.map(|site| site.url), submitted, outcomes, interrupt, elapsed, json)
}

type Run = (Vec<SubmittedJob>, Vec<JobOutcome>, Interrupt);

fn submission(stages: &[Stage]) -> FlowSubmission {
    let stage = |stage: &Stage| StageSubmission {
        spec: stage.plan.spec.clone(),
        splits: stage.plan.splits.clone(),
        reads: stage.place.reads.clone(),
    };
    let user = std::env::var("USER").unwrap_or_default();
    FlowSubmission { stages: stages.iter().map(stage).collect(), user, priority: 0 }
}

fn in_cluster(site: &Site, stages: &mut [Stage], display: Display) -> Result<Run, Failure> {
    let interrupt = Interrupt::listen(Arc::new(Programs::new()))?;
    let connection = Arc::new(site.connect()?);
    for stage in stages.iter_mut() {
        shipping::ship_job(&connection, &mut stage.plan.spec)?;
    }
    let flow = submission(stages);
    let submitted = connection.run(async |client| client.submit_flow(&flow).await);
    let submitted = submitted.map_err(Failure::from_client)?.jobs;
    let (cancelling, jobs) = (Arc::clone(&connection), numbers(&submitted));
    interrupt.aim(Arc::new(move || {
        // The end of one stage ends all others, but any of them may be over.
        for job in &jobs {
            let cancelled = cancelling.run(async |client| client.cancel(*job, "stopped by a signal").await);
            if let Err(error) = cancelled {
                return tell(&format!("sailfish: the stages could not be stopped: {error}"));
            }
        }
    }));
    let outcomes = wait(&*connection, stages, &submitted, display);
    interrupt.disarm();
    Ok((submitted, outcomes?, interrupt))
}

fn embedded(stages: &[Stage], display: Display, containment: Containment) -> Result<Run, Failure> {
    let programs = engine::contained_programs(containment)?;
    let interrupt = Interrupt::listen(programs.share())?;
    let first = &stages[0].plan;
    let slots = stages.iter().map(|stage| stage.plan.spec.slots).max().unwrap_or(1);
    let server = Server::open(ServerOptions::embedded(first.state_dir.clone(), slots));
    let server = Arc::new(server.map_err(Failure::from_server)?);
    let start_dir = first.start_dir.clone();
    let (for_node, sandbox) = (programs.share(), None);
    let options = NodeOptions {
        slots,
        places: 0,
        start_dir,
        programs: for_node,
        sandbox,
        program_port: None,
        limits: api::AttemptLimits::default(),
        program_env: Vec::new(),
        stored_files: Some(FileStore::data_dir(&first.state_dir)),
        step_files: None,
        views: None,
        seen: None,
        file_memory_bytes: 0,
    };
    let started =
        Node::start(Arc::new(Embedded { server: Arc::clone(&server), slots: options.slots }), options)
            .map_err(anyhow::Error::from);
    let ended = started.map_err(Failure::from).and_then(|node| {
        let submitted = server.submit_flow(submission(stages)).map_err(Failure::from_server);
        let outcome = submitted.and_then(|submitted| {
            let (cancelling, jobs) = (Arc::clone(&server), numbers(&submitted.jobs));
            interrupt.aim(Arc::new(move || {
                jobs.iter().for_each(|job| cancelling.cancel(*job, "stopped by a signal"));
            }));
            let outcomes = wait(&*server, stages, &submitted.jobs, display);
            interrupt.disarm();
            Ok((submitted.jobs, outcomes?))
        });
        server.shutdown();
        node.join();
        outcome
    });
    server.shutdown();
    let (submitted, outcomes) = ended?;
    Ok((submitted, outcomes, interrupt))
}

fn numbers(submitted: &[SubmittedJob]) -> Vec<JobId> {
    submitted.iter().map(|submitted| submitted.job).collect()
}

/// Waits for all jobs, and reports their progress meanwhile.
fn wait(
    jobs: &impl Jobs,
    stages: &[Stage],
    submitted: &[SubmittedJob],
    display: Display,
) -> Result<Vec<JobOutcome>, Failure> {
    let (stop, stopped) = mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        match display {
            Display::Nothing => {}
            Display::Json => drop(scope.spawn(move || tell_programs(jobs, stages, submitted, &stopped))),
            Display::Bars | Display::Lines => {
                scope.spawn(move || watch(jobs, stages, submitted, &stopped));
            }
        }
        let waited: Vec<Result<JobOutcome, Failure>> =
            submitted.iter().map(|submitted| jobs.wait(submitted.job)).collect();
        let _ = stop.send(());
        waited.into_iter().collect()
    })
}

/// Reports to a program the number of finished map and reduce tasks of each stage.
fn tell_programs(jobs: &impl Jobs, stages: &[Stage], submitted: &[SubmittedJob], stopped: &Receiver<()>) {
    let mut last_line = String::new();
    loop {
        let goes_on = stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout);
        let mut rows = Vec::new();
        for (stage, submitted) in stages.iter().zip(submitted) {
            let Some(progress) = jobs.progress(submitted.job) else { continue };
            let told = progress.stages.iter().filter(|of_job| of_job.expanded && of_job.tasks > 0);
            for of_job in told.filter(|of_job| matches!(of_job.kind, StageKind::Map | StageKind::Reduce)) {
                let name = format!("{} {}", stage.place.name, of_job.kind);
                rows.push((name, u64::from(of_job.done), u64::from(of_job.tasks)));
            }
        }
        let line = progress::told_to_programs(&rows);
        if line != last_line {
            tell(&line);
            last_line = line;
        }
        if !goes_on {
            return;
        }
    }
}

/// Reports the beginning of each stage, and the completion of its output.
fn watch(jobs: &impl Jobs, stages: &[Stage], submitted: &[SubmittedJob], stopped: &Receiver<()>) {
    let mut told = vec![Told::Nothing; stages.len()];
    let begin = Instant::now();
    loop {
        let goes_on = stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout);
        for ((stage, submitted), told) in stages.iter().zip(submitted).zip(told.iter_mut()) {
            let Some(progress) = jobs.progress(submitted.job) else { continue };
            let (name, job) = (&stage.place.name, submitted.job);
            let at = seconds(begin.elapsed().as_secs_f64());
            let tasks = |kind: StageKind| {
                progress
                    .stages
                    .iter()
                    .find(|stage| stage.kind == kind)
                    .map_or(0, |stage| u64::from(stage.tasks))
            };
            let begun = progress.stages.iter().any(|stage| stage.expanded);
            let has_output = progress.parts_ready || progress.over;
            if *told == Told::Nothing && begun {
                *told = Told::Begun;
                let maps = counted(tasks(StageKind::Map), "map task");
                tell(&format!("  {at}: stage {name} (job {job}) begins with {maps}"));
            }
            if *told == Told::Begun && has_output && goes_on {
                *told = Told::Done;
                tell(&format!("  {at}: stage {name} is done"));
            }
        }
        if !goes_on {
            return;
        }
    }
}

/// Last event of a stage that was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Begun,
    Done,
}

fn conclude(
    stages: Vec<Stage>,
    server: Option<String>,
    submitted: Vec<SubmittedJob>,
    outcomes: Vec<JobOutcome>,
    interrupt: Interrupt,
    elapsed: Duration,
    json: bool,
) -> Result<(), Failure> {
    // A failed stage says more than those that were stopped because of it.
    let failed = |outcome: &JobOutcome| matches!(outcome, JobOutcome::Failed { .. });
    let stopped = |outcome: &JobOutcome| !matches!(outcome, JobOutcome::Succeeded(_));
    let bad = outcomes.iter().position(failed).or_else(|| outcomes.iter().position(stopped));
    let mut interrupt = Some(interrupt);
    let mut reports = Vec::new();
    let rows = stages.into_iter().zip(submitted).zip(outcomes).enumerate();
    for (index, ((stage, submitted), outcome)) in rows {
        if bad.is_some_and(|bad| bad != index) {
            continue;
        }
        let Stage { place, plan } = stage;
        if bad.is_some() {
            tell(&format!("sailfish: the stage {:?} of the flow did not succeed:", place.name));
            let interrupt = interrupt.take().context("one stage ends a flow")?;
            let kept = Vec::new();
            let ended = Ended { submitted, outcome, spec: plan.spec, server, kept, elapsed, interrupt };
            return run::report_of(&ended).map(drop);
        }
        let JobOutcome::Succeeded(report) = outcome else { continue };
        if let Some((private_output, name)) = &plan.held.stored_output {
            stored_outputs::store(&plan.state_dir, name, private_output, &report)?;
        }
        if !json {
            tell(&told(&place, &plan, submitted.job, &report));
        }
        reports.push(report);
    }
    if json {
        let text = serde_json::to_string_pretty(&reports).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"))?;
    } else {
        tell(&format!(
            "sailfish: {} done in {}",
            counted(reports.len() as u64, "stage"),
            seconds(elapsed.as_secs_f64())
        ));
    }
    Ok(())
}

/// Returns one line about a stage.
fn told(place: &StagePlace, plan: &Plan, job: JobId, report: &JobReport) -> String {
    let (part_bytes, _) = summary::output_sums(report);
    let parts = counted(report.parts.len() as u64, "part");
    let output = plan.spec.output.strip_prefix(&plan.start_dir).unwrap_or(&plan.spec.output);
    let to = match place.feeds {
        true => "for later stages".to_string(),
        false => standard_output::shown(output),
    };
    format!(
        "  {} (job {job}): {parts}, {} {to}; proof {}",
        place.name,
        bytes(part_bytes),
        summary::proof(report)
    )
}
