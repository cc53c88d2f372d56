//! Reading a split as blocks of records of one length. Nobody looks at the bytes: a plain file is cut at
//! multiples of the length, so that every block is whole by its size.

use crate::input;
use crate::input::source::Opening;
use crate::input::stored::StoredFile;
use crate::reader::{ReaderLimits, Segments, unpacked};
use api::{Blame, InputFile, TaskFailure};
use functions::BlockPlace;

/// A segment while it is read.
struct OpenSegment {
    stored: StoredFile,
    input: InputFile,
    file_index: u32,
    compressed: bool,
    /// Bytes that are still to be read; unknown, and this large, for a compressed file.
    left: u64,
}

/// Reads the segments of a split one after the other.
pub(crate) struct FixedReader {
    segments: Segments,
    current: Option<OpenSegment>,
    record_bytes: u32,
    record_bytes_max: u64,
    opening: Opening,
    /// A multiple of the record length.
    buffer: Vec<u8>,
    place: BlockPlace,
    /// Bytes of the last block.
    block_bytes: usize,
    bytes: u64,
}

impl FixedReader {
    pub(crate) fn new(
        segments: Segments,
        record_bytes: u32,
        limits: ReaderLimits,
        opening: Opening,
    ) -> FixedReader {
        let record_bytes = record_bytes.max(1);
        let records = (limits.buffer_bytes / record_bytes as usize).max(1);
        let fits = u64::from(record_bytes) <= limits.record_bytes_max;
        FixedReader {
            segments,
            current: None,
            record_bytes,
            record_bytes_max: limits.record_bytes_max,
            opening,
            buffer: if fits { vec![0; records * record_bytes as usize] } else { Vec::new() },
            place: BlockPlace::default(),
            block_bytes: 0,
            bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn records(&self) -> u64 {
        self.bytes / u64::from(self.record_bytes)
    }

    pub(crate) fn place(&self) -> BlockPlace {
        self.place
    }

    pub(crate) fn source_name(&self) -> String {
        match &self.current {
            Some(segment) if segment.compressed => unpacked(&input::name(&segment.input)),
            Some(segment) => input::name(&segment.input),
            None => String::new(),
        }
    }

    pub(crate) fn position(&self, offset_in_block: usize) -> String {
        let position = self.place.offset_bytes + offset_in_block as u64;
        match &self.current {
            Some(segment) => {
                let text = if segment.compressed { " of the decompressed data" } else { "" };
                format!("{} at byte {position}{text}", input::name(&segment.input))
            }
            None => "the end of the split".to_string(),
        }
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        self.place.offset_bytes += self.block_bytes as u64;
        self.block_bytes = 0;
        loop {
            if self.current.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let block_bytes = self.fill()?;
            if block_bytes > 0 {
                self.block_bytes = block_bytes;
                self.bytes += block_bytes as u64;
                return Ok(Some(&self.buffer[..block_bytes]));
            }
            self.current = None;
        }
    }

    /// Opens the next segment; false where there is none.
    fn open_next(&mut self) -> Result<bool, TaskFailure> {
        let Some((input, segment)) = self.segments.next() else {
            return Ok(false);
        };
        if self.buffer.is_empty() {
            let reason = functions::record_too_long(u64::from(self.record_bytes), self.record_bytes_max);
            let message = format!("a record of {} is too long: {reason}", input::name(&input));
            return Err(TaskFailure::new(Blame::UserData, message));
        }
        let compressed = input.compression.is_some();
        let (offset_bytes, left) =
            if compressed { (0, u64::MAX) } else { (segment.offset_bytes, segment.length_bytes) };
        self.place = BlockPlace { file_index: segment.file_index, named_input: input.named, offset_bytes };
        let planned = offset_bytes..input.size_bytes.min(offset_bytes.saturating_add(left));
        let stored = StoredFile::open(&input, planned, &self.opening)?;
        self.current = Some(OpenSegment { stored, input, file_index: segment.file_index, compressed, left });
        Ok(true)
    }

    /// Fills the buffer as far as the segment goes; 0 at its end.
    fn fill(&mut self) -> Result<usize, TaskFailure> {
        let Some(segment) = &mut self.current else {
            return Ok(0);
        };
        debug_assert_eq!(segment.file_index, self.place.file_index);
        let room = self.buffer.len().min(usize::try_from(segment.left).unwrap_or(usize::MAX));
        let mut filled = 0;
        while filled < room {
            match segment.stored.read(&mut self.buffer[filled..room])? {
                0 => break,
                count => filled += count,
            }
        }
        let at_end = filled < room || segment.left == room as u64;
        if !segment.compressed {
            segment.left -= filled as u64;
        }
        if at_end {
            segment.stored.check_at_end()?;
            segment.left = 0;
        }
        let rest = filled % self.record_bytes as usize;
        if rest != 0 {
            let (name, record_bytes) = (input::name(&segment.input), self.record_bytes);
            let data_bytes = self.place.offset_bytes + filled as u64;
            let what = if segment.compressed { "bytes after decompression" } else { "bytes" };
            let message = format!(
                "input {name} has a partial last record: its {data_bytes} {what} are not a multiple of the \
                 record length {record_bytes}; {rest} are left over"
            );
            return Err(TaskFailure::new(Blame::UserData, message));
        }
        Ok(filled)
    }
}
