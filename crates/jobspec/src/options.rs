//! The options of a job, from any front end.

use crate::key_options::KeyOptions;
use crate::record_formats::FormatOptions;
use anyhow::Context;
use api::{Codec, FlowStage, Notice, Replication};
use std::path::PathBuf;

/// The options of a run, not checked yet. Paths from a job file are relative to its directory, all others to
/// `start_dir`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// The user's current directory.
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
    /// True if the cluster of a server runs the job instead of this machine.
    pub in_cluster: bool,
    pub disk: Vec<String>,
    pub file: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Path as given.
    pub env_file: Option<PathBuf>,
    pub network: bool,
    /// Limits of programs, as in `memory=2G`.
    pub limit: Vec<String>,
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
    /// Replicas of an output that is a stored file of a cluster.
    pub replicas: Option<u32>,
    pub json: bool,
    /// Set for a stage of a flow.
    pub stage: Option<StagePlace>,
    /// Additional options of a Hadoop Streaming job.
    pub streaming: Option<Box<::streaming::StreamingJob>>,
}

/// The position of a stage in its job file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagePlace {
    pub name: String,
    /// Positions of the stages that it reads, all before its own position.
    pub reads: Vec<u32>,
    /// True if other stages read it: it has no separate output.
    pub feeds: bool,
}

impl StagePlace {
    /// Returns the stage for the submit, with the number of its own inputs; the server adds the inputs from other
    /// stages.
    pub fn of_job(&self, named_inputs: u32) -> FlowStage {
        FlowStage { name: self.name.clone(), named_inputs, feeds: self.feeds, ..FlowStage::default() }
    }
}

/// A function as written, and the directory to which a relative path of its program refers.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionText {
    pub text: String,
    pub dir: PathBuf,
}

/// Parses the mode of `--replication`; the error lists the valid words.
pub fn replication_mode(text: &str) -> Result<Replication, String> {
    let known = Replication::WORDS.iter().find(|(word, _)| *word == text);
    let words = || Replication::WORDS.map(|(word, _)| word).join(", ");
    known.map(|(_, mode)| *mode).ok_or_else(|| format!("give one of {}", words()))
}

/// Adds environment variables in the form `NAME=VALUE`.
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
