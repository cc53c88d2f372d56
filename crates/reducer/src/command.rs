//! The reducer that is a user's program: one process for the whole range.

use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use api::{Blame, TaskFailure};
use program::{Feed, FunctionContext, ProgramSpec};
use std::io::{ErrorKind, Read};

/// Feeds `key TAB value` lines to a program and copies what it prints.
pub(crate) struct CommandReducer {
    spec: ProgramSpec,
    context: FunctionContext,
}

impl CommandReducer {
    pub(crate) fn new(words: &[String], context: &FunctionContext) -> Self {
        Self { spec: ProgramSpec::new(words, context), context: context.clone() }
    }
}

impl ReduceFunction for CommandReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let buffer_bytes = self.context.buffer_bytes;
        let (_output_bytes, counts) = program::run(&self.context, &self.spec, |feed, stdout| {
            (
                move || copy_output(stdout, output, buffer_bytes),
                move || feed_groups(input, feed, buffer_bytes),
            )
        })?;
        Ok(counts)
    }
}

fn feed_groups(
    input: &mut dyn GroupedRecords,
    mut feed: Feed,
    buffer_bytes: usize,
) -> Result<ReduceCounts, TaskFailure> {
    let mut counts = ReduceCounts::default();
    let mut lines = Vec::with_capacity(buffer_bytes);
    while let Some(record) = input.next()? {
        counts.groups += u64::from(record.starts_group);
        lines.extend_from_slice(record.key);
        lines.push(b'\t');
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

/// Copies everything a program prints into a part, as it is; returns the bytes.
pub fn copy_output(
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
