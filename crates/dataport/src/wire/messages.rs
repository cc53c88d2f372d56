//! The messages around frames and blocks, as bytes. Byte tables: `docs/protocol-data.md`.
//!
//! Each message begins with four bytes that name it and a version, and ends with a CRC32C over all before it;
//! numbers are little-endian. Frames and blocks are those of `ifile`, with checksums of their own.

use ids::{AttemptNumber, ChunkId, IfileIndex, RunId, Source, TaskIndex};
use ifile::encoding::{FieldReader, check_crc};
use ifile::frame::FRAME_HEADER_BYTES;
use ifile::{FormatError, FrameHeader, Problem};

/// Version of every message; another one is refused.
pub const WIRE_VERSION: u16 = 2;
/// Maximum number of frames in a request.
pub const FRAMES_PER_REQUEST_MAX: u32 = 4096;
/// Maximum number of chunks in a release.
pub const CHUNKS_PER_RELEASE_MAX: u32 = 4096;
/// Maximum number of runs in a scan: the fan-in of a merge is below it.
pub const RUNS_PER_SCAN_MAX: u32 = 1 << 16;
/// Maximum bytes of a bound of a key range: the key indexes from which ranges are cut keep much less of a key.
pub const BOUND_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a message that is read as a whole.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;
// The longest is a scan that continues within all its runs.
const _: () = assert!(RUNS_PER_SCAN_MAX as usize * 16 + 2 * BOUND_BYTES_MAX + 64 < MESSAGE_BYTES_MAX);

/// Maximum bytes of the file of a run.
pub const COPY_BYTES_MAX: u64 = 1 << 48;

const BIND: [u8; 4] = *b"SFBD";
const BOUND: [u8; 4] = *b"SFBR";
const APPEND: [u8; 4] = *b"SFAP";
const APPENDED: [u8; 4] = *b"SFAR";
const RELEASE: [u8; 4] = *b"SFRL";
const SCAN: [u8; 4] = *b"SFSQ";
const COPY: [u8; 4] = *b"SFCP";

/// Bytes in front of the fields of a message, and of its checksum.
pub(crate) const NAME_BYTES: usize = 8;
pub(crate) const CRC_BYTES: usize = 4;

pub(crate) fn begin(name: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&name);
    out.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out
}

pub(crate) fn end(mut out: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Checks name, version and checksum of a whole message and returns its fields.
pub(crate) fn open<'a>(
    name: [u8; 4],
    what: &'static str,
    bytes: &'a [u8],
) -> Result<FieldReader<'a>, FormatError> {
    let Some((covered, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(too_short(bytes));
    };
    if covered.len() < NAME_BYTES {
        return Err(too_short(bytes));
    }
    if covered[..4] != name {
        return Err(FormatError::at(0, Problem::Foreign));
    }
    check_crc(what, 0, covered, u32::from_le_bytes(*crc))?;
    let mut fields = FieldReader::new(&covered[4..]);
    let version = fields.u16()?;
    if version != WIRE_VERSION {
        return Err(FormatError::at(4, Problem::Version(version)));
    }
    fields.reserved(2)?;
    Ok(fields)
}

fn too_short(bytes: &[u8]) -> FormatError {
    let needed_bytes = (NAME_BYTES + CRC_BYTES) as u64;
    FormatError::at(0, Problem::Truncated { needed_bytes, present_bytes: bytes.len() as u64 })
}

pub(crate) fn all_read(fields: &FieldReader<'_>) -> Result<(), FormatError> {
    match fields.remaining() as u64 {
        0 => Ok(()),
        value => Err(fields.problem(Problem::Field { what: "bytes after a message", value })),
    }
}

pub(crate) fn limited(what: &'static str, value: u64, max: u64) -> Result<u64, FormatError> {
    if value <= max { Ok(value) } else { Err(FormatError::at(0, Problem::Field { what, value })) }
}

fn put_source(out: &mut Vec<u8>, source: Source) {
    out.extend_from_slice(&source.map_task.0.to_le_bytes());
    out.extend_from_slice(&source.attempt.0.to_le_bytes());
}

fn source(fields: &mut FieldReader<'_>) -> Result<Source, FormatError> {
    Ok(Source { map_task: TaskIndex(fields.u32()?), attempt: AttemptNumber(fields.u32()?) })
}

/// A request for a chunk of an I-file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindRequest {
    pub ifile: IfileIndex,
    pub source: Source,
    /// Bytes of the first frame for the chunk.
    pub frame_bytes: u64,
}

impl BindRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(BIND);
        out.extend_from_slice(&self.ifile.0.to_le_bytes());
        put_source(&mut out, self.source);
        out.extend_from_slice(&self.frame_bytes.to_le_bytes());
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(BIND, "bind", bytes)?;
        let ifile = IfileIndex(fields.u32()?);
        let request = Self { ifile, source: source(&mut fields)?, frame_bytes: fields.u64()? };
        all_read(&fields)?;
        limited("bytes of a frame", request.frame_bytes, ifile::ENCODED_RECORD_BYTES_MAX)?;
        Ok(request)
    }
}

/// The chunk to append to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindReply {
    pub chunk: ChunkId,
}

impl BindReply {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(BOUND);
        out.extend_from_slice(&self.chunk.0.to_le_bytes());
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(BOUND, "answer to a bind", bytes)?;
        let reply = Self { chunk: ChunkId(fields.u64()?) };
        all_read(&fields)?;
        Ok(reply)
    }
}

/// Head of the frames of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendHead {
    /// Source of all its frames.
    pub source: Source,
    pub frame_count: u32,
}

/// Encoded size of an [`AppendHead`].
pub const APPEND_HEAD_BYTES: usize = NAME_BYTES + 12 + CRC_BYTES;

impl AppendHead {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(APPEND);
        put_source(&mut out, self.source);
        out.extend_from_slice(&self.frame_count.to_le_bytes());
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(APPEND, "append", bytes)?;
        let head = Self { source: source(&mut fields)?, frame_count: fields.u32()? };
        all_read(&fields)?;
        limited("number of frames", head.frame_count.into(), FRAMES_PER_REQUEST_MAX.into())?;
        Ok(head)
    }
}

/// Header of the payload of a frame: its chunk and the frame's own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    pub chunk: ChunkId,
    pub header: FrameHeader,
}

/// Encoded size of a [`FrameHead`].
pub const FRAME_HEAD_BYTES: usize = 8 + CRC_BYTES + FRAME_HEADER_BYTES;

impl FrameHead {
    pub fn encode(&self) -> [u8; FRAME_HEAD_BYTES] {
        let mut out = [0; FRAME_HEAD_BYTES];
        out[..8].copy_from_slice(&self.chunk.0.to_le_bytes());
        out[8 + CRC_BYTES..].copy_from_slice(&self.header.encode());
        // One checksum over chunk and header: neither can be mistaken for that of another frame.
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[..8]), &out[8 + CRC_BYTES..]);
        out[8..8 + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let chunk = fields.u64()?;
        let stored = fields.u32()?;
        let header_bytes = fields.take(FRAME_HEADER_BYTES)?;
        let computed = crc32c::crc32c_append(crc32c::crc32c(&chunk.to_le_bytes()), header_bytes);
        if computed != stored {
            return Err(FormatError::at(8, Problem::Checksum { what: "frame head", stored, computed }));
        }
        all_read(&fields)?;
        let header = FrameHeader::decode(header_bytes).map_err(|error| error.shifted(12))?;
        limited("bytes of a frame", header.sum.bytes, ifile::ENCODED_RECORD_BYTES_MAX)?;
        Ok(Self { chunk: ChunkId(chunk), header })
    }
}

/// The answers to the frames of a request, in order: None for acknowledged, Some with the end of the data for closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendAnswers {
    pub closed: Vec<Option<u64>>,
}

impl AppendAnswers {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(APPENDED);
        for closed in &self.closed {
            // Sequence numbers are far below 2^63: no source has that many frames.
            let value = closed.map_or(0, |standing_end| standing_end << 1 | 1);
            out.extend_from_slice(&value.to_le_bytes());
        }
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(APPENDED, "answer to an append", bytes)?;
        let mut closed = Vec::with_capacity(fields.remaining() / 8);
        while fields.remaining() > 0 {
            let value = fields.u64()?;
            if value != 0 && value & 1 == 0 {
                return Err(fields.problem(Problem::Field { what: "an answer", value }));
            }
            closed.push((value != 0).then_some(value >> 1));
        }
        limited("number of answers", closed.len() as u64, FRAMES_PER_REQUEST_MAX.into())?;
        Ok(Self { closed })
    }
}

/// Chunks to which a source sends no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    pub source: Source,
    pub chunks: Vec<ChunkId>,
}

impl ReleaseRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(RELEASE);
        put_source(&mut out, self.source);
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.0.to_le_bytes());
        }
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(RELEASE, "release", bytes)?;
        let source = source(&mut fields)?;
        let mut chunks = Vec::with_capacity(fields.remaining() / 8);
        while fields.remaining() > 0 {
            chunks.push(ChunkId(fields.u64()?));
        }
        limited("number of chunks", chunks.len() as u64, CHUNKS_PER_RELEASE_MAX.into())?;
        Ok(Self { source, chunks })
    }
}

/// A request for the records with lower <= partition key < upper of some runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    pub runs: Vec<RunId>,
    /// Empty, or for each run the number of records to skip at the front of the range. Only whole blocks can be
    /// skipped, so fewer records may be.
    pub skip_records: Vec<u64>,
    pub lower: Option<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    /// True if blocks made for the scan are compressed like those on disk. If the network is faster than a compressor,
    /// as within one machine, they should not be.
    pub compress: bool,
}

impl ScanRequest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(SCAN);
        out.extend_from_slice(&u32::from(self.compress).to_le_bytes());
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            out.extend_from_slice(&run.0.to_le_bytes());
        }
        out.extend_from_slice(&(self.skip_records.len() as u32).to_le_bytes());
        for records in &self.skip_records {
            out.extend_from_slice(&records.to_le_bytes());
        }
        for bound in [&self.lower, &self.upper] {
            // An absent bound is not an empty one.
            let length = bound.as_ref().map_or(0, |bytes| bytes.len() as u32 + 1);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bound.as_deref().unwrap_or_default());
        }
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(SCAN, "scan", bytes)?;
        let compress = match fields.u32()? {
            0 => false,
            1 => true,
            other => {
                return Err(fields.problem(Problem::Field { what: "flags of a scan", value: other.into() }));
            }
        };
        let run_count = limited("number of runs", fields.u32()?.into(), RUNS_PER_SCAN_MAX.into())?;
        let mut runs = Vec::with_capacity((run_count as usize).min(fields.remaining() / 8));
        for _ in 0..run_count {
            runs.push(RunId(fields.u64()?));
        }
        let skip_count = fields.u32()?;
        if skip_count != 0 && u64::from(skip_count) != run_count {
            let problem = Problem::Field { what: "number of runs to go on in", value: skip_count.into() };
            return Err(fields.problem(problem));
        }
        let mut skip_records = Vec::with_capacity((skip_count as usize).min(fields.remaining() / 8));
        for _ in 0..skip_count {
            skip_records.push(fields.u64()?);
        }
        let mut bounds = [None, None];
        for bound in &mut bounds {
            let length = fields.u32()? as usize;
            limited("bytes of a bound", length as u64, BOUND_BYTES_MAX as u64 + 1)?;
            if length > 0 {
                *bound = Some(fields.take(length - 1)?.to_vec());
            }
        }
        all_read(&fields)?;
        let [lower, upper] = bounds;
        Ok(Self { runs, skip_records, lower, upper, compress })
    }
}

/// Head of the file of a run that is copied to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHead {
    pub run: RunId,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Encoded size of a [`CopyHead`].
pub const COPY_HEAD_BYTES: usize = NAME_BYTES + 16 + CRC_BYTES;
/// Encoded size of the checksum behind the file.
pub const COPY_CRC_BYTES: usize = CRC_BYTES;

impl CopyHead {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(COPY);
        out.extend_from_slice(&self.run.0.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(COPY, "head of a copy", bytes)?;
        let head = Self { run: RunId(fields.u64()?), bytes: fields.u64()? };
        all_read(&fields)?;
        limited("bytes of a run file", head.bytes, COPY_BYTES_MAX)?;
        Ok(head)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fmt::Debug;

    const SOURCE: Source = Source { map_task: TaskIndex(7), attempt: AttemptNumber(2) };

    /// Decodes the encoded message, and checks that every flipped bit and every cut is an error.
    pub(crate) fn check<M: PartialEq + Debug>(
        message: M,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<M, FormatError>,
    ) {
        assert_eq!(decode(bytes).unwrap(), message);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "{message:?} with bit {bit} flipped");
        }
    }

    #[test]
    fn messages_round_trip_and_damaged_ones_are_refused() {
        let bind = BindRequest { ifile: IfileIndex(3), source: SOURCE, frame_bytes: 1 << 20 };
        check(bind, &bind.encode(), BindRequest::decode);
        let reply = BindReply { chunk: ChunkId(1 << 41) };
        check(reply, &reply.encode(), BindReply::decode);
        let head = AppendHead { source: SOURCE, frame_count: 12 };
        assert_eq!(head.encode().len(), APPEND_HEAD_BYTES);
        check(head, &head.encode(), AppendHead::decode);
        let answers = AppendAnswers { closed: vec![None, Some(0), Some(77), None] };
        check(answers.clone(), &answers.encode(), AppendAnswers::decode);
        let release = ReleaseRequest { source: SOURCE, chunks: vec![ChunkId(1), ChunkId(9)] };
        check(release.clone(), &release.encode(), ReleaseRequest::decode);
        for (lower, upper) in [(None, None), (Some(vec![]), Some(vec![9; 20])), (None, Some(vec![]))] {
            let compress = lower.is_none();
            let skip_records = if compress { vec![] } else { vec![0, 1 << 33] };
            let runs = vec![RunId(5), RunId(1 << 40)];
            let scan = ScanRequest { runs, skip_records, lower, upper, compress };
            check(scan.clone(), &scan.encode(), ScanRequest::decode);
        }
        let copy = CopyHead { run: RunId(3 << 40), bytes: 1 << 33 };
        assert_eq!(copy.encode().len(), COPY_HEAD_BYTES);
        check(copy, &copy.encode(), CopyHead::decode);
    }

    #[test]
    fn frame_heads_round_trip_and_damage_is_refused() {
        let header = FrameHeader {
            ifile: IfileIndex(1),
            source: SOURCE,
            sequence: 5,
            key_shape: ifile::KeyShape::Prefix,
            sum: api::DataSum { records: 2, bytes: 90, hash_sum: 1 << 100 },
            payload_crc32c: 0x1234_5678,
        };
        let head = FrameHead { chunk: ChunkId(3 << 40), header };
        check(head, &head.encode(), FrameHead::decode);
    }

    #[test]
    fn counts_beyond_the_limits_are_refused() {
        let head = AppendHead { source: SOURCE, frame_count: FRAMES_PER_REQUEST_MAX + 1 };
        assert!(AppendHead::decode(&head.encode()).is_err());
        let lower = Some(vec![0; BOUND_BYTES_MAX + 1]);
        let scan = ScanRequest { runs: vec![], skip_records: vec![], lower, upper: None, compress: true };
        assert!(ScanRequest::decode(&scan.encode()).is_err());
        let two = vec![RunId(1), RunId(2)];
        let scan = ScanRequest { runs: two, skip_records: vec![9], lower: None, upper: None, compress: true };
        assert!(ScanRequest::decode(&scan.encode()).is_err());
        let copy = CopyHead { run: RunId(1), bytes: COPY_BYTES_MAX + 1 };
        assert!(CopyHead::decode(&copy.encode()).is_err());
        let mut claims = begin(SCAN);
        claims.extend_from_slice(&[0; 4]);
        claims.extend_from_slice(&RUNS_PER_SCAN_MAX.to_le_bytes());
        assert!(ScanRequest::decode(&end(claims)).is_err());
    }
}
