//! What a map function is, and which ones there are.

use crate::builtin::{GrepMapper, IdentityMapper, WordsMapper};
use crate::command::{self, CommandMapper};
use crate::tera_sum::TeraSumMapper;
use api::{Blame, Function, TaskFailure};
use program::FunctionContext;
use reducer::PartWriter;

/// Where a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace {
    /// Position in `JobSpec::inputs`; 0 for rows that are made.
    pub file_index: u32,
    /// Of the block's first byte, after decompression.
    pub offset_bytes: u64,
}

/// The input of a map function: whole lines, in order.
pub trait RecordInput: Send {
    /// A block of whole lines, each ended by `\n`; never empty; None at the end. The error is final.
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure>;
    /// Where an offset of the last block lies in the input, for messages: `FILE at byte N`.
    fn position(&self, offset_in_block: usize) -> String;
    /// Where the last block lies in the input.
    fn place(&self) -> BlockPlace;
}

/// Takes the pairs that a map function puts out.
pub trait Emitter {
    /// Takes one pair; the slices are copied where they are kept.
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure>;
}

/// What a map function saw and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounts {
    /// Input bytes that the user's program did not take; they were read to the end all the same.
    pub unread_bytes: u64,
    /// Pairs put out, before combining.
    pub output_records: u64,
    /// Their key and value bytes. In a map-only job with a program: the bytes it printed.
    pub output_bytes: u64,
}

/// A map function: Python workers and SQL stages will come through the same trait.
pub trait MapFunction: Send {
    /// Reads the input to its end, always, and emits pairs.
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure>;
}

/// Why a mapper cannot be used. The user's fault.
#[derive(Debug, thiserror::Error)]
pub enum MapperUnusable {
    #[error(
        "no built-in mapper is called {name:?}; there are: builtin:words, builtin:grep:RE, builtin:identity"
    )]
    UnknownBuiltin { name: String },
    #[error("the built-in {name} takes no argument, but {argument:?} follows it")]
    ArgumentNotTaken { name: String, argument: String },
    #[error("builtin:grep needs a regular expression, as in builtin:grep:error")]
    NoPattern,
    #[error("the regular expression of builtin:grep is not usable: {0}")]
    Pattern(#[from] regex::Error),
}

/// Checks at submit that a mapper exists. Programs are checked by `program::check_program`.
pub fn check_mapper(function: &Function) -> Result<(), MapperUnusable> {
    builtin_function(function).map(|_| ())
}

/// The built-in of that name, None for a command.
fn builtin_function(function: &Function) -> Result<Option<Box<dyn MapFunction>>, MapperUnusable> {
    let Function::Builtin { name, argument } = function else {
        return Ok(None);
    };
    let without_argument: Box<dyn MapFunction> = match (name.as_str(), argument) {
        ("grep", None) => return Err(MapperUnusable::NoPattern),
        ("grep", Some(pattern)) => return Ok(Some(Box::new(GrepMapper::new(pattern)?))),
        ("words", _) => Box::new(WordsMapper),
        ("identity", _) => Box::new(IdentityMapper),
        ("tera-sum", _) => Box::new(TeraSumMapper),
        _ => return Err(MapperUnusable::UnknownBuiltin { name: name.clone() }),
    };
    match argument {
        Some(argument) => {
            Err(MapperUnusable::ArgumentNotTaken { name: name.clone(), argument: argument.clone() })
        }
        None => Ok(Some(without_argument)),
    }
}

/// Makes the map function of a job: None is identity. Error: [`Blame::UserData`] for a built-in that does
/// not exist.
pub fn map_function(
    function: Option<&Function>,
    context: &FunctionContext,
) -> Result<Box<dyn MapFunction>, TaskFailure> {
    match function {
        None => Ok(Box::new(IdentityMapper)),
        Some(Function::Command { words }) => Ok(Box::new(CommandMapper::new(words, context))),
        Some(function) => builtin_function(function)
            .map(|found| found.unwrap_or_else(|| Box::new(IdentityMapper)))
            .map_err(|error| TaskFailure::new(Blame::UserData, error.to_string())),
    }
}

/// Runs a mapper whose output is the job's output. Pairs become lines `key TAB value` (no TAB where the
/// value is empty); what a program prints is copied as it is.
pub fn run_map_only(
    function: Option<&Function>,
    context: &FunctionContext,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    if let Some(Function::Command { words }) = function {
        return command::copy_through(words, context, input, output);
    }
    map_function(function, context)?.run(input, &mut PartEmitter { output })
}

struct PartEmitter<'a> {
    output: &'a mut PartWriter,
}

impl Emitter for PartEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.output.write_pair(key, value)
    }
}
