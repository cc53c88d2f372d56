//! Files with `[[stage]]` in place of `[[step]]`: MapReduce jobs that read each other.

use super::RunArgs;
use crate::commands::run::{flow, planned};
use crate::exit::Failure;
use crate::show::quantity::counted;
use anyhow::{Context, anyhow};
use api::JobFile;
use jobspec::JobOptions;
use jobspec::job_file::{self, Asked, CommandLine};
use program::Containment;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file with stages, in bytes, as for `sailfish run --job`.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Returns whether a file has stages and no steps. A file that cannot be read has none: its reader says why.
pub fn has_stages(path: &Path) -> bool {
    let mut text = String::new();
    let Ok(file) = File::open(path) else { return false };
    if file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).is_err() {
        return false;
    }
    let begins = |name: &str| {
        let mut tables = text.lines().filter_map(|line| line.trim_start().strip_prefix("[["));
        tables.any(|table| table.trim_start().starts_with(name))
    };
    begins("stage") && !begins("step")
}

/// Refuses a file with stages where only steps make sense.
pub fn check_steps(path: &Path, verb: &str) -> Result<(), Failure> {
    match has_stages(path) {
        false => Ok(()),
        true => Err(Failure::refused(anyhow!(
            "{} has stages, and `sailfish workflow {verb}` is for steps: use `sailfish workflow check` or `run`",
            path.display()
        ))),
    }
}

fn stages(path: &Path, line: CommandLine) -> Result<Vec<JobOptions>, Failure> {
    match job_file::collect(line).map_err(Failure::refused)? {
        Asked::Flow(stages) => Ok(stages),
        Asked::Job(_) => Err(Failure::refused(anyhow!("{} has no stages", path.display()))),
    }
}

/// Checks a file with stages. Returns their number as text.
pub fn check(path: &Path) -> Result<String, Failure> {
    let stages = stages(path, CommandLine { job: Some(path.to_path_buf()), ..CommandLine::default() })?;
    let count = stages.len() as u64;
    for options in stages {
        let name = options.stage.clone().unwrap_or_default().name;
        let plan = planned(options, None).with_context(|| format!("the stage {name:?}"));
        plan.map_err(Failure::refused)?;
    }
    Ok(counted(count, "stage"))
}

/// Runs a file with stages, as `sailfish run --job` does.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let of_steps = [
        (args.detach, "--detach"),
        (args.priority != 0, "--priority"),
        (args.place.upload, "--upload"),
        (!args.resource.is_empty(), "--resource"),
    ];
    if let Some((_, option)) = of_steps.into_iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::refused(anyhow!(
            "{option} is for files with steps, and {} has stages: leave it out",
            args.file.file.display()
        )));
    }
    let options = JobFile {
        name: args.name.clone(),
        slots: args.slots,
        state: args.place.state.clone(),
        ..JobFile::default()
    };
    let (job, site) = (Some(args.file.file.clone()), args.place.site());
    let line = CommandLine { job, options, in_cluster: site.is_some(), ..CommandLine::default() };
    flow::run(stages(&args.file.file, line)?, site, Containment::Subreaper)
}
