//! `sailfish submit` and `sailfish logs`: jobs of one task each, any executable, on a cluster or on this machine.

use crate::commands::run::steps;
use crate::engine::embedded::Embedded;
use crate::engine::file_views::MountedViews;
use crate::engine::interrupt::Interrupt;
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::step_outputs::OutputsOfSteps;
use crate::engine::{self, machine, remote, shipping, store};
use crate::exit::{FAILED, Failure, INTERRUPTED};
use crate::options::connect::{CredentialArgs, Site, StateArgs, with_server};
use crate::show::terminal::{ErrorLines, print, tell};
use anyhow::{Context, anyhow, ensure};
use api::control::{BATCH_JOBS_MAX, JobBatch, JobLogs, JobOutcome, NAME_BYTES_MAX, SubmittedBatch};
use api::history::JobState;
use api::job::resources::GenericResources;
use api::task::{RUN_RETRIES_MAX, RunTask};
use clap::Args;
use client::Blocking;
use filestore::FileStore;
use ids::{AttemptNumber, JobId};
use jobspec::{Pinning, StoredPin, memory_size, paths, state_dir};
use metastore::Metastore;
use node::{Node, NodeOptions};
use program::Containment;
use server::{Server, ServerError, ServerOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  sailfish submit -- ./simulate --seed 7
  sailfish submit --server http://127.0.0.1:7070 --count 500 -- sh -c './simulate --seed $SAILFISH_INDEX'";

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Continue to print the program's output until the job is over
    #[arg(long, short)]
    pub follow: bool,
}

/// Interval between two requests for the output of a program that is followed; its node reports once a second.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Maximum number of attempts that wait for a turn: with more slots, the server is the bottleneck.
const PLACES_MAX: u32 = 64;

/// Options that say how a program runs; the specification of a job with steps has them for each step.
const OF_PROGRAMS: [&str; 12] = [
    "count", "retries", "cores", "memory", "arch", "resource", "env", "env_file", "network", "limit", "file",
    "words",
];

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Submit the job to this server, as in http://127.0.0.1:7070, instead of running it here. A program given as a
    /// path is shipped. Nodes must have the current directory, unless --file is given
    #[arg(long, value_name = "URL", conflicts_with = "state")]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Name of the job [default: that of the program]
    #[arg(long)]
    pub name: Option<String>,
    /// Number of jobs to submit; all are the same, and SAILFISH_INDEX numbers them from 0
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Retries after the program fails; a program that is lost with its node always runs again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=RUN_RETRIES_MAX as i64))]
    pub retries: u32,
    /// Jobs of a higher priority run first; above 0 only for administrators, if the server requires tokens
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    pub priority: i32,
    /// Slots of one node that each program takes while it runs: a slot is a core
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub cores: u32,
    /// With --server: memory for jobs to reserve on the node while the program runs; actual use is not checked
    /// [default: 0]
    #[arg(long, value_name = "SIZE", requires = "server")]
    pub memory: Option<String>,
    /// With --server: run it only on nodes of this architecture, as in x86_64 or aarch64
    #[arg(long, value_name = "NAME", requires = "server")]
    pub arch: Option<String>,
    /// With --server: generic resource of the node that each program takes while it runs, as in gpu=1; may be given
    /// several times
    #[arg(long, value_name = "NAME=AMOUNT", requires = "server")]
    pub resource: Vec<String>,
    /// Variable of the program's environment, NAME=VALUE; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// File with more variables, one NAME=VALUE per line, for secrets: its content is kept out of rows, lists and logs
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// In a sandbox: let the program reach the network, on nodes that allow it (node --allow-network)
    #[arg(long)]
    pub network: bool,
    /// Limit of the program and its children: processes=N, open-files=N, file-size=SIZE, disk=SIZE, memory=SIZE or
    /// time=DURATION; may be given several times. A limit of the node (node --limit) holds too. A job that passes a
    /// limit fails: docs/operations/containment.md
    #[arg(long, value_name = "NAME=VALUE")]
    pub limit: Vec<String>,
    /// File, or files:NAME (a stored file), to put into a work directory of the program; the program runs there instead of
    /// in the current directory. May be given several times
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// With --server: wait for the end of the job, then print the program's output
    #[arg(long, requires = "server")]
    pub wait: bool,
    /// Submit a job with steps in place of a program: its kind, as in workflow (docs/kinds.md)
    #[arg(long, value_name = "NAME", requires = "spec", conflicts_with_all = OF_PROGRAMS)]
    pub kind: Option<String>,
    /// With --kind: JSON file with the specification of the job
    #[arg(long, value_name = "FILE", requires = "kind")]
    pub spec: Option<PathBuf>,
    /// The program and its arguments, after --; files:NAME is the path of a copy of that stored file
    #[arg(last = true, required_unless_present = "kind", value_name = "PROGRAM")]
    pub words: Vec<String>,
}

/// Submits jobs. On this machine they are run to their end.
pub fn run(args: &SubmitArgs) -> Result<(), Failure> {
    let state_dir = state_dir::state_dir(args.state.as_deref()).map_err(Failure::refused)?;
    if let Some((kind, spec)) = args.kind.as_ref().zip(args.spec.as_ref()) {
        return steps::run(args, state_dir, kind, spec);
    }
    let url = args.server.clone();
    let site = url.map(|url| Site { url, credentials: args.credentials.clone() });
    let front_end = CommandLineFrontEnd { site: site.as_ref() };
    // On this machine its pins keep the stored files until the jobs are over.
    let Submitted { mut tasks, pins: _pins } =
        tasks(args, Pinning::new(&front_end, &state_dir)).map_err(Failure::refused)?;
    let name = args.name.clone().unwrap_or_else(|| name_of_program(&args.words[0]));
    let user = std::env::var("USER").unwrap_or_default();
    let connection = args.server.as_ref().map(|url| args.credentials.connect(url)).transpose()?;
    if let Some(connection) = &connection {
        shipping::ship_tasks(connection, &mut tasks)?;
    }
    let batches = tasks.chunks(BATCH_JOBS_MAX).map(|tasks| JobBatch {
        name: name.clone(),
        tasks: tasks.to_vec(),
        user: user.clone(),
        priority: args.priority,
    });
    let batches: Vec<JobBatch> = batches.collect();
    match connection {
        Some(connection) => on_cluster(connection, args.wait, &batches),
        None => on_this_machine(&state_dir, None, GenericResources::default(), |server| {
            let mut jobs = Vec::new();
            for batch in batches {
                jobs.extend(numbers(server.submit_batch(batch)?));
            }
            Ok(jobs)
        })
        .map(drop),
    }
}

/// The jobs, and pins of the stored files that their programs open.
struct Submitted {
    tasks: Vec<RunTask>,
    pins: Vec<StoredPin>,
}

fn tasks(args: &SubmitArgs, mut pinning: Pinning<'_>) -> anyhow::Result<Submitted> {
    ensure!(args.count > 0, "--count 0: give at least 1");
    ensure!(args.cores > 0, "--cores 0: give at least 1");
    let directory = std::env::current_dir().context("finding the current directory")?;
    let mut files = paths::files(&args.file, &directory)?;
    let mut words = args.words.clone();
    // Here it is resolved from the directory in which it runs.
    if args.server.is_some()
        && let Some(absolute) = jobspec::absolute_program(&words[0], &directory, &files)
    {
        ensure!(Path::new(&absolute).exists(), "the program {} does not exist", words[0]);
        words[0] = absolute;
    }
    pinning.pin_files("--file", &mut files)?;
    pinning.pin_words("the program", &mut words)?;
    let pinned = pinning.finish();
    let memory = args.memory.as_deref().map(memory_size::parse).transpose().context("--memory")?;
    let resources =
        GenericResources::parse(args.resource.iter().map(String::as_str)).context("--resource")?;
    let mut env = Vec::new();
    for pair in &args.env {
        let (name, value) = pair.split_once('=').ok_or_else(|| anyhow!("--env {pair}: give NAME=VALUE"))?;
        env.push((name.to_string(), value.to_string()));
    }
    let limits = Box::new(jobspec::limits::parse(&args.limit)?);
    let env_file = args.env_file.as_deref().map(|path| paths::env_file(path, &directory)).transpose()?;
    let task = |index: u32| {
        let mut env = env.clone();
        if args.count > 1 {
            env.push(("SAILFISH_INDEX".to_string(), index.to_string()));
        }
        RunTask {
            words: words.clone(),
            directory: directory.clone(),
            env,
            env_file: env_file.clone(),
            network: args.network,
            limits: limits.clone(),
            retries: args.retries,
            cores: if args.cores == 1 { 0 } else { args.cores },
            files: files.clone(),
            pinned: pinned.files.clone(),
            memory_bytes: memory.unwrap_or(0),
            architecture: args.arch.clone(),
            resources: resources.clone(),
            ..RunTask::default()
        }
    };
    Ok(Submitted { tasks: (0..args.count).map(task).collect(), pins: pinned.pins })
}

/// Names a job after its program, whose path may be longer than a name.
fn name_of_program(word: &str) -> String {
    word[..word.floor_char_boundary(NAME_BYTES_MAX)].to_string()
}

fn numbers(batch: SubmittedBatch) -> impl Iterator<Item = JobId> {
    (0..i64::from(batch.count)).map(move |index| JobId(batch.first.0 + index))
}

fn on_cluster(connection: Blocking, wait: bool, batches: &[JobBatch]) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for batch in batches {
        let submitted = connection.run(async |client| client.submit_batch(batch).await);
        let submitted = submitted.map_err(Failure::from_client)?;
        for job in numbers(submitted) {
            print(&format!("{job}\n"))?;
            jobs.push(job);
        }
    }
    let mut code = None;
    for job in jobs.into_iter().filter(|_| wait) {
        let outcome = remote::wait_or_leave(&connection, job)?;
        print_logs(&connection.run(async |client| client.logs(job).await).map_err(Failure::from_client)?)?;
        code = code.or(said_code(&connection, job, &outcome));
    }
    code.map_or(Ok(()), |code| Err(Failure::said(code)))
}

/// Submits jobs to a server of this process, runs them, and prints their output.
pub(super) fn on_this_machine(
    state_dir: &Path,
    slots: Option<u32>,
    resources: GenericResources,
    submit: impl FnOnce(&Server) -> Result<Vec<JobId>, ServerError>,
) -> Result<Vec<JobId>, Failure> {
    let programs = engine::contained_programs(Containment::Subreaper)?;
    let interrupt = Interrupt::listen(programs.share())?;
    let slots = slots.unwrap_or_else(machine::default_slots);
    let options = ServerOptions { resources, ..ServerOptions::embedded(state_dir.to_path_buf(), slots) };
    let server = Server::open(options);
    let server = server.map_err(Failure::from_server)?;
    let server = Arc::new(server);
    let submitted = submit(&server).map_err(Failure::from_server)?;
    let (cancelling, jobs) = (Arc::clone(&server), submitted.clone());
    interrupt.aim(Arc::new(move || {
        jobs.iter().for_each(|job| cancelling.cancel(*job, "stopped by a signal"));
    }));
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let views = Arc::new(MountedViews::new(programs.share()));
    let options = NodeOptions {
        slots,
        places: slots.min(PLACES_MAX),
        start_dir,
        programs: programs.share(),
        sandbox: None,
        program_port: None,
        limits: api::AttemptLimits::default(),
        program_env: Vec::new(),
        stored_files: Some(FileStore::data_dir(state_dir)),
        step_files: Some(Arc::new(OutputsOfSteps::on_machine(state_dir))),
        views: Some(Arc::<MountedViews>::clone(&views)),
        seen: None,
        file_memory_bytes: machine::file_memory_bytes(),
    };
    let node = Node::start(Arc::new(Embedded { server: Arc::clone(&server), slots: options.slots }), options)
        .map_err(anyhow::Error::from)?;
    // Slots stop when every job is over.
    node.join();
    views.end();
    interrupt.disarm();
    let failed = server.failure().map(|reason| format!("the engine failed: {reason}"));
    server.shutdown();
    drop(programs);
    store::run(async {
        let store = Metastore::open(state_dir).await?;
        let mut code = None;
        for job in submitted.iter().copied() {
            let row = store::job_row(&store, job).await?;
            for step in store.list_jobs(&steps::of_job(job)).await?.jobs.iter().rev() {
                print_logs(&server::job_logs(&store, step.job, step.state).await?)?;
                steps::tell_failure(step);
            }
            print_logs(&server::job_logs(&store, job, row.state).await?)?;
            if row.state != JobState::Succeeded {
                // A job that ended with its server has no exit code.
                let reason = failed.clone().or(row.error).unwrap_or_default();
                tell(&format!("sailfish: job {job}: {reason}"));
                let ended = row.exit_code.and_then(|code| u8::try_from(code).ok());
                code.get_or_insert(ended.unwrap_or(FAILED));
            }
        }
        code.map_or(Ok(()), |code| Err(Failure::said(code)))
    })??;
    Ok(submitted)
}

/// Prints the outcome of a job. Returns its exit code if it has not succeeded.
pub(super) fn said_code(connection: &Blocking, job: JobId, outcome: &JobOutcome) -> Option<u8> {
    match outcome {
        JobOutcome::Succeeded(_) | JobOutcome::Done => None,
        JobOutcome::Failed { failure, exit_code, .. } => {
            let url = connection.run(async |client| client.url().to_string());
            tell(&format!("sailfish: job {job} failed: {}", with_server(&failure.message, &url)));
            Some(u8::try_from(*exit_code).unwrap_or(FAILED))
        }
        JobOutcome::Cancelled { reason } => {
            tell(&format!("sailfish: job {job} was {reason}"));
            Some(INTERRUPTED)
        }
    }
}

pub(super) fn print_logs(logs: &JobLogs) -> Result<(), Failure> {
    print(&logs.standard_output)?;
    let text = logs.standard_error.trim_end_matches('\n');
    if !text.is_empty() {
        tell(text);
    }
    Ok(())
}

/// Runs `sailfish logs`: prints the output of a job's program, each stream to its own.
pub fn logs(args: &LogsArgs) -> Result<(), Failure> {
    let job = JobId(args.job);
    store::expect_no_steps(&store::details(&args.state, job, 0)?)?;
    let connection = args.state.connection()?;
    let read = async |store: Metastore| {
        let row = store::job_row(&store, job).await?;
        Ok(server::job_logs(&store, job, row.state).await?)
    };
    let ask = || match &connection {
        Some(connection) => {
            connection.run(async |client| client.logs(job).await).map_err(Failure::from_client)
        }
        None => store::look(args.state.state.as_deref(), read),
    };
    if !args.follow {
        return print_logs(&ask()?);
    }
    let (mut output, mut error) = (Followed::default(), Followed::default());
    loop {
        let logs = ask()?;
        let attempt = logs.attempt;
        print(output.news(attempt, &logs.standard_output, logs.standard_output_bytes))?;
        let news = error.news(attempt, &logs.standard_error, logs.standard_error_bytes);
        // A failure cannot be reported anywhere.
        let _ = ErrorLines.write_all(news.as_bytes());
        if logs.over {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Position up to which an output has been printed.
#[derive(Default)]
struct Followed {
    attempt: Option<AttemptNumber>,
    end_bytes: u64,
}

impl Followed {
    /// Returns the unprinted part of a text. `end_bytes`: total bytes up to its end. A text that ends before the
    /// printed position is an older answer.
    fn news<'a>(&mut self, attempt: Option<AttemptNumber>, text: &'a str, end_bytes: u64) -> &'a str {
        if attempt.is_some() && attempt != self.attempt {
            *self = Self { attempt, end_bytes: 0 };
        }
        let fresh = end_bytes.saturating_sub(self.end_bytes).min(text.len() as u64);
        self.end_bytes = self.end_bytes.max(end_bytes);
        &text[text.ceil_char_boundary(text.len() - fresh as usize)..]
    }
}

#[cfg(test)]
mod tests {
    use super::Followed;
    use ids::AttemptNumber;

    #[test]
    fn printed_lines_are_not_printed_again() {
        let mut followed = Followed::default();
        let mut check = |attempt: Option<u32>, text: &str, end_bytes, expected: &str| {
            assert_eq!(followed.news(attempt.map(AttemptNumber), text, end_bytes), expected);
        };
        check(None, "", 0, "");
        check(Some(0), "ab", 2, "ab");
        check(Some(0), "ab", 2, "");
        check(Some(0), "abc", 3, "c");
        // The earlier text was not kept.
        check(Some(0), "yz", 100, "yz");
        check(Some(0), "yz!", 101, "!");
        check(Some(1), "ab", 2, "ab");
        check(None, "ab", 2, "");
    }
}
