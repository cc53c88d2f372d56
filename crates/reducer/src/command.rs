//! The reducer that is a user's program: one process for the whole range.

use api::{Formats, TaskFailure};
use functions::{GroupedRecords, ReduceCounts, ReduceFunction, write_program_output};
use output::PartWriter;
use program::{Feed, FunctionContext, ProgramSpec};

/// Reduce function that feeds `key SEPARATOR value` lines to a program and writes its output.
pub(crate) struct CommandReducer {
    spec: ProgramSpec,
    context: FunctionContext,
    formats: Formats,
}

impl CommandReducer {
    pub(crate) fn new(words: &[String], context: &FunctionContext, formats: &Formats) -> Self {
        Self { spec: ProgramSpec::new(words, context), context: context.clone(), formats: formats.clone() }
    }
}

impl ReduceFunction for CommandReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let (context, formats) = (&self.context, &self.formats);
        let (_output_bytes, counts) = program::run(context, &self.spec, |feed, stdout| {
            (
                move || write_program_output(stdout, output, context, formats),
                move || feed_groups(input, feed, formats, context.buffer_bytes),
            )
        })?;
        Ok(counts)
    }
}

fn feed_groups(
    input: &mut dyn GroupedRecords,
    mut feed: Feed,
    formats: &Formats,
    buffer_bytes: usize,
) -> Result<ReduceCounts, TaskFailure> {
    let (separator, terminator) = (&formats.reduce_input_separator, formats.exchange.terminator());
    let mut counts = ReduceCounts::default();
    let mut lines = Vec::with_capacity(buffer_bytes);
    while let Some(record) = input.next()? {
        counts.groups += u64::from(record.starts_group);
        lines.extend_from_slice(record.key);
        lines.extend_from_slice(separator);
        lines.extend_from_slice(record.value);
        lines.push(terminator);
        if lines.len() >= buffer_bytes {
            feed.write(&lines)?;
            lines.clear();
            lines.shrink_to(buffer_bytes.saturating_mul(2));
            if feed.abandoned() {
                return Ok(counts);
            }
        }
    }
    feed.write(&lines)?;
    counts.unread_bytes = feed.unread_bytes();
    Ok(counts)
}
