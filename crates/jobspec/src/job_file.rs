//! The options of a job file, overridden by those of the command line.

use crate::key_options::KeyOptions;
use crate::options::{FunctionText, JobOptions, StagePlace, add_variables};
use crate::paths;
use crate::record_formats::FormatOptions;
use anyhow::{Context, bail, ensure};
use api::JobFile;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest job file, in bytes.
const JOB_FILE_BYTES_MAX: u64 = 16 << 20;

/// The command line of a job, with every option in the form of a job file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The job file.
    pub job: Option<PathBuf>,
    /// Options; relative paths start at the current directory. Environment variables are separate.
    pub options: JobFile,
    /// Environment variables as `NAME=VALUE`, added to those of the job file.
    pub env: Vec<String>,
    /// True if it names a server, whose cluster runs the job.
    pub in_cluster: bool,
}

/// The request of a job file: a job, or the stages of a flow.
#[derive(Debug)]
pub enum Asked {
    Job(Box<JobOptions>),
    /// Stages, each after the stages that it reads.
    Flow(Vec<JobOptions>),
}

/// Reads the job file, if one is named, and overrides its options by the command line.
pub fn collect(line: CommandLine) -> anyhow::Result<Asked> {
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let (mut file, file_dir) = match &line.job {
        Some(path) => read_job_file(path, &start_dir)?,
        None => (JobFile::default(), start_dir.clone()),
    };
    match file.stage.take() {
        None => {
            ensure!(
                file.from.is_none(),
                "`from` belongs in a [[stage]]: a job of one stage has only `input`"
            );
            Ok(Asked::Job(Box::new(merge(line, file, &file_dir, start_dir)?)))
        }
        Some(stages) => {
            let flow = flow(&line, &file, stages, &file_dir, &start_dir);
            let file = line.job.as_deref().unwrap_or(Path::new(""));
            Ok(Asked::Flow(flow.with_context(|| format!("the job file {}", file.display()))?))
        }
    }
}

/// Returns the stages of a job file with the options that apply to all of them.
fn flow(
    line: &CommandLine,
    all: &JobFile,
    stages: Vec<JobFile>,
    file_dir: &Path,
    start_dir: &Path,
) -> anyhow::Result<Vec<JobOptions>> {
    let args = &line.options;
    let of_one_stage = [
        ("--input", args.input.is_some()),
        ("--mapper", args.mapper.is_some()),
        ("--combiner", args.combiner.is_some()),
        ("--reducer", args.reducer.is_some()),
    ];
    if let Some((option, _)) = of_one_stage.into_iter().find(|(_, given)| *given) {
        bail!("{option} belongs to one stage, and the job file has several: write it into its [[stage]]");
    }
    let outside = [
        ("input", all.input.is_some()),
        ("output", all.output.is_some()),
        ("mapper", all.mapper.is_some()),
        ("combiner", all.combiner.is_some()),
        ("reducer", all.reducer.is_some()),
        ("from", all.from.is_some()),
    ];
    if let Some((key, _)) = outside.into_iter().find(|(_, given)| *given) {
        bail!("`{key}` stands outside of the stages: write it into its [[stage]]");
    }
    ensure!(!stages.is_empty(), "`stage` is an empty list: write each stage under [[stage]]");
    let places = places(&stages)?;
    let ends = places.iter().filter(|place| !place.feeds).count();
    ensure!(
        args.output.is_none() || ends == 1,
        "--output belongs to one stage, and {ends} of the job file have an output: write it into its \
         [[stage]]"
    );
    let flow_name = flow_name(args, all, &stages);
    let mut options = Vec::with_capacity(stages.len());
    for (stage, place) in stages.into_iter().zip(places) {
        let name = place.name.clone();
        // Output and name on the command line belong to the whole flow.
        let output = args.output.clone().filter(|_| !place.feeds);
        ensure!(
            place.feeds || output.is_some() || stage.output.is_some(),
            "line {}: the stage {name:?} has no `output`, and no stage reads it",
            stage.line
        );
        let name_of_job = Some(format!("{flow_name}.{name}"));
        let with_name = JobFile { output, name: name_of_job, ..args.clone() };
        let line = CommandLine { options: with_name, ..line.clone() };
        let written = stage.clone();
        let stage = merge(line, stage.stage_of(all), file_dir, start_dir.to_path_buf());
        let mut stage = stage.with_context(|| format!("the stage {name:?}"))?;
        if place.feeds {
            check_feeding(&written).with_context(|| format!("the stage {name:?}"))?;
            // Options for all stages concern outputs here.
            (stage.overwrite, stage.keep_ifiles, stage.keep_for) = (false, None, None);
            (stage.formats.compress, stage.formats.part_extension) = (None, None);
            stage.formats.omit_empty_parts = false;
            stage.replicas = None;
        }
        options.push(JobOptions { stage: Some(place), ..stage });
    }
    Ok(options)
}

/// Returns the name of a flow: the given one, otherwise that of its last output, otherwise `flow`. The name of each job
/// appends the name of its stage.
fn flow_name(args: &JobFile, all: &JobFile, stages: &[JobFile]) -> String {
    let named = args.name.clone().or_else(|| all.name.clone());
    let output = args.output.as_ref().or_else(|| stages.iter().rev().find_map(|stage| stage.output.as_ref()));
    named.or_else(|| output.map(|output| paths::name_of(output))).unwrap_or_else(|| "flow".to_string())
}

/// Returns an error for options that have no meaning in a stage whose output others read.
fn check_feeding(stage: &JobFile) -> anyhow::Result<()> {
    let none = [
        ("output", stage.output.is_some(), "its output goes to the stages that read it"),
        ("overwrite", stage.overwrite.is_some(), "it replaces nothing"),
        ("compress", stage.compress.is_some(), "its output is cut into pieces for the stages that read it"),
        ("part_extension", stage.part_extension.is_some(), "its output has no files of its own"),
        ("omit_empty_parts", stage.omit_empty_parts.is_some(), "its output has no files of its own"),
        ("replicas", stage.replicas.is_some(), "its output is no stored file"),
        ("keep_ifiles", stage.keep_ifiles.is_some(), "only a last stage keeps its I-files"),
        ("keep_for", stage.keep_for.is_some(), "only a last stage keeps its I-files"),
    ];
    match none.into_iter().find(|(_, given, _)| *given) {
        Some((key, _, reason)) => bail!("`{key}` has no meaning in a stage that others read: {reason}"),
        None => Ok(()),
    }
}

/// Returns the reads of each stage, and whether others read it.
fn places(stages: &[JobFile]) -> anyhow::Result<Vec<StagePlace>> {
    let mut places: Vec<StagePlace> = Vec::with_capacity(stages.len());
    for stage in stages {
        let place = place(stage, &mut places).with_context(|| format!("line {}", stage.line))?;
        places.push(place);
    }
    Ok(places)
}

/// Returns the reads of one stage, and marks those stages as feeding others.
fn place(stage: &JobFile, before: &mut [StagePlace]) -> anyhow::Result<StagePlace> {
    let name = stage.name.clone().filter(|name| !name.is_empty());
    let name = name.context("the stage has no `name`: give it one, so that other stages can read it")?;
    ensure!(
        before.iter().all(|before| before.name != name),
        "two stages have the `name` {name:?}: rename one"
    );
    ensure!(stage.stage.is_none(), "the stage {name:?} contains stages: write them one after another");
    let mut reads = Vec::new();
    for from in stage.from.iter().flatten() {
        let known = before.iter().position(|before| before.name == *from);
        let known = known.with_context(|| {
            format!(
                "the stage {name:?} reads `from` {from:?}, and no stage before it has that name: write it above"
            )
        })?;
        before[known].feeds = true;
        reads.push(known as u32);
    }
    Ok(StagePlace { name, reads, feeds: false })
}

fn read_job_file(path: &Path, start_dir: &Path) -> anyhow::Result<(JobFile, PathBuf)> {
    let text = read_text(path).with_context(|| format!("reading the job file {} (--job)", path.display()))?;
    let mut file =
        JobFile::parse(&text).with_context(|| format!("reading the job file {}", path.display()))?;
    let absolute = start_dir.join(path);
    let dir = absolute.parent().unwrap_or(start_dir).to_path_buf();
    file.resolve_paths(&dir);
    Ok((file, dir))
}

/// Reads a text of limited size: a device or a wrong file is no job file.
fn read_text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let bytes = File::open(path)?.take(JOB_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(bytes as u64 <= JOB_FILE_BYTES_MAX, "it is larger than {} MiB", JOB_FILE_BYTES_MAX >> 20);
    Ok(text)
}

fn list(flags: Option<Vec<String>>, written: Option<Vec<String>>) -> Vec<String> {
    flags.or(written).unwrap_or_default()
}

/// Returns the options of a job that is a step of a workflow, whose file is in a directory.
pub(crate) fn options_of_step(mut file: JobFile, dir: &Path) -> anyhow::Result<JobOptions> {
    file.resolve_paths(dir);
    merge(CommandLine::default(), file, dir, dir.to_path_buf())
}

fn merge(
    line: CommandLine,
    file: JobFile,
    file_dir: &Path,
    start_dir: PathBuf,
) -> anyhow::Result<JobOptions> {
    let function = |flag: Option<String>, written: Option<String>| match (flag, written) {
        (Some(text), _) => Some(FunctionText { text, dir: start_dir.clone() }),
        (None, Some(text)) => Some(FunctionText { text, dir: file_dir.to_path_buf() }),
        (None, None) => None,
    };
    let args = line.options;
    let mut env = file.env.unwrap_or_default();
    add_variables(&mut env, &line.env)?;
    let flag = |given: Option<bool>, written: Option<bool>| given.or(written).unwrap_or(false);
    Ok(JobOptions {
        name: args.name.or(file.name),
        input: list(args.input, file.input),
        mapper: function(args.mapper, file.mapper),
        combiner: function(args.combiner, file.combiner),
        reducer: function(args.reducer, file.reducer),
        output: args.output.or(file.output),
        memory: args.memory.or(file.memory),
        slots: args.slots.or(file.slots),
        state: args.state.or(file.state),
        in_cluster: line.in_cluster,
        disk: list(args.disk, file.disk),
        file: list(args.file, file.file),
        env,
        env_file: args.env_file.or(file.env_file),
        network: args.network.or(file.network).unwrap_or(false),
        limit: list(args.limit, file.limit),
        codec: args.codec.or(file.codec),
        formats: FormatOptions {
            input_format: args.input_format.or(file.input_format),
            output_format: args.output_format.or(file.output_format),
            exchange: args.exchange.or(file.exchange),
            separator: args.separator.or(file.separator),
            key_fields: args.key_fields.or(file.key_fields),
            compress: args.compress.or(file.compress),
            part_extension: args.part_extension.or(file.part_extension),
            omit_empty_parts: flag(args.omit_empty_parts, file.omit_empty_parts),
        },
        keys: KeyOptions {
            order: args.order.or(file.order),
            reverse: flag(args.reverse, file.reverse),
            sort_keys: args.sort_keys.or(file.sort_keys),
            partitions: args.partitions.or(file.partitions),
            partition_fields: args.partition_fields.or(file.partition_fields),
            key_tails: flag(args.key_tails, file.key_tails),
        },
        total_order: flag(args.total_order, file.total_order),
        map_only: flag(args.map_only, file.map_only),
        overwrite: flag(args.overwrite, file.overwrite),
        keep_ifiles: args.keep_ifiles.or(file.keep_ifiles),
        keep_for: args.keep_for.or(file.keep_for),
        max_regenerations: args.max_regenerations.or(file.max_regenerations),
        no_sync: flag(args.no_sync, file.no_sync),
        unread: args.unread.or(file.unread),
        empty_input: args.empty_input.or(file.empty_input),
        speculation: args.speculation.or(file.speculation),
        elastic: args.elastic.or(file.elastic),
        replication: args.replication.or(file.replication),
        replicas: args.replicas.or(file.replicas),
        json: flag(args.json, file.json),
        stage: None,
        streaming: None,
        start_dir,
    })
}

#[cfg(test)]
mod tests {
    use super::{CommandLine, merge};
    use crate::options::FunctionText;
    use api::JobFile;
    use std::path::Path;

    #[test]
    fn the_command_line_wins() {
        let file = JobFile::parse(
            "input = [\"a\", \"b\"]\nmapper = \"./m\"\nreducer = \"./r\"\noverwrite = true\nno_sync = true\n\
             env = { A = \"1\", B = \"2\" }\nmemory = 100",
        );
        let options = JobFile {
            input: Some(vec!["c".into()]),
            mapper: Some("cat".into()),
            overwrite: Some(false),
            ..JobFile::default()
        };
        let env = vec!["B=3".into(), "C=x=y".into()];
        let line = CommandLine { options, env, ..CommandLine::default() };
        let options = merge(line, file.unwrap(), Path::new("/jobs"), "/start".into()).unwrap();
        assert_eq!(options.input, ["c"]);
        assert_eq!(options.mapper, Some(FunctionText { text: "cat".into(), dir: "/start".into() }));
        assert_eq!(options.reducer, Some(FunctionText { text: "./r".into(), dir: "/jobs".into() }));
        assert_eq!((options.overwrite, options.no_sync, options.json), (false, true, false));
        let env: Vec<String> = options.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["A=1", "B=3", "C=x=y"]);
        assert_eq!(options.memory.as_deref(), Some("100"));
    }

    #[test]
    fn an_environment_without_a_value_is_refused() {
        let line = CommandLine { env: vec!["A".into()], ..CommandLine::default() };
        let error = merge(line, JobFile::default(), Path::new("/"), "/".into()).unwrap_err();
        assert!(error.to_string().contains("NAME=VALUE"), "{error}");
    }
}
