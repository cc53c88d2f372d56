//! The reducer that is a user's program: one process for the whole range.

use crate::fields::FieldSplitter;
use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use crate::program_lines::for_each_output_line;
use api::{Blame, Formats, TaskFailure};
use program::{Feed, FunctionContext, ProgramSpec};
use std::io::{ErrorKind, Read};

/// Feeds `key SEPARATOR value` lines to a program and writes what it prints.
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
                move || feed_groups(input, feed, &formats.reduce_input_separator, context.buffer_bytes),
            )
        })?;
        Ok(counts)
    }
}

fn feed_groups(
    input: &mut dyn GroupedRecords,
    mut feed: Feed,
    separator: &[u8],
    buffer_bytes: usize,
) -> Result<ReduceCounts, TaskFailure> {
    let mut counts = ReduceCounts::default();
    let mut lines = Vec::with_capacity(buffer_bytes);
    while let Some(record) = input.next()? {
        counts.groups += u64::from(record.starts_group);
        lines.extend_from_slice(record.key);
        lines.extend_from_slice(separator);
        lines.extend_from_slice(record.value);
        lines.push(b'\n');
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

/// Writes what a program prints into a part: its bytes as they are, or, where the job says how its lines are
/// parted, as pairs. Returns the bytes it printed, line ends left out where they were parted.
pub fn write_program_output(
    stdout: impl Read,
    output: &mut PartWriter,
    context: &FunctionContext,
    formats: &Formats,
) -> Result<u64, TaskFailure> {
    let Some(split) = &formats.reduce_output else {
        return copy_output(stdout, output, context.buffer_bytes);
    };
    let splitter = FieldSplitter::new(split);
    let mut line_bytes = 0;
    for_each_output_line(stdout, context, |line| {
        line_bytes += line.len() as u64;
        let (key, value) = splitter.split(line);
        output.write_pair(key, value)
    })?;
    Ok(line_bytes)
}

fn copy_output(
    mut stdout: impl Read,
    output: &mut PartWriter,
    buffer_bytes: usize,
) -> Result<u64, TaskFailure> {
    let mut buffer = vec![0; buffer_bytes.max(1)];
    let mut copied_bytes = 0;
    loop {
        match stdout.read(&mut buffer) {
            Ok(0) => return Ok(copied_bytes),
            Ok(count) => {
                copied_bytes += count as u64;
                output.write(&buffer[..count])?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let message = format!("reading from the user program: {error}");
                return Err(TaskFailure::new(Blame::Environment, message));
            }
        }
    }
}
