//! A frame: the unit of append. Records of one source for one I-file after a stamped header.

use crate::encoding::{FieldReader, check_crc};
use crate::error::{FormatError, Problem};
use crate::record::{self, KeyShape, Record, record_hash};
use crate::{FORMAT_VERSION, VERSIONS_READ};
use api::DataSum;
use ids::{AttemptNumber, IfileIndex, Source, TaskIndex};

/// Encoded size of a frame header.
pub const FRAME_HEADER_BYTES: usize = 80;
const FRAME_MAGIC: [u8; 4] = *b"SFFR";
const FLAG_PREFIX_KEYS: u16 = 1;

/// Header of a frame. It precedes the records, and is stamped when they are serialized, so that any later damage of the
/// bytes is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub ifile: IfileIndex,
    pub source: Source,
    /// Counts from 0 per (source, I-file), without gaps.
    pub sequence: u64,
    pub key_shape: KeyShape,
    /// Records, their bytes (= payload bytes), and the sum of their hashes.
    pub sum: DataSum,
    /// CRC32C of the payload.
    pub payload_crc32c: u32,
}

impl FrameHeader {
    /// Returns the header as bytes; see the byte table in `docs/formats/ifile.md`.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES);
        out.extend_from_slice(&FRAME_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let flags = if self.key_shape == KeyShape::Prefix { FLAG_PREFIX_KEYS } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.ifile.0.to_le_bytes());
        out.extend_from_slice(&self.source.map_task.0.to_le_bytes());
        out.extend_from_slice(&self.source.attempt.0.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.sum.records.to_le_bytes());
        out.extend_from_slice(&self.sum.bytes.to_le_bytes());
        out.extend_from_slice(&self.sum.hash_sum.to_le_bytes());
        out.extend_from_slice(&self.payload_crc32c.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Reads and checks a header at the front of `bytes`. [`Self::check_payload`] checks the payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let covered = fields.take(FRAME_HEADER_BYTES - 4)?;
        let stored = fields.u32()?;
        if covered[..4] != FRAME_MAGIC {
            return Err(FormatError::at(0, Problem::Foreign));
        }
        check_crc("frame header", 0, covered, stored)?;
        let mut fields = FieldReader::new(&covered[4..]);
        let version = fields.u16()?;
        if !VERSIONS_READ.contains(&version) {
            return Err(FormatError::at(4, Problem::Version(version)));
        }
        let key_shape = match fields.u16()? {
            0 => KeyShape::Whole,
            FLAG_PREFIX_KEYS => KeyShape::Prefix,
            other => {
                return Err(FormatError::at(6, Problem::Field { what: "frame flags", value: other.into() }));
            }
        };
        let ifile = IfileIndex(fields.u32()?);
        let source = Source { map_task: TaskIndex(fields.u32()?), attempt: AttemptNumber(fields.u32()?) };
        let sequence = fields.u64()?;
        let sum = DataSum { records: fields.u64()?, bytes: fields.u64()?, hash_sum: fields.u128()? };
        let payload_crc32c = fields.u32()?;
        fields.reserved(12).map_err(|error| error.shifted(4))?;
        Ok(Self { ifile, source, sequence, key_shape, sum, payload_crc32c })
    }

    /// Checks `payload` against the stamp, byte by byte.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FormatError> {
        if payload.len() as u64 != self.sum.bytes {
            let problem =
                Problem::Truncated { needed_bytes: self.sum.bytes, present_bytes: payload.len() as u64 };
            return Err(FormatError::at(0, problem));
        }
        check_crc("frame payload", 0, payload, self.payload_crc32c)
    }

    /// Checks the records themselves: count and hash sum. Slower than [`Self::check_payload`].
    pub fn check_records(&self, payload: &[u8]) -> Result<(), FormatError> {
        let mut sum = DataSum::default();
        for each in FrameRecords::new(self.key_shape, payload) {
            let (_, record) = each?;
            sum.add_record(record.encoded.len() as u64, record_hash(record.encoded));
        }
        if sum == self.sum {
            return Ok(());
        }
        let problem = Problem::Disagreement {
            what: "the number or hash sum of records in a frame",
            here: sum.records,
            there: self.sum.records,
        };
        Err(FormatError::at(0, problem))
    }
}

/// The records of a frame's payload, with their offsets.
pub struct FrameRecords<'a> {
    shape: KeyShape,
    payload: &'a [u8],
    offset: usize,
}

impl<'a> FrameRecords<'a> {
    pub fn new(shape: KeyShape, payload: &'a [u8]) -> Self {
        Self { shape, payload, offset: 0 }
    }
}

impl<'a> Iterator for FrameRecords<'a> {
    type Item = Result<(usize, Record<'a>), FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.payload.len() {
            return None;
        }
        let offset = self.offset;
        match record::decode(self.shape, &self.payload[offset..]) {
            Some(record) => {
                self.offset += record.encoded.len();
                Some(Ok((offset, record)))
            }
            None => {
                self.offset = self.payload.len();
                let problem = Problem::Field { what: "the lengths of a record", value: offset as u64 };
                Some(Err(FormatError::at(offset as u64, problem)))
            }
        }
    }
}
