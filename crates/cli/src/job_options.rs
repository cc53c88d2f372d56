//! What the user asked for: the options of the command line over those of the job file.

use crate::args::RunArgs;
use crate::connect::Site;
use crate::key_options::KeyOptions;
use crate::record_formats::FormatOptions;
use anyhow::Context;
use api::{Codec, JobFile, KeyOrder, Replication};
use std::path::{Path, PathBuf};

/// The options of a run, not checked yet. Paths from a job file count from its directory, the others from
/// `start_dir`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// Directory in which the user typed the command.
    pub start_dir: PathBuf,
    pub name: Option<String>,
    pub input: Vec<String>,
    pub mapper: Option<FunctionText>,
    pub combiner: Option<FunctionText>,
    pub reducer: Option<FunctionText>,
    pub output: Option<PathBuf>,
    pub memory: Option<String>,
    pub slots: Option<u32>,
    pub state: Option<PathBuf>,
    pub server: Option<Site>,
    pub disk: Vec<String>,
    pub file: Vec<String>,
    pub env: Vec<(String, String)>,
    pub codec: Option<Codec>,
    pub formats: FormatOptions,
    pub keys: KeyOptions,
    pub total_order: bool,
    pub map_only: bool,
    pub overwrite: bool,
    pub keep_ifiles: Option<bool>,
    pub keep_for: Option<String>,
    pub max_regenerations: Option<u32>,
    pub no_sync: bool,
    pub speculation: Option<bool>,
    pub elastic: Option<bool>,
    pub replication: Option<Replication>,
    pub json: bool,
    /// What a job of Hadoop Streaming has besides.
    pub streaming: Option<Box<::streaming::StreamingJob>>,
}

/// A function as written, and the directory from which a relative path of its program counts.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionText {
    pub text: String,
    pub dir: PathBuf,
}

/// Reads the job file, where one is named, and lays the command line over it.
pub fn collect(args: RunArgs) -> anyhow::Result<JobOptions> {
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let (file, file_dir) = match &args.job {
        Some(path) => read_job_file(path, &start_dir)?,
        None => (JobFile::default(), start_dir.clone()),
    };
    merge(args, file, &file_dir, start_dir)
}

fn read_job_file(path: &Path, start_dir: &Path) -> anyhow::Result<(JobFile, PathBuf)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the job file {} (--job)", path.display()))?;
    let mut file =
        JobFile::parse(&text).with_context(|| format!("reading the job file {}", path.display()))?;
    let absolute = start_dir.join(path);
    let dir = absolute.parent().unwrap_or(start_dir).to_path_buf();
    file.resolve_paths(&dir);
    Ok((file, dir))
}

fn merge(args: RunArgs, file: JobFile, file_dir: &Path, start_dir: PathBuf) -> anyhow::Result<JobOptions> {
    let function = |flag: Option<String>, written: Option<String>| match (flag, written) {
        (Some(text), _) => Some(FunctionText { text, dir: start_dir.clone() }),
        (None, Some(text)) => Some(FunctionText { text, dir: file_dir.to_path_buf() }),
        (None, None) => None,
    };
    let list = |flags: Vec<String>, written: Option<Vec<String>>| {
        if flags.is_empty() { written.unwrap_or_default() } else { flags }
    };
    let mut env = file.env.unwrap_or_default();
    for text in &args.env {
        let pair = text.split_once('=');
        let (name, value) = pair
            .with_context(|| format!("--env {text:?} has no `=`: write --env NAME=VALUE, as in LIMIT=3"))?;
        env.retain(|(known, _)| known != name);
        env.push((name.to_string(), value.to_string()));
    }
    let codec = args.codec.map(Codec::from);
    let server = args.state.site();
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
        state: args.state.state.or(file.state),
        server,
        disk: list(args.disk, file.disk),
        file: list(args.file, file.file),
        env,
        codec: codec.or(file.codec),
        formats: FormatOptions {
            input_format: args.input_format.or(file.input_format),
            output_format: args.output_format.or(file.output_format),
            separator: args.separator.or(file.separator),
            key_fields: args.key_fields.or(file.key_fields),
            compress: args.compress.or(file.compress),
        },
        keys: KeyOptions {
            order: args.keys.order.map(KeyOrder::from).or(file.order),
            reverse: flag(args.keys.reverse, file.reverse),
            sort_keys: args.keys.sort_keys.or(file.sort_keys),
            partitions: args.keys.partitions.or(file.partitions),
            partition_fields: args.keys.partition_fields.or(file.partition_fields),
        },
        total_order: flag(args.total_order, file.total_order),
        map_only: flag(args.map_only, file.map_only),
        overwrite: flag(args.overwrite, file.overwrite),
        keep_ifiles: args.keep_ifiles.or(file.keep_ifiles),
        keep_for: args.keep_for.or(file.keep_for),
        max_regenerations: args.max_regenerations.or(file.max_regenerations),
        no_sync: flag(args.no_sync, file.no_sync),
        speculation: args.speculation.or(file.speculation),
        elastic: args.elastic.or(file.elastic),
        replication: args.replication.or(file.replication),
        json: flag(args.json, file.json),
        streaming: None,
        start_dir,
    })
}

#[cfg(test)]
mod tests {
    use super::{FunctionText, merge};
    use crate::args::RunArgs;
    use api::JobFile;
    use std::path::Path;

    #[test]
    fn the_command_line_wins() {
        let file = JobFile::parse(
            "input = [\"a\", \"b\"]\nmapper = \"./m\"\nreducer = \"./r\"\noverwrite = true\nno_sync = true\n\
             env = { A = \"1\", B = \"2\" }\nmemory = 100",
        );
        let args = RunArgs {
            input: vec!["c".into()],
            mapper: Some("cat".into()),
            overwrite: Some(false),
            env: vec!["B=3".into(), "C=x=y".into()],
            ..RunArgs::default()
        };
        let options = merge(args, file.unwrap(), Path::new("/jobs"), "/start".into()).unwrap();
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
        let args = RunArgs { env: vec!["A".into()], ..RunArgs::default() };
        let error = merge(args, JobFile::default(), Path::new("/"), "/".into()).unwrap_err();
        assert!(error.to_string().contains("NAME=VALUE"), "{error}");
    }
}
