//! The lines that a user program prints.

use crate::record_limit::{RECORD_BYTES_LIMIT, record_too_long};
use api::{Blame, TaskFailure};
use memchr::{memchr, memchr_iter, memrchr};
use program::FunctionContext;
use std::io::{ErrorKind, Read};

/// Reads a program's output to its end and passes each line on, without its end. An unfinished last line counts, except
/// if lines end with a zero byte: the records of a program that prints other lines would be torn. Fails with the errors
/// of `take`, and with [`Blame::UserData`] for a line longer than the record limit; the message has its number.
pub fn for_each_output_line(
    source: impl Read,
    context: &FunctionContext,
    terminator: u8,
    take: impl FnMut(&[u8]) -> Result<(), TaskFailure>,
) -> Result<(), TaskFailure> {
    let buffer_bytes_max = usize::try_from(context.record_bytes_max).unwrap_or(usize::MAX).saturating_add(1);
    let block_bytes = context.buffer_bytes.clamp(1, buffer_bytes_max);
    let mut lines = OutputLines {
        source,
        take,
        terminator,
        record_bytes_max: context.record_bytes_max,
        buffer_bytes_max,
        buffer: vec![0; block_bytes],
        filled: 0,
        lines: 0,
    };
    loop {
        let searched = lines.filled;
        if lines.read_more()? == 0 {
            return lines.take_last_line();
        }
        if let Some(line_end) = memrchr(terminator, &lines.buffer[searched..lines.filled]) {
            lines.take_lines(searched + line_end + 1)?;
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

struct OutputLines<R, T> {
    source: R,
    take: T,
    terminator: u8,
    record_bytes_max: u64,
    /// One byte more than the longest line: a full buffer without a line end is an error.
    buffer_bytes_max: usize,
    buffer: Vec<u8>,
    filled: usize,
    /// Number of lines passed on.
    lines: u64,
}

impl<R: Read, T: FnMut(&[u8]) -> Result<(), TaskFailure>> OutputLines<R, T> {
    fn read_more(&mut self) -> Result<usize, TaskFailure> {
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(count) => {
                    self.filled += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let message = format!("cannot read from the user program: {error}");
                    return Err(TaskFailure::new(Blame::Environment, message));
                }
            }
        }
    }

    /// Passes on the whole lines at the start of the buffer and keeps the rest.
    fn take_lines(&mut self, whole_bytes: usize) -> Result<(), TaskFailure> {
        let mut start = 0;
        for line_end in memchr_iter(self.terminator, &self.buffer[..whole_bytes]) {
            (self.take)(&self.buffer[start..line_end])?;
            self.lines += 1;
            start = line_end + 1;
        }
        self.buffer.copy_within(whole_bytes..self.filled, 0);
        self.filled -= whole_bytes;
        Ok(())
    }

    fn take_last_line(&mut self) -> Result<(), TaskFailure> {
        match self.filled {
            0 => Ok(()),
            _ if self.terminator == 0 => Err(no_zero_byte_at_end()),
            filled => (self.take)(&self.buffer[..filled]),
        }
    }

    /// Reads to the end of the line, up to the limit of any record, to compute the memory that it needs.
    fn too_long(&mut self) -> TaskFailure {
        let mut line_bytes = self.filled as u64;
        while line_bytes <= RECORD_BYTES_LIMIT {
            self.filled = 0;
            match self.read_more() {
                Ok(0) => break,
                Ok(_) => {}
                Err(failure) => return failure,
            }
            match memchr(self.terminator, &self.buffer[..self.filled]) {
                Some(line_end) => {
                    line_bytes += line_end as u64;
                    break;
                }
                None => line_bytes += self.filled as u64,
            }
        }
        let line_number = self.lines + 1;
        let reason = record_too_long(line_bytes, self.record_bytes_max);
        TaskFailure::new(Blame::UserData, format!("output line {line_number} of the user program: {reason}"))
    }
}

/// Returns the failure of a program that was told to end its records with a zero byte, and printed something else.
#[cold]
pub(crate) fn no_zero_byte_at_end() -> TaskFailure {
    let message = "the output of the user program does not end with a zero byte: with --exchange nul, \
                   every record must; for a program that prints lines give --exchange lines";
    TaskFailure::new(Blame::UserData, message)
}
