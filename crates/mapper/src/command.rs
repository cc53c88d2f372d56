//! The mapper that is a user's program: one process for a split.

use crate::function::{Emitter, MapCounts, MapFunction, RecordInput};
use api::{FieldSplit, Formats, TaskFailure};
use program::{Feed, FunctionContext, ProgramSpec};
use reducer::{FieldSplitter, PartWriter, for_each_output_line, write_program_output};
use std::io::Read;

/// Feeds the bytes of a split to a program and emits the lines it prints.
pub(crate) struct CommandMapper {
    spec: ProgramSpec,
    context: FunctionContext,
    splitter: FieldSplitter,
}

impl CommandMapper {
    pub(crate) fn new(words: &[String], context: &FunctionContext, split: &FieldSplit) -> Self {
        let splitter = FieldSplitter::new(split);
        Self { spec: ProgramSpec::new(words, context), context: context.clone(), splitter }
    }
}

impl MapFunction for CommandMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let (context, splitter) = (&self.context, &self.splitter);
        let (unread_bytes, counts) = program::run(context, &self.spec, |feed, stdout| {
            (move || feed_blocks(input, feed), move || emit_lines(stdout, context, splitter, output))
        })?;
        Ok(MapCounts { unread_bytes, ..counts })
    }
}

/// Reads a program's output to its end and emits each line as a pair. A last line without an end counts.
/// Error: [`api::Blame::UserData`] for a line longer than a record may be, naming its number.
pub(crate) fn emit_lines(
    stdout: impl Read,
    context: &FunctionContext,
    splitter: &FieldSplitter,
    output: &mut dyn Emitter,
) -> Result<MapCounts, TaskFailure> {
    let mut counts = MapCounts::default();
    for_each_output_line(stdout, context, |line| {
        let (key, value) = splitter.split(line);
        counts.output_records += 1;
        counts.output_bytes += (key.len() + value.len()) as u64;
        output.emit(key, value)
    })?;
    Ok(counts)
}

/// A program in a map-only job: what it prints goes into the part.
pub(crate) fn copy_through(
    words: &[String],
    context: &FunctionContext,
    formats: &Formats,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    let spec = ProgramSpec::new(words, context);
    let (unread_bytes, output_bytes) = program::run(context, &spec, |feed, stdout| {
        (move || feed_blocks(input, feed), || write_program_output(stdout, output, context, formats))
    })?;
    Ok(MapCounts { unread_bytes, output_records: output.records()?, output_bytes })
}

/// Returns the bytes that the program did not take.
fn feed_blocks(input: &mut dyn RecordInput, mut feed: Feed) -> Result<u64, TaskFailure> {
    while let Some(block) = input.next_block()? {
        feed.write(block)?;
        if feed.abandoned() {
            break;
        }
    }
    Ok(feed.unread_bytes())
}
