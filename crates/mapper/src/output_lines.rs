//! The lines that a user's program prints, as pairs.

use crate::builtin::split_line;
use crate::function::{Emitter, MapCounts};
use crate::reader::record_too_long;
use api::{Blame, TaskFailure};
use memchr::{memchr, memchr_iter, memrchr};
use program::FunctionContext;
use std::io::{ErrorKind, Read};

/// Reads a program's output to its end and emits each line as a pair. A last line without an end counts.
/// Error: [`Blame::UserData`] for a line longer than a record may be, naming its number.
pub(crate) fn emit_lines(
    source: impl Read,
    context: &FunctionContext,
    output: &mut dyn Emitter,
) -> Result<MapCounts, TaskFailure> {
    let buffer_bytes_max = usize::try_from(context.record_bytes_max).unwrap_or(usize::MAX).saturating_add(1);
    let block_bytes = context.buffer_bytes.clamp(1, buffer_bytes_max);
    let mut lines = OutputLines {
        source,
        record_bytes_max: context.record_bytes_max,
        buffer_bytes_max,
        buffer: vec![0; block_bytes],
        filled: 0,
        counts: MapCounts::default(),
    };
    loop {
        let searched = lines.filled;
        if lines.read_more()? == 0 {
            lines.emit_last_line(output)?;
            return Ok(lines.counts);
        }
        if let Some(line_end) = memrchr(b'\n', &lines.buffer[searched..lines.filled]) {
            lines.emit_lines(searched + line_end + 1, output)?;
            if lines.buffer.len() > block_bytes && lines.filled < block_bytes {
                lines.buffer.truncate(block_bytes);
                lines.buffer.shrink_to_fit();
            }
        } else if lines.filled == lines.buffer_bytes_max {
            return Err(lines.too_long());
        } else if lines.filled == lines.buffer.len() {
            let grown = lines.filled.saturating_mul(2).min(buffer_bytes_max);
            lines.buffer.resize(grown, 0);
        }
    }
}

struct OutputLines<R> {
    source: R,
    record_bytes_max: u64,
    /// One byte more than the longest line: a full buffer without a line end is an error.
    buffer_bytes_max: usize,
    buffer: Vec<u8>,
    filled: usize,
    counts: MapCounts,
}

impl<R: Read> OutputLines<R> {
    fn read_more(&mut self) -> Result<usize, TaskFailure> {
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(count) => {
                    self.filled += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let message = format!("reading from the user program: {error}");
                    return Err(TaskFailure::new(Blame::Environment, message));
                }
            }
        }
    }

    /// Emits the whole lines at the start of the buffer and keeps the rest.
    fn emit_lines(&mut self, whole_bytes: usize, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        let mut start = 0;
        for line_end in memchr_iter(b'\n', &self.buffer[..whole_bytes]) {
            emit_line(&self.buffer[start..line_end], &mut self.counts, output)?;
            start = line_end + 1;
        }
        self.buffer.copy_within(whole_bytes..self.filled, 0);
        self.filled -= whole_bytes;
        Ok(())
    }

    fn emit_last_line(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        match self.filled {
            0 => Ok(()),
            filled => emit_line(&self.buffer[..filled], &mut self.counts, output),
        }
    }

    /// Reads on to the end of the line, as far as any record may go, to tell how much memory it needs.
    fn too_long(&mut self) -> TaskFailure {
        let mut line_bytes = self.filled as u64;
        while line_bytes <= crate::reader::RECORD_BYTES_LIMIT {
            self.filled = 0;
            match self.read_more() {
                Ok(0) => break,
                Ok(_) => {}
                Err(failure) => return failure,
            }
            match memchr(b'\n', &self.buffer[..self.filled]) {
                Some(line_end) => {
                    line_bytes += line_end as u64;
                    break;
                }
                None => line_bytes += self.filled as u64,
            }
        }
        let line_number = self.counts.output_records + 1;
        let reason = record_too_long(line_bytes, self.record_bytes_max);
        TaskFailure::new(Blame::UserData, format!("output line {line_number} of the user program: {reason}"))
    }
}

#[inline]
fn emit_line(line: &[u8], counts: &mut MapCounts, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
    let (key, value) = split_line(line);
    counts.output_records += 1;
    counts.output_bytes += (key.len() + value.len()) as u64;
    output.emit(key, value)
}
