//! `sailfish rerun-reduce JOB`: a job that begins with the kept I-files of an earlier one.

use crate::commands::run;
use crate::engine::resources::CommandLineFrontEnd;
use crate::engine::{machine, store};
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::terminal::tell;
use anyhow::Context;
use clap::Args;
use ids::JobId;
use jobspec::rerun::{EarlierJob, RerunOptions, note_on_partial_values, plan_again};
use metastore::CLUSTER_OWNER;
use program::Containment;
use server::{KeptSource, NotReducible, check_reducible, kept_source};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
The job must have run with --keep-ifiles or --keep-for. Inputs, order, formats, files and environment are those of
that job; its I-files are read and never changed.

Examples:
  sailfish run --input logs/ --mapper 'python3 map.py' --file map.py --keep-for 2d --output pairs
  sailfish rerun-reduce 1 --reducer 'python3 reduce.py' --file reduce.py --output first-try
  sailfish rerun-reduce 1 --reducer builtin:list --output lists";

#[derive(Debug, Default, Args)]
pub struct RerunArgs {
    /// Number of the job whose I-files are kept
    pub job: i64,
    /// Reduce function [default: the sorted pairs are written]
    #[arg(long, value_name = "F")]
    pub reducer: Option<String>,
    /// Output directory; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Name of the new job [default: that of the output]
    #[arg(long)]
    pub name: Option<String>,
    /// Budget of the engine's own buffers, at least 64M [default: that of the job]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Tasks that run at once, 1 to 1024 [default: as many as in the job]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Directory for extra merge passes and work directories [default: those of the job]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// File, or files:NAME, to put into the directory in which the reducer runs, besides those of the job
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// Environment variable of the reducer, in addition to those of the job
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Replace an existing output with the new one
    #[arg(long)]
    pub overwrite: bool,
    /// Publish the output before it is synced to disk
    #[arg(long)]
    pub no_sync: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

impl RerunArgs {
    fn options(self) -> RerunOptions {
        RerunOptions {
            reducer: self.reducer,
            output: self.output,
            name: self.name,
            memory: self.memory,
            slots: self.slots,
            in_cluster: self.state.server.is_some(),
            state: self.state.state,
            disk: self.disk,
            file: self.file,
            env: self.env,
            overwrite: self.overwrite,
            no_sync: self.no_sync,
            json: self.json,
        }
    }
}

/// Checks, submits and waits. Exits like `sailfish run`.
pub fn run(args: RerunArgs) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    let source = source(&args.state, JobId(args.job))?;
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let site = args.state.site();
    let (job, old) = (source.row.job, &source.spec);
    let (front_end, earlier) = (CommandLineFrontEnd { site: site.as_ref() }, EarlierJob { job, spec: old });
    let plan = plan_again(args.options(), earlier, start_dir, &front_end).map_err(Failure::refused)?;
    if let Some(note) = note_on_partial_values(old, plan.spec.reducer.as_ref()) {
        tell(&format!("sailfish: note: job {job} {note}"));
    }
    run::conclude(plan, site.as_ref(), Containment::Subreaper)
}

/// Returns the job with the I-files. Fails if it cannot be reduced again.
fn source(from: &StateArgs, job: JobId) -> Result<KeptSource, Failure> {
    let Some(connection) = from.connection()? else {
        let read = async |store| kept_source(&store, job).await.map_err(Failure::from_server);
        let source = store::look(from.state.as_deref(), read)?;
        return match source.row.owner == CLUSTER_OWNER {
            true => Err(Failure::refused(NotReducible::OfCluster { job: source.row.job })),
            false => Ok(source),
        };
    };
    let ask = |job| connection.run(async |client| client.job(job, 0).await).map_err(Failure::from_client);
    let mut details = ask(job)?;
    // A job that reduces again always names the job that has the files.
    if let Some(source) = details.job.reduce_again {
        details = ask(source)?;
    }
    check_reducible(&details.job, &details.spec, &details.stages).map_err(Failure::refused)?;
    Ok(KeptSource { row: details.job, spec: details.spec })
}
