//! Reading a split as blocks of whole lines. A line ends with the terminator of the job, LF or NUL.
//!
//! ```text
//!   segment        |<---------- offset .. offset + length ---------->|
//!   file  ... lin\n|e-one\nline-two\n ... \nline-n                    |-goes-on\nnext ...
//!                          ^ first line that starts inside              last line ^ read to its end
//! ```
//! A line belongs to the segment in which its first byte lies, so neighbours need no agreement.

use crate::input;
use crate::input::source::Opening;
use crate::input::stored::StoredFile;
use crate::reader::{ReaderLimits, Segments, unpacked};
use api::{Blame, TaskFailure};
use functions::{BlockPlace, RECORD_BYTES_LIMIT, record_too_long};
use memchr::{memchr, memchr_iter, memrchr};

/// Bytes read at a time beyond the end of a segment, to finish its last line.
const OVERHANG_BYTES: usize = 16 << 10;

/// A segment while it is read.
struct OpenSegment {
    stored: StoredFile,
    name: String,
    file_index: u32,
    named_input: u32,
    compressed: bool,
    /// Position of the next byte to be read, in the file as a reader of lines sees it.
    position: u64,
    /// No line that starts here or later belongs to the segment.
    end: u64,
    /// Everything that belongs to the segment is in the buffer or was handed out.
    complete: bool,
}

/// Reads the segments of a split one after the other.
pub(crate) struct LineReader {
    segments: Segments,
    terminator: u8,
    current: Option<OpenSegment>,
    /// Size of the buffer when no line is longer.
    block_bytes: usize,
    /// Size of the buffer for the longest line.
    buffer_bytes_max: usize,
    record_bytes_max: u64,
    opening: Opening,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes at the start of the buffer that the last call handed out.
    handed_out: usize,
    /// Position of the start of the buffer.
    buffer_position: u64,
    bytes: u64,
    records: u64,
}

impl LineReader {
    pub(crate) fn new(
        segments: Segments,
        terminator: u8,
        limits: ReaderLimits,
        opening: Opening,
    ) -> LineReader {
        // One byte more than the longest line has room for its end: a full buffer without one is an error.
        let buffer_bytes_max =
            usize::try_from(limits.record_bytes_max).unwrap_or(usize::MAX).saturating_add(1);
        LineReader {
            segments,
            terminator,
            current: None,
            block_bytes: limits.buffer_bytes.clamp(1, buffer_bytes_max),
            buffer_bytes_max,
            record_bytes_max: limits.record_bytes_max,
            opening,
            buffer: Vec::new(),
            filled: 0,
            handed_out: 0,
            buffer_position: 0,
            bytes: 0,
            records: 0,
        }
    }

    /// Bytes handed out so far, after decompression, without line ends that were added.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lines handed out so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Drops what was handed out and gives back the room that a long line needed.
    fn release_block(&mut self) {
        self.buffer.copy_within(self.handed_out..self.filled, 0);
        self.filled -= self.handed_out;
        self.buffer_position += self.handed_out as u64;
        self.handed_out = 0;
        if self.filled < self.block_bytes && self.buffer.len() != self.block_bytes {
            self.buffer.resize(self.block_bytes, 0);
            self.buffer.shrink_to_fit();
        }
    }

    /// Opens the next segment; false where there is none. Everything before the first line that starts in
    /// it is skipped.
    fn open_next(&mut self) -> Result<bool, TaskFailure> {
        let Some((input, segment)) = self.segments.next() else {
            return Ok(false);
        };
        let compressed = input.compression.is_some();
        let start = if compressed { 0 } else { segment.offset_bytes };
        let end =
            if compressed { u64::MAX } else { segment.offset_bytes.saturating_add(segment.length_bytes) };
        // The byte before the segment tells whether a line starts right at its beginning.
        let position = start.saturating_sub(1);
        self.buffer_position = position;
        self.current = Some(OpenSegment {
            stored: StoredFile::open(&input, position..end.min(input.size_bytes), &self.opening)?,
            name: input::name(&input),
            file_index: segment.file_index,
            named_input: input.named,
            compressed,
            position,
            end,
            complete: start >= end,
        });
        while start > 0 && !self.is_complete() {
            self.read_more()?;
            if let Some(line_end) = memchr(self.terminator, &self.buffer[..self.filled]) {
                self.handed_out = line_end + 1;
                self.release_block();
                break;
            }
            self.handed_out = self.filled;
            self.release_block();
            // The line that began before the segment reaches to its end or beyond: nothing is ours.
            if self.current.as_ref().is_some_and(|segment| segment.position >= segment.end) {
                self.complete_segment();
            }
        }
        Ok(true)
    }

    fn is_complete(&self) -> bool {
        self.current.as_ref().is_none_or(|segment| segment.complete)
    }

    fn complete_segment(&mut self) {
        if let Some(segment) = &mut self.current {
            segment.complete = true;
        }
    }

    /// Reads once into the free part of the buffer, and cuts off what does not belong to the segment.
    fn read_more(&mut self) -> Result<(), TaskFailure> {
        let Some(segment) = &mut self.current else {
            return Ok(());
        };
        let room = self.buffer.len() - self.filled;
        let before_end = segment.end.saturating_sub(segment.position);
        let wanted = match before_end {
            0 => room.min(OVERHANG_BYTES),
            before_end => room.min(usize::try_from(before_end).unwrap_or(usize::MAX)),
        };
        let free = &mut self.buffer[self.filled..self.filled + wanted];
        let count = segment.stored.read(free)?;
        segment.position += count as u64;
        segment.complete = count == 0;
        if before_end == 0 {
            // Beyond the end only the rest of one line is ours.
            match memchr(self.terminator, &free[..count]) {
                Some(line_end) => {
                    segment.complete = true;
                    self.filled += line_end + 1;
                }
                None => self.filled += count,
            }
            return Ok(());
        }
        segment.complete |= segment.position == segment.end && free[..count].ends_with(&[self.terminator]);
        self.filled += count;
        Ok(())
    }

    /// Fills the buffer and returns the length of the block of whole lines at its start; 0 where the
    /// segment has nothing more.
    fn fill_block(&mut self) -> Result<usize, TaskFailure> {
        loop {
            while self.filled < self.buffer.len() && !self.is_complete() {
                self.read_more()?;
            }
            if self.is_complete() {
                return self.end_last_line();
            }
            if let Some(line_end) = memrchr(self.terminator, &self.buffer[..self.filled]) {
                self.bytes += line_end as u64 + 1;
                return Ok(line_end + 1);
            }
            if self.filled >= self.buffer_bytes_max {
                return Err(self.line_too_long());
            }
            let grown = self.filled.saturating_mul(2).min(self.buffer_bytes_max);
            self.buffer.resize(grown, 0);
        }
    }

    /// Adds the line end that the last line of a file may lack. A segment that was skipped whole leaves an
    /// empty buffer.
    fn end_last_line(&mut self) -> Result<usize, TaskFailure> {
        if self.filled == 0 || self.buffer[self.filled - 1] == self.terminator {
            self.bytes += self.filled as u64;
            return Ok(self.filled);
        }
        let line_start =
            memrchr(self.terminator, &self.buffer[..self.filled]).map_or(0, |line_end| line_end + 1);
        if (self.filled - line_start) as u64 > self.record_bytes_max {
            return Err(self.line_too_long());
        }
        if self.filled == self.buffer.len() {
            self.buffer.push(0);
        }
        self.buffer[self.filled] = self.terminator;
        self.bytes += self.filled as u64;
        self.filled += 1;
        Ok(self.filled)
    }

    /// The error for the line that fills the buffer: reads on to tell how much memory it needs.
    fn line_too_long(&mut self) -> TaskFailure {
        let line_start =
            memrchr(self.terminator, &self.buffer[..self.filled]).map_or(0, |line_end| line_end + 1);
        let place = self.position(line_start);
        let mut line_bytes = (self.filled - line_start) as u64;
        while !self.is_complete() && line_bytes <= RECORD_BYTES_LIMIT {
            self.filled = 0;
            if let Err(failure) = self.read_more() {
                return failure;
            }
            match memchr(self.terminator, &self.buffer[..self.filled]) {
                Some(line_end) => {
                    line_bytes += line_end as u64;
                    break;
                }
                None => line_bytes += self.filled as u64,
            }
        }
        let message = format!(
            "the line of {place} is too long: {}",
            record_too_long(line_bytes, self.record_bytes_max)
        );
        TaskFailure::new(Blame::UserData, message)
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        self.release_block();
        loop {
            if self.current.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let block_bytes = self.fill_block()?;
            if self.is_complete()
                && let Some(segment) = &self.current
            {
                segment.stored.check_at_end()?;
            }
            if block_bytes > 0 {
                self.handed_out = block_bytes;
                let block = &self.buffer[..block_bytes];
                self.records += memchr_iter(self.terminator, block).count() as u64;
                return Ok(Some(block));
            }
            self.current = None;
        }
    }

    pub(crate) fn place(&self) -> BlockPlace {
        let of_segment = |segment: &OpenSegment| (segment.file_index, segment.named_input);
        let (file_index, named_input) = self.current.as_ref().map(of_segment).unwrap_or_default();
        BlockPlace { file_index, named_input, offset_bytes: self.buffer_position }
    }

    pub(crate) fn source_name(&self) -> String {
        match &self.current {
            Some(segment) if segment.compressed => unpacked(&segment.name),
            Some(segment) => segment.name.clone(),
            None => String::new(),
        }
    }

    pub(crate) fn position(&self, offset_in_block: usize) -> String {
        let position = self.buffer_position + offset_in_block as u64;
        match &self.current {
            Some(segment) if segment.compressed => {
                format!("{} at byte {position} of the decompressed text", segment.name)
            }
            Some(segment) => format!("{} at byte {position}", segment.name),
            None => "the end of the split".to_string(),
        }
    }
}
