//! The stream of a scan: entries, each after a header with a checksum and a running number, so that a lost, repeated,
//! moved or truncated entry is detected. Byte table: `docs/protocol-data.md`.

use ids::{IfileIndex, RunId};
use ifile::encoding::{FieldReader, check_crc};
use ifile::{BLOCK_HEADER_BYTES, FormatError, KeyShape, Problem, SourceRow, source_table};

/// Encoded size of an [`EntryHead`].
pub const ENTRY_HEAD_BYTES: usize = 24;
/// Maximum bytes of one run's source table: a run is one chunk or a few, and a chunk has at least one frame for each
/// row.
const SOURCES_BYTES_MAX: u64 = 256 << 20;
/// Maximum bytes of a server's reason for breaking off.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// Maximum number of lost runs in an entry: mostly all runs of a disk.
const LOST_RUNS_MAX: usize = 4096;
/// Maximum bytes reserved for a body before its bytes arrive.
const RESERVED_BYTES_MAX: usize = 1 << 20;
const ENTRY_VERSION: u8 = 2;
const SOURCES_HEAD_BYTES: usize = 24;

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// The source table of a run; those of all runs come first.
    Sources = 1,
    /// A block of a run, as `ifile` has it.
    Block = 2,
    /// A run has no more blocks in the range; with their number.
    RunEnd = 3,
    /// The end of the stream: every run has ended.
    End = 4,
    /// The server cannot continue, with the reason.
    Failed = 5,
    /// The server cannot continue, because runs are lost or damaged.
    Lost = 6,
}

impl EntryKind {
    fn body_bytes_max(self) -> u64 {
        match self {
            Self::Sources => SOURCES_BYTES_MAX,
            Self::Block => ifile::BLOCK_BYTES_MAX + BLOCK_HEADER_BYTES as u64,
            Self::RunEnd => RunEnd::BYTES as u64,
            Self::End => 0,
            Self::Failed => REASON_BYTES_MAX as u64,
            Self::Lost => LostRuns::BYTES_MAX as u64,
        }
    }
}

/// Head of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead {
    pub kind: EntryKind,
    /// The run's position in the request.
    pub run_index: u32,
    pub body_bytes: u32,
    /// CRC32C of the body; 0 for a block, which has its own.
    pub body_crc32c: u32,
    /// Counts the entries of the stream from 0.
    pub ordinal: u32,
}

impl EntryHead {
    /// Returns the header of an entry with this body.
    pub fn of(kind: EntryKind, run_index: u32, ordinal: u32, body: &[u8]) -> Self {
        let body_crc32c = if kind == EntryKind::Block { 0 } else { crc32c::crc32c(body) };
        Self { kind, run_index, body_bytes: body.len() as u32, body_crc32c, ordinal }
    }

    pub fn encode(&self) -> [u8; ENTRY_HEAD_BYTES] {
        let mut out = [0; ENTRY_HEAD_BYTES];
        out[0] = self.kind as u8;
        out[1] = ENTRY_VERSION;
        let fields = [self.run_index, self.body_bytes, self.body_crc32c, self.ordinal];
        for (index, field) in fields.into_iter().enumerate() {
            out[4 + 4 * index..8 + 4 * index].copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..ENTRY_HEAD_BYTES - 4]);
        out[ENTRY_HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let covered = fields.take(ENTRY_HEAD_BYTES - 4)?;
        check_crc("entry head", 0, covered, fields.u32()?)?;
        let kind = match covered[0] {
            1 => EntryKind::Sources,
            2 => EntryKind::Block,
            3 => EntryKind::RunEnd,
            4 => EntryKind::End,
            5 => EntryKind::Failed,
            6 => EntryKind::Lost,
            other => {
                return Err(FormatError::at(
                    0,
                    Problem::Field { what: "kind of an entry", value: other.into() },
                ));
            }
        };
        if covered[1] != ENTRY_VERSION {
            return Err(FormatError::at(1, Problem::Version(covered[1].into())));
        }
        let mut fields = FieldReader::new(&covered[2..]);
        fields.reserved(2)?;
        let head = Self {
            kind,
            run_index: fields.u32()?,
            body_bytes: fields.u32()?,
            body_crc32c: fields.u32()?,
            ordinal: fields.u32()?,
        };
        if u64::from(head.body_bytes) > kind.body_bytes_max() {
            let problem = Problem::Field { what: "size of an entry", value: head.body_bytes.into() };
            return Err(FormatError::at(8, problem));
        }
        Ok(head)
    }
}

/// Source table of a run, and everything else that a reader needs before the blocks of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSources {
    pub run: RunId,
    pub ifile: IfileIndex,
    pub key_shape: KeyShape,
    /// Number of records skipped at the front of the range, at most as many as requested.
    pub skipped_records: u64,
    pub rows: Vec<SourceRow>,
}

/// Appends the body of a [`EntryKind::Sources`] entry to `out`.
pub fn encode_sources(run: &chunkserver::Run, skipped_records: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&run.id.0.to_le_bytes());
    out.extend_from_slice(&run.ifile.0.to_le_bytes());
    out.extend_from_slice(&u32::from(run.key_shape == KeyShape::Prefix).to_le_bytes());
    out.extend_from_slice(&skipped_records.to_le_bytes());
    source_table::encode(&run.sources, out);
}

impl RunSources {
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let (run, ifile) = (RunId(fields.u64()?), IfileIndex(fields.u32()?));
        let key_shape = match fields.u32()? {
            0 => KeyShape::Whole,
            1 => KeyShape::Prefix,
            other => {
                return Err(fields.problem(Problem::Field { what: "key shape", value: other.into() }));
            }
        };
        let skipped_records = fields.u64()?;
        let rows = &bytes[SOURCES_HEAD_BYTES..];
        let row_count = (rows.len() / source_table::SOURCE_ROW_BYTES) as u64;
        let rows = source_table::decode(rows, row_count)
            .map_err(|error| error.shifted(SOURCES_HEAD_BYTES as u64))?;
        Ok(Self { run, ifile, key_shape, skipped_records, rows })
    }
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    pub blocks: u64,
    pub records: u64,
}

impl RunEnd {
    const BYTES: usize = 16;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.blocks.to_le_bytes());
        out[8..].copy_from_slice(&self.records.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let end = Self { blocks: fields.u64()?, records: fields.u64()? };
        match fields.remaining() as u64 {
            0 => Ok(end),
            value => Err(fields.problem(Problem::Field { what: "bytes after the end of a run", value })),
        }
    }
}

/// Runs that cannot be read, and the reason for the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRuns {
    pub runs: Vec<RunId>,
    pub reason: String,
}

impl LostRuns {
    const BYTES_MAX: usize = 4 + 8 * LOST_RUNS_MAX + REASON_BYTES_MAX;

    /// Encodes as many runs, and as much of the reason, as fit.
    pub fn encode(&self) -> Vec<u8> {
        let runs = &self.runs[..self.runs.len().min(LOST_RUNS_MAX)];
        let mut out = (runs.len() as u32).to_le_bytes().to_vec();
        runs.iter().for_each(|run| out.extend_from_slice(&run.0.to_le_bytes()));
        out.extend_from_slice(&self.reason.as_bytes()[..self.reason.floor_char_boundary(REASON_BYTES_MAX)]);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let count = fields.u32()?;
        if count as usize > LOST_RUNS_MAX {
            return Err(FormatError::at(
                0,
                Problem::Field { what: "number of lost runs", value: count.into() },
            ));
        }
        let runs = (0..count).map(|_| fields.u64().map(RunId)).collect::<Result<_, _>>()?;
        let reason = fields.take(fields.remaining())?;
        Ok(Self { runs, reason: String::from_utf8_lossy(reason).into_owned() })
    }
}

/// An entry of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub head: EntryHead,
    pub body: Vec<u8>,
}

/// Assembles entries from pieces of the stream of any size.
#[derive(Debug, Default)]
pub struct EntryDecoder {
    /// Bytes of an incomplete header.
    head_bytes: Vec<u8>,
    head: Option<EntryHead>,
    body: Vec<u8>,
    next_ordinal: u32,
    ended: bool,
}

impl EntryDecoder {
    /// Takes bytes from the front of `piece` until an entry is complete; None when `piece` is used up first. Bodies of
    /// blocks are not checked here: the decoder of a block does that.
    pub fn take(&mut self, piece: &mut &[u8]) -> Result<Option<Entry>, FormatError> {
        if self.head.is_none() && !self.take_head(piece)? {
            return Ok(None);
        }
        let Some(head) = self.head else { return Ok(None) };
        let missing = head.body_bytes as usize - self.body.len();
        let count = missing.min(piece.len());
        self.body.extend_from_slice(&piece[..count]);
        *piece = &piece[count..];
        if count < missing {
            return Ok(None);
        }
        self.head = None;
        let body = std::mem::take(&mut self.body);
        if head.kind != EntryKind::Block {
            check_crc("entry", 0, &body, head.body_crc32c)?;
        }
        self.ended = head.kind == EntryKind::End;
        Ok(Some(Entry { head, body }))
    }

    fn take_head(&mut self, piece: &mut &[u8]) -> Result<bool, FormatError> {
        if piece.is_empty() {
            return Ok(false);
        }
        if self.ended {
            let problem = Problem::Field { what: "bytes after the end of a scan", value: piece.len() as u64 };
            return Err(FormatError::at(0, problem));
        }
        let count = (ENTRY_HEAD_BYTES - self.head_bytes.len()).min(piece.len());
        self.head_bytes.extend_from_slice(&piece[..count]);
        *piece = &piece[count..];
        if self.head_bytes.len() < ENTRY_HEAD_BYTES {
            return Ok(false);
        }
        let head = EntryHead::decode(&self.head_bytes)?;
        self.head_bytes.clear();
        if head.ordinal != self.next_ordinal {
            let (here, there) = (head.ordinal.into(), self.next_ordinal.into());
            let problem = Problem::Disagreement { what: "number of an entry", here, there };
            return Err(FormatError::at(0, problem));
        }
        self.next_ordinal = self.next_ordinal.wrapping_add(1);
        self.body.reserve((head.body_bytes as usize).min(RESERVED_BYTES_MAX));
        self.head = Some(head);
        Ok(true)
    }

    /// Returns whether the last entry was the end of the stream.
    pub fn is_at_end(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut out = Vec::new();
        let shape = 0u32.to_le_bytes();
        let sources = [&5u64.to_le_bytes()[..], &1u32.to_le_bytes(), &shape, &7u64.to_le_bytes()].concat();
        let end = RunEnd { blocks: 1, records: 3 }.encode();
        let entries = [
            (EntryKind::Sources, &sources[..]),
            (EntryKind::Block, &[7; 100]),
            (EntryKind::RunEnd, &end),
            (EntryKind::End, &[]),
        ];
        for (ordinal, (kind, body)) in entries.into_iter().enumerate() {
            out.extend_from_slice(&EntryHead::of(kind, 0, ordinal as u32, body).encode());
            out.extend_from_slice(body);
        }
        out
    }

    fn read(bytes: &[u8], piece_bytes: usize) -> Result<Vec<Entry>, FormatError> {
        let mut decoder = EntryDecoder::default();
        let mut entries = Vec::new();
        for mut piece in bytes.chunks(piece_bytes) {
            while let Some(entry) = decoder.take(&mut piece)? {
                entries.push(entry);
            }
        }
        assert!(!decoder.is_at_end() || entries.len() == 4);
        Ok(entries)
    }

    #[test]
    fn entries_are_equal_for_every_cut_of_stream() {
        let bytes = stream();
        let whole = read(&bytes, bytes.len()).unwrap();
        assert_eq!(whole.len(), 4);
        for piece_bytes in 1..40 {
            assert_eq!(read(&bytes, piece_bytes).unwrap(), whole);
        }
        let sources = RunSources::decode(&whole[0].body).unwrap();
        assert_eq!((sources.run, sources.skipped_records), (RunId(5), 7));
        assert_eq!(RunEnd::decode(&whole[2].body).unwrap(), RunEnd { blocks: 1, records: 3 });
    }

    #[test]
    fn flipped_bits_outside_of_blocks_are_found() {
        let bytes = stream();
        let block =
            2 * ENTRY_HEAD_BYTES + SOURCES_HEAD_BYTES..2 * ENTRY_HEAD_BYTES + SOURCES_HEAD_BYTES + 100;
        for bit in (0..bytes.len() * 8).filter(|bit| !block.contains(&(bit / 8))) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, 64).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lost_and_doubled_entries_are_found() {
        let bytes = stream();
        let block = ENTRY_HEAD_BYTES + SOURCES_HEAD_BYTES..2 * ENTRY_HEAD_BYTES + SOURCES_HEAD_BYTES + 100;
        let lost = [&bytes[..block.start], &bytes[block.end..]].concat();
        assert!(read(&lost, 64).is_err());
        let doubled = [&bytes[..block.end], &bytes[block.start..]].concat();
        assert!(read(&doubled, 64).is_err());
        let longer = [&bytes[..], &bytes[..1]].concat();
        assert!(read(&longer, 64).is_err());
    }
}
