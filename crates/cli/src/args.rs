//! The command line.

use crate::cluster::{LocalArgs, NodeArgs, ServerArgs};
use crate::connect::{CredentialArgs, SERVER_VARIABLE, Site, server_of_environment};
use crate::drill::{self, DrillArgs};
use crate::exit::Failure;
use crate::explain::ExplainArgs;
use crate::intermediate_files::FileCommand;
use crate::jobs;
use crate::key_args::KeyArgs;
use crate::shuffle_bench::BenchCommand;
use crate::submit::SubmitArgs;
use crate::tera_jobs::TeraCommand;
use crate::tokens::TokenCommand;
use api::history::JobState;
use api::{Codec, JobFile, KeyOrder, Notice, Replication};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use client::Blocking;
use jobspec::job_file::CommandLine;
use jobspec::replication_mode;
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes of `sailfish run`:
  0         the output is complete and in place
  1         the job failed: the machine or the engine
  2         an option, an input, a path or the state cannot be used
  75        no server answers, or Ctrl-C came while none did: the job goes on, and `sailfish wait` waits for it
  130       stopped by Ctrl-C
  1 to 255  the exit code of a mapper, combiner or reducer that failed three times;
            128 + N where signal N ended it
The other commands: 0, 1 where a check finds a difference or damage, 2 for a bad argument.";

const FUNCTIONS: &str = "\
Functions F: a command line, split into words and run without a shell (lines in, KEY TAB VALUE
lines out; a reducer reads sorted KEY TAB VALUE lines), or a built-in:
";

const RUN_EXAMPLES: &str = "\
Records (docs/records.md):
  ann<TAB>5<TAB>5<LF>    key ann, value 5<TAB>5: what follows the first separator
  bob<TAB><LF>           key bob, an empty value; it stays a line with a separator
  carol<LF>              key carol: no separator, so the whole line is the key

Examples:
  sailfish run --input books/ --mapper builtin:words --reducer builtin:sum --output counts
  sailfish run --input 'logs/*.gz' --mapper 'python3 map.py' --file map.py \\
      --reducer builtin:count --output hits
  sailfish run --input big.txt --output sorted --total-order --memory 1G --disk scratch/
  sailfish run --input sizes.tsv --output sorted --total-order --order numeric --reverse
  sailfish run --job count.toml --overwrite

A job file says the same in TOML: keys are the long options with _ for -, relative paths count
from the file's own directory. Options on the command line win; --env adds to the file's. For
example:
  input = [\"books/\", \"more/*.zst\"]
  mapper = \"python3 map.py\"
  file = \"map.py\"
  reducer = \"builtin:sum\"
  output = \"counts\"
  memory = \"1G\"
  total_order = true
  env = { LIMIT = \"3\" }";

fn run_help() -> String {
    format!("{FUNCTIONS}{}\n{RUN_EXAMPLES}", functions::help_text())
}

const SUBMIT_EXAMPLES: &str = "\
Examples:
  sailfish submit -- ./simulate --seed 7
  sailfish submit --server http://127.0.0.1:7070 --count 500 -- sh -c './simulate --seed $SAILFISH_INDEX'";

/// MapReduce over I-files: bring map and reduce functions, get a result that is proven complete.
#[derive(Debug, Parser)]
#[command(name = "sailfish", version, max_term_width = 100, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// File of lines AWS_NAME=VALUE: how and as whom s3:// URLs are read and written, over the environment
    #[arg(long, global = true, value_name = "FILE", env = "SAILFISH_OBJECTS_CONFIG", display_order = 1000)]
    pub objects_config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line. Ends the process where it asks for help or cannot be understood.
    pub fn read() -> Cli {
        let words: Vec<OsString> = std::env::args_os().collect();
        let mut command = Cli::command();
        if server_of_environment().is_some() && !names_a_state(&words) {
            command = with_server_variable(command);
        }
        Cli::from_arg_matches(&command.get_matches_from(words)).unwrap_or_else(|error| error.exit())
    }
}

/// Whether the jobs of this machine are asked for, which is said before the words of a program.
fn names_a_state(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    options.into_iter().any(|word| word == "--state" || word.starts_with("--state="))
}

/// Every `--server` of the commands takes its value from the environment where it is not given.
fn with_server_variable(command: clap::Command) -> clap::Command {
    let has_server = command.get_arguments().any(|arg| arg.get_id() == "server");
    let command =
        if has_server { command.mut_arg("server", |arg| arg.env(SERVER_VARIABLE)) } else { command };
    command.mut_subcommands(with_server_variable)
}

/// State of jobs: a directory of this machine, or the server of a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct StateArgs {
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Work with the cluster of this server, as in http://127.0.0.1:7070, in place of this machine; with commas between,
    /// also the addresses of its standbys: the next one is asked where one does not answer
    #[arg(long, value_name = "URL", conflicts_with = "state")]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

impl StateArgs {
    /// A connection to the server, where one is named.
    pub fn connection(&self) -> Result<Option<Blocking>, Failure> {
        self.site().map(|site| site.connect()).transpose()
    }

    /// The server with what it is shown, where one is named.
    pub fn site(&self) -> Option<Site> {
        let url = self.server.clone()?;
        Some(Site { url, credentials: self.credentials.clone() })
    }
}

#[derive(Debug, Args)]
pub struct NodesArgs {
    #[command(subcommand)]
    pub action: Option<NodesAction>,
    /// The server they work for, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL", global = true)]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Action on a node.
#[derive(Debug, Subcommand)]
pub enum NodesAction {
    /// Empty a node: it gets no new work, what running jobs need of it moves to other nodes, and when nobody needs it
    /// any more, it ends
    Drain {
        /// Name of the node, or its number as in #5 (quoted in a shell: '#5')
        node: String,
        /// Wait until it is empty
        #[arg(long)]
        wait: bool,
    },
}

/// A job of a cluster.
#[derive(Debug, Args)]
pub struct ClusterJobArgs {
    /// Number of the job
    pub job: i64,
    /// The server that has it, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Go on printing what the program writes, until the job is over
    #[arg(long, short)]
    pub follow: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a MapReduce job
    #[command(after_help = run_help(), after_long_help = format!("{}\n\n{EXIT_CODES}", run_help()))]
    Run(Box<RunArgs>),
    /// Run a Hadoop Streaming command line as it is; `sailfish streaming --help` lists what is supported
    #[command(disable_help_flag = true, override_help = streaming::HELP)]
    Streaming(StreamingArgs),
    /// Reduce the kept I-files of a job again, without running its maps
    #[command(after_help = RERUN_EXAMPLES)]
    RerunReduce(Box<RerunArgs>),
    /// Serve a cluster: nodes come and work, clients hand jobs in with --server
    Server(ServerArgs),
    /// Work for a server: run tasks, hold intermediate data
    Node(NodeArgs),
    /// Run a whole cluster on this machine, as separate processes, until Ctrl-C
    Local(LocalArgs),
    /// Run any executable as a job of one task, here or on a cluster
    #[command(after_help = SUBMIT_EXAMPLES)]
    Submit(SubmitArgs),
    /// Print what the program of a job of one task wrote
    Logs(LogsArgs),
    /// Tell a job of a cluster to stop
    Cancel(ClusterJobArgs),
    /// Wait for the end of a job of a cluster; ends with the code that the job deserves
    Wait(ClusterJobArgs),
    /// Say why the attempts of a job run where they do
    Explain(ExplainArgs),
    /// List the nodes of a cluster, or empty one
    Nodes(NodesArgs),
    /// Say who may do what on a server: make, revoke and list tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// List jobs, newest first
    Jobs(JobsArgs),
    /// Show one job: what it was, its stages, attempts, failures and events
    Show(ShowArgs),
    /// Show the report of a job: plan, bytes, chunks and fill, retrievals, times, waste, proof
    Report(ReportArgs),
    /// Draw what each slot did over time: map, scan and merge, reduce, failed attempts
    Timeline(TimelineArgs),
    /// Remove kept I-files whose time is over, or those of jobs
    Gc(GcArgs),
    /// Check an output directory against its report
    Verify(VerifyArgs),
    /// Check the kept I-files of a job: every run and replica, and the proof
    #[command(after_help = FSCK_EXIT_CODES)]
    Fsck(FsckArgs),
    /// Let faults strike a cluster while jobs with known answers run on it, and say what was lost: nothing
    #[command(after_help = drill::EXAMPLES)]
    Drill(DrillArgs),
    /// Ask the state a read-only SQL statement
    #[command(
        after_help = "Examples:\n  sailfish state \"select name from sqlite_master where type = 'table'\"\n  \
        sailfish state \"select job, name, state from jobs order by job desc\" --limit 5"
    )]
    State(QueryArgs),
    /// The sort benchmark: make rows as gensort does, sort them, judge them as valsort does
    #[command(subcommand)]
    Tera(TeraCommand),
    /// Measure parts of the engine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Answer one question of the console, from standard input: for servers
    #[command(hide = true)]
    ConsoleQuestion,
    /// Intermediate files of a cluster for any program; and a look into the files of I-files (runs and raw chunks), kept with
    /// `run --keep-ifiles`
    #[command(subcommand)]
    Ifile(IfileCommand),
}

const RERUN_EXAMPLES: &str = "\
The job must have run with --keep-ifiles or --keep-for. Inputs, order, formats, files and environment are those of
that job; its I-files are read and never changed.

Examples:
  sailfish run --input logs/ --mapper 'python3 map.py' --file map.py --keep-for 2d --output pairs
  sailfish rerun-reduce 1 --reducer 'python3 reduce.py' --file reduce.py --output first-try
  sailfish rerun-reduce 1 --reducer builtin:list --output lists";

const FSCK_EXIT_CODES: &str = "\
Exit codes:
  0    every file is whole and the proof agrees
  1    there is damage, or the proof does not agree; what is printed names all of it
  2    nobody could look: there is no such job, it kept nothing, or a node that has a part of it is away";

/// How blocks of intermediate data are compressed.
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

/// Options without a value may still be given one: `--overwrite=false` wins over a job file.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Read the job from a TOML file; options given here win over it
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Files, directories, globs or s3:// URLs, or - for standard input; plain, gzip, zstd, bzip2 or xz, told apart by
    /// content
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
    /// Directory for intermediate data; may be given several times [default: disk in the state directory]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// File to put into the directory in which functions run; may be given several times
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// Environment of functions, besides PATH, HOME, LANG and LC_*; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// File with more variables, one NAME=VALUE a line, for secrets: what it says stands in no row, list or log
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
    /// Compression of intermediate data [default: lz4]
    #[arg(long, value_enum)]
    pub codec: Option<CodecArg>,
    /// Form of a record: lines, nul (lines that end with a zero byte), fixed:RECORD_BYTES[:KEY_BYTES] (the key is the first
    /// bytes of a record), or stretches (for programs that read the files themselves: each record is a line of JSON that
    /// describes a stretch of a file) [default: lines]
    #[arg(long, value_name = "FORMAT")]
    pub input_format: Option<String>,
    /// How pairs are written: lines, nul, raw (key and value with nothing between) or discard; what a
    /// program prints is copied, but where --exchange has other ends its records end anew [default: lines]
    #[arg(long, value_name = "FORMAT")]
    pub output_format: Option<String>,
    /// How programs and the engine speak: lines, nul (a zero byte behind each record, with --input-format nul), or frames, in
    /// which keys and values are any bytes (docs/formats/program-frames.md) [default: nul where the input format is nul, else lines]
    #[arg(long, value_name = "HOW")]
    pub exchange: Option<String>,
    /// Stands between key and value, in and out: one or more bytes; \t \n \0 \\ \xNN are understood
    /// [default: \t]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub separator: Option<String>,
    /// So many fields of a line, with the separators between them, are the key [default: 1]
    #[arg(long, value_name = "N")]
    pub key_fields: Option<u32>,
    /// Compression of the output parts: gzip, zstd, bzip2 or xz [default: none]
    #[arg(long, value_name = "FORMAT")]
    pub compress: Option<String>,
    /// The names of output parts end with it, as in .parquet [default: nothing]
    #[arg(long, value_name = ".EXT")]
    pub part_extension: Option<String>,
    /// Leave output parts without records out, all but one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub omit_empty_parts: Option<bool>,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// The parts one after another are sorted, not only each by itself
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub total_order: Option<bool>,
    /// No shuffle: what the mappers put out is the output
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub map_only: Option<bool>,
    /// Exchange an existing output for the new one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub overwrite: Option<bool>,
    /// Keep the intermediate files after the job, for `sailfish rerun-reduce` and `sailfish ifile`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub keep_ifiles: Option<bool>,
    /// Keep them for so long after the end, as in 30m, 12h or 7d; implies --keep-ifiles
    #[arg(long, value_name = "DURATION")]
    pub keep_for: Option<String>,
    /// How often intermediate data that was lost (with a node, a disk, or damaged) is made again before the job
    /// fails; 0 fails at the first loss [default: 20]
    #[arg(long, value_name = "N")]
    pub max_regenerations: Option<u32>,
    /// Do not wait for the disk before the output is published
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub no_sync: Option<bool>,
    /// When a mapper ends with success before it has read all of its input: tell (the summary names the mapper and the
    /// bytes that it left) or fail [default: tell]
    #[arg(long, value_name = "tell|fail", value_parser = tell_or_fail)]
    pub unread: Option<Notice>,
    /// When an input has no file that is data: tell (a warning) or fail [default: tell]
    #[arg(long, value_name = "tell|fail", value_parser = tell_or_fail)]
    pub empty_input: Option<Notice>,
    /// In a cluster: whether a slow attempt of a map or reduce task may get a second one beside it, on another node
    /// [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub speculation: Option<bool>,
    /// In a cluster: whether the unread end of a reduce task that takes long may go to a new task where slots are idle, which
    /// makes one more output part [default: on]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub elastic: Option<bool>,
    /// In a cluster: whether the data between map and reduce lies on a second node as well: none, rack (another
    /// node of the rack gets the sorted data, while the job goes on), selective (maps append on other nodes than their own
    /// and keep what they sent; what is lost is sent again), auto (as rack, from when making it again would take longer
    /// than sending it), or sync (the job waits for it; to compare with) [default: auto]
    #[arg(long, value_name = "MODE", value_parser = replication_mode)]
    pub replication: Option<Replication>,
    /// Print the report as JSON on standard output
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub json: Option<bool>,
}

impl RunArgs {
    /// The options as a job file would have them.
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
            json: self.json,
            // Options of the command line are those of one job.
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

#[derive(Debug, Default, Args)]
pub struct RerunArgs {
    /// Number of the job whose I-files are kept
    pub job: i64,
    /// Reduce function [default: the sorted pairs are written]
    #[arg(long, value_name = "F")]
    pub reducer: Option<String>,
    /// Output directory; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Name of the new job [default: that of the output]
    #[arg(long)]
    pub name: Option<String>,
    /// Budget of the engine's own buffers, at least 64M [default: that of the job]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Tasks that run at once, 1 to 1024 [default: as many as in the job]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Directory for extra merge passes and work directories [default: those of the job]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// File to put into the directory in which the reducer runs, besides those of the job
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// Environment of the reducer, added to that of the job
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Exchange an existing output for the new one
    #[arg(long)]
    pub overwrite: bool,
    /// Do not wait for the disk before the output is published
    #[arg(long)]
    pub no_sync: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Columns of the drawing [default: the width of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..=2000))]
    pub width: Option<u16>,
    /// Print attempts, stages and sums as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GcArgs {
    /// Jobs whose kept I-files go, whatever was said when they ran [default: those whose time is over]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<i64>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Also those of jobs that ended so long ago, as in 30m, 12h or 7d
    #[arg(long, value_name = "DURATION", conflicts_with = "jobs")]
    pub older_than: Option<String>,
    /// Those of every job that is over
    #[arg(long, conflicts_with_all = ["jobs", "older_than"])]
    pub all: bool,
    /// Say what would go, remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of Hadoop have one dash, so that the words are read elsewhere (crate `streaming`).
#[derive(Debug, Args)]
pub struct StreamingArgs {
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// Jobs to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// Only jobs in this state: running, committing, succeeded, failed, cancelled or interrupted
    #[arg(long, value_name = "STATE", value_parser = jobs::job_state)]
    pub job_state: Option<JobState>,
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only jobs with this in their names
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Attempts and events to show, the most telling ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Print the report as JSON, as it stands in the output
    #[arg(long)]
    pub json: bool,
    /// Rows of the plan to show
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub limit: usize,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Output directory of a job
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Number of the job whose I-files are kept, or of one that reduced these again
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct QueryArgs {
    /// One SQL statement: select, with, values or explain
    pub statement: String,
    #[command(flatten)]
    pub state: StateArgs,
    /// Rows to show at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// Print a JSON list of objects
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum IfileCommand {
    #[command(flatten)]
    File(FileCommand),
    /// Show header, blocks, sources and sums
    Inspect {
        /// Run files (.ifile) or raw chunk files (.raw)
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Read every byte and check it against checksums, order, index and sums
    Verify {
        /// Run files (.ifile) or raw chunk files (.raw)
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print the records in key order as KEY TAB VALUE lines, bytes as they are
    Scan {
        /// A run file (.ifile) or a raw chunk file (.raw)
        path: PathBuf,
        /// Keys from here on
        #[arg(long, value_name = "KEY")]
        lower: Option<std::ffi::OsString>,
        /// Keys below this
        #[arg(long, value_name = "KEY")]
        upper: Option<std::ffi::OsString>,
    },
}

#[cfg(test)]
mod tests {
    use super::{Cli, Command, RunArgs};
    use clap::{CommandFactory, Parser};

    fn run(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let words = ["sailfish", "run"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn inputs_repeat_and_flags_may_have_values() {
        let args = run(&["--input", "a", "b", "--output", "o", "--input=c", "--overwrite", "--env", "A=1"]);
        let args = args.unwrap();
        assert_eq!(args.input, ["a", "b", "c"]);
        assert_eq!((args.overwrite, args.total_order), (Some(true), None));
        assert_eq!(run(&["--overwrite=false"]).unwrap().overwrite, Some(false));
        assert!(run(&["stray"]).is_err());
        assert!(run(&["--slots", "many"]).is_err());
        assert!(run(&["--codec", "gzip"]).is_err());
    }

    #[test]
    fn streaming_takes_words_as_they_are() {
        let words = ["-input", "a", "--help", "-D", "x=y", "--state", "s", "stray", "-h"];
        let line = ["sailfish", "streaming"].iter().chain(&words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Streaming(args) => assert_eq!(args.words, words),
            other => panic!("{other:?}"),
        }
    }
}
