//! `sailfish tera gen`: a job without input, whose maps generate rows.

use super::Resources;
use super::args::GenArgs;
use crate::commands::run::report_of;
use crate::engine;
use crate::engine::progress::Display;
use crate::exit::Failure;
use crate::show::quantity::{bytes, count, counted, rate, seconds};
use crate::show::summary::output_sums;
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::{GeneratedRows, MapReduce, TeraLayout};
use jobspec::Plan;
use jobspec::paths::{self, ExistingOutput};
use program::Containment;
use tera::{RowKind, RowLayout};

/// Generates the rows.
pub fn run(args: &GenArgs) -> Result<(), Failure> {
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
    let (output_bytes, _) = output_sums(report);
    let elapsed = ended.elapsed.as_secs_f64();
    let output = ended.spec.output.strip_prefix(&start_dir).unwrap_or(&ended.spec.output);
    tell(&format!(
        "sailfish: job {} made {} {} rows in {}: {} in {}, {}; {}",
        ended.submitted.job,
        count(report.input.records),
        args.layout,
        seconds(elapsed),
        bytes(output_bytes),
        counted(report.parts.len() as u64, "part"),
        rate(output_bytes as f64 / elapsed.max(0.001)),
        output.display()
    ));
    Ok(())
}

/// Returns the layout in the form of job specifications.
pub fn layout_in_job(layout: RowLayout) -> TeraLayout {
    match layout {
        RowLayout::Modern => TeraLayout::Modern,
        RowLayout::Legacy => TeraLayout::Legacy,
        RowLayout::Ascii => TeraLayout::Ascii,
    }
}

fn plan_of(args: &GenArgs) -> anyhow::Result<Plan> {
    if args.skewed {
        RowKind::with_skewed_keys(args.layout).context("--skewed")?;
    }
    let resources = Resources::of(&args.engine)?;
    let existing = if args.overwrite { ExistingOutput::Replace } else { ExistingOutput::Refuse };
    let output = paths::output(&args.output, &resources.start_dir, existing)?;
    let generated = GeneratedRows {
        layout: layout_in_job(args.layout),
        skewed: args.skewed,
        start: args.start.0,
        rows: args.rows.count(),
    };
    let mut spec = resources.job(&paths::name_of(&output), output, generated.bytes())?;
    spec.kind = MapReduce::MapOnly { generate: Some(generated) }.into();
    spec.overwrite = args.overwrite;
    spec.sync = !args.no_sync;
    let splits = mapper::generate::plan(&generated, spec.layout.split_bytes);
    Ok(resources.plan(spec, splits))
}
