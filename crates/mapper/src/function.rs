//! Map functions: their traits, and the choice of a built-in or a program.

use crate::builtin::{GrepMapper, IdentityMapper, WordsMapper};
use crate::command::{self, CommandMapper};
use crate::program_frames::{self, FramesMapper};
use crate::tera_sum::TeraSumMapper;
use api::{Blame, Exchange, Formats, Function, OutputFormat, RecordFormat, TaskFailure};
use program::FunctionContext;
use reducer::PartWriter;

/// Place in the input where a block begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace {
    /// Position in `JobSpec::inputs`; 0 for rows that are made.
    pub file_index: u32,
    /// Position of the input among those that the user named ([`api::InputFile::named`]); 0 for rows that are made.
    pub named_input: u32,
    /// Offset of the block's first byte in the file, after decompression.
    pub offset_bytes: u64,
}

/// The input of a map function: whole records, in order.
pub trait RecordInput: Send {
    /// A block of whole records of one file, never empty; None at the end. Lines all have their end, also the
    /// last one. The error is final.
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure>;
    /// How blocks are parted into records.
    fn format(&self) -> RecordFormat;
    /// Returns the place of the last block; it has no meaning before the first block and after the end.
    fn place(&self) -> BlockPlace;
    /// Returns the name of the source of the last block, for messages that give a byte position in it.
    fn source_name(&self) -> String;
    /// Returns the place in the input of an offset of the last block, for messages: `FILE at byte N`.
    fn position(&self, offset_in_block: usize) -> String;
}

/// Keys that stand in one block.
#[derive(Clone, Copy)]
pub struct KeysInBlock<'a> {
    pub block: &'a [u8],
    pub places: &'a [KeyPlace],
}

/// Place of a key in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPlace {
    pub start: u32,
    pub length: u32,
}

impl<'a> KeysInBlock<'a> {
    /// The keys, in their order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.places.iter().map(move |place| &self.block[place.start as usize..][..place.length as usize])
    }
}

/// Takes the pairs that a map function puts out.
pub trait Emitter {
    /// Takes one pair; the slices are copied where they are kept.
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure>;

    /// Takes a pair whose key has a tail: only so many first bytes of it are the partition key. Refused where nothing is done with
    /// tails.
    fn emit_with_tail(
        &mut self,
        _key: &[u8],
        _value: &[u8],
        _partition_key_bytes: usize,
    ) -> Result<(), TaskFailure> {
        Err(no_tails())
    }

    /// Takes a pair without a value from a line that has a separator behind its key. An emitter for which that makes no difference
    /// takes it as any other pair.
    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.emit(key, b"")
    }

    /// Takes a pair of each key and the one value: one call for many short pairs.
    fn emit_each(&mut self, keys: KeysInBlock<'_>, value: &[u8]) -> Result<(), TaskFailure> {
        keys.iter().try_for_each(|key| self.emit(key, value))
    }
}

/// Why a pair whose key has a tail is refused.
#[cold]
pub fn no_tails() -> TaskFailure {
    let message =
        "the program put out pairs of keys with tails, and the keys of this job have none: give --key-tails";
    TaskFailure::new(Blame::UserData, message)
}

/// Counts of one run of a map function.
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
    builtin_function(function, &Formats::default()).map(|_| ())
}

/// The built-in of that name, None for a command.
fn builtin_function(
    function: &Function,
    formats: &Formats,
) -> Result<Option<Box<dyn MapFunction>>, MapperUnusable> {
    let Function::Builtin { name, argument } = function else {
        return Ok(None);
    };
    let without_argument: Box<dyn MapFunction> = match (name.as_str(), argument) {
        ("grep", None) => return Err(MapperUnusable::NoPattern),
        ("grep", Some(pattern)) => return Ok(Some(Box::new(GrepMapper::new(pattern, &formats.map_output)?))),
        ("words", _) => Box::new(WordsMapper),
        ("identity", _) => Box::new(IdentityMapper::new(&formats.map_output)),
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
    formats: &Formats,
) -> Result<Box<dyn MapFunction>, TaskFailure> {
    let identity = || Box::new(IdentityMapper::new(&formats.map_output));
    match function {
        None => Ok(identity()),
        Some(Function::Command { words }) => Ok(match formats.exchange {
            Exchange::Lines | Exchange::Nul => Box::new(CommandMapper::new(words, context, formats)),
            Exchange::Frames => Box::new(FramesMapper::new(words, context)),
        }),
        Some(function) => builtin_function(function, formats)
            .map(|found| found.unwrap_or_else(|| identity()))
            .map_err(|error| TaskFailure::new(Blame::UserData, error.to_string())),
    }
}

/// Runs a mapper whose output is the job's output. Pairs are written in the job's output format; what a program
/// prints is copied as it is, or parted into pairs first where the job says how.
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

/// Records of one length that stay as they are need not be looked at.
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
