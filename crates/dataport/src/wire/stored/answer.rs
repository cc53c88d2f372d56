//! The answer to a read of stored files: a stream of ranges, each verified here block by block.
//!
//! Each range begins with a status. If it is there, the checksums of the blocks of its part follow, unless the part has
//! one block, whose checksum is its own. They must combine to the checksum of the part that the reader asked for. Then
//! come the whole blocks that have the range, in pieces, and after all ranges a mark.

use crate::wire::stored::{PartRange, STORED_PIECE_BYTES_MAX, content_of, sums_sent};
use bytes::{Buf, Bytes, BytesMut};
use concretefile::{BLOCK_BYTES, BlockSums};
use ids::ConcreteId;
use ifile::{FormatError, Problem};
use std::collections::VecDeque;

/// Statuses of a range, and the mark at the end.
pub(crate) const HERE: u8 = 0;
pub(crate) const NOT_HERE: u8 = 1;
pub(crate) const FAILED: u8 = 2;
pub(crate) const ANSWER_END: u8 = 255;
/// Instead of the length of a piece: the range breaks off, and so does the stream.
pub(crate) const BROKEN_OFF: u32 = u32::MAX;
/// Maximum bytes of a reason.
pub(crate) const REASON_BYTES_MAX: usize = 4 << 10;

/// Blocks that are gathered and returned at once.
const BLOCKS_AT_ONCE: u64 = 4;

/// Appends a reason, shortened to its maximum.
pub(crate) fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let text = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Verified bytes of the current range.
    Bytes(Bytes),
    /// The current range is complete.
    RangeEnd,
    /// There is no further range.
    StreamEnd,
}

/// The reason why bytes of an answer are not returned.
#[derive(Debug)]
pub enum AnswerProblem {
    /// The stream cannot be understood.
    Stream(FormatError),
    /// The part is missing there, or does not verify.
    Part { file: ConcreteId, reason: String },
}

/// State of the decoder: the field that it reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Status,
    Sums,
    PieceHead,
    Piece,
    /// Length of a reason.
    ReasonHead,
    Reason {
        bytes: usize,
    },
    RangeEnd,
    /// The mark after the last range, which is complete.
    LastRangeEnd,
    /// The mark after the last range, which failed.
    End,
    Over,
}

/// A decoder of an answer, which verifies it.
#[derive(Debug)]
pub struct AnswerDecoder {
    /// The current range and those after it.
    ranges: VecDeque<PartRange>,
    next: Next,
    input: Bytes,
    /// Bytes of the answer before the input.
    offset: u64,
    /// Beginning of a field that is not complete.
    held: Vec<u8>,
    /// Checksums of the current part, as far as they have arrived; then all of them.
    sums: Vec<u32>,
    known: BlockSums,
    /// The next block of the current range, and the first one behind it.
    block: u64,
    blocks_end: u64,
    /// The next blocks, as far as they have arrived.
    gathered: BytesMut,
    piece_left: usize,
    /// True if the reason that is being read ends the stream.
    breaks_off: bool,
    /// True if the last error left the stream intact.
    goes_on: bool,
}

impl AnswerDecoder {
    /// Creates the decoder of an answer with these ranges, each cut to its part.
    pub fn new(ranges: Vec<PartRange>) -> Self {
        let next = if ranges.is_empty() { Next::End } else { Next::Status };
        Self {
            ranges: ranges.into_iter().map(|range| range.within_part()).collect(),
            next,
            input: Bytes::new(),
            offset: 0,
            held: Vec::new(),
            sums: Vec::new(),
            known: BlockSums::default(),
            block: 0,
            blocks_end: 0,
            gathered: BytesMut::new(),
            piece_left: 0,
            breaks_off: false,
            goes_on: true,
        }
    }

    /// Adds bytes of the answer, after [`Self::next_answer`] returned None.
    pub fn push(&mut self, bytes: Bytes) {
        match self.input.is_empty() {
            true => self.input = bytes,
            false => self.input = [&self.input[..], &bytes[..]].concat().into(),
        }
    }

    /// Returns whether the ranges after a failed one can still be read.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Returns the checksums of the blocks of the part of which bytes were returned last.
    pub fn sums(&self) -> &BlockSums {
        &self.known
    }

    /// Returns whether the end mark was read.
    pub fn is_over(&self) -> bool {
        self.next == Next::Over
    }

    /// Returns the next piece; None if more bytes are needed.
    pub fn next_answer(&mut self) -> Result<Option<Answered>, AnswerProblem> {
        if !self.goes_on {
            return Err(self.problem("anything after an error", 0));
        }
        let next = self.advance();
        // Behind a failed range, the next one begins; behind anything else nothing is known.
        let is_between = matches!(self.next, Next::Status | Next::End);
        self.goes_on = next.is_ok() || (is_between && !self.breaks_off);
        next
    }

    fn advance(&mut self) -> Result<Option<Answered>, AnswerProblem> {
        loop {
            let answered = match self.next {
                Next::Status => self.status()?,
                Next::Sums => self.take_sums()?,
                Next::PieceHead => self.piece_head()?,
                Next::Piece => self.piece()?,
                Next::ReasonHead => self.reason_head()?,
                Next::Reason { bytes } => self.reason(bytes)?,
                Next::RangeEnd => self.range_end(),
                Next::LastRangeEnd | Next::End => self.end()?,
                Next::Over => return Ok(Some(Answered::StreamEnd)),
            };
            match answered {
                Step::Again => {}
                Step::Return(answered) => return Ok(Some(answered)),
                Step::NeedsMore => return Ok(None),
            }
        }
    }

    fn problem(&self, what: &'static str, value: u64) -> AnswerProblem {
        AnswerProblem::Stream(FormatError::at(self.offset, Problem::Field { what, value }))
    }

    fn file(&self) -> ConcreteId {
        self.ranges.front().map_or(ConcreteId(0), |range| range.part.concrete)
    }

    fn current(&self) -> Result<PartRange, AnswerProblem> {
        self.ranges.front().copied().ok_or_else(|| self.problem("the number of ranges", 0))
    }

    fn of_the_part(&self, reason: String) -> AnswerProblem {
        AnswerProblem::Part { file: self.file(), reason }
    }

    fn take_input(&mut self, bytes: usize) -> Bytes {
        self.offset += bytes as u64;
        self.input.split_to(bytes)
    }

    /// Completes a field of this length in `held`. Returns false if more bytes are needed.
    fn hold(&mut self, bytes: usize) -> bool {
        let more = (bytes - self.held.len()).min(self.input.len());
        let piece = self.take_input(more);
        self.held.extend_from_slice(&piece);
        self.held.len() == bytes
    }

    fn number(&mut self) -> Option<u32> {
        if !self.hold(4) {
            return None;
        }
        let number = self.held.as_slice().get_u32_le();
        self.held.clear();
        Some(number)
    }

    fn status(&mut self) -> Result<Step, AnswerProblem> {
        let range = self.current()?;
        if self.input.is_empty() {
            return Ok(Step::NeedsMore);
        }
        match self.take_input(1)[0] {
            HERE => {
                self.sums.clear();
                (self.block, self.blocks_end) = (range.blocks().start, range.blocks().end);
                self.next = Next::Sums;
                Ok(Step::Again)
            }
            NOT_HERE => {
                let problem = self.of_the_part("it is not there".to_string());
                self.next_range();
                Err(problem)
            }
            FAILED => {
                self.next = Next::ReasonHead;
                Ok(Step::Again)
            }
            other => {
                self.breaks_off = true;
                Err(self.problem("the status of a part", other.into()))
            }
        }
    }

    fn next_range(&mut self) {
        self.ranges.pop_front();
        self.next = if self.ranges.is_empty() { Next::End } else { Next::Status };
    }

    fn take_sums(&mut self) -> Result<Step, AnswerProblem> {
        let part = self.current()?.part;
        while (self.sums.len() as u64) < sums_sent(&part) {
            let Some(sum) = self.number() else { return Ok(Step::NeedsMore) };
            self.sums.push(sum);
        }
        let sums = match sums_sent(&part) {
            0 => BlockSums::of_block(content_of(&part)),
            _ => BlockSums::new(std::mem::take(&mut self.sums)),
        };
        let (whole, stated) = (sums.whole(part.bytes), part.crc32c);
        if whole != stated {
            let reason = format!("the checksums of its blocks make {whole:#010x} instead of {stated:#010x}");
            return Err(self.of_the_part(reason));
        }
        self.known = sums;
        self.next = self.after_blocks();
        Ok(Step::Again)
    }

    /// Returns the field after complete blocks, or after the checksums.
    fn after_blocks(&self) -> Next {
        match (self.block < self.blocks_end, self.piece_left) {
            (false, _) => Next::RangeEnd,
            (true, 0) => Next::PieceHead,
            (true, _) => Next::Piece,
        }
    }

    fn range_end(&mut self) -> Step {
        self.next_range();
        if self.next == Next::End {
            self.next = Next::LastRangeEnd;
            return Step::Again;
        }
        Step::Return(Answered::RangeEnd)
    }

    /// Returns the bytes of the blocks from the next one on, up to a block behind it.
    fn bytes_to(&self, block: u64) -> u64 {
        let bytes = self.ranges.front().map_or(0, |range| range.part.bytes);
        block.saturating_mul(BLOCK_BYTES).min(bytes) - self.block * BLOCK_BYTES
    }

    fn piece_head(&mut self) -> Result<Step, AnswerProblem> {
        let Some(length) = self.number() else { return Ok(Step::NeedsMore) };
        if length == BROKEN_OFF {
            self.breaks_off = true;
            self.next = Next::ReasonHead;
            return Ok(Step::Again);
        }
        let left = self.bytes_to(self.blocks_end) - self.gathered.len() as u64;
        if length == 0 || length > STORED_PIECE_BYTES_MAX || u64::from(length) > left {
            return Err(self.problem("the length of a piece", length.into()));
        }
        self.piece_left = length as usize;
        self.next = Next::Piece;
        Ok(Step::Again)
    }

    fn piece(&mut self) -> Result<Step, AnswerProblem> {
        let group_end = self.blocks_end.min(self.block + BLOCKS_AT_ONCE);
        let wanted = self.bytes_to(group_end) as usize;
        let more = (wanted - self.gathered.len()).min(self.piece_left).min(self.input.len());
        let piece = self.take_input(more);
        self.piece_left -= more;
        // A small part that arrived at once is not copied.
        let group = match self.gathered.is_empty() && more == wanted {
            true => piece,
            false => {
                self.gathered.reserve(wanted - self.gathered.len());
                self.gathered.extend_from_slice(&piece);
                if self.gathered.len() < wanted {
                    self.next = if self.piece_left > 0 { Next::Piece } else { Next::PieceHead };
                    return Ok(if self.input.is_empty() { Step::NeedsMore } else { Step::Again });
                }
                std::mem::take(&mut self.gathered).freeze()
            }
        };
        self.verified(group, group_end)
    }

    /// Verifies complete blocks, and returns their bytes that belong to the range.
    fn verified(&mut self, group: Bytes, group_end: u64) -> Result<Step, AnswerProblem> {
        let range = self.current()?;
        for (block, bytes) in (self.block..).zip(group.chunks(BLOCK_BYTES as usize)) {
            let (stored, computed) = (self.known.blocks()[block as usize], crc32c::crc32c(bytes));
            if stored != computed {
                let reason =
                    format!("block {block} has the checksum {computed:#010x} instead of {stored:#010x}");
                return Err(self.of_the_part(reason));
            }
        }
        let first = self.block * BLOCK_BYTES;
        let from = range.offset.saturating_sub(first) as usize;
        let to = (range.offset + range.bytes - first).min(group.len() as u64) as usize;
        self.block = group_end;
        self.next = self.after_blocks();
        Ok(Step::Return(Answered::Bytes(group.slice(from..to))))
    }

    fn reason_head(&mut self) -> Result<Step, AnswerProblem> {
        let Some(length) = self.number() else { return Ok(Step::NeedsMore) };
        if length as usize > REASON_BYTES_MAX {
            return Err(self.problem("the length of a reason", length.into()));
        }
        self.next = Next::Reason { bytes: length as usize };
        Ok(Step::Again)
    }

    fn reason(&mut self, bytes: usize) -> Result<Step, AnswerProblem> {
        if !self.hold(bytes) {
            return Ok(Step::NeedsMore);
        }
        let reason = String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned();
        let problem = self.of_the_part(reason);
        self.next_range();
        Err(problem)
    }

    fn end(&mut self) -> Result<Step, AnswerProblem> {
        if self.input.is_empty() {
            return Ok(Step::NeedsMore);
        }
        let is_after_range = self.next == Next::LastRangeEnd;
        let mark = self.take_input(1)[0];
        self.next = Next::Over;
        match mark {
            ANSWER_END if !self.input.is_empty() => {
                Err(self.problem("bytes after the end mark", self.input.len() as u64))
            }
            ANSWER_END if is_after_range => Ok(Step::Return(Answered::RangeEnd)),
            ANSWER_END => Ok(Step::Again),
            other => Err(self.problem("the end mark", other.into())),
        }
    }
}

/// Consequence of a field.
enum Step {
    Again,
    Return(Answered),
    NeedsMore,
}

#[cfg(test)]
mod tests;
