//! The reducer that is a user's program: one process for the whole range.

use crate::fields::FieldSplitter;
use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use crate::program_lines::{for_each_output_line, no_zero_byte_at_end};
use api::{Blame, Exchange, Formats, TaskFailure};
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

/// Writes what a program prints into a part: its bytes as they are, or, where the job says how its lines are
/// parted, as pairs. Returns the bytes it printed, line ends left out where they were parted.
pub fn write_program_output(
    stdout: impl Read,
    output: &mut PartWriter,
    context: &FunctionContext,
    formats: &Formats,
) -> Result<u64, TaskFailure> {
    let Some(split) = &formats.reduce_output else {
        let (copied_bytes, last_byte) = copy_output(stdout, output, context.buffer_bytes)?;
        return match formats.exchange == Exchange::Nul && last_byte.is_some_and(|byte| byte != 0) {
            true => Err(no_zero_byte_at_end()),
            false => Ok(copied_bytes),
        };
    };
    let splitter = FieldSplitter::new(split);
    let mut line_bytes = 0;
    for_each_output_line(stdout, context, formats.exchange.terminator(), |line| {
        line_bytes += line.len() as u64;
        let (key, value) = splitter.split(line);
        match value.is_empty() && key.len() < line.len() {
            true => output.write_separated(key, value),
            false => output.write_pair(key, value),
        }
    })?;
    Ok(line_bytes)
}

/// The bytes that were copied, and the last of them.
fn copy_output(
    mut stdout: impl Read,
    output: &mut PartWriter,
    buffer_bytes: usize,
) -> Result<(u64, Option<u8>), TaskFailure> {
    let mut buffer = vec![0; buffer_bytes.max(1)];
    let (mut copied_bytes, mut last_byte) = (0, None);
    loop {
        match stdout.read(&mut buffer) {
            Ok(0) => return Ok((copied_bytes, last_byte)),
            Ok(count) => {
                copied_bytes += count as u64;
                last_byte = buffer.get(count - 1).copied();
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
