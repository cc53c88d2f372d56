//! The checks before the submit of a job, and the resulting specification.

pub(crate) mod job_step;
pub(crate) mod pinning;
pub(crate) mod stepped;

use crate::front_end::{FrontEnd, StoredPin, StoredShape, StoredUse};
use crate::key_options::{KeyFields, OrderScope};
use crate::options::{FunctionText, JobOptions};
use crate::paths::{self, ExistingOutput};
use crate::record_formats::{self, Functions};
use crate::standard_input::{self, StandardInput};
use crate::standard_output::{self, PrivateOutput};
use crate::{duration, memory_size, state_dir, streaming};
use anyhow::{Context, anyhow, bail, ensure};
use api::control::SLOTS_MAX;
use api::seen::SEEN_GROUPS_MAX;
use api::shipping::SHIPPED_FILE_BYTES_MAX;
use api::{
    Codec, Exchange, Formats, Function, InputFile, JobKind, JobSpec, KeyRules, Layout, MapReduce, Notice,
    Partitioning, RecordFormat, SEEN_PREFIX, STORED_PREFIX, SeenBy, Split,
};
use mapreduce::layout::{self, LayoutRequest};
use pinning::{Pinned, Pinning, is_pinned};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A checked job, ready to submit.
#[derive(Debug)]
pub struct Plan {
    pub spec: JobSpec,
    pub splits: Vec<Split>,
    pub state_dir: PathBuf,
    pub start_dir: PathBuf,
    pub json: bool,
    pub held: Held,
}

/// Resources of a job that its front end holds.
#[derive(Debug, Default)]
pub struct Held {
    /// Private directory of the output, if the output will be printed.
    pub standard_output: Option<PrivateOutput>,
    /// Private directory of the output, if the output will be stored, and the name of the stored file.
    pub stored_output: Option<(PrivateOutput, String)>,
    /// File that must stay open while the job runs.
    pub standard_input: Option<std::fs::File>,
    /// Pins of stored files that must live while the job runs.
    pub stored_pins: Vec<StoredPin>,
}

/// Checks the options and makes the job. Every error names the option, and the user can fix it.
pub fn plan(mut options: JobOptions, front_end: &dyn FrontEnd) -> anyhow::Result<Plan> {
    check_conflicts(&options)?;
    let (keep_ifiles, keep_seconds) = keep(&options)?;
    let state_dir = state_dir::state_dir(options.state.as_deref())?;
    let Programs { functions: [mapper, combiner, reducer], files, pinned } =
        programs(&mut options, &state_dir, front_end)?;
    let env_file = env_file(&options)?;
    let (memory_bytes, slots) = resources(options.memory.as_deref(), options.slots, front_end)?;
    let formats = formats(&options, [&mapper, &combiner, &reducer])?;
    let mut inputs = listed_inputs(&options, formats.input, front_end)?;
    let output_dir = output_dir(&options, &inputs.files, front_end)?;
    let disks = disks(&options, &state_dir)?;

    let combiner = combiner.or_else(|| combiner_of(reducer.as_ref(), options.keys.key_tails));
    let standard_input = inputs.take_standard_input(&disks[0], formats.input, options.in_cluster)?;
    let Inputs { files: inputs, seen_by, stored_pins, .. } = inputs;
    let input_bytes = inputs.iter().map(|input| input.size_bytes).sum();
    let request = LayoutRequest { memory_bytes, slots, input_bytes, combines: combiner.is_some() };
    let layout = layout::derive(&request)?;
    check_record_fits(&formats, &layout)?;
    let splits = mapreduce::splits::plan(&inputs, layout.split_bytes, formats.input);
    let stored_pins = stored_pins.into_iter().chain(pinned.pins).collect();
    let held = Held { standard_input, stored_pins, ..Held::default() };
    let held = Held { stored_output: stored_output(&options, &formats, &state_dir, front_end)?, ..held };
    let (output, held) = held.unless_named(output_dir, &disks[0])?;
    let name = options.name.clone().unwrap_or_else(|| standard_output::name_of(&output));
    let (partitioning, keys) = key_rules(&options, &formats, input_bytes)?;
    let spec = JobSpec {
        kind: kind(options.map_only),
        inputs,
        seen_by,
        mapper,
        combiner,
        reducer,
        output,
        overwrite: options.overwrite,
        partitioning,
        codec: options.codec.unwrap_or(Codec::Lz4),
        memory_bytes,
        slots,
        disks,
        files,
        pinned: pinned.files,
        env: options.env,
        env_file,
        network: options.network,
        limits: crate::limits::parse(&options.limit)?,
        keep_ifiles,
        formats,
        keys,
        keep_seconds,
        max_regenerations: options.max_regenerations.unwrap_or(api::MAX_REGENERATIONS),
        unread: options.unread.unwrap_or_default(),
        speculation: options.speculation.unwrap_or(true),
        elastic: options.elastic.unwrap_or(true),
        replication: options.replication.unwrap_or_default(),
        output_replicas: options.replicas,
        // An output that is printed and removed need not be synced; one that is stored is synced then.
        sync: !options.no_sync && held.standard_output.is_none() && held.stored_output.is_none(),
        layout,
        stage: options.stage.as_ref().map(|stage| stage.of_job(options.input.len() as u32)),
        ..JobSpec::named(name)
    };
    let (start_dir, json) = (options.start_dir, options.json);
    let plan = Plan { spec, splits, state_dir, start_dir, json, held };
    streaming::complete(options.streaming.as_deref(), plan)
}

impl Held {
    /// Returns the output directory of the job: the named one, or a private one.
    fn unless_named(mut self, named: Option<PathBuf>, disk: &Path) -> anyhow::Result<(PathBuf, Self)> {
        if let Some((private, _)) = &self.stored_output {
            return Ok((private.output(), self));
        }
        let (output, standard_output) = standard_output::unless_named(named, disk)?;
        self.standard_output = standard_output;
        Ok((output, self))
    }
}

/// The programs of a job, and the files for them.
struct Programs {
    /// Mapper, combiner and reducer.
    functions: [Option<Function>; 3],
    files: Vec<PathBuf>,
    pinned: Pinned,
}

/// Checks the programs and their files, and pins those that are stored files.
fn programs(
    options: &mut JobOptions,
    state_dir: &Path,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<Programs> {
    let mut files = paths::files(&options.file, &options.start_dir)?;
    let mut mapper = function("--mapper", options.mapper.as_ref(), &files)?;
    let mut combiner = function("--combiner", options.combiner.as_ref(), &files)?;
    let mut reducer = function("--reducer", options.reducer.as_ref(), &files)?;
    check_functions(options, [&mapper, &combiner, &reducer], &files)?;
    let mut pinning = Pinning::new(front_end, state_dir);
    pinning.pin_files("--file", &mut files)?;
    let links = options.streaming.iter_mut().flat_map(|job| &mut job.streaming.links);
    pinning.pin_files("--file", links.map(|link| &mut link.path))?;
    pinning.pin_function("--mapper", mapper.as_mut())?;
    pinning.pin_function("--combiner", combiner.as_mut())?;
    pinning.pin_function("--reducer", reducer.as_mut())?;
    Ok(Programs { functions: [mapper, combiner, reducer], files, pinned: pinning.finish() })
}

fn formats(
    options: &JobOptions,
    [mapper, combiner, reducer]: [&Option<Function>; 3],
) -> anyhow::Result<Formats> {
    let functions = Functions {
        mapper: mapper.as_ref(),
        combiner: combiner.as_ref(),
        reducer: reducer.as_ref(),
        map_only: options.map_only,
    };
    let formats = record_formats::formats(&options.formats, functions)?;
    check_formats(options, &formats)?;
    Ok(formats)
}

fn kind(map_only: bool) -> JobKind {
    match map_only {
        true => MapReduce::MapOnly { generate: None }.into(),
        false => MapReduce::Shuffled { generate: None }.into(),
    }
}

/// Returns the combiner of a job without one: a built-in reducer folds on the map side too, except over keys with
/// tails, which would be lost.
fn combiner_of(reducer: Option<&Function>, key_tails: bool) -> Option<Function> {
    reducer.filter(|reducer| !key_tails && functions::combines_by_itself(reducer)).cloned()
}

fn disks(options: &JobOptions, state_dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    match options.disk.is_empty() {
        // The directory below the state directory is created with the job.
        true => Ok(vec![state_dir.join("disk")]),
        false => paths::disks(&options.disk, &options.start_dir),
    }
}

/// Returns memory and slots of a job: the requested ones, otherwise those available here or in the cluster.
pub fn resources(
    memory: Option<&str>,
    slots: Option<u32>,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<(u64, u32)> {
    let asked_bytes = memory
        .map(|text| memory_size::parse(text).with_context(|| format!("--memory {text:?}")))
        .transpose()?;
    let (memory_bytes, slots) = front_end.resources(asked_bytes, slots)?;
    ensure!((1..=SLOTS_MAX).contains(&slots), "--slots {slots} is out of range: give 1 to {SLOTS_MAX}");
    Ok((memory_bytes, slots))
}

/// Returns the output directory; None if the output is printed.
fn output_dir(
    options: &JobOptions,
    inputs: &[InputFile],
    front_end: &dyn FrontEnd,
) -> anyhow::Result<Option<PathBuf>> {
    if options.stage.as_ref().is_some_and(|stage| stage.feeds) {
        return Ok(Some(PathBuf::new()));
    }
    let output = options.output.as_deref().context("no output: name a directory with --output DIR")?;
    let is_stored = output.to_str().is_some_and(is_stored);
    if is_stored && options.in_cluster {
        return Ok(Some(output.to_path_buf()));
    }
    if output.as_os_str() == standard_output::ARGUMENT || is_stored {
        return Ok(None);
    }
    let existing = if options.overwrite { ExistingOutput::Replace } else { ExistingOutput::Refuse };
    let output = paths::output(output, &options.start_dir, existing)?;
    paths::check_output_against_inputs(&output, &options.input, inputs, front_end)?;
    Ok(Some(output))
}

/// Returns a private output directory for an output that is stored on this machine, and its name; None for any other
/// output. The nodes of a cluster store an output by themselves.
fn stored_output(
    options: &JobOptions,
    formats: &Formats,
    state_dir: &Path,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<Option<(PrivateOutput, String)>> {
    let text = options.output.as_deref().and_then(Path::to_str);
    let Some(text) = text.filter(|text| is_stored(text)) else { return Ok(None) };
    let shape = StoredShape::of(formats);
    let dir = front_end.stored_output(state_dir, text, shape).with_context(|| format!("--output {text}"))?;
    let Some(dir) = dir else { return Ok(None) };
    Ok(Some((PrivateOutput::create_stored(&dir, text)?, text.to_string())))
}

/// The inputs in the order of the arguments. Standard input is inserted last, after all other checks, because it may
/// have to be copied.
struct Inputs {
    files: Vec<InputFile>,
    /// Position of standard input among the files, and its number among the arguments.
    standard_input_at: Option<(usize, u32)>,
    seen_by: Vec<SeenBy>,
    stored_pins: Vec<StoredPin>,
}

impl Inputs {
    fn list(options: &JobOptions, format: RecordFormat, front_end: &dyn FrontEnd) -> anyhow::Result<Inputs> {
        let arguments = &options.input;
        standard_input::check(arguments)?;
        let mut inputs = Inputs {
            files: Vec::new(),
            standard_input_at: None,
            seen_by: Vec::new(),
            stored_pins: Vec::new(),
        };
        let mut named = 0;
        for (index, between) in arguments.split(|argument| argument == standard_input::ARGUMENT).enumerate() {
            if index > 0 {
                inputs.standard_input_at = Some((inputs.files.len(), named));
                named += 1;
            }
            // Names of stored files, and of files that only some nodes see, stand between paths.
            let kind = |argument: &str| (is_stored(argument), is_seen(argument));
            for stretch in between.chunk_by(|one, other| kind(one) == kind(other)) {
                let listed = match stretch.first().map_or((false, false), |argument| kind(argument)) {
                    (true, _) => inputs.list_stored(stretch, options, front_end)?,
                    (_, true) => inputs.list_seen(stretch, options, front_end)?,
                    _ => mapper::input::list(stretch).context("--input")?,
                };
                let behind = |input: InputFile| InputFile { named: named + input.named, ..input };
                inputs.files.extend(listed.into_iter().map(behind));
                named += stretch.len() as u32;
            }
        }
        mapper::input::check_whole_records(&inputs.files, format).context("--input")?;
        Ok(inputs)
    }

    fn list_stored(
        &mut self,
        names: &[String],
        options: &JobOptions,
        front_end: &dyn FrontEnd,
    ) -> anyhow::Result<Vec<InputFile>> {
        let state_dir = state_dir::state_dir(options.state.as_deref())?;
        let mut files = Vec::new();
        for (named, name) in names.iter().enumerate() {
            let listed = front_end.stored_inputs(&state_dir, name, StoredUse::Input);
            let listed = listed.with_context(|| format!("--input {name}"))?;
            let listed_files = listed.files.into_iter();
            files.extend(listed_files.map(|input| InputFile { named: named as u32, ..input }));
            self.stored_pins.extend(listed.pin);
        }
        Ok(files)
    }

    fn list_seen(
        &mut self,
        names: &[String],
        options: &JobOptions,
        front_end: &dyn FrontEnd,
    ) -> anyhow::Result<Vec<InputFile>> {
        let mut files = Vec::new();
        for (named, name) in names.iter().enumerate() {
            ensure!(
                options.in_cluster,
                "--input {name} needs --server: only nodes of a cluster see such files"
            );
            ensure!(
                options.streaming.is_none(),
                "--input {name} does not go with jobs of Hadoop Streaming: give a path that all nodes see"
            );
            let listed = front_end.seen_inputs(name.strip_prefix(SEEN_PREFIX).unwrap_or(name));
            let listed = listed.with_context(|| format!("--input {name}"))?;
            let before = self.seen_by.len() as u32;
            let of_job = |input: InputFile| InputFile {
                named: named as u32,
                seen: input.seen.map(|group| before + group),
                ..input
            };
            files.extend(listed.files.into_iter().map(of_job));
            self.seen_by.extend(listed.seen_by);
        }
        ensure!(
            self.seen_by.len() <= SEEN_GROUPS_MAX,
            "--input: more than {SEEN_GROUPS_MAX} groups of nodes see the inputs: name fewer"
        );
        Ok(files)
    }

    fn take_standard_input(
        &mut self,
        dir: &Path,
        format: RecordFormat,
        travels: bool,
    ) -> anyhow::Result<Option<std::fs::File>> {
        let Some((place, named)) = self.standard_input_at else { return Ok(None) };
        // A cluster gets it as a shipped file.
        let bytes_max = travels.then_some(SHIPPED_FILE_BYTES_MAX);
        let StandardInput { input, file } = standard_input::take(dir, bytes_max)?;
        mapper::input::check_whole_records(std::slice::from_ref(&input), format).context("--input")?;
        self.files.insert(place, InputFile { named, ..input });
        Ok(Some(file))
    }
}

fn is_seen(argument: &str) -> bool {
    argument.starts_with(SEEN_PREFIX)
}

fn is_stored(argument: &str) -> bool {
    argument.starts_with(STORED_PREFIX)
}

/// Lists the inputs. Fails for a name without any data file, which is often a mistake.
fn listed_inputs(
    options: &JobOptions,
    format: RecordFormat,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<Inputs> {
    let inputs = Inputs::list(options, format, front_end)?;
    let with_files: BTreeSet<u32> = inputs.files.iter().map(|input| input.named).collect();
    let is_empty = |(named, argument): &(usize, &String)| {
        argument.as_str() != standard_input::ARGUMENT && !with_files.contains(&(*named as u32))
    };
    for (_, argument) in options.input.iter().enumerate().filter(is_empty) {
        let problem = format!(
            "--input {argument} has no file that is data: files whose names begin with _ or . are \
                     ignored"
        );
        ensure!(options.empty_input != Some(Notice::Fail), problem);
        front_end.warn(&problem);
    }
    Ok(inputs)
}

/// Returns an error if the memory is too small for a record of fixed length.
fn check_record_fits(formats: &Formats, layout: &Layout) -> anyhow::Result<()> {
    let RecordFormat::Fixed { record_bytes, .. } = formats.input else { return Ok(()) };
    let record_bytes = u64::from(record_bytes);
    ensure!(
        record_bytes <= layout.record_bytes_max,
        "--input-format: a record of that length is too long: {}",
        functions::record_too_long(record_bytes, layout.record_bytes_max)
    );
    Ok(())
}

fn check_conflicts(options: &JobOptions) -> anyhow::Result<()> {
    let reads_others = options.stage.as_ref().is_some_and(|stage| !stage.reads.is_empty());
    ensure!(
        reads_others || !options.input.is_empty(),
        "no input: name files, directories or globs with --input PATH"
    );
    check_stage(options)?;
    if options.map_only {
        let shuffles = [
            ("--combiner", options.combiner.is_some()),
            ("--reducer", options.reducer.is_some()),
            ("--total-order", options.total_order),
            ("--keep-ifiles", options.keep_ifiles == Some(true)),
            ("--keep-for", options.keep_for.is_some()),
        ];
        let given = shuffles.into_iter().chain(options.keys.given()).find(|(_, given)| *given);
        if let Some((option, _)) = given {
            bail!("{option} has no meaning with --map-only, which has no shuffle: leave one of them out");
        }
    }
    if options.output.as_deref().is_some_and(|output| output.as_os_str() == standard_output::ARGUMENT) {
        let discards = options.formats.output_format.as_deref() == Some("discard");
        let conflicts = [
            ("--json", options.json, "both write to standard output"),
            ("--overwrite", options.overwrite, "there is nothing to replace"),
            ("--output-format discard", discards, "there is nothing to print"),
        ];
        if let Some((option, _, reason)) = conflicts.iter().find(|(_, given, _)| *given) {
            bail!("{option} does not go with --output -: {reason}; leave one of them out");
        }
    }
    let stores = options.output.as_deref().and_then(Path::to_str).is_some_and(is_stored);
    ensure!(
        options.replicas.is_none() || stores && options.in_cluster,
        "--replicas has a meaning only for an output that a cluster stores: give --server, and --output files:NAME"
    );
    if options.combiner.is_some() && options.reducer.is_none() {
        bail!("--combiner without --reducer would write partial results: add a --reducer");
    }
    Ok(())
}

fn key_rules(
    options: &JobOptions,
    formats: &Formats,
    input_bytes: u64,
) -> anyhow::Result<(Partitioning, KeyRules)> {
    let fields = KeyFields { separator: &formats.map_output.separator, count: key_fields(formats) };
    let scope = if options.total_order { OrderScope::AllParts } else { OrderScope::EachPart };
    options.keys.rules(scope, fields, input_bytes)
}

/// Returns the number of fields in a key, if known: keys of fixed length and keys in frames are arbitrary bytes.
fn key_fields(formats: &Formats) -> Option<u32> {
    let in_lines =
        !matches!(formats.input, RecordFormat::Fixed { .. }) && formats.exchange != Exchange::Frames;
    in_lines.then_some(formats.map_output.key_fields)
}

/// Checks the options that depend on the input format and on the exchange with programs.
fn check_formats(options: &JobOptions, formats: &Formats) -> anyhow::Result<()> {
    check_key_tails(options, formats.exchange)?;
    check_stretches(options, formats.input)
}

/// Checks the requirements of keys with tails, besides a shuffle: `--exchange frames`, and no combiner.
fn check_key_tails(options: &JobOptions, exchange: Exchange) -> anyhow::Result<()> {
    if !options.keys.key_tails {
        return Ok(());
    }
    ensure!(
        exchange == Exchange::Frames,
        "--key-tails needs --exchange frames: lines cannot mark where the tail of a key begins"
    );
    ensure!(
        options.combiner.is_none(),
        "--combiner does not go with --key-tails: a combiner writes the keys that it reads, and these have \
         tails; leave one of them out"
    );
    Ok(())
}

/// Returns an error for inputs whose stretches programs cannot read by themselves: the output of other stages, and
/// standard input.
fn check_stretches(options: &JobOptions, format: RecordFormat) -> anyhow::Result<()> {
    if format != RecordFormat::Stretches {
        return Ok(());
    }
    ensure!(
        options.stage.as_ref().is_none_or(|stage| stage.reads.is_empty()),
        "`from` does not go with --input-format stretches: the output of a stage is not in a file that a \
         program can read by itself; leave one of them out"
    );
    if let Some(input) = options.input.iter().find(|input| is_seen(input)) {
        bail!(
            "--input {input} does not go with --input-format stretches: it is not a file that a program \
             can read by itself; name files"
        );
    }
    ensure!(
        !options.input.iter().any(|input| input == standard_input::ARGUMENT),
        "--input - does not go with --input-format stretches: standard input is not a file that a program \
         can read by itself; name files"
    );
    Ok(())
}

/// Returns an error for standard output or standard input in a stage of a flow.
fn check_stage(options: &JobOptions) -> anyhow::Result<()> {
    if options.stage.is_none() {
        return Ok(());
    }
    let is_dash = |text: &str| text == standard_output::ARGUMENT;
    let prints = options.output.as_deref().and_then(Path::to_str).is_some_and(is_dash);
    ensure!(!prints, "`output = \"-\"`: a stage prints nothing: name a directory");
    ensure!(
        !options.input.iter().any(|input| is_dash(input)),
        "`input = \"-\"`: a stage cannot read standard input: name files"
    );
    Ok(())
}

/// Returns whether intermediate data is kept, and for how many seconds unless forever.
fn keep(options: &JobOptions) -> anyhow::Result<(bool, Option<u64>)> {
    let Some(text) = &options.keep_for else { return Ok((options.keep_ifiles.unwrap_or(false), None)) };
    ensure!(options.keep_ifiles != Some(false), "--keep-for {text} contradicts --keep-ifiles=false");
    let kept = duration::parse(text).with_context(|| format!("--keep-for {text:?}"))?;
    Ok((true, Some(kept.as_secs())))
}

/// Checks the environment variables of programs, and returns the absolute path of the file with variables.
fn env_file(options: &JobOptions) -> anyhow::Result<Option<PathBuf>> {
    check_environment(&options.env)?;
    options.env_file.as_deref().map(|path| paths::env_file(path, &options.start_dir)).transpose()
}

pub fn check_environment(env: &[(String, String)]) -> anyhow::Result<()> {
    for (name, value) in env {
        ensure!(
            !name.is_empty() && !name.contains('='),
            "--env {name}={value}: the name is empty or has a `=`"
        );
        ensure!(!name.contains('\0') && !value.contains('\0'), "--env {name:?} holds a zero byte");
    }
    Ok(())
}

/// Parses a function. A relative path of its program refers to the place where it was written, unless a `--file` of
/// that name will be in the working directory of the program.
pub fn function(
    option: &'static str,
    written: Option<&FunctionText>,
    files: &[PathBuf],
) -> anyhow::Result<Option<Function>> {
    let Some(written) = written else { return Ok(None) };
    let mut function =
        Function::parse(&written.text).with_context(|| format!("{option} {:?}", written.text))?;
    if let Function::Command { words } = &mut function
        && let Some(absolute) = absolute_program(&words[0], &written.dir, files)
    {
        words[0] = absolute;
    }
    Ok(Some(function))
}

/// Returns the absolute path of a program that is given by a path; None for a bare name, for a stored file, and for a
/// shipped file, which is in the working directory.
pub fn absolute_program(program: &str, dir: &Path, files: &[PathBuf]) -> Option<String> {
    let plain_name = program.strip_prefix("./").unwrap_or(program);
    let is_file = files.iter().any(|file| api::name_beside(file).is_some_and(|name| name == plain_name));
    if !program.contains('/') || is_stored(program) || is_file {
        return None;
    }
    std::path::absolute(dir.join(program)).ok()?.to_str().map(str::to_string)
}

fn check_functions(
    options: &JobOptions,
    functions: [&Option<Function>; 3],
    files: &[PathBuf],
) -> anyhow::Result<()> {
    let [map, combine, reduce] = functions;
    if let Some(function) = map {
        functions::check_mapper(function).context("--mapper")?;
    }
    if let Some(function) = combine {
        functions::check_combiner(function).context("--combiner")?;
    }
    if let Some(function) = reduce {
        functions::check_reducer(function).context("--reducer")?;
    }
    if let (Some(combine), Some(reduce)) = (combine, reduce) {
        ensure!(
            functions::combiner_fits(combine, reduce),
            "--combiner {} would change the result of --reducer {}: leave the combiner out; a built-in \
             reducer combines by itself",
            combine.display(),
            reduce.display()
        );
    }
    for (option, function) in [("--mapper", map), ("--combiner", combine), ("--reducer", reduce)] {
        if let Some(Function::Command { words }) = function
            && !streaming::ships(options.streaming.as_deref(), &words[0])
            && !is_pinned(&words[0], files)
            // A bare name is resolved on the nodes.
            && (!options.in_cluster || words[0].contains('/'))
        {
            program::check_program(words, files, &options.start_dir, &options.env).map_err(|error| {
                anyhow!("{option}: {error}; give the path of an executable file, or ship it with --file")
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
