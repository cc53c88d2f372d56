//! A workflow as its user writes it, in TOML.

use crate::JobFile;
use crate::job::resources::GenericResources;
use crate::job::workflow_input::WorkflowInput;
use crate::job::workflow_param::{WorkflowParam, WorkflowSweep};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A workflow file. Relative paths start at its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowFile {
    /// Name of its job; by default that of the file.
    pub name: Option<String>,
    /// Values that steps use by name.
    #[serde(default)]
    pub params: BTreeMap<String, WorkflowParam>,
    #[serde(default)]
    pub step: Vec<WorkflowFileStep>,
}

/// A step: a command with the files that it reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowFileStep {
    pub name: String,
    /// The step stands for one step for each combination of these values.
    #[serde(default)]
    pub sweep: BTreeMap<String, WorkflowSweep>,
    /// A path with wildcards, as in `data/{sample}.txt`: the step stands for one step for each file that matches.
    pub each: Option<String>,
    /// `partition`: the step stands for one step for each partition of the stored files that `each` matches.
    pub per: Option<String>,
    /// A command for the shell.
    pub command: Option<String>,
    /// A program and its arguments, in place of a command.
    pub words: Option<Vec<String>>,
    /// A MapReduce job in place of a command, with the keys of a job file.
    pub job: Option<Box<JobFile>>,
    #[serde(default)]
    pub inputs: Vec<WorkflowInput>,
    #[serde(default)]
    pub outputs: Vec<PathBuf>,
    /// Input that is the standard input; it need not be listed among the inputs.
    pub stdin: Option<PathBuf>,
    /// Output that holds the standard output; it need not be listed among the outputs.
    pub stdout: Option<PathBuf>,
    /// Those of its inputs and outputs that the program opens by name, once, and reads or writes from begin to end.
    #[serde(default)]
    pub streams: Vec<PathBuf>,
    /// True: its outputs stay even if other steps read them.
    #[serde(default)]
    pub keep: bool,
    /// Names of steps that must succeed before, besides those whose outputs it reads.
    #[serde(default)]
    pub after: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Cores that it needs; default 1.
    pub cores: Option<u32>,
    /// Memory that it needs on a node of a server, as in `2G`.
    pub memory: Option<String>,
    /// Architecture of its node, as in `x86_64`.
    pub arch: Option<String>,
    /// Generic resources of its node, as in `{ gpu = 1 }`.
    #[serde(default)]
    pub resources: GenericResources,
    /// Number of times that the program runs again after a failure.
    #[serde(default)]
    pub retries: u32,
    /// Longest time of a run, as in `90s` or `2h`.
    pub timeout: Option<String>,
    /// True: the program reaches the network also in a sandbox.
    #[serde(default)]
    pub network: bool,
    /// True: it runs in the directory of the workflow file, and reads and writes its files there.
    #[serde(default)]
    pub in_place: bool,
    /// False: it runs even if a finished run of it is known, and may read any file.
    pub cache: Option<bool>,
    /// Files and directories that it may read below the user's own directories, beside its inputs. A change of them does
    /// not count.
    #[serde(default)]
    pub reads: Vec<PathBuf>,
    /// Files that it depends on without reading them as inputs, such as lock files. A change of them counts.
    #[serde(default)]
    pub environment: Vec<PathBuf>,
}

impl WorkflowFile {
    /// Keys of the file, and of a step.
    pub const KEYS: [&str; 3] = ["name", "params", "step"];
    pub const STEP_KEYS: [&str; 26] = [
        "name",
        "sweep",
        "each",
        "per",
        "command",
        "words",
        "job",
        "inputs",
        "outputs",
        "stdin",
        "stdout",
        "streams",
        "keep",
        "after",
        "env",
        "cores",
        "memory",
        "arch",
        "resources",
        "retries",
        "timeout",
        "network",
        "in_place",
        "cache",
        "reads",
        "environment",
    ];
}
