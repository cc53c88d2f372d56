//! The input of a map task, read or generated.

use crate::generate::GeneratedInput;
use crate::input::source::Openers;
use crate::reader::{ReaderLimits, SplitReader};
use api::{JobSpec, RecordFormat, Split, TaskFailure};
use functions::{BlockPlace, RecordInput};

/// Input of a job's map task: its split of the inputs, or generated rows.
pub enum TaskInput {
    Stored(Box<SplitReader>),
    Generated(GeneratedInput),
}

impl TaskInput {
    /// Opens the split of a task; each file is opened when it is reached.
    pub fn open(
        spec: &JobSpec,
        split: &Split,
        limits: ReaderLimits,
        openers: Openers,
    ) -> Result<TaskInput, TaskFailure> {
        Ok(match spec.kind.generated() {
            Some(rows) => TaskInput::Generated(GeneratedInput::open(&rows, split, limits.buffer_bytes)?),
            None => TaskInput::Stored(Box::new(SplitReader::open_with(
                &spec.inputs,
                split,
                spec.formats.input,
                limits,
                openers,
            )?)),
        })
    }

    /// Returns the bytes returned so far, after decompression.
    pub fn bytes(&self) -> u64 {
        match self {
            TaskInput::Stored(reader) => reader.bytes(),
            TaskInput::Generated(rows) => rows.bytes(),
        }
    }

    /// Returns the number of records returned so far.
    pub fn records(&self) -> u64 {
        match self {
            TaskInput::Stored(reader) => reader.records(),
            TaskInput::Generated(rows) => rows.records(),
        }
    }

    /// Returns warnings about the files that were read to their end.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            TaskInput::Stored(reader) => reader.warnings(),
            TaskInput::Generated(_) => Vec::new(),
        }
    }

    fn input(&self) -> &dyn RecordInput {
        match self {
            TaskInput::Stored(reader) => &**reader,
            TaskInput::Generated(rows) => rows,
        }
    }
}

impl RecordInput for TaskInput {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        match self {
            TaskInput::Stored(reader) => reader.next_block(),
            TaskInput::Generated(rows) => rows.next_block(),
        }
    }

    fn format(&self) -> RecordFormat {
        self.input().format()
    }

    fn source_name(&self) -> String {
        self.input().source_name()
    }

    fn position(&self, offset_in_block: usize) -> String {
        self.input().position(offset_in_block)
    }

    fn place(&self) -> BlockPlace {
        self.input().place()
    }
}
