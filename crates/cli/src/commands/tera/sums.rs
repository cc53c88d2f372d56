//! `sailfish tera sum` and `sailfish tera validate`: a job whose maps sum stretches and whose reduce joins them.

use super::args::SumArgs;
use super::figures::{Figures, FileFigures};
use super::layouts;
use super::{EngineArgs, Resources};
use crate::commands::run::report_of;
use crate::engine;
use crate::engine::progress::Display;
use crate::exit::{FAILED, Failure};
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow};
use api::{Function, JobReport, Partitioning};
use program::Containment;
use std::path::Path;
use std::time::Duration;
use tera::{RowLayout, SUMMARY_BYTES, Summary};

/// The requested command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    SumUp,
    Validate,
}

/// Bytes of a pair in the output: number of the file, summary.
const PAIR_BYTES: usize = 4 + SUMMARY_BYTES;

/// Sums, prints, and exits with 1 if a validation finds disorder or no records.
pub fn run(args: &SumArgs, judge: Judge) -> Result<(), Failure> {
    let name = if judge == Judge::Validate { "tera validate" } else { "tera sum" };
    let figures = figures(&args.paths, &args.engine, args.layout, name)?;
    if judge == Judge::Validate && figures.total().records() == 0 {
        return Err(anyhow!("there must be at least one record to be validated").into());
    }
    let text = match args.engine.json {
        true => format!("{}\n", figures.json()),
        false if args.files => figures.text_by_file(judge),
        false => figures.text(judge),
    };
    print(&text)?;
    match figures.disorder() {
        Some(disorder) if judge == Judge::Validate => {
            tell(&format!("sailfish: not in order: {disorder}"));
            Err(Failure::said(FAILED))
        }
        _ => Ok(()),
    }
}

/// Returns the figures of each file, computed by a job.
pub fn figures(
    paths: &[String],
    engine: &EngineArgs,
    layout: Option<RowLayout>,
    name: &str,
) -> Result<Figures, Failure> {
    let resources = Resources::of(engine).map_err(Failure::refused)?;
    let inputs = mapper::input::list(paths).map_err(Failure::refused)?;
    layouts::check(&inputs, layout).map_err(Failure::refused)?;
    let files = inputs.iter().map(|input| FileFigures { path: input.path.clone(), summary: Summary::new() });
    let mut files: Vec<FileFigures> = files.collect();
    let input_bytes: u64 = inputs.iter().map(|input| input.size_bytes).sum();
    if input_bytes == 0 {
        return Ok(Figures { files, elapsed: Duration::ZERO });
    }
    let private = resources.private_output().map_err(Failure::refused)?;
    // A summary is small, whatever the input: one I-file, and splits by the input.
    let output = private.output();
    let mut spec = resources.job(name, output.clone(), 0).map_err(Failure::refused)?;
    let by_input = resources.job(name, output, input_bytes).map_err(Failure::refused)?;
    spec.layout.split_bytes = by_input.layout.split_bytes;
    spec.inputs = inputs;
    spec.mapper = Some(Function::Builtin { name: "tera-sum".to_string(), argument: None });
    spec.reducer = Some(Function::Builtin { name: "tera-join".to_string(), argument: None });
    spec.partitioning = Partitioning::Range;
    let splits = mapreduce::splits::plan(&spec.inputs, spec.layout.split_bytes, spec.formats.input);
    let plan = resources.plan(spec, splits);
    let display = Display::choose([&plan]);
    let ended = engine::execute(plan, resources.server.as_ref(), display, Containment::Subreaper)?;
    read_results(report_of(&ended)?, &private.output(), &mut files)?;
    Ok(Figures { files, elapsed: ended.elapsed })
}

/// Joins the summaries: range parts are consecutive, so a file may be split between several reduce tasks.
fn read_results(report: &JobReport, dir: &Path, files: &mut [FileFigures]) -> anyhow::Result<()> {
    for part in &report.parts {
        let path = dir.join(&part.name);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let (pairs, rest) = bytes.as_chunks::<PAIR_BYTES>();
        anyhow::ensure!(rest.is_empty(), "{} ends within a summary", path.display());
        for pair in pairs {
            let (index, summary) =
                pair.split_first_chunk::<4>().context("a pair must begin with a number")?;
            let file = files.get_mut(u32::from_be_bytes(*index) as usize);
            let file =
                file.with_context(|| format!("{} names a file that does not exist", path.display()))?;
            let summary =
                Summary::from_bytes(summary).with_context(|| format!("reading {}", path.display()))?;
            file.summary.append(&summary);
        }
    }
    Ok(())
}
