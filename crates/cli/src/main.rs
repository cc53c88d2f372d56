//! # What it does
//! The binary `sailfish`: reads options, checks them, runs a job in this process, shows progress, and prints the
//! content of the store, an output directory or an I-file.
//!
//! # Where it sits
//! On top: people and scripts -> cli (options to jobs by `jobspec`) -> server, node, metastore, ifile.
//!
//! # Invariants
//! Every check that is possible is made before a job is submitted, and the error names the option. Standard output
//! carries only answers; progress, summaries and errors go to standard error. A closed pipe is no error.
//!
//! # Deliberately absent
//! No logic that another front end would need: sizes, stages, proof and report are made by `mapreduce`.
//!
//! # How it is tested
//! Unit tests of parsing, checking and formatting beside each file; black-box tests of the binary in `tests/`.

mod command_line;
mod commands;
mod engine;
mod exit;
mod options;
mod show;

use command_line::{Cli, Command};
use commands::admin::{gc, groups, intermediate_files, tokens};
use commands::cluster::{self, console};
use commands::inspect::{
    explain, fsck, ifile_files, jobs, lineage, nodes, report, show as show_job, state, timeline, usage,
    verify,
};
use commands::run::{self, downstream, rerun, streaming, submit, wait};
use commands::{bench, drill, files, mount, tera, workflow};
use exit::Failure;
use show::terminal;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Variable with the filter for log lines on standard error.
const LOG_VARIABLE: &str = "SAILFISH_LOG";

fn main() -> ExitCode {
    match start(Cli::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(error) = &failure.error {
                terminal::tell(&format!("sailfish: {}", exit::sentence(error)));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Returns whether a stream gets colors: only a terminal does, unless NO_COLOR is set to anything
/// (<https://no-color.org>).
fn has_color(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

fn start(cli: Cli) -> Result<(), Failure> {
    faults::check_environment().map_err(|message| Failure::refused(anyhow::anyhow!(message)))?;
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| terminal::ErrorLines)
        // Module names mean nothing to operators.
        .with_target(false)
        .with_ansi(has_color(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR")))
        .init();
    let objects_config = cli.objects_config.as_deref();
    if let Some(path) = objects_config {
        objects::read_settings_file(path).map_err(Failure::refused)?;
    }
    match cli.command {
        Command::ConsoleQuestion => console::run(),
        Command::Run(args) => run::run(*args),
        Command::RerunReduce(args) => rerun::run(*args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Files(args) => files::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::MountWatcher(args) => mount::watch(&args),
        Command::Streaming(args) => streaming::run(args),
        Command::Server(args) => cluster::run_server(&args),
        Command::Node(args) => cluster::run_node(&args),
        Command::Local(args) => cluster::run_local(&args, objects_config),
        Command::Submit(args) => submit::run(&args),
        Command::Workflow(command) => workflow::run(command),
        Command::Logs(args) => submit::logs(&args),
        Command::Cancel(args) => wait::cancel(&args),
        Command::Wait(args) => wait::wait(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lineage(args) => lineage::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Rerun(args) => downstream::run(&args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Token(command) => tokens::run(&command),
        Command::Group(command) => groups::run(&command),
        Command::Jobs(args) => jobs::run(&args),
        Command::Show(args) => show_job::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::State(args) => state::run(&args),
        Command::Tera(command) => tera::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Intermediate(command) => intermediate_files::run(&command),
        Command::Ifile(command) => ifile_files::run(command),
    }
}

#[cfg(test)]
mod tests {
    use super::has_color;

    /// A problem from a field report.
    #[test]
    fn no_color_takes_colors_away() {
        assert!(has_color(true, None) && has_color(true, Some("".into())));
        assert!(!has_color(true, Some("1".into())) && !has_color(false, None));
    }
}
