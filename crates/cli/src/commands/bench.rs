//! `sailfish bench`: measures parts of the engine.

pub mod jobs;
pub mod shuffle;
mod stub_steps;

use crate::exit::Failure;
use clap::Subcommand;
use jobs::JobsBenchArgs;
use shuffle::ShuffleArgs;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure a shuffle alone: generate records, sort them through I-files, check and discard them
    Shuffle(ShuffleArgs),
    /// Measure the cost of a job alone: submit many small jobs to a server, pull and end them over HTTP
    Jobs(JobsBenchArgs),
}

/// Runs a benchmark.
pub fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Shuffle(args) => shuffle::run(args),
        BenchCommand::Jobs(args) => jobs::run(&args),
    }
}
