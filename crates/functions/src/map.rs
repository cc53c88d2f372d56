//! Map functions and the types between them and their surroundings: records in, pairs out.

pub(crate) mod records;
pub(crate) mod tera_sum;

use api::{Blame, RecordFormat, TaskFailure};

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
    /// Returns the rule that cuts blocks into records.
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

/// Returns the error of a pair whose key has a tail.
#[cold]
pub fn no_tails() -> TaskFailure {
    let message = "the program wrote pairs of keys with tails, but the keys of this job have no tails: give \
         --key-tails";
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
