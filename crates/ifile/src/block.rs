//! A block: the unit of reading. Sorted records, each after the row of its source, compressed together.

use crate::BLOCK_BYTES_MAX;
use crate::encoding::{FieldReader, check_crc, get_varint};
use crate::error::{FormatError, Problem};
use crate::record::{self, KeyShape, Record};
use api::Codec;

/// Encoded size of a block header.
pub const BLOCK_HEADER_BYTES: usize = 24;
const BLOCK_MAGIC: [u8; 3] = *b"SFB";
const CODEC_NONE: u8 = 0;
const CODEC_LZ4: u8 = 1;
const CODEC_ZSTD: u8 = 2;
/// zstd's fastest regular level: intermediate data is written once and read once.
const ZSTD_LEVEL: i32 = 1;
/// Maximum growth of an LZ4 block: each byte of a length adds at most 255.
const LZ4_GROWTH_MAX: u64 = 255;
/// Maximum ratio of a zstd block: a run of one byte, 128 KiB (`Block_Maximum_Size`) from four bytes (RFC 8878,
/// 3.1.1.2).
const ZSTD_GROWTH_MAX: u64 = (128 << 10) / 4;

/// Header of a block. It precedes the bytes of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub codec: Codec,
    pub records: u32,
    /// Bytes that follow the header.
    pub stored_bytes: u32,
    /// Bytes after decompression.
    pub raw_bytes: u32,
    /// CRC32C of the stored bytes.
    pub stored_crc32c: u32,
}

impl BlockHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&BLOCK_MAGIC);
        out.push(match self.codec {
            Codec::None => CODEC_NONE,
            Codec::Lz4 => CODEC_LZ4,
            Codec::Zstd => CODEC_ZSTD,
        });
        for field in [self.records, self.stored_bytes, self.raw_bytes, self.stored_crc32c] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads and checks a block header at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let covered = fields.take(BLOCK_HEADER_BYTES - 4)?;
        let stored = fields.u32()?;
        check_crc("block header", 0, covered, stored)?;
        if covered[..3] != BLOCK_MAGIC {
            return Err(FormatError::at(0, Problem::Foreign));
        }
        let codec = match covered[3] {
            CODEC_NONE => Codec::None,
            CODEC_LZ4 => Codec::Lz4,
            CODEC_ZSTD => Codec::Zstd,
            other => {
                return Err(FormatError::at(3, Problem::Field { what: "block codec", value: other.into() }));
            }
        };
        let mut fields = FieldReader::new(&covered[4..]);
        let header = Self {
            codec,
            records: fields.u32()?,
            stored_bytes: fields.u32()?,
            raw_bytes: fields.u32()?,
            stored_crc32c: fields.u32()?,
        };
        // A reader allocates `raw_bytes` before it decompresses, so they must be possible.
        let growth_max = match codec {
            Codec::None => 1,
            Codec::Lz4 => LZ4_GROWTH_MAX,
            Codec::Zstd => ZSTD_GROWTH_MAX,
        };
        let raw_bytes_max = BLOCK_BYTES_MAX.min(u64::from(header.stored_bytes) * growth_max);
        if u64::from(header.raw_bytes) > raw_bytes_max || header.stored_bytes > header.raw_bytes {
            return Err(FormatError::at(
                8,
                Problem::Field { what: "block size", value: header.raw_bytes.into() },
            ));
        }
        Ok(header)
    }
}

/// Appends a block with the given raw bytes to `out`; stored raw if `codec` does not make it smaller. Panics if `raw`
/// is larger than [`BLOCK_BYTES_MAX`].
pub fn encode(raw: &[u8], records: u32, codec: Codec, out: &mut Vec<u8>) -> BlockHeader {
    assert!(raw.len() as u64 <= BLOCK_BYTES_MAX, "block of {} bytes", raw.len());
    let compressed = match codec {
        Codec::None => None,
        Codec::Lz4 => Some(lz4_flex::block::compress(raw)),
        Codec::Zstd => zstd::bulk::compress(raw, ZSTD_LEVEL).ok(),
    };
    let (codec, stored) = match &compressed {
        Some(smaller) if smaller.len() < raw.len() => (codec, smaller.as_slice()),
        _ => (Codec::None, raw),
    };
    let header = BlockHeader {
        codec,
        records,
        stored_bytes: stored.len() as u32,
        raw_bytes: raw.len() as u32,
        stored_crc32c: crc32c::crc32c(stored),
    };
    header.encode(out);
    out.extend_from_slice(stored);
    header
}

/// Decompresses the stored bytes that follow `header` into `raw` (replaced). Checks the CRC first.
pub fn decode_into(header: &BlockHeader, stored: &[u8], raw: &mut Vec<u8>) -> Result<(), FormatError> {
    if stored.len() != header.stored_bytes as usize {
        let problem = Problem::Truncated {
            needed_bytes: header.stored_bytes.into(),
            present_bytes: stored.len() as u64,
        };
        return Err(FormatError::at(0, problem));
    }
    check_crc("block", 0, stored, header.stored_crc32c)?;
    raw.clear();
    let damaged = || FormatError::at(0, Problem::Compression);
    match header.codec {
        Codec::None => raw.extend_from_slice(stored),
        Codec::Lz4 => {
            raw.resize(header.raw_bytes as usize, 0);
            let len = lz4_flex::block::decompress_into(stored, raw).map_err(|_| damaged())?;
            raw.truncate(len);
        }
        Codec::Zstd => {
            raw.resize(header.raw_bytes as usize, 0);
            let len = zstd::bulk::decompress_to_buffer(stored, &mut raw[..]).map_err(|_| damaged())?;
            raw.truncate(len);
        }
    }
    if raw.len() != header.raw_bytes as usize {
        return Err(damaged());
    }
    Ok(())
}

/// Appends one record to the raw bytes of a block: the row of its source, then the record as encoded.
#[inline]
pub fn push_record(raw: &mut Vec<u8>, source_row: u32, encoded: &[u8]) {
    crate::encoding::put_varint(raw, source_row.into());
    raw.extend_from_slice(encoded);
}

/// Decodes the record at the front of raw block bytes: (row of its source, record, bytes taken).
#[inline]
pub fn decode_record(shape: KeyShape, bytes: &[u8]) -> Option<(u32, Record<'_>, usize)> {
    let (row, row_bytes) = get_varint(bytes)?;
    let record = record::decode(shape, &bytes[row_bytes..])?;
    Some((u32::try_from(row).ok()?, record, row_bytes + record.encoded.len()))
}
