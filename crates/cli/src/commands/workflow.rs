//! `sailfish workflow`: files with steps are checked, shown, run, and written as scripts.

mod stages;
mod upload;
mod why;

use crate::commands::run::steps::{self, Target};
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::{machine, shipping};
use crate::exit::Failure;
use crate::options::connect::{CredentialArgs, Site, StateArgs};
use crate::show::escape;
use crate::show::quantity::counted;
use crate::show::tables::{left, right, table};
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow};
use api::job::resources::GenericResources;
use api::job::workflow::WorkflowSpec;
use api::{ContentHash, JobSpec, JsonText, ShippedFile, SteppedKind};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use client::Blocking;
use jobspec::state_dir;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use upload::Uploaded;
use workflowfile::{JobMachines, NamedWorkflow, Sources, StepLine};

#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Check a workflow file; nothing is run
    Check(LookArgs),
    /// Show the jobs of a run in their order; nothing is run
    Plan(PlanArgs),
    /// Print a drawing of the steps and their order, in SVG
    Plot(LookArgs),
    /// Run a workflow file, here or on a cluster
    Run(RunArgs),
    /// Show the steps that a run would not skip, and why; nothing is run
    Why(WhyArgs),
    /// Print a shell script that does the same without sailfish
    Export(LookArgs),
}

#[derive(Debug, Args)]
pub struct FileArgs {
    /// Workflow file, in TOML (docs/workflows.md)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// A workflow file, and the place of the stored files that its patterns match.
#[derive(Debug, Args)]
pub struct LookArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub from: StateArgs,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub look: LookArgs,
    /// Slots of the largest node [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = slots_parser())]
    pub slots: Option<u32>,
}

/// The place of the finished runs that are known, and of new ones.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Run it on the nodes of this server, which must see its files or get them by --upload, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL", conflicts_with = "state")]
    pub server: Option<String>,
    /// With --server: put its files as stored files of the cluster, for nodes that do not see them
    #[arg(long, requires = "server", conflicts_with = "state")]
    pub upload: bool,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

impl PlaceArgs {
    /// Puts the files of a workflow if that is asked for.
    fn uploaded(&self, spec: &mut WorkflowSpec) -> Result<Option<Uploaded>, Failure> {
        let site = self.site().filter(|_| self.upload);
        site.map(|site| upload::upload(&site, spec)).transpose()
    }

    fn target(&self) -> Result<Target, Failure> {
        let state_dir = state_dir::state_dir(self.state.as_deref()).map_err(Failure::refused)?;
        Target::at(self.site(), state_dir)
    }

    fn site(&self) -> Option<Site> {
        let credentials = self.credentials.clone();
        self.server.clone().map(|url| Site { url, credentials })
    }

    fn sources(&self) -> Sources {
        if self.server.is_some() && !self.upload { Sources::OnNodes } else { Sources::Here }
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Name of the job [default: the name in the file, else that of the file]
    #[arg(long)]
    pub name: Option<String>,
    /// With --server: urgency of the job, as for `submit`
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Slots of this machine: at most so many programs run at the same time [default: its cores]
    #[arg(long, value_name = "N", conflicts_with = "server", value_parser = slots_parser())]
    pub slots: Option<u32>,
    /// Generic resource of this machine with its amount, as in gpu=1, for steps with `resources`; may be given several
    /// times. With --server the nodes have theirs
    #[arg(long, value_name = "NAME=AMOUNT", conflicts_with = "server")]
    pub resource: Vec<String>,
    /// With --server: do not wait for its end
    #[arg(long, requires = "server", conflicts_with = "state")]
    pub detach: bool,
    /// With --upload: bring the outputs back to their paths when all steps have succeeded
    #[arg(long, requires = "upload", conflicts_with = "detach")]
    pub fetch: bool,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    #[command(flatten)]
    pub file: FileArgs,
    /// Name of a step [default: all steps that would run]
    #[arg(value_name = "STEP")]
    pub step: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn slots_parser() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=i64::from(machine::SLOTS_MAX))
}

pub fn run(command: WorkflowCommand) -> Result<(), Failure> {
    match command {
        WorkflowCommand::Check(args) if stages::has_stages(&args.file.file) => {
            Ok(print(&format!("{}, no mistakes\n", stages::check(&args.file.file)?))?)
        }
        WorkflowCommand::Check(args) => {
            let NamedWorkflow { name, spec } = read(&args)?;
            Ok(print(&format!("{name}: {}, no mistakes\n", counted(spec.steps.len() as u64, "step")))?)
        }
        WorkflowCommand::Plan(args) => plan(&args),
        WorkflowCommand::Plot(args) => {
            stages::check_steps(&args.file.file, "plot")?;
            let svg = workflowfile::plot(&read(&args)?.spec).map_err(anyhow::Error::msg);
            Ok(print(&svg.map_err(Failure::refused)?)?)
        }
        WorkflowCommand::Run(args) => run_file(&args),
        WorkflowCommand::Why(args) => why::run(&args),
        WorkflowCommand::Export(args) => {
            stages::check_steps(&args.file.file, "export")?;
            let script = workflowfile::script(&read(&args)?.spec).map_err(anyhow::Error::msg);
            Ok(print(&script.map_err(Failure::refused)?)?)
        }
    }
}

/// Reads a file. With a server, only its nodes may see the inputs.
fn read(LookArgs { file, from }: &LookArgs) -> Result<NamedWorkflow, Failure> {
    let site = from.site();
    let sources = if site.is_some() { Sources::OnNodes } else { Sources::Here };
    let front_end = &CommandLineFrontEnd { site: site.as_ref() };
    read_at(file, sources, JobMachines { front_end, state: from.state.as_deref(), slots: None })
}

fn read_at(args: &FileArgs, sources: Sources, machines: JobMachines<'_>) -> Result<NamedWorkflow, Failure> {
    let read = workflowfile::read(&args.file, sources, machines);
    read.map_err(|error| Failure::refused(anyhow::Error::from(error)))
}

fn plan(args: &PlanArgs) -> Result<(), Failure> {
    stages::check_steps(&args.look.file.file, "plan")?;
    let slots = args.slots.unwrap_or_else(machine::default_slots);
    let lines = workflowfile::lines(&read(&args.look)?.spec, slots);
    let lines = lines.map_err(|reason| Failure::refused(anyhow::Error::msg(reason)))?;
    let cells = |line: &StepLine| {
        let (steps, after) = (line.names.join(" | "), line.after.join(", "));
        vec![line.level.to_string(), escape::cell(&steps), line.slots.to_string(), escape::cell(&after)]
    };
    let columns = [right("order"), left("steps"), right("slots"), left("after")];
    Ok(print(&table(&columns, lines.iter().map(cells).collect()))?)
}

fn run_file(args: &RunArgs) -> Result<(), Failure> {
    if stages::has_stages(&args.file.file) {
        return stages::run(args);
    }
    let site = args.place.site();
    let machines = JobMachines {
        front_end: &CommandLineFrontEnd { site: site.as_ref() },
        state: args.place.state.as_deref(),
        slots: args.slots,
    };
    let read = workflowfile::read_for(&args.file.file, args.place.sources(), machines);
    let NamedWorkflow { name, mut spec } =
        read.map_err(|error| Failure::refused(anyhow::Error::from(error)))?;
    let uploaded = args.place.uploaded(&mut spec)?;
    let steps_text = counted(spec.steps.len() as u64, "step");
    let name = args.name.clone().unwrap_or(name);
    let resources = GenericResources::parse(args.resource.iter().map(String::as_str)).context("--resource");
    let resources = resources.map_err(Failure::refused)?;
    let (priority, slots, waits) = (args.priority, args.slots, !args.detach);
    let target = Target { priority, slots, resources, waits, ..args.place.target()? };
    let _running = if target.connection.is_none() { Some(lock(&args.file.file)?) } else { None };
    let shipped = match &target.connection {
        Some(connection) => ship_jobs(connection, &mut spec)?,
        None => Vec::new(),
    };
    if spec.steps.iter().any(|step| step.job.is_some()) {
        machine::raise_open_file_limit();
    }
    let job = steps::submit(&target, JobSpec { shipped, ..job_of(name.clone(), &spec)? })?;
    if target.waits {
        let skipped = steps::skipped(&steps::events(&target, job)?);
        tell(&format!("sailfish: {name}: {steps_text} succeeded{skipped}"));
    }
    if let Some(uploaded) = uploaded {
        if args.fetch { uploaded.fetch()? } else { uploaded.tell_outputs() }
    }
    Ok(())
}

/// Ships the programs and files of the steps that are MapReduce jobs. Returns all of them: the job ships them for its steps.
fn ship_jobs(connection: &Blocking, spec: &mut WorkflowSpec) -> Result<Vec<ShippedFile>, Failure> {
    let mut shipped: BTreeMap<(PathBuf, ContentHash), ShippedFile> = BTreeMap::new();
    for job in spec.steps.iter_mut().filter_map(|step| step.job.as_deref_mut()) {
        shipping::ship_job(connection, job)?;
        let files = job.shipped.iter().cloned();
        shipped.extend(files.map(|file| ((file.path.clone(), file.sha256), file)));
    }
    Ok(shipped.into_values().collect())
}

/// Locks a workflow file while it runs on this machine: two runs would remove and replace each other's files. On a
/// cluster, the server refuses the second one.
fn lock(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).with_context(|| format!("reading {}", path.display()));
    let file = file.map_err(Failure::refused)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let path = path.display();
            Err(Failure::refused(anyhow!("another process runs {path}: wait for its end, or stop it")))
        }
        // A network file system may have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn job_of(name: String, spec: &WorkflowSpec) -> Result<JobSpec, Failure> {
    let spec = JsonText::of(spec).map_err(|error| Failure::refused(anyhow::Error::from(error)))?;
    Ok(JobSpec::of_steps(name, SteppedKind { kind: "workflow".to_string(), spec }))
}
