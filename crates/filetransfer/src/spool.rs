//! Bytes of many partitions on their way to parts: in memory as long as they are few, else in pages of one temporary
//! file, which nobody can open and which ends with its process.
//!
//! A page has the number of the next page of its partition, its checksum, and the bytes. The next page is chosen when
//! a page is written, so that the chains need no memory:
//!
//! ```text
//! number of the next page  8 bytes
//! CRC-32C of the rest      4
//! zero                     4
//! bytes of the partition   the size of a page
//! ```

use crate::error::TransferError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 16;
/// Bytes of all buffers together.
const BUFFERS_BYTES: usize = 32 << 20;
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The bytes of one partition.
#[derive(Debug, Default)]
struct Lane {
    first_page: u64,
    /// The page that gets the bytes in the buffer when they fill it.
    page: u64,
    full_pages: u64,
    /// Room for the header, and the last bytes.
    buffer: Vec<u8>,
}

/// The bytes of all partitions.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    file: Option<File>,
    lanes: Vec<Lane>,
    page_bytes: usize,
    next_page: u64,
}

impl Spool {
    /// Creates an empty spool, whose file lies in `dir` if one is needed.
    pub fn new(dir: &Path, lanes: u32) -> Self {
        Self::with_pages(dir, lanes, (BUFFERS_BYTES / lanes.max(1) as usize).min(PAGE_BYTES_MAX))
    }

    fn with_pages(dir: &Path, lanes: u32, page_bytes: usize) -> Self {
        let lane = |page| Lane { first_page: page, page, ..Lane::default() };
        let lanes: Vec<Lane> = (0..u64::from(lanes)).map(lane).collect();
        let next_page = lanes.len() as u64;
        Self { dir: dir.to_path_buf(), file: None, lanes, page_bytes, next_page }
    }

    /// Appends bytes to a partition.
    pub fn append(&mut self, lane: u32, mut bytes: &[u8]) -> Result<(), TransferError> {
        while !bytes.is_empty() {
            let buffer = &mut self.lanes[lane as usize].buffer;
            if buffer.is_empty() {
                buffer.resize(HEADER_BYTES, 0);
            }
            let room = HEADER_BYTES + self.page_bytes - buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            buffer.extend_from_slice(now);
            bytes = later;
            if now.len() == room {
                self.write_page(lane)?;
            }
        }
        Ok(())
    }

    fn write_page(&mut self, lane: u32) -> Result<(), TransferError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.dir)
                .map_err(TransferError::io("create a temporary file in", &self.dir))?,
        };
        let next = self.next_page;
        self.next_page += 1;
        let lane = &mut self.lanes[lane as usize];
        lane.buffer[..8].copy_from_slice(&next.to_le_bytes());
        let checksum = checksum_of(&lane.buffer);
        lane.buffer[8..12].copy_from_slice(&checksum.to_le_bytes());
        let place = lane.page * (HEADER_BYTES + self.page_bytes) as u64;
        let written = file.write_all_at(&lane.buffer, place);
        written.map_err(TransferError::io("write a temporary file in", &self.dir))?;
        lane.page = next;
        lane.full_pages += 1;
        lane.buffer.clear();
        self.file = Some(file);
        Ok(())
    }

    /// Returns the bytes of a partition.
    pub fn bytes(&self, lane: u32) -> u64 {
        let lane = &self.lanes[lane as usize];
        lane.full_pages * self.page_bytes as u64 + lane.buffer.len().saturating_sub(HEADER_BYTES) as u64
    }

    /// Gives the bytes of a partition to `take`, in their order. Verifies each page before.
    pub fn read(
        &self,
        lane: u32,
        mut take: impl FnMut(&[u8]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let lane = &self.lanes[lane as usize];
        let mut page = lane.first_page;
        let mut buffer = vec![0; HEADER_BYTES + self.page_bytes];
        for _ in 0..lane.full_pages {
            let Some(file) = &self.file else { return Err(self.damaged()) };
            let place = page * buffer.len() as u64;
            let read = file.read_exact_at(&mut buffer, place);
            read.map_err(TransferError::io("read a temporary file in", &self.dir))?;
            let stored = buffer[8..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            let next = buffer.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            match (stored, next) {
                (Some(stored), Some(next)) if stored == checksum_of(&buffer) => page = next,
                _ => return Err(self.damaged()),
            }
            take(&buffer[HEADER_BYTES..])?;
        }
        match lane.buffer.get(HEADER_BYTES..) {
            Some(last) if !last.is_empty() => take(last),
            _ => Ok(()),
        }
    }

    fn damaged(&self) -> TransferError {
        TransferError::DamagedSpool { dir: self.dir.clone() }
    }
}

/// Returns the checksum of a page: of everything but the checksum itself.
fn checksum_of(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..8]), &page[12..])
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, Spool};
    use std::os::unix::fs::FileExt;

    fn read(spool: &Spool, lane: u32) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = spool.read(lane, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        read.map(|()| bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn partitions_come_back_and_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::with_pages(dir.path(), 3, 10);
        let mut expected = vec![Vec::new(); 2];
        for number in 0..100_u32 {
            let (lane, text) = (number % 2, format!("record {number},"));
            spool.append(lane, text.as_bytes()).unwrap();
            expected[lane as usize].extend_from_slice(text.as_bytes());
        }
        for (lane, bytes) in (0..).zip(&expected) {
            assert_eq!(spool.bytes(lane), bytes.len() as u64);
            assert_eq!(read(&spool, lane).as_ref(), Ok(bytes));
        }
        assert_eq!((spool.bytes(2), read(&spool, 2)), (0, Ok(Vec::new())));
        // The file has no name.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let file = spool.file.as_ref().unwrap();
        file.write_all_at(b"X", HEADER_BYTES as u64 + 3).unwrap();
        assert!(read(&spool, 0).unwrap_err().contains("has other bytes than were written"));
        assert_eq!(read(&spool, 1).as_ref(), Ok(&expected[1]));
    }
}
