//! `sailfish rerun --downstream FILE`: workflows whose steps read a file run again. Steps that do not depend on it are
//! skipped.

use crate::commands::inspect::lineage::lineage;
use crate::commands::run::steps::{self, Target};
use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::terminal::tell;
use anyhow::{Context, anyhow};
use api::JobSpec;
use api::history::lineage::LineageDirection;
use api::job::resources::GenericResources;
use api::job::workflow::WorkflowSpec;
use clap::Args;
use ids::JobId;
use jobspec::state_dir;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RerunDownstreamArgs {
    /// Run the workflows again whose steps read this file, directly or through other steps
    #[arg(long, value_name = "FILE", required = true)]
    pub downstream: PathBuf,
    #[command(flatten)]
    pub from: StateArgs,
    /// Generic resource of this machine with its amount, as in gpu=1, for steps with `resources`; may be given several
    /// times. With --server the nodes have theirs
    #[arg(long, value_name = "NAME=AMOUNT", conflicts_with = "server")]
    pub resource: Vec<String>,
}

pub fn run(args: &RerunDownstreamArgs) -> Result<(), Failure> {
    let found = lineage(&args.from, &args.downstream, LineageDirection::Down)?;
    // The newest job of each name has the workflow as it is now.
    let mut newest: BTreeMap<(String, String), (JobId, JobSpec)> = BTreeMap::new();
    let jobs: BTreeSet<JobId> = found.runs.iter().map(|run| run.job).collect();
    for job in jobs {
        let Some(of) = store::details(&args.from, job, 0)?.job.step_of else { continue };
        let parent = store::details(&args.from, of.job, 0)?;
        // The specification of a workflow of another user is hidden.
        let workflow = parent.spec.kind.steps().and_then(|steps| steps.spec.read::<WorkflowSpec>().ok());
        let Some(step) = workflow.as_ref().and_then(|workflow| workflow.steps.first()) else { continue };
        let key = (parent.job.name.clone(), step.program.directory.display().to_string());
        if newest.get(&key).is_none_or(|(job, _)| *job < of.job) {
            newest.insert(key, (of.job, parent.spec));
        }
    }
    if newest.is_empty() {
        let path = args.downstream.display();
        return Err(Failure::refused(anyhow!("no finished run is known that read {path}")));
    }
    let state_dir = state_dir::state_dir(args.from.state.as_deref()).map_err(Failure::refused)?;
    let resources = GenericResources::parse(args.resource.iter().map(String::as_str)).context("--resource");
    let resources = resources.map_err(Failure::refused)?;
    let target = Target { resources, ..Target::at(args.from.site(), state_dir)? };
    let mut outcome = Ok(());
    for ((name, directory), (job, spec)) in newest {
        tell(&format!("sailfish: {name} in {directory}: runs again as in job {job}"));
        match steps::submit(&target, spec) {
            Ok(again) => {
                let skipped = steps::skipped(&steps::events(&target, again)?);
                tell(&format!("sailfish: {name}: succeeded{skipped}"));
            }
            Err(failure) => outcome = Err(failure),
        }
    }
    outcome
}
