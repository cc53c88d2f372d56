//! The choice of a reduce function: a built-in, a program, or the writer of sorted pairs.

use crate::command::CommandReducer;
use crate::pairs::PairWriter;
use crate::program_frames::FramesReducer;
use api::{Exchange, Formats, Function, TaskFailure};
use functions::{FunctionUnusable, ReduceFunction};
use program::FunctionContext;

/// Makes the reduce function of a job: None writes the sorted pairs.
///
/// `pre_combined`: every value has already been through the built-in of the same name, so that `count` adds partial
/// counts. Error: [`api::Blame::UserData`] for a built-in that does not exist.
pub fn reduce_function(
    function: Option<&Function>,
    pre_combined: bool,
    context: &FunctionContext,
    formats: &Formats,
) -> Result<Box<dyn ReduceFunction>, TaskFailure> {
    Ok(match function {
        None => Box::new(PairWriter),
        Some(Function::Command { words }) => match formats.exchange {
            Exchange::Lines | Exchange::Nul => Box::new(CommandReducer::new(words, context, formats)),
            Exchange::Frames => Box::new(FramesReducer::new(words, context)),
        },
        Some(Function::Builtin { name, argument }) => {
            let made = functions::reducer(name, argument.as_deref(), pre_combined);
            made.map_err(FunctionUnusable::failure)?
        }
    })
}
