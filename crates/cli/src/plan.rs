//! Everything that can be checked before a job is submitted, and the specification that comes out of it.

use crate::job_options::{FunctionText, JobOptions};
use crate::paths;
use crate::{duration, machine, memory_size, store};
use anyhow::{Context, anyhow, bail, ensure};
use api::{Codec, Function, JobSpec, Partitioning, Split};
use mapreduce::layout::{self, LayoutRequest};
use std::path::PathBuf;

/// A job that may be submitted.
#[derive(Debug)]
pub struct Plan {
    pub spec: JobSpec,
    pub splits: Vec<Split>,
    pub state_dir: PathBuf,
    pub start_dir: PathBuf,
    pub json: bool,
}

/// Checks the options and makes the job. Every error is the user's to mend and names the option.
pub fn plan(options: JobOptions) -> anyhow::Result<Plan> {
    check_conflicts(&options)?;
    let (keep_ifiles, keep_seconds) = keep(&options)?;
    let files = paths::files(&options.file, &options.start_dir)?;
    check_environment(&options.env)?;
    let mapper = function("--mapper", options.mapper.as_ref(), &files)?;
    let combiner = function("--combiner", options.combiner.as_ref(), &files)?;
    let reducer = function("--reducer", options.reducer.as_ref(), &files)?;
    check_functions(&options, [&mapper, &combiner, &reducer], &files)?;
    let memory_bytes = match &options.memory {
        Some(text) => memory_size::parse(text).with_context(|| format!("--memory {text:?}"))?,
        None => machine::default_memory_bytes(),
    };
    let slots = options.slots.unwrap_or_else(machine::default_slots);
    let slots_max = machine::SLOTS_MAX;
    ensure!((1..=slots_max).contains(&slots), "--slots {slots} is out of range: give 1 to {slots_max}");

    let inputs = mapper::input::list(&options.input).context("--input")?;
    let output = options.output.as_deref().context("no output: name a directory with --output DIR")?;
    let output = paths::output(output, &options.start_dir, options.overwrite)?;
    paths::check_output_against_inputs(&output, &options.input, &inputs)?;
    let state_dir = store::state_dir(options.state.as_deref())?;
    // The one under the state is made with the job.
    let disks = match options.disk.is_empty() {
        true => vec![state_dir.join("disk")],
        false => paths::disks(&options.disk, &options.start_dir)?,
    };

    // A built-in reducer folds on the map side as well, where nothing else does.
    let combiner = combiner.or_else(|| reducer.clone().filter(reducer::combines_by_itself));
    let combines = combiner.is_some();
    let input_bytes = inputs.iter().map(|input| input.size_bytes).sum();
    // Its error names the option.
    let layout = layout::derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines })?;
    let splits = mapper::split::plan(&inputs, layout.split_bytes);
    let name = options.name.clone().unwrap_or_else(|| paths::name_of(&output));
    let partitioning = if options.total_order { Partitioning::Range } else { Partitioning::Hash };
    let spec = JobSpec {
        name,
        inputs,
        mapper,
        combiner,
        reducer,
        map_only: options.map_only,
        output,
        overwrite: options.overwrite,
        partitioning,
        codec: options.codec.unwrap_or(Codec::Lz4),
        memory_bytes,
        slots,
        disks,
        files,
        env: options.env,
        keep_ifiles,
        formats: Default::default(),
        keys: Default::default(),
        generate: None,
        streaming: None,
        reduce_again: None,
        keep_seconds,
        sync: !options.no_sync,
        layout,
    };
    Ok(Plan { spec, splits, state_dir, start_dir: options.start_dir, json: options.json })
}

fn check_conflicts(options: &JobOptions) -> anyhow::Result<()> {
    ensure!(!options.input.is_empty(), "no input: name files, directories or globs with --input PATH");
    if options.map_only {
        let shuffles = [
            ("--combiner", options.combiner.is_some()),
            ("--reducer", options.reducer.is_some()),
            ("--total-order", options.total_order),
            ("--keep-ifiles", options.keep_ifiles == Some(true)),
            ("--keep-for", options.keep_for.is_some()),
        ];
        if let Some((option, _)) = shuffles.iter().find(|(_, given)| *given) {
            bail!("{option} has no meaning with --map-only, which has no shuffle: leave one of them out");
        }
    }
    if options.combiner.is_some() && options.reducer.is_none() {
        bail!("--combiner without --reducer would write partial results: add a --reducer");
    }
    Ok(())
}

/// Whether intermediate data is kept, and for how many seconds where not for good.
fn keep(options: &JobOptions) -> anyhow::Result<(bool, Option<u64>)> {
    let Some(text) = &options.keep_for else { return Ok((options.keep_ifiles.unwrap_or(false), None)) };
    ensure!(options.keep_ifiles != Some(false), "--keep-for {text} contradicts --keep-ifiles=false");
    let kept = duration::parse(text).with_context(|| format!("--keep-for {text:?}"))?;
    Ok((true, Some(kept.as_secs())))
}

pub(crate) fn check_environment(env: &[(String, String)]) -> anyhow::Result<()> {
    for (name, value) in env {
        ensure!(
            !name.is_empty() && !name.contains('='),
            "--env {name}={value}: the name is empty or has a `=`"
        );
        ensure!(!name.contains('\0') && !value.contains('\0'), "--env {name:?} holds a zero byte");
    }
    Ok(())
}

/// Reads a function. A relative path to its program counts from where it was written, unless a `--file` of
/// that name will lie in the directory in which it runs.
pub(crate) fn function(
    option: &'static str,
    written: Option<&FunctionText>,
    files: &[PathBuf],
) -> anyhow::Result<Option<Function>> {
    let Some(written) = written else { return Ok(None) };
    let mut function =
        Function::parse(&written.text).with_context(|| format!("{option} {:?}", written.text))?;
    if let Function::Command { words } = &mut function {
        let program = words[0].clone();
        let plain_name = program.strip_prefix("./").unwrap_or(&program);
        let shipped = files.iter().any(|file| file.file_name().is_some_and(|name| name == plain_name));
        if program.contains('/')
            && !shipped
            && let Some(absolute) = written.dir.join(&program).to_str()
        {
            words[0] = absolute.to_string();
        }
    }
    Ok(Some(function))
}

fn check_functions(
    options: &JobOptions,
    functions: [&Option<Function>; 3],
    files: &[PathBuf],
) -> anyhow::Result<()> {
    let [map, combine, reduce] = functions;
    if let Some(function) = map {
        mapper::check_mapper(function).context("--mapper")?;
    }
    if let Some(function) = combine {
        reducer::check_combiner(function).context("--combiner")?;
    }
    if let Some(function) = reduce {
        reducer::check_reducer(function).context("--reducer")?;
    }
    for (option, function) in [("--mapper", map), ("--combiner", combine), ("--reducer", reduce)] {
        if let Some(Function::Command { words }) = function {
            program::check_program(words, files, &options.start_dir, &options.env).map_err(|error| {
                anyhow!("{option}: {error}; give the path of an executable file, or ship it with --file")
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
