//! A run file as a whole: header, blocks, key index, source table, footer.

use crate::encoding::{FieldReader, check_crc};
use crate::error::{FormatError, Problem};
use crate::key_index::KeyIndex;
use crate::record::KeyShape;
use crate::source_table::{self, SourceRow};
use crate::{FORMAT_VERSION, RUN_MAGIC, VERSIONS_READ};
use api::DataSum;
use ids::{IfileIndex, JobId, RunId};

/// Encoded size of the header of a run file (and of a raw chunk file).
pub const FILE_HEADER_BYTES: usize = 64;
/// Encoded size of the footer of a run file.
pub const FOOTER_BYTES: usize = 128;
const FOOTER_MAGIC: [u8; 8] = *b"SFISHEND";
const FLAG_PREFIX_KEYS: u16 = 1;

/// Bytes at offsets; the owner of the file implements it. A read is complete or an error.
pub trait ReadAt {
    /// Fills `buffer` from `offset`; an end of file before it is full is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()>;
    /// Returns the bytes of the file.
    fn size_bytes(&self) -> std::io::Result<u64>;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.get(start..).and_then(|rest| rest.get(..buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn size_bytes(&self) -> std::io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Identity of a run, in header and footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIdentity {
    pub job: JobId,
    pub run: RunId,
    pub ifile: IfileIndex,
    pub key_shape: KeyShape,
}

impl RunIdentity {
    /// Encodes the file header.
    pub fn encode_header(&self) -> [u8; FILE_HEADER_BYTES] {
        encode_file_header(RUN_MAGIC, self.key_shape, self.ifile, self.job, self.run.0)
    }
}

/// Encodes the header of run files and raw chunk files; `number` is the run or the chunk.
pub(crate) fn encode_file_header(
    magic: [u8; 8],
    key_shape: KeyShape,
    ifile: IfileIndex,
    job: JobId,
    number: u64,
) -> [u8; FILE_HEADER_BYTES] {
    let mut bytes = [0; FILE_HEADER_BYTES];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let flags = if key_shape == KeyShape::Prefix { FLAG_PREFIX_KEYS } else { 0 };
    bytes[10..12].copy_from_slice(&flags.to_le_bytes());
    bytes[12..16].copy_from_slice(&ifile.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&job.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads and checks a file header: (key shape, I-file, job, run or chunk).
pub(crate) fn decode_file_header(
    magic: [u8; 8],
    bytes: &[u8],
) -> Result<(KeyShape, IfileIndex, JobId, u64), FormatError> {
    let mut fields = FieldReader::new(bytes);
    let covered = fields.take(FILE_HEADER_BYTES - 4)?;
    let stored = fields.u32()?;
    if covered[..8] != magic {
        return Err(FormatError::at(0, Problem::Foreign));
    }
    check_crc("file header", 0, covered, stored)?;
    let mut fields = FieldReader::new(&covered[8..]);
    let version = fields.u16()?;
    if !VERSIONS_READ.contains(&version) {
        return Err(FormatError::at(8, Problem::Version(version)));
    }
    let key_shape = match fields.u16()? {
        0 => KeyShape::Whole,
        FLAG_PREFIX_KEYS => KeyShape::Prefix,
        other => return Err(FormatError::at(10, Problem::Field { what: "file flags", value: other.into() })),
    };
    let ifile = IfileIndex(fields.u32()?);
    let job = JobId(fields.u64()? as i64);
    let number = fields.u64()?;
    fields.reserved(fields.remaining()).map_err(|error| error.shifted(8))?;
    Ok((key_shape, ifile, job, number))
}

/// The fixed-size end of a run file, which locates everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFooter {
    pub run: RunId,
    pub index_offset: u64,
    pub index_bytes: u64,
    pub block_count: u64,
    pub index_crc32c: u32,
    pub sources_offset: u64,
    pub source_count: u64,
    pub sources_crc32c: u32,
    /// Largest uncompressed block.
    pub block_bytes_max: u64,
    /// Over all records of the run.
    pub sum: DataSum,
}

impl RunFooter {
    /// Returns the footer as bytes; see the byte table in `docs/formats/ifile.md`.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&FOOTER_MAGIC);
        for field in [self.run.0, self.index_offset, self.index_bytes, self.block_count, self.sources_offset]
        {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.source_count, self.block_bytes_max, self.sum.records, self.sum.bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.sum.hash_sum.to_le_bytes());
        out.extend_from_slice(&self.index_crc32c.to_le_bytes());
        out.extend_from_slice(&self.sources_crc32c.to_le_bytes());
        out.resize(FOOTER_BYTES - 4, 0);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        let mut bytes = [0; FOOTER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// Reads and checks the footer of a file of `file_bytes` bytes: `bytes` are its last [`FOOTER_BYTES`]. Every offset
    /// is checked against the file, so that later reads allocate no more than the file has.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        let mut fields = FieldReader::new(bytes);
        let covered = fields.take(FOOTER_BYTES - 4)?;
        let stored = fields.u32()?;
        if covered[..8] != FOOTER_MAGIC {
            return Err(FormatError::at(0, Problem::NoEndMark));
        }
        check_crc("footer", 0, covered, stored)?;
        let mut fields = FieldReader::new(&covered[8..]);
        let (run, index_offset, index_bytes) = (RunId(fields.u64()?), fields.u64()?, fields.u64()?);
        let (block_count, sources_offset, source_count) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let block_bytes_max = fields.u64()?;
        let sum = DataSum { records: fields.u64()?, bytes: fields.u64()?, hash_sum: fields.u128()? };
        let footer = Self {
            run,
            index_offset,
            index_bytes,
            block_count,
            index_crc32c: fields.u32()?,
            sources_offset,
            source_count,
            sources_crc32c: fields.u32()?,
            block_bytes_max,
            sum,
        };
        fields.reserved(fields.remaining()).map_err(|error| error.shifted(8))?;
        footer.check_layout(file_bytes)?;
        Ok(footer)
    }

    /// Returns the bytes of the source table.
    pub fn sources_bytes(&self) -> u64 {
        self.source_count.saturating_mul(source_table::SOURCE_ROW_BYTES as u64)
    }

    fn check_layout(&self, file_bytes: u64) -> Result<(), FormatError> {
        let disagreement =
            |what, here, there| Err(FormatError::at(0, Problem::Disagreement { what, here, there }));
        if self.index_offset < FILE_HEADER_BYTES as u64 {
            return disagreement("offset of the key index", self.index_offset, FILE_HEADER_BYTES as u64);
        }
        let index_end = self.index_offset.saturating_add(self.index_bytes);
        if index_end != self.sources_offset {
            return disagreement("end of the key index", index_end, self.sources_offset);
        }
        let end =
            self.sources_offset.saturating_add(self.sources_bytes()).saturating_add(FOOTER_BYTES as u64);
        if end != file_bytes {
            return disagreement("size of the file", file_bytes, end);
        }
        Ok(())
    }
}

/// The parts of a run file that a reader keeps: everything except the blocks.
#[derive(Clone, Debug)]
pub struct RunFile {
    pub identity: RunIdentity,
    pub footer: RunFooter,
    pub index: KeyIndex,
    pub sources: Vec<SourceRow>,
}

impl RunFile {
    /// Reads and checks header, footer, key index and source table. Blocks are checked when they are read.
    pub fn open<F: ReadAt + ?Sized>(file: &F) -> Result<Self, FormatError> {
        let file_bytes = file.size_bytes().map_err(|source| FormatError::at(0, Problem::Read(source)))?;
        let smallest = (FILE_HEADER_BYTES + FOOTER_BYTES) as u64;
        let mut header = [0; FILE_HEADER_BYTES];
        if file_bytes >= 8 {
            let known = (file_bytes as usize).min(FILE_HEADER_BYTES);
            read(file, 0, &mut header[..known])?;
            if header[..8] != RUN_MAGIC {
                return Err(FormatError::at(0, Problem::Foreign));
            }
        }
        if file_bytes < smallest {
            let problem = Problem::Truncated { needed_bytes: smallest, present_bytes: file_bytes };
            return Err(FormatError::at(0, problem));
        }
        let (key_shape, ifile, job, run) = decode_file_header(RUN_MAGIC, &header)?;
        let footer_offset = file_bytes - FOOTER_BYTES as u64;
        let footer = RunFooter::decode(&read_vec(file, footer_offset, FOOTER_BYTES as u64)?, file_bytes)
            .map_err(|error| error.shifted(footer_offset))?;
        if footer.run.0 != run {
            let problem = Problem::Disagreement { what: "the run's number", here: footer.run.0, there: run };
            return Err(FormatError::at(footer_offset, problem));
        }
        let index_bytes = read_vec(file, footer.index_offset, footer.index_bytes)?;
        check_crc("key index", footer.index_offset, &index_bytes, footer.index_crc32c)?;
        let index = KeyIndex::decode(&index_bytes, footer.block_count)
            .map_err(|error| error.shifted(footer.index_offset))?;
        let source_bytes = read_vec(file, footer.sources_offset, footer.sources_bytes())?;
        check_crc("source table", footer.sources_offset, &source_bytes, footer.sources_crc32c)?;
        let sources = source_table::decode(&source_bytes, footer.source_count)
            .map_err(|error| error.shifted(footer.sources_offset))?;
        let run_file =
            Self { identity: RunIdentity { job, run: RunId(run), ifile, key_shape }, footer, index, sources };
        run_file.check_blocks_are_contiguous()?;
        run_file.check_index_totals()?;
        Ok(run_file)
    }

    /// Checks that footer and index agree: readers plan memory and cut ranges by these alone.
    fn check_index_totals(&self) -> Result<(), FormatError> {
        let entries = &self.index.entries;
        let block_bytes_max = entries.iter().map(|entry| u64::from(entry.raw_bytes)).max().unwrap_or(0);
        let records = entries.iter().map(|entry| u64::from(entry.records)).sum::<u64>();
        for (what, here, there) in [
            ("size of the largest block", block_bytes_max, self.footer.block_bytes_max),
            ("number of records in the key index", records, self.footer.sum.records),
        ] {
            if here != there {
                let problem = Problem::Disagreement { what, here, there };
                return Err(FormatError::at(self.footer.index_offset, problem));
            }
        }
        Ok(())
    }

    /// Checks that the index covers the bytes between header and index without gap or overlap.
    fn check_blocks_are_contiguous(&self) -> Result<(), FormatError> {
        let mut expected = FILE_HEADER_BYTES as u64;
        for entry in &self.index.entries {
            if entry.offset_bytes != expected {
                let problem = Problem::Disagreement {
                    what: "offset of a block",
                    here: entry.offset_bytes,
                    there: expected,
                };
                return Err(FormatError::at(self.footer.index_offset, problem));
            }
            expected += u64::from(entry.stored_bytes);
        }
        if expected != self.footer.index_offset {
            let problem = Problem::Disagreement {
                what: "end of the blocks",
                here: expected,
                there: self.footer.index_offset,
            };
            return Err(FormatError::at(self.footer.index_offset, problem));
        }
        Ok(())
    }
}

pub(crate) fn read<F: ReadAt + ?Sized>(file: &F, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
    file.read_at(offset, buffer).map_err(|source| FormatError::at(offset, Problem::Read(source)))
}

pub(crate) fn read_vec<F: ReadAt + ?Sized>(
    file: &F,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, FormatError> {
    let mut buffer = vec![0; bytes as usize];
    read(file, offset, &mut buffer)?;
    Ok(buffer)
}
