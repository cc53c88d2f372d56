//! A job from submit to end: with a server and a node in this process, or in a cluster.

pub mod embedded;
pub mod file_views;
pub mod interrupt;
pub mod machine;
pub mod meter;
pub mod phases;
pub mod printed_output;
pub mod progress;
pub mod remote;
pub mod resources;
mod seen_inputs;
pub mod shipping;
pub mod step_outputs;
pub mod store;
pub mod stored_outputs;

use crate::exit::Failure;
use crate::options::connect::Site;
use anyhow::Context;
use api::JobSpec;
use embedded::Embedded;
use filestore::FileStore;
use interrupt::Interrupt;
use jobspec::Plan;
use node::{Node, NodeOptions};
use phases::phases;
use program::{Containment, Programs};
use progress::Display;
use server::{JobOutcome, Server, ServerOptions, SubmittedJob};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A job that has ended.
pub struct Ended {
    pub submitted: SubmittedJob,
    pub outcome: JobOutcome,
    pub spec: JobSpec,
    /// The server of the cluster that ran it.
    pub server: Option<String>,
    /// Locations of the I-files, if the job keeps them: directories, in a cluster each with its node, or a note why
    /// there are none.
    pub kept: Vec<String>,
    /// Time from submit to the end of the cleanup.
    pub elapsed: Duration,
    /// The signal handler, still active.
    pub interrupt: Interrupt,
}

/// Runs a job. Returns when it is over and everything it started has ended.
pub fn execute(
    plan: Plan,
    site: Option<&Site>,
    display: Display,
    containment: Containment,
) -> Result<Ended, Failure> {
    if let Some(site) = site {
        return remote::execute(site, plan, display);
    }
    let programs = contained_programs(containment)?;
    let interrupt = Interrupt::listen(programs.share())?;
    let stored_files = FileStore::data_dir(&plan.state_dir);
    let server = Server::open(ServerOptions::embedded(plan.state_dir, plan.spec.slots))
        .map_err(Failure::from_server)?;
    let server = Arc::new(server);
    let options = NodeOptions {
        slots: plan.spec.slots,
        places: 0,
        start_dir: plan.start_dir,
        programs: programs.share(),
        sandbox: None,
        program_port: None,
        limits: api::AttemptLimits::default(),
        program_env: Vec::new(),
        stored_files: Some(stored_files),
        step_files: None,
        views: None,
        seen: None,
        file_memory_bytes: machine::file_memory_bytes(),
    };
    let started =
        Node::start(Arc::new(Embedded { server: Arc::clone(&server), slots: options.slots }), options)
            .map_err(anyhow::Error::from);
    let begin = Instant::now();
    let ended = started.map_err(Failure::from).and_then(|node| {
        let outcome = server.submit(plan.spec.clone(), plan.splits).map_err(Failure::from_server);
        let outcome = outcome.and_then(|submitted| {
            let (cancelling, job) = (Arc::clone(&server), submitted.job);
            interrupt.aim(Arc::new(move || cancelling.cancel(job, "stopped by a signal")));
            let outcome = wait(&server, &node, &submitted, display);
            interrupt.disarm();
            Ok((submitted, outcome?))
        });
        // Slots end when there is no job left, or when the server has ended.
        server.shutdown();
        node.join();
        outcome
    });
    server.shutdown();
    let (submitted, outcome) = ended?;
    let kept = submitted.disk_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let elapsed = begin.elapsed();
    Ok(Ended { submitted, outcome, spec: plan.spec, server: None, kept, elapsed, interrupt })
}

/// Programs of jobs that run in this process. When it goes, nothing of them is left, and no process of ours either.
pub struct LocalPrograms(Arc<Programs>);

impl LocalPrograms {
    pub fn share(&self) -> Arc<Programs> {
        Arc::clone(&self.0)
    }
}

impl Drop for LocalPrograms {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns a registry of programs on this machine. Its spawner starts now, while this process is small. Error: the
/// machine does not allow the containment.
pub fn contained_programs(containment: Containment) -> Result<LocalPrograms, Failure> {
    let programs = Programs::contained(containment);
    programs.prepare().map_err(anyhow::Error::from)?;
    if containment == Containment::Namespaces {
        let allowed = programs.contain_as_allowed().map_err(anyhow::Error::from);
        allowed.context("--contain is not possible here").map_err(Failure::refused)?;
    }
    Ok(LocalPrograms(Arc::new(programs)))
}

fn wait(
    server: &Server,
    node: &Node,
    submitted: &SubmittedJob,
    display: Display,
) -> Result<JobOutcome, Failure> {
    let (stop, stopped) = mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let look = || phases(&node.progress(), &server.progress(submitted.job).unwrap_or_default());
        scope.spawn(move || progress::show(display, look, &stopped));
        let outcome = server.wait(submitted.job);
        // The display may have ended already.
        let _ = stop.send(());
        outcome.map_err(Failure::from_server)
    })
}
