//! Output of a program that becomes a part.

use crate::fields::FieldSplitter;
use crate::program_lines::{for_each_output_line, no_zero_byte_at_end};
use crate::taken_frames::PutOut;
use api::{Blame, Exchange, Formats, TaskFailure};
use output::PartWriter;
use program::FunctionContext;
use std::io::{ErrorKind, Read};

/// Writes an item from a program to a part.
pub fn write_from_program(output: &mut PartWriter, each: PutOut<'_>) -> Result<(), TaskFailure> {
    match each {
        PutOut::Pair { key, value } => output.write_pair(key, value),
        PutOut::TailedPair { .. } => {
            let message = "the program wrote pairs of keys with tails, which only a mapper may write";
            Err(TaskFailure::new(Blame::UserData, message))
        }
        PutOut::Output { records, bytes } if output.takes_records() => output.write_records(bytes, records),
        PutOut::Output { .. } => {
            let message = "the program wrote bytes of its part, but the output format is lines: give \
                           --output-format raw";
            Err(TaskFailure::new(Blame::UserData, message))
        }
    }
}

/// Writes the printed output of a program to a part: the unchanged bytes, or pairs if the job defines the division of
/// its lines. Returns the number of printed bytes, without line ends if lines were divided.
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

/// Copies the output. Returns the number of bytes, and the last of them.
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
                let message = format!("cannot read from the user program: {error}");
                return Err(TaskFailure::new(Blame::Environment, message));
            }
        }
    }
}
