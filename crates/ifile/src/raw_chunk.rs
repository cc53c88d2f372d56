//! A raw chunk file: unsorted frames in order of arrival, written when memory is short and sorted later. Header, frames
//! (each header, then payload), trailer.

use crate::encoding::{FieldReader, check_crc};
use crate::error::{FormatError, Problem};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::record::KeyShape;
use crate::run_file::{FILE_HEADER_BYTES, ReadAt, decode_file_header, encode_file_header, read, read_vec};
use crate::{BLOCK_BYTES_MAX, RAW_CHUNK_MAGIC};
use ids::{ChunkId, IfileIndex, JobId};

/// Encoded size of the trailer.
pub const TRAILER_BYTES: usize = 32;
const TRAILER_MAGIC: [u8; 8] = *b"SFRAWEND";

/// Identity of a raw chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawChunkIdentity {
    pub job: JobId,
    pub chunk: ChunkId,
    pub ifile: IfileIndex,
    pub key_shape: KeyShape,
}

impl RawChunkIdentity {
    /// Encodes the file header.
    pub fn encode_header(&self) -> [u8; FILE_HEADER_BYTES] {
        encode_file_header(RAW_CHUNK_MAGIC, self.key_shape, self.ifile, self.job, self.chunk.0)
    }

    /// Reads and checks the file header.
    pub fn decode_header(bytes: &[u8]) -> Result<Self, FormatError> {
        let (key_shape, ifile, job, chunk) = decode_file_header(RAW_CHUNK_MAGIC, bytes)?;
        Ok(Self { job, chunk: ChunkId(chunk), ifile, key_shape })
    }
}

/// Encodes the end of a raw chunk file: the number of frames before it.
pub fn encode_trailer(chunk: ChunkId, frames: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..8].copy_from_slice(&TRAILER_MAGIC);
    bytes[8..16].copy_from_slice(&chunk.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&frames.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a whole raw chunk file, checking every byte; calls `each` with every frame and its payload, in order of the
/// file. Returns the identity of the chunk and the number of its frames.
pub fn read_frames<F: ReadAt + ?Sized>(
    file: &F,
    mut each: impl FnMut(FrameHeader, Vec<u8>),
) -> Result<(RawChunkIdentity, u64), FormatError> {
    let file_bytes = file.size_bytes().map_err(|source| FormatError::at(0, Problem::Read(source)))?;
    let smallest = (FILE_HEADER_BYTES + TRAILER_BYTES) as u64;
    if file_bytes < smallest {
        let problem = Problem::Truncated { needed_bytes: smallest, present_bytes: file_bytes };
        return Err(FormatError::at(0, problem));
    }
    let identity = RawChunkIdentity::decode_header(&read_vec(file, 0, FILE_HEADER_BYTES as u64)?)?;
    let end = file_bytes - TRAILER_BYTES as u64;
    let mut offset = FILE_HEADER_BYTES as u64;
    let mut frames = 0;
    while offset < end {
        let mut header_bytes = [0; FRAME_HEADER_BYTES];
        if end - offset < FRAME_HEADER_BYTES as u64 {
            let problem =
                Problem::Truncated { needed_bytes: FRAME_HEADER_BYTES as u64, present_bytes: end - offset };
            return Err(FormatError::at(offset, problem));
        }
        read(file, offset, &mut header_bytes)?;
        let header = FrameHeader::decode(&header_bytes).map_err(|error| error.shifted(offset))?;
        check_frame_belongs(&header, &identity).map_err(|error| error.shifted(offset))?;
        offset += FRAME_HEADER_BYTES as u64;
        if header.sum.bytes > end - offset || header.sum.bytes > BLOCK_BYTES_MAX {
            let problem = Problem::Truncated { needed_bytes: header.sum.bytes, present_bytes: end - offset };
            return Err(FormatError::at(offset, problem));
        }
        let payload = read_vec(file, offset, header.sum.bytes)?;
        header.check_payload(&payload).map_err(|error| error.shifted(offset))?;
        offset += header.sum.bytes;
        frames += 1;
        each(header, payload);
    }
    check_trailer(&read_vec(file, end, TRAILER_BYTES as u64)?, identity.chunk, frames)
        .map_err(|error| error.shifted(end))?;
    Ok((identity, frames))
}

/// Checks the I-file and the shape of keys of a frame: no checksum reveals this error of the writer.
fn check_frame_belongs(header: &FrameHeader, identity: &RawChunkIdentity) -> Result<(), FormatError> {
    if header.ifile != identity.ifile {
        let (here, there) = (header.ifile.0.into(), identity.ifile.0.into());
        let what = "the number of the I-file";
        return Err(FormatError::at(0, Problem::Disagreement { what, here, there }));
    }
    if header.key_shape != identity.key_shape {
        let (here, there) = (header.key_shape as u64, identity.key_shape as u64);
        return Err(FormatError::at(0, Problem::Disagreement { what: "the shape of keys", here, there }));
    }
    Ok(())
}

fn check_trailer(bytes: &[u8], chunk: ChunkId, frames: u64) -> Result<(), FormatError> {
    let mut fields = FieldReader::new(bytes);
    let covered = fields.take(TRAILER_BYTES - 4)?;
    let stored = fields.u32()?;
    if covered[..8] != TRAILER_MAGIC {
        return Err(FormatError::at(0, Problem::NoEndMark));
    }
    check_crc("trailer", 0, covered, stored)?;
    let mut fields = FieldReader::new(&covered[8..]);
    for (what, expected) in [("the chunk's number", chunk.0), ("the number of frames", frames)] {
        let stored = fields.u64()?;
        if stored != expected {
            return Err(FormatError::at(0, Problem::Disagreement { what, here: stored, there: expected }));
        }
    }
    fields.reserved(fields.remaining()).map_err(|error| error.shifted(8))
}
