//! Reading a split as blocks of whole records, whatever a record is.

mod fixed;
mod lines;
mod stretches;

use crate::input::source::{Openers, Opening, Warnings};
use api::{Blame, InputFile, RecordFormat, Segment, Split, TaskFailure};
use fixed::FixedReader;
use functions::{BlockPlace, RecordInput};
use lines::LineReader;
use stretches::StretchReader;

/// Limits of a reader.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// Size of a block, unless a single record is longer.
    pub buffer_bytes: usize,
    /// Longest record accepted, without its end.
    pub record_bytes_max: u64,
    /// Bytes of memory for reading an object ahead.
    pub object_buffer_bytes: usize,
}

/// The segments of a split with their files, in order.
pub(crate) type Segments = std::vec::IntoIter<(InputFile, Segment)>;

/// Returns the name of a compressed source for messages. It says that places in the source are counted after
/// decompression.
pub(crate) fn unpacked(name: &str) -> String {
    format!("{name}, decompressed,")
}

enum Reader {
    Lines(LineReader),
    Fixed(FixedReader),
    Stretches(StretchReader),
}

/// Reads the segments of a split one after the other.
pub struct SplitReader {
    format: RecordFormat,
    reader: Reader,
    warnings: Warnings,
}

impl SplitReader {
    /// Opens a split; its files are opened when their turn comes. Error: [`Blame::Engine`] when the split
    /// names a file that the job does not have.
    pub fn open(
        inputs: &[InputFile],
        split: &Split,
        format: RecordFormat,
        limits: ReaderLimits,
    ) -> Result<SplitReader, TaskFailure> {
        Self::open_with(inputs, split, format, limits, Openers::default())
    }

    /// The same where inputs may be intermediate files.
    pub fn open_with(
        inputs: &[InputFile],
        split: &Split,
        format: RecordFormat,
        limits: ReaderLimits,
        openers: Openers,
    ) -> Result<SplitReader, TaskFailure> {
        let warnings = Warnings::default();
        let opening =
            Opening { object_buffer_bytes: limits.object_buffer_bytes, openers, warnings: warnings.clone() };
        let mut segments = Vec::with_capacity(split.segments.len());
        for segment in &split.segments {
            let input = inputs.get(segment.file_index as usize).ok_or_else(|| {
                let message = format!("a split names input {}, which does not exist", segment.file_index);
                TaskFailure::new(Blame::Engine, message)
            })?;
            segments.push((input.clone(), *segment));
        }
        let segments = segments.into_iter();
        let reader = match format {
            RecordFormat::Lines { terminator } => {
                Reader::Lines(LineReader::new(segments, terminator, limits, opening))
            }
            RecordFormat::Fixed { record_bytes, .. } => {
                Reader::Fixed(FixedReader::new(segments, record_bytes, limits, opening))
            }
            RecordFormat::Stretches => Reader::Stretches(StretchReader::new(segments, opening)),
        };
        Ok(SplitReader { format, reader, warnings })
    }

    /// Warnings about the files that were read to their end.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// Bytes handed out so far, after decompression, without line ends that were added; of stretches, those that they have.
    pub fn bytes(&self) -> u64 {
        match &self.reader {
            Reader::Lines(reader) => reader.bytes(),
            Reader::Fixed(reader) => reader.bytes(),
            Reader::Stretches(reader) => reader.bytes(),
        }
    }

    /// Records handed out so far.
    pub fn records(&self) -> u64 {
        match &self.reader {
            Reader::Lines(reader) => reader.records(),
            Reader::Fixed(reader) => reader.records(),
            Reader::Stretches(reader) => reader.records(),
        }
    }
}

impl RecordInput for SplitReader {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        match &mut self.reader {
            Reader::Lines(reader) => reader.next_block(),
            Reader::Fixed(reader) => reader.next_block(),
            Reader::Stretches(reader) => reader.next_block(),
        }
    }

    fn format(&self) -> RecordFormat {
        self.format
    }

    fn place(&self) -> BlockPlace {
        match &self.reader {
            Reader::Lines(reader) => reader.place(),
            Reader::Fixed(reader) => reader.place(),
            Reader::Stretches(reader) => reader.place(),
        }
    }

    fn source_name(&self) -> String {
        match &self.reader {
            Reader::Lines(reader) => reader.source_name(),
            Reader::Fixed(reader) => reader.source_name(),
            Reader::Stretches(reader) => reader.source_name(),
        }
    }

    fn position(&self, offset_in_block: usize) -> String {
        match &self.reader {
            Reader::Lines(reader) => reader.position(offset_in_block),
            Reader::Fixed(reader) => reader.position(offset_in_block),
            Reader::Stretches(reader) => reader.position(),
        }
    }
}
