//! The options of a job, from wherever they come.

use crate::key_options::KeyOptions;
use crate::record_formats::FormatOptions;
use anyhow::Context;
use api::{Codec, FlowStage, Notice, Replication};
use std::path::PathBuf;

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
    /// The cluster of a server runs the job, not this machine.
    pub in_cluster: bool,
    pub disk: Vec<String>,
    pub file: Vec<String>,
    pub env: Vec<(String, String)>,
    /// As it was given.
    pub env_file: Option<PathBuf>,
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
    pub unread: Option<Notice>,
    pub empty_input: Option<Notice>,
    pub speculation: Option<bool>,
    pub elastic: Option<bool>,
    pub replication: Option<Replication>,
    pub json: bool,
    /// Set for a stage of a flow.
    pub stage: Option<StagePlace>,
    /// Further options of a job of Hadoop Streaming.
    pub streaming: Option<Box<::streaming::StreamingJob>>,
}

/// A stage among those of its job file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagePlace {
    pub name: String,
    /// Positions of the stages that it reads, all before its own.
    pub reads: Vec<u32>,
    /// Others read it: it has no output of its own.
    pub feeds: bool,
}

impl StagePlace {
    /// Returns the stage as it is submitted, with this number of inputs of its own; the server adds the inputs from
    /// other stages.
    pub fn of_job(&self, named_inputs: u32) -> FlowStage {
        FlowStage { name: self.name.clone(), named_inputs, feeds: self.feeds, ..FlowStage::default() }
    }
}

/// A function as written, and the directory from which a relative path of its program counts.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionText {
    pub text: String,
    pub dir: PathBuf,
}

/// The mode of `--replication`; the error says what may be given.
pub fn replication_mode(text: &str) -> Result<Replication, String> {
    let known = Replication::WORDS.iter().find(|(word, _)| *word == text);
    let words = || Replication::WORDS.map(|(word, _)| word).join(", ");
    known.map(|(_, mode)| *mode).ok_or_else(|| format!("give one of {}", words()))
}

/// Sets variables that are given as `NAME=VALUE`.
pub fn add_variables(env: &mut Vec<(String, String)>, given: &[String]) -> anyhow::Result<()> {
    for text in given {
        let pair = text.split_once('=');
        let (name, value) = pair
            .with_context(|| format!("--env {text:?} has no `=`: write --env NAME=VALUE, as in LIMIT=3"))?;
        env.retain(|(known, _)| known != name);
        env.push((name.to_string(), value.to_string()));
    }
    Ok(())
}
