//! `sailfish bench`: measures parts of the engine.

pub mod jobs;
pub mod shuffle;

use crate::exit::Failure;
use clap::Subcommand;
use jobs::JobsBenchArgs;
use shuffle::ShuffleArgs;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Make records, sort them through I-files, check and discard them: the cost of a shuffle by itself
    Shuffle(ShuffleArgs),
    /// Submit many small jobs to a server, pull and end them over HTTP: the cost of a job by itself
    Jobs(JobsBenchArgs),
}

/// Runs a benchmark.
pub fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Shuffle(args) => shuffle::run(args),
        BenchCommand::Jobs(args) => jobs::run(&args),
    }
}
