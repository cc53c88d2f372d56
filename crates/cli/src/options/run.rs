//! The options of `sailfish run`, which are those of a job file.

use crate::options::connect::StateArgs;
use crate::options::keys::KeyArgs;
use api::{Codec, JobFile, KeyOrder, Notice, Replication};
use clap::{Args, ValueEnum};
use jobspec::job_file::CommandLine;
use jobspec::replication_mode;
use std::path::PathBuf;

const FUNCTIONS: &str = "\
Functions F: a command line, split into words and run without a shell (lines in, KEY TAB VALUE
lines out; a reducer reads sorted KEY TAB VALUE lines; a word files:NAME is the path of a copy of that
stored file), or a built-in:
";

const RUN_EXAMPLES: &str = "\
Records (docs/records.md):
  ann<TAB>5<TAB>5<LF>    key ann, value 5<TAB>5: everything after the first separator
  bob<TAB><LF>           key bob, an empty value; the output keeps the separator
  carol<LF>              key carol: no separator, so the whole line is the key

Examples:
  sailfish run --input books/ --mapper builtin:words --reducer builtin:sum --output counts
  sailfish run --input 'logs/*.gz' --mapper 'python3 map.py' --file map.py \\
      --reducer builtin:count --output hits
  sailfish run --input big.txt --output sorted --total-order --memory 1G --disk scratch/
  sailfish run --input sizes.tsv --output sorted --total-order --order numeric --reverse
  sailfish run --job count.toml --overwrite

A job file has the same options in TOML: keys are the long options with _ for -, relative paths
start at the file's directory. Options on the command line override it; --env adds variables. For
example:
  input = [\"books/\", \"more/*.zst\"]
  mapper = \"python3 map.py\"
  file = \"map.py\"
  reducer = \"builtin:sum\"
  output = \"counts\"
  memory = \"1G\"
  total_order = true
  env = { LIMIT = \"3\" }";

/// Returns the help after the options.
pub fn run_help() -> String {
    format!("{FUNCTIONS}{}\n{RUN_EXAMPLES}", functions::help_text())
}

/// Compression of blocks of intermediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodecArg {
    None,
    Lz4,
    Zstd,
}

impl From<CodecArg> for Codec {
    fn from(codec: CodecArg) -> Codec {
        match codec {
            CodecArg::None => Codec::None,
            CodecArg::Lz4 => Codec::Lz4,
            CodecArg::Zstd => Codec::Zstd,
        }
    }
}

/// Flags also accept a value: `--overwrite=false` overrides a job file.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Read the job from a TOML file; options on the command line override it
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Files, directories, globs, s3:// URLs, files:NAME (stored files), or - for standard input; plain, gzip, zstd,
    /// bzip2 or xz, recognized by content
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub input: Vec<String>,
    /// Map function [default: identity, each line split at its first separator]
    #[arg(long, value_name = "F")]
    pub mapper: Option<String>,
    /// Function that folds map output before the shuffle; built-in reducers combine by themselves
    #[arg(long, value_name = "F")]
    pub combiner: Option<String>,
    /// Reduce function [default: the sorted pairs are written]
    #[arg(long, value_name = "F")]
    pub reducer: Option<String>,
    /// Output directory or s3:// URL, or - for standard output; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Name of the job [default: that of the output]
    #[arg(long)]
    pub name: Option<String>,
    /// Budget of the engine's own buffers, at least 64M [default: half of the machine or control group; with --server a
    /// quarter of what each node has for jobs]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Tasks that run at once, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Run programs in namespaces of their own, as nodes do: they see and signal no other process, and have an empty
    /// /tmp, /run and /dev/shm in memory. What they cannot do: docs/operations/containment.md
    #[arg(long, conflicts_with = "server")]
    pub contain: bool,
    /// Directory for intermediate data; may be given several times [default: disk in the state directory]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// File, or files:NAME (a stored file), to put into the directory in which functions run; may be given several times
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// Environment variable of functions, besides PATH, HOME, LANG and LC_*; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// File with more variables, one NAME=VALUE per line, for secrets: its content is kept out of rows, lists and logs
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// In a sandbox: let functions reach the network, on nodes that allow it (node --allow-network)
    #[arg(long)]
    pub network: bool,
    /// Limit of the programs of each attempt: processes=N, open-files=N, file-size=SIZE, disk=SIZE, memory=SIZE or
    /// time=DURATION; may be given several times. A limit of the node (node --limit) holds too. An attempt that passes a
    /// limit fails, and the job with it: docs/operations/containment.md
    #[arg(long, value_name = "NAME=VALUE")]
    pub limit: Vec<String>,
    /// Compression of intermediate data [default: lz4]
    #[arg(long, value_enum)]
    pub codec: Option<CodecArg>,
    /// Form of a record: lines, nul (lines that end with a zero byte), fixed:RECORD_BYTES[:KEY_BYTES] (the key is the
    /// first bytes of a record), or stretches (for programs that read the files themselves: each record is a line of
    /// JSON that describes a stretch of a file) [default: lines]
    #[arg(long, value_name = "FORMAT")]
    pub input_format: Option<String>,
    /// Form of the output: lines, nul, raw (key and value with nothing between) or discard. The output of a program is
    /// copied; only the ends of its records change, if --exchange has other ends [default: lines]
    #[arg(long, value_name = "FORMAT")]
    pub output_format: Option<String>,
    /// Form of the records that programs read and print: lines, nul (a zero byte after each record, with --input-format
    /// nul), or frames, in which keys and values are any bytes (docs/formats/program-frames.md) [default: nul if the
    /// input format is nul, otherwise lines]
    #[arg(long, value_name = "HOW")]
    pub exchange: Option<String>,
    /// One or more bytes between key and value, in input and output; \t \n \0 \\ \xNN are understood [default: \t]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub separator: Option<String>,
    /// Number of fields of a line that form the key, with the separators between them [default: 1]
    #[arg(long, value_name = "N")]
    pub key_fields: Option<u32>,
    /// Compression of the output parts: gzip, zstd, bzip2 or xz [default: none]
    #[arg(long, value_name = "FORMAT")]
    pub compress: Option<String>,
    /// Ending of the names of output parts, as in .parquet [default: none]
    #[arg(long, value_name = ".EXT")]
    pub part_extension: Option<String>,
    /// Leave out all but one of the output parts without records
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub omit_empty_parts: Option<bool>,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Sort all parts together: their concatenation is sorted, not only each part
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub total_order: Option<bool>,
    /// Skip the shuffle: the output of the mappers is the output of the job
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub map_only: Option<bool>,
    /// Replace an existing output with the new one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub overwrite: Option<bool>,
    /// Keep the intermediate files after the job, for `sailfish rerun-reduce` and `sailfish ifile`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub keep_ifiles: Option<bool>,
    /// Keep the intermediate files this long after the end, as in 30m, 12h or 7d; implies --keep-ifiles
    #[arg(long, value_name = "DURATION")]
    pub keep_for: Option<String>,
    /// Number of times that lost or damaged intermediate data is recomputed before the job fails; 0 fails at the first
    /// loss [default: 20]
    #[arg(long, value_name = "N")]
    pub max_regenerations: Option<u32>,
    /// Publish the output before it is synced to disk
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub no_sync: Option<bool>,
    /// If a mapper ends with success before it has read all of its input: tell (the summary names the mapper and the
    /// unread bytes) or fail [default: tell]
    #[arg(long, value_name = "tell|fail", value_parser = tell_or_fail)]
    pub unread: Option<Notice>,
    /// If an input has no file that is data: tell (a warning) or fail [default: tell]
    #[arg(long, value_name = "tell|fail", value_parser = tell_or_fail)]
    pub empty_input: Option<Notice>,
    /// In a cluster: whether a slow map or reduce task may get a speculative attempt on another node [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub speculation: Option<bool>,
    /// In a cluster: whether idle slots may take over the unread end of a long reduce task, which makes one more output
    /// part [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub elastic: Option<bool>,
    /// In a cluster: whether a second node gets the data between map and reduce: none, rack (another node of the rack
    /// gets the sorted data while the job runs), selective (maps append on other nodes and keep a copy to send again),
    /// auto (as rack, once recomputing the data would take longer than sending it), or sync (the job waits for the
    /// copy; for comparison) [default: auto]
    #[arg(long, value_name = "MODE", value_parser = replication_mode)]
    pub replication: Option<Replication>,
    /// In a cluster, with --output files:NAME: number of nodes that get each part of the output [default: 3, or the
    /// number of nodes if that is lower]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// Print the report as JSON on standard output
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub json: Option<bool>,
}

impl RunArgs {
    /// Converts the options to the form of a job file.
    pub fn command_line(self) -> CommandLine {
        let list = |given: Vec<String>| (!given.is_empty()).then_some(given);
        let in_cluster = self.state.server.is_some();
        let options = JobFile {
            name: self.name,
            input: list(self.input),
            mapper: self.mapper,
            combiner: self.combiner,
            reducer: self.reducer,
            output: self.output,
            memory: self.memory,
            slots: self.slots,
            state: self.state.state,
            disk: list(self.disk),
            file: list(self.file),
            env_file: self.env_file,
            network: self.network.then_some(true),
            limit: list(self.limit),
            codec: self.codec.map(Codec::from),
            input_format: self.input_format,
            output_format: self.output_format,
            exchange: self.exchange,
            separator: self.separator,
            key_fields: self.key_fields,
            compress: self.compress,
            part_extension: self.part_extension,
            omit_empty_parts: self.omit_empty_parts,
            order: self.keys.order.map(KeyOrder::from),
            reverse: self.keys.reverse,
            sort_keys: self.keys.sort_keys,
            partitions: self.keys.partitions,
            partition_fields: self.keys.partition_fields,
            key_tails: self.keys.key_tails,
            total_order: self.total_order,
            map_only: self.map_only,
            overwrite: self.overwrite,
            keep_ifiles: self.keep_ifiles,
            keep_for: self.keep_for,
            max_regenerations: self.max_regenerations,
            no_sync: self.no_sync,
            unread: self.unread,
            empty_input: self.empty_input,
            speculation: self.speculation,
            elastic: self.elastic,
            replication: self.replication,
            replicas: self.replicas,
            json: self.json,
            // Options of the command line belong to one job.
            env: None,
            stage: None,
            from: None,
            line: 0,
        };
        CommandLine { job: self.job, options, env: self.env, in_cluster }
    }
}

fn tell_or_fail(text: &str) -> Result<Notice, &'static str> {
    match text {
        "tell" => Ok(Notice::Tell),
        "fail" => Ok(Notice::Fail),
        _ => Err("give tell or fail"),
    }
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off"),
    }
}
