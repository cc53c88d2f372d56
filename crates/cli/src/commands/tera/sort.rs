//! `sailfish tera sort`: an ordinary job with the identity functions and total order.

use super::Resources;
use super::args::SortArgs;
use super::layouts;
use crate::commands::run::report_of;
use crate::engine;
use crate::engine::progress::Display;
use crate::exit::Failure;
use crate::show::summary;
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::{Codec, Partitioning};
use jobspec::Plan;
use jobspec::paths::{self, ExistingOutput};
use program::Containment;

/// Sorts the inputs.
pub fn run(args: &SortArgs) -> Result<(), Failure> {
    let plan = plan_of(args).map_err(Failure::refused)?;
    let (json, start_dir) = (plan.json, plan.start_dir.clone());
    let site = args.engine.state.site();
    let display = Display::choose([&plan]);
    let ended = engine::execute(plan, site.as_ref(), display, Containment::Subreaper)?;
    let report = report_of(&ended)?;
    if json {
        let text = serde_json::to_string_pretty(report).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"))?;
    }
    tell(summary::succeeded(&ended, report, &start_dir).trim_end());
    Ok(())
}

fn plan_of(args: &SortArgs) -> anyhow::Result<Plan> {
    let resources = Resources::of(&args.engine)?;
    let inputs = mapper::input::list(&args.input).context("--input")?;
    layouts::check(&inputs, args.layout).context("--input")?;
    let existing = if args.overwrite { ExistingOutput::Replace } else { ExistingOutput::Refuse };
    let output = paths::output(&args.output, &resources.start_dir, existing)?;
    paths::check_output_against_inputs(&output, &args.input, &inputs, &resources.front_end())?;
    let input_bytes = inputs.iter().map(|input| input.size_bytes).sum();
    let mut spec = resources.job(&paths::name_of(&output), output, input_bytes)?;
    spec.inputs = inputs;
    spec.partitioning = Partitioning::Range;
    spec.overwrite = args.overwrite;
    spec.sync = !args.no_sync;
    spec.replication = args.replication.unwrap_or_default();
    // Modern rows are random bytes: compressing them costs time and gains nothing.
    spec.codec = args.codec.map_or(Codec::None, Codec::from);
    let splits = mapreduce::splits::plan(&spec.inputs, spec.layout.split_bytes, spec.formats.input);
    Ok(resources.plan(spec, splits))
}
