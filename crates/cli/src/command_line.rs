//! The command line.

use crate::commands::admin::gc::GcArgs;
use crate::commands::admin::groups::GroupCommand;
use crate::commands::admin::intermediate_files::FileCommand;
use crate::commands::admin::tokens::TokenCommand;
use crate::commands::bench::BenchCommand;
use crate::commands::cluster::{LocalArgs, NodeArgs, ServerArgs};
use crate::commands::drill::{self, DrillArgs};
use crate::commands::files::FilesArgs;
use crate::commands::inspect::explain::ExplainArgs;
use crate::commands::inspect::fsck::{self, FsckArgs};
use crate::commands::inspect::ifile_files::IfileCommand;
use crate::commands::inspect::jobs::JobsArgs;
use crate::commands::inspect::lineage::LineageArgs;
use crate::commands::inspect::nodes::NodesArgs;
use crate::commands::inspect::report::ReportArgs;
use crate::commands::inspect::show::ShowArgs;
use crate::commands::inspect::state::QueryArgs;
use crate::commands::inspect::timeline::TimelineArgs;
use crate::commands::inspect::usage::UsageArgs;
use crate::commands::inspect::verify::VerifyArgs;
use crate::commands::mount::{MountArgs, WatcherArgs};
use crate::commands::run::downstream::RerunDownstreamArgs;
use crate::commands::run::rerun::{self, RerunArgs};
use crate::commands::run::streaming::StreamingArgs;
use crate::commands::run::submit::{self, LogsArgs, SubmitArgs};
use crate::commands::run::wait::ClusterJobArgs;
use crate::commands::tera::TeraCommand;
use crate::commands::workflow::WorkflowCommand;
use crate::options::connect::{SERVER_VARIABLE, server_of_environment};
use crate::options::run::{RunArgs, run_help};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes of `sailfish run`:
  0         the output is complete and in place
  1         the job failed because of the machine or the engine
  2         an option, an input, a path or the state cannot be used
  75        no server answered, or Ctrl-C came while none answered; the job continues: `sailfish wait` waits for it
  130       stopped by Ctrl-C
  1 to 255  the exit code of a mapper, combiner or reducer that failed three times;
            128 + N if signal N ended it
The other commands: 0; 1 if a check finds a difference or damage; 2 for a bad argument.";

/// MapReduce over I-files: runs map and reduce functions, and proves that the result is complete.
#[derive(Debug, Parser)]
#[command(name = "sailfish", version, max_term_width = 100, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// File of lines AWS_NAME=VALUE with the credentials and settings for s3:// URLs; it overrides the environment
    #[arg(long, global = true, value_name = "FILE", env = "SAILFISH_OBJECTS_CONFIG", display_order = 1000)]
    pub objects_config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line. Ends the process if it asks for help or is invalid.
    pub fn read() -> Cli {
        let words: Vec<OsString> = std::env::args_os().collect();
        let mut command = Cli::command();
        if server_of_environment().is_some() && !names_a_state(&words) {
            command = with_server_variable(command);
        }
        Cli::from_arg_matches(&command.get_matches_from(words)).unwrap_or_else(|error| error.exit())
    }
}

/// Returns whether `--state` precedes the words of a program, so that the command is about jobs of this machine.
fn names_a_state(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    options.into_iter().any(|word| word == "--state" || word.starts_with("--state="))
}

/// Lets every `--server` of the commands default to the environment variable.
fn with_server_variable(command: clap::Command) -> clap::Command {
    let has_server = command.get_arguments().any(|arg| arg.get_id() == "server");
    let command =
        if has_server { command.mut_arg("server", |arg| arg.env(SERVER_VARIABLE)) } else { command };
    command.mut_subcommands(with_server_variable)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a MapReduce job
    #[command(after_help = run_help(), after_long_help = format!("{}\n\n{EXIT_CODES}", run_help()))]
    Run(Box<RunArgs>),
    /// Run a Hadoop Streaming command line unchanged; `sailfish streaming --help` lists the supported options
    #[command(disable_help_flag = true, override_help = ::streaming::HELP)]
    Streaming(StreamingArgs),
    /// Reduce the kept I-files of a job again, without running its maps
    #[command(after_help = rerun::EXAMPLES)]
    RerunReduce(Box<RerunArgs>),
    /// Run the server of a cluster: nodes poll it for work, clients submit jobs with --server
    Server(ServerArgs),
    /// Run a node of a cluster: it runs tasks and holds intermediate data
    Node(NodeArgs),
    /// Run a whole cluster on this machine, as separate processes, until Ctrl-C
    Local(LocalArgs),
    /// Run any executable as a job of one task, here or on a cluster
    #[command(after_help = submit::EXAMPLES)]
    Submit(SubmitArgs),
    /// Run a file of steps, each a command with the files that it reads and writes
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Print the output of the program of a one-task job
    Logs(LogsArgs),
    /// Cancel a job of a cluster
    Cancel(ClusterJobArgs),
    /// Wait for the end of a job of a cluster; exits with the job's code
    Wait(ClusterJobArgs),
    /// Show the steps and files from which a file was made, or that were made from it
    Lineage(LineageArgs),
    /// Show the processor time, memory and bytes that users, jobs or days used
    Usage(UsageArgs),
    /// Run workflows again that read a file; steps that do not depend on it are skipped
    Rerun(RerunDownstreamArgs),
    /// Explain why each attempt of a job runs on its node
    Explain(ExplainArgs),
    /// List the nodes of a cluster, or drain one
    Nodes(NodesArgs),
    /// Create, revoke and list the tokens of a server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Create, change, delete and list groups of users, for the rights to stored files
    #[command(subcommand)]
    Group(GroupCommand),
    /// List jobs, newest first
    Jobs(JobsArgs),
    /// Show one job: its specification, stages, attempts, failures and events
    Show(ShowArgs),
    /// Show the report of a job: plan, bytes, chunks and fill, retrievals, times, waste, proof
    Report(ReportArgs),
    /// Draw the work of each slot over time: map, scan and merge, reduce, failed attempts
    Timeline(TimelineArgs),
    /// Remove expired I-files, or the kept I-files of given jobs
    Gc(GcArgs),
    /// Check an output directory against its report
    Verify(VerifyArgs),
    /// Check the kept I-files of a job: every run and replica, and the proof
    #[command(after_help = fsck::EXIT_CODES)]
    Fsck(FsckArgs),
    /// Inject faults into a cluster while jobs with known answers run on it, and report lost records
    #[command(after_help = drill::EXAMPLES)]
    Drill(DrillArgs),
    /// Query the state with a read-only SQL statement
    #[command(
        after_help = "Examples:\n  sailfish state \"select name from sqlite_master where type = 'table'\"\n  \
        sailfish state \"select job, name, state from jobs order by job desc\" --limit 5"
    )]
    State(QueryArgs),
    /// Run the sort benchmark: generate rows like gensort, sort them, check them like valsort
    #[command(subcommand)]
    Tera(TeraCommand),
    /// Measure parts of the engine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Answer one question of the console, from standard input: for servers
    #[command(hide = true)]
    ConsoleQuestion,
    /// Store files with versions and checksums on this machine: put, get, list, read, remove and check them
    Files(FilesArgs),
    /// Show stored files as a read-only directory, until Ctrl-C
    Mount(MountArgs),
    /// Unmount a directory when the process that mounted it is gone: for mounts
    #[command(hide = true)]
    MountWatcher(WatcherArgs),
    /// Write, read, list and remove intermediate files of a cluster, from any program
    #[command(subcommand)]
    Intermediate(FileCommand),
    /// Inspect the files of I-files (runs and raw chunks), kept with `run --keep-ifiles`
    #[command(subcommand)]
    Ifile(IfileCommand),
}

#[cfg(test)]
mod tests {
    use super::{Cli, Command};
    use crate::options::run::RunArgs;
    use clap::builder::Resettable;
    use clap::{CommandFactory, Parser};
    use std::path::Path;

    const BEGIN: &str = "<!-- all options, written by SAILFISH_WRITE_OPTIONS=1 cargo test -p cli -->\n";
    const END: &str = "<!-- end of all options -->\n";

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

    /// Adds the help of a command and of its subcommands, without the examples after the options.
    fn add_help(name: &str, command: &clap::Command, page: &mut String) {
        let plain = command
            .clone()
            .term_width(100)
            .after_help(Resettable::Reset)
            .mut_args(|arg| arg.hide_env_values(true));
        let help = plain.bin_name(name).render_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        page.push_str(&format!("\n```\n$ {name} -h\n{}\n```\n", lines.join("\n").trim_end()));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            add_help(&format!("{name} {}", sub.get_name()), sub, page);
        }
    }

    #[test]
    fn options_of_the_guide_are_current() {
        let path = Path::new("../../docs/cli.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("docs/cli.md has the line before the options");
        let (_, after) = rest.split_once(END).expect("docs/cli.md has the line behind the options");
        let mut command = Cli::command();
        command.build();
        let mut options = String::new();
        add_help("sailfish", &command, &mut options);
        let current = format!("{before}{BEGIN}{options}\n{END}{after}");
        if std::env::var_os("SAILFISH_WRITE_OPTIONS").is_some() {
            std::fs::write(path, &current).unwrap();
            return;
        }
        let advice = "run `SAILFISH_WRITE_OPTIONS=1 cargo test -p cli` and commit docs/cli.md";
        assert!(page == current, "the options of docs/cli.md are not those of the program: {advice}");
    }
}
