//! The choice of a map function, and map-only tasks.

use crate::command::{self, CommandMapper};
use crate::program_frames::{self, FramesMapper};
use api::{Exchange, Formats, Function, OutputFormat, RecordFormat, TaskFailure};
use functions::{Emitter, FunctionUnusable, MapCounts, MapFunction, RecordInput};
use output::PartWriter;
use program::FunctionContext;

/// Makes the map function of a job: None is identity. Error: [`api::Blame::UserData`] for a built-in that
/// does not exist.
pub fn map_function(
    function: Option<&Function>,
    context: &FunctionContext,
    formats: &Formats,
) -> Result<Box<dyn MapFunction>, TaskFailure> {
    match function {
        None => Ok(functions::identity_mapper(formats)),
        Some(Function::Command { words }) => Ok(match formats.exchange {
            Exchange::Lines | Exchange::Nul => Box::new(CommandMapper::new(words, context, formats)),
            Exchange::Frames => Box::new(FramesMapper::new(words, context)),
        }),
        Some(Function::Builtin { name, argument }) => {
            functions::mapper(name, argument.as_deref(), formats).map_err(FunctionUnusable::failure)
        }
    }
}

/// Runs a mapper whose output is the job's output. Pairs are written in the job's output format; the output of a
/// program is copied unchanged, or split into pairs first if the job says so.
pub fn run_map_only(
    function: Option<&Function>,
    context: &FunctionContext,
    formats: &Formats,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    if let Some(Function::Command { words }) = function {
        return match formats.exchange {
            Exchange::Lines | Exchange::Nul => command::copy_through(words, context, formats, input, output),
            Exchange::Frames => program_frames::copy_through(words, context, input, output),
        };
    }
    let identity = match function {
        None => true,
        Some(Function::Builtin { name, .. }) => name == "identity",
        Some(Function::Command { .. }) => false,
    };
    if let RecordFormat::Fixed { record_bytes, .. } = input.format()
        && identity
        && formats.output == OutputFormat::Raw
    {
        return copy_blocks(record_bytes, input, output);
    }
    map_function(function, context, formats)?.run(input, &mut PartEmitter { output })
}

/// Copies blocks of records of one length, without inspecting them.
fn copy_blocks(
    record_bytes: u32,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    let mut counts = MapCounts::default();
    while let Some(block) = input.next_block()? {
        let records = block.len() as u64 / u64::from(record_bytes);
        output.write_records(block, records)?;
        counts.output_records += records;
        counts.output_bytes += block.len() as u64;
    }
    Ok(counts)
}

struct PartEmitter<'a> {
    output: &'a mut PartWriter,
}

impl Emitter for PartEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.output.write_pair(key, value)
    }

    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.output.write_separated(key, b"")
    }
}
