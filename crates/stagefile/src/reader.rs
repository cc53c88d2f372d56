//! Reader of a stage file.

use crate::error::{DamageKind, DamagePlace, StageFileDamage, StageFileError};
use crate::format::{FOOTER_BYTES, Footer, HEADER_BYTES, check_header};
use crate::layout::{BlockLayout, STORED_BLOCK_BYTES};
use crate::range::RangeDecoder;
use crate::verifier::RawVerifier;
use crate::{Payload, StageFileSummary};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes read at once.
const WINDOW_BYTES: usize = 4 * STORED_BLOCK_BYTES;

/// A complete stage file with verified header, footer and length. Its blocks are not checked.
pub struct RawFile {
    path: PathBuf,
    file: File,
    payload: Payload,
}

impl RawFile {
    /// Opens a file that must have the payload `expected`.
    pub fn open(path: &Path, expected: Payload) -> Result<Self, StageFileError> {
        let (raw, file_bytes) = Self::open_any(path)?;
        let raw = Self { payload: expected, ..raw };
        let expected_bytes = BlockLayout::of(expected.bytes).stored_bytes();
        if file_bytes != expected_bytes {
            let problem = DamageKind::Length { present_bytes: file_bytes, expected_bytes };
            return Err(raw.damaged(StageFileDamage::at(DamagePlace::File, problem)));
        }
        let footer = raw.read_footer(file_bytes)?;
        Footer::check(&footer, expected).map_err(|damage| raw.damaged(damage))?;
        Ok(raw)
    }

    /// Opens a file and trusts the payload in its footer.
    pub fn open_unknown(path: &Path) -> Result<Self, StageFileError> {
        let (raw, file_bytes) = Self::open_any(path)?;
        let footer = raw.read_footer(file_bytes)?;
        let Footer { payload } = Footer::decode(&footer).map_err(|damage| raw.damaged(damage))?;
        let raw = Self { payload, ..raw };
        let expected_bytes = BlockLayout::of(payload.bytes).stored_bytes();
        match file_bytes == expected_bytes {
            true => Ok(raw),
            false => {
                let problem = DamageKind::Length { present_bytes: file_bytes, expected_bytes };
                Err(raw.damaged(StageFileDamage::at(DamagePlace::File, problem)))
            }
        }
    }

    /// Opens a file that is long enough and begins like a stage file; also returns its length.
    fn open_any(path: &Path) -> Result<(Self, u64), StageFileError> {
        let io = |action| move |source| StageFileError::Io { action, path: path.to_path_buf(), source };
        let file = File::open(path).map_err(io("open"))?;
        let present_bytes = file.metadata().map_err(io("look at"))?.len();
        let raw = Self { path: path.to_path_buf(), file, payload: Payload::default() };
        let expected_bytes = (HEADER_BYTES + FOOTER_BYTES) as u64;
        if present_bytes < expected_bytes {
            let problem = DamageKind::Length { present_bytes, expected_bytes };
            return Err(raw.damaged(StageFileDamage::at(DamagePlace::File, problem)));
        }
        let mut header = [0; HEADER_BYTES];
        raw.read_exact(0, &mut header)?;
        check_header(&header).map_err(|damage| raw.damaged(damage))?;
        Ok((raw, present_bytes))
    }

    fn read_footer(&self, file_bytes: u64) -> Result<[u8; FOOTER_BYTES], StageFileError> {
        let mut footer = [0; FOOTER_BYTES];
        self.read_exact(file_bytes - FOOTER_BYTES as u64, &mut footer)?;
        Ok(footer)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the payload of the file.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    pub fn layout(&self) -> BlockLayout {
        BlockLayout::of(self.payload.bytes)
    }

    /// Fills `buffer` from the bytes of the file at `offset`, unverified. If the file ends before the buffer is full,
    /// that is damage.
    pub fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StageFileError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| {
            if source.kind() != ErrorKind::UnexpectedEof {
                return StageFileError::Io { action: "read", path: self.path.clone(), source };
            }
            let expected_bytes = offset + buffer.len() as u64;
            let present_bytes = self.file.metadata().map_or(offset, |metadata| metadata.len());
            self.damaged(StageFileDamage::at(
                DamagePlace::File,
                DamageKind::Length { present_bytes, expected_bytes },
            ))
        })
    }

    /// Makes the error for damage of this file.
    pub fn damaged(&self, source: StageFileDamage) -> StageFileError {
        StageFileError::Damaged { path: self.path.clone(), source }
    }
}

/// A range of the payload of a file.
pub struct StageFileReader {
    file: RawFile,
    decoder: RangeDecoder,
    /// Stored blocks; the next one to decode begins at `next_block`.
    window: Vec<u8>,
    next_block: usize,
    /// Range of `window` that was decoded and not returned.
    given: Range<usize>,
}

impl StageFileReader {
    /// Opens bytes [offset, offset + length) of the payload of a file that must have the payload `expected`.
    pub fn open(path: &Path, expected: Payload, offset: u64, length: u64) -> Result<Self, StageFileError> {
        Self::resume(path, RangeDecoder::new(expected, offset, length)?)
    }

    /// Opens the rest of a range whose beginning was read from another copy.
    pub fn resume(path: &Path, decoder: RangeDecoder) -> Result<Self, StageFileError> {
        let file = RawFile::open(path, decoder.payload())?;
        Ok(Self { file, decoder, window: Vec::new(), next_block: 0, given: 0..0 })
    }

    /// Returns the next bytes of the range, never more than a block; empty at its end. They count as read after
    /// [`Self::consume`].
    pub fn fill(&mut self) -> Result<&[u8], StageFileError> {
        if self.given.is_empty() {
            self.next_block()?;
        }
        Ok(&self.window[self.given.clone()])
    }

    /// Marks this many bytes from [`Self::fill`] as read.
    pub fn consume(&mut self, bytes: usize) {
        self.given.start = (self.given.start + bytes).min(self.given.end);
    }

    fn next_block(&mut self) -> Result<(), StageFileError> {
        if self.next_block == self.window.len() {
            let Some(raw) = self.decoder.next_raw(WINDOW_BYTES) else { return Ok(()) };
            self.next_block = 0;
            self.window.resize((raw.stored.end - raw.stored.start) as usize, 0);
            let read = self.file.read_exact(raw.stored.start, &mut self.window);
            read.inspect_err(|_| self.window.clear())?;
        }
        match self.decoder.decode(&self.window[self.next_block..]) {
            Ok(decoded) => {
                self.given = self.next_block + decoded.wanted.start..self.next_block + decoded.wanted.end;
                self.next_block += decoded.stored_bytes;
                Ok(())
            }
            Err(damage) => {
                (self.given, self.next_block) = (0..0, 0);
                self.window.clear();
                Err(self.file.damaged(damage))
            }
        }
    }

    /// Returns the decoder of the rest of the range, to continue at another copy. If [`Self::fill`] failed, the rest
    /// begins with the failed block.
    pub fn into_rest(self) -> RangeDecoder {
        self.decoder
    }
}

impl Read for StageFileReader {
    /// Errors contain a [`StageFileError`].
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Reads and checks a whole file; its footer has the expected payload.
pub fn verify(path: &Path) -> Result<StageFileSummary, StageFileError> {
    let file = RawFile::open_unknown(path)?;
    let mut verifier = RawVerifier::new(file.payload());
    let stored_bytes = file.layout().stored_bytes();
    let mut window = vec![0; WINDOW_BYTES.min(stored_bytes as usize)];
    let mut offset = 0;
    while offset < stored_bytes {
        let count = (stored_bytes - offset).min(WINDOW_BYTES as u64) as usize;
        file.read_exact(offset, &mut window[..count])?;
        verifier.push(&window[..count]).map_err(|damage| file.damaged(damage))?;
        offset += count as u64;
    }
    verifier.finish().map_err(|damage| file.damaged(damage))?;
    Ok(file.payload().into())
}
