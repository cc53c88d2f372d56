//! Writing a stage file.

use crate::error::StageFileError;
use crate::format::{BLOCK_HEADER_BYTES, Footer, block_header, check_block, encode_header};
use crate::layout::{BLOCK_PAYLOAD_BYTES, BlockLayout, PAYLOAD_BYTES_MAX, STORED_BLOCK_BYTES};
use crate::{Payload, StageFileSummary, Syncing};
use faults::{IoCall, io_call};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Stored bytes gathered before they go to the file.
const GATHERED_BYTES: usize = 4 * STORED_BLOCK_BYTES;

/// A stage file that is being written: by one writer, front to back, once. Dropped before it is finished, or where that
/// fails, the file is removed.
pub struct StageFileWriter {
    path: PathBuf,
    file: File,
    /// Bytes that went to the file.
    stored_bytes: u64,
    /// Blocks that did not go to the file yet; the last of them is open.
    gathered: Vec<u8>,
    /// Offset in `gathered` at which the open block begins.
    open_block: usize,
    block_number: u64,
    payload: Payload,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    /// Something did not reach the file: what comes later must not either.
    Failed,
    Finished,
}

impl StageFileWriter {
    /// Creates the file. One of that name that an earlier attempt left is replaced, without a change to what readers of
    /// it see.
    pub fn create(path: &Path) -> Result<Self, StageFileError> {
        let create = || {
            io_call(IoCall::Create, path)?;
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            File::options().read(true).write(true).create_new(true).open(path)
        };
        let file = create().map_err(|source| StageFileError::Io {
            action: "create",
            path: path.to_path_buf(),
            source,
        })?;
        let mut gathered = Vec::with_capacity(GATHERED_BYTES + STORED_BLOCK_BYTES);
        gathered.extend_from_slice(&encode_header());
        let mut writer = Self {
            path: path.to_path_buf(),
            file,
            stored_bytes: 0,
            open_block: 0,
            gathered,
            block_number: 0,
            payload: Payload::default(),
            state: State::Writing,
        };
        writer.begin_block();
        Ok(writer)
    }

    /// Bytes of the payload so far.
    pub fn written_bytes(&self) -> u64 {
        self.payload.bytes
    }

    /// The payload so far.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Whether the payload that was written so far holds `bytes` at `offset`; false also where it does not reach so far. What went
    /// to the file is read back and verified.
    pub fn holds(&self, offset: u64, bytes: &[u8]) -> Result<bool, StageFileError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.payload.bytes) {
            return Ok(false);
        }
        let mut rest = bytes;
        let mut block = Vec::new();
        while !rest.is_empty() {
            let at = offset + (bytes.len() - rest.len()) as u64;
            let (number, within) = (at / u64::from(BLOCK_PAYLOAD_BYTES), at % u64::from(BLOCK_PAYLOAD_BYTES));
            let payload = self.read_back(number, &mut block)?;
            let held = &payload[within as usize..];
            let count = held.len().min(rest.len());
            if held[..count] != rest[..count] {
                return Ok(false);
            }
            rest = &rest[count..];
        }
        Ok(true)
    }

    /// The payload of a block, the last of which may be open.
    fn read_back<'a>(&'a self, number: u64, block: &'a mut Vec<u8>) -> Result<&'a [u8], StageFileError> {
        let layout = BlockLayout::of(self.payload.bytes);
        let stored = layout.raw_blocks(number, 1).stored;
        if let Some(begin) = stored.start.checked_sub(self.stored_bytes) {
            let begin = begin as usize + BLOCK_HEADER_BYTES;
            return Ok(&self.gathered[begin..begin + layout.payload_of(number) as usize]);
        }
        block.resize((stored.end - stored.start) as usize, 0);
        let read = self.file.read_exact_at(block, stored.start);
        read.map_err(|source| StageFileError::Io { action: "read back", path: self.path.clone(), source })?;
        check_block(layout, number, block)
            .map_err(|source| StageFileError::Damaged { path: self.path.clone(), source })
    }

    /// Completes the file: from now on it may be read, and never changes. A synced file is on the disk when this comes
    /// back; that its name is there as well is for whoever made the directory to see to.
    pub fn finish(mut self, syncing: Syncing) -> Result<StageFileSummary, StageFileError> {
        match self.complete(syncing) {
            Ok(()) => {
                self.state = State::Finished;
                Ok(self.payload.into())
            }
            Err(source) => Err(StageFileError::Io { action: "write", path: self.path.clone(), source }),
        }
    }

    fn complete(&mut self, syncing: Syncing) -> std::io::Result<()> {
        if self.state != State::Writing {
            return Err(after_failure());
        }
        match self.open_bytes() {
            0 => self.gathered.truncate(self.open_block),
            _ => self.close_block(),
        }
        self.gathered.extend_from_slice(&Footer { payload: self.payload }.encode());
        self.write_out()?;
        if syncing == Syncing::Synced {
            io_call(IoCall::Sync, &self.path)?;
            self.file.sync_all()?;
        }
        Ok(())
    }

    /// Leaves room for the header of the next block.
    fn begin_block(&mut self) {
        self.open_block = self.gathered.len();
        self.gathered.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
    }

    /// Payload in the open block.
    fn open_bytes(&self) -> usize {
        self.gathered.len() - self.open_block - BLOCK_HEADER_BYTES
    }

    fn close_block(&mut self) {
        let (header, payload) = self.gathered[self.open_block..].split_at_mut(BLOCK_HEADER_BYTES);
        header.copy_from_slice(&block_header(self.block_number, payload));
        self.block_number += 1;
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        let write = || {
            io_call(IoCall::Write, &self.path)?;
            (&self.file).write_all(&self.gathered)
        };
        write().inspect_err(|_| self.state = State::Failed)?;
        self.stored_bytes += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

impl Write for StageFileWriter {
    /// Takes as much as fits the open block.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.state != State::Writing {
            return Err(after_failure());
        }
        // A block that is full is closed when the next byte comes: the last one is never empty.
        if self.open_bytes() == BLOCK_PAYLOAD_BYTES as usize && !bytes.is_empty() {
            self.close_block();
            if self.gathered.len() >= GATHERED_BYTES {
                self.write_out()?;
            }
            self.begin_block();
        }
        let count = bytes.len().min(BLOCK_PAYLOAD_BYTES as usize - self.open_bytes());
        if self.payload.bytes + count as u64 > PAYLOAD_BYTES_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.gathered.extend_from_slice(&bytes[..count]);
        self.payload.crc32c = crc32c::crc32c_append(self.payload.crc32c, &bytes[..count]);
        self.payload.bytes += count as u64;
        Ok(count)
    }

    /// Does nothing: a stage file is read when it is finished.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for StageFileWriter {
    fn drop(&mut self) {
        if self.state != State::Finished {
            // Where it stays, its missing footer says that it is none.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn after_failure() -> Error {
    Error::new(ErrorKind::BrokenPipe, "an earlier write of this file failed")
}
