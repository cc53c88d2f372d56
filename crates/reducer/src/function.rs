//! The choice of a reduce function: a built-in, a program, or the one that writes the sorted pairs.

use crate::command::CommandReducer;
use crate::pairs::PairWriter;
use crate::program_frames::FramesReducer;
use api::{Exchange, Formats, Function, TaskFailure};
use functions::{FunctionUnusable, ReduceFunction, ReducedValues};
use program::FunctionContext;

/// Makes the reduce function of a job: None writes the sorted pairs. `values` counts for built-ins only. Error: [`api::Blame::UserData`] for a built-in that does not exist.
pub fn reduce_function(
    function: Option<&Function>,
    values: ReducedValues,
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
            let made = functions::reducer(name, argument.as_deref(), values);
            made.map_err(FunctionUnusable::failure)?
        }
    })
}
