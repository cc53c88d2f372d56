//! The mapper that is a user's program: one process for a split.

use crate::function::{Emitter, MapCounts, MapFunction, RecordInput};
use crate::output_lines::emit_lines;
use api::TaskFailure;
use program::{Feed, FunctionContext, ProgramSpec};
use reducer::{PartWriter, copy_output};

/// Feeds the lines of a split to a program and emits the lines it prints.
pub(crate) struct CommandMapper {
    spec: ProgramSpec,
    context: FunctionContext,
}

impl CommandMapper {
    pub(crate) fn new(words: &[String], context: &FunctionContext) -> Self {
        Self { spec: ProgramSpec::new(words, context), context: context.clone() }
    }
}

impl MapFunction for CommandMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let context = &self.context;
        let (unread_bytes, counts) = program::run(context, &self.spec, |feed, stdout| {
            (move || feed_blocks(input, feed), move || emit_lines(stdout, context, output))
        })?;
        Ok(MapCounts { unread_bytes, ..counts })
    }
}

/// A program in a map-only job: its bytes go into the part as they are.
pub(crate) fn copy_through(
    words: &[String],
    context: &FunctionContext,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    let spec = ProgramSpec::new(words, context);
    let buffer_bytes = context.buffer_bytes;
    let (unread_bytes, output_bytes) = program::run(context, &spec, |feed, stdout| {
        (move || feed_blocks(input, feed), || copy_output(stdout, output, buffer_bytes))
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
