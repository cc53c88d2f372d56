//! `sailfish tera`: the sort benchmark's rows are generated, sorted and judged, each by an ordinary job.

mod args;
mod cold;
mod figures;
mod generate;
mod layouts;
mod resources;
mod rules;
mod sort;
mod sums;

pub use args::{EngineArgs, TeraCommand};
pub use resources::Resources;

use crate::engine::machine;
use crate::exit::Failure;

/// Runs one of the four programs.
pub fn run(command: TeraCommand) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    match command {
        TeraCommand::Gen(args) => generate::run(&args),
        TeraCommand::Sort(args) if args.rules => rules::run(&args),
        TeraCommand::Sort(args) => sort::run(&args),
        TeraCommand::Sum(args) => sums::run(&args, sums::Judge::SumUp),
        TeraCommand::Validate(args) => sums::run(&args, sums::Judge::Validate),
    }
}
