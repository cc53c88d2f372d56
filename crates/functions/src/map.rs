//! Map functions and the types between them and their surroundings: records in, pairs out.

pub(crate) mod records;
pub(crate) mod tera_sum;

use api::{Blame, RecordFormat, TaskFailure};

/// Position in the input at which a block begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace {
    /// Position in `JobSpec::inputs`; 0 for generated rows.
    pub file_index: u32,
    /// Position of the input among those that the user named ([`api::InputFile::named`]); 0 for generated rows.
    pub named_input: u32,
    /// Offset of the block's first byte in the file, after decompression.
    pub offset_bytes: u64,
}

/// The input of a map function: whole records, in order.
pub trait RecordInput: Send {
    /// Returns a block of whole records of one file, never empty; None at the end. All lines have their end, the last
    /// one included. An error is final.
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure>;
    /// Returns the rule that cuts blocks into records.
    fn format(&self) -> RecordFormat;
    /// Returns the position of the last block; it has no meaning before the first block and after the end.
    fn place(&self) -> BlockPlace;
    /// Returns the name of the source of the last block, for messages that give a byte position in it.
    fn source_name(&self) -> String;
    /// Returns the position of an offset of the last block, for messages: `FILE at byte N`.
    fn position(&self, offset_in_block: usize) -> String;
}

/// Keys in one block.
#[derive(Clone, Copy)]
pub struct KeysInBlock<'a> {
    pub block: &'a [u8],
    pub places: &'a [KeyPlace],
}

/// Position of a key in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPlace {
    pub start: u32,
    pub length: u32,
}

impl<'a> KeysInBlock<'a> {
    /// Returns the keys, in their order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.places.iter().map(move |place| &self.block[place.start as usize..][..place.length as usize])
    }
}

/// A receiver of the pairs that a map function emits.
pub trait Emitter {
    /// Takes a pair. An emitter that keeps the slices must copy them.
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure>;

    /// Takes a pair whose key has a tail: only its first `partition_key_bytes` bytes are the partition key. Fails if
    /// the emitter does not support tails.
    fn emit_with_tail(
        &mut self,
        _key: &[u8],
        _value: &[u8],
        _partition_key_bytes: usize,
    ) -> Result<(), TaskFailure> {
        Err(no_tails())
    }

    /// Takes a pair without a value from a line with a separator after its key. An emitter that makes no difference
    /// takes it as any other pair.
    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.emit(key, b"")
    }

    /// Takes a pair of each key and the same value: one call for many short pairs.
    fn emit_each(&mut self, keys: KeysInBlock<'_>, value: &[u8]) -> Result<(), TaskFailure> {
        keys.iter().try_for_each(|key| self.emit(key, value))
    }
}

/// Returns the error for a pair whose key has a tail.
#[cold]
pub fn no_tails() -> TaskFailure {
    let message = "the program wrote pairs of keys with tails, but the keys of this job have no tails: give \
         --key-tails";
    TaskFailure::new(Blame::UserData, message)
}

/// Counts of a run of a map function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounts {
    /// Input bytes that the user's program did not read; the engine still read them to the end.
    pub unread_bytes: u64,
    /// Pairs emitted, before combining.
    pub output_records: u64,
    /// Their key and value bytes. In a map-only job with a program: the bytes that it printed.
    pub output_bytes: u64,
}

/// A map function: built-in functions and user programs implement it.
pub trait MapFunction: Send {
    /// Reads the input to its end, always, and emits pairs.
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure>;
}
