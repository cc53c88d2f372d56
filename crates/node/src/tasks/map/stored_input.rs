//! Inputs that are stored files: their concrete files, one after the other, from a directory of this machine or from the
//! nodes of a cluster.

use crate::stored::passed_on::PassedCopy;
use api::task::MapResult;
use api::{StoredContent, StoredPart};
use concretefile::{ConcreteDirectory, ConcreteReader, Content};
use mapper::StoredFileSource;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opener of parts of stored files.
pub trait PartOpener: Send + Sync + 'static {
    /// Opens a part at an offset; its bytes are verified as they are read.
    fn open_part(&self, part: StoredPart, offset: u64) -> std::io::Result<Box<dyn Read + Send>>;

    /// Opens a range of a part, which ends before the end of the part: nothing behind it is fetched.
    fn open_range(&self, part: StoredPart, range: Range<u64>) -> std::io::Result<Box<dyn Read + Send>> {
        let bytes = range.end.saturating_sub(range.start);
        Ok(Box::new(self.open_part(part, range.start)?.take(bytes)))
    }

    /// Opens a whole part for a copy that is passed on; states the checksums of its blocks before the first byte.
    fn open_for_copy(
        &self,
        part: StoredPart,
        _copy: &Arc<PassedCopy>,
    ) -> std::io::Result<Box<dyn Read + Send>> {
        self.open_part(part, 0)
    }

    /// Returns a replica on a disk of this machine as a file, not verified; None if there is none.
    fn replica_here(&self, part: StoredPart) -> Option<File>;
}

/// Bytes of stored files of a cluster that a task has read: from disks of its node, and from other nodes.
#[derive(Debug, Default)]
pub struct StoredReads {
    pub here_bytes: AtomicU64,
    pub elsewhere_bytes: AtomicU64,
    /// Those from local copies of other nodes.
    pub passed_on_bytes: AtomicU64,
}

impl StoredReads {
    /// Returns the bytes from disks of this node, and from other nodes.
    pub fn bytes(&self) -> (u64, u64) {
        (self.here_bytes.load(Ordering::Relaxed), self.elsewhere_bytes.load(Ordering::Relaxed))
    }

    /// Puts the bytes into the result of a task.
    pub fn put_into(&self, result: &mut MapResult) {
        (result.stored_here_bytes, result.stored_elsewhere_bytes) = self.bytes();
        result.stored_passed_on_bytes = self.passed_on_bytes.load(Ordering::Relaxed);
    }
}

/// Stored files as inputs.
pub(crate) struct StoredInput<T> {
    parts: Arc<T>,
}

impl<T: PartOpener> StoredInput<T> {
    pub fn source(parts: T) -> Arc<dyn StoredFileSource> {
        Arc::new(Self { parts: Arc::new(parts) })
    }
}

impl<T: PartOpener> StoredFileSource for StoredInput<T> {
    fn open(&self, content: &StoredContent, start: u64) -> std::io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(PartsReader {
            parts: Arc::clone(&self.parts),
            content: content.clone(),
            next_part: 0,
            skip_bytes: start,
            open: None,
        }))
    }
}

/// A reader of parts from a place on.
struct PartsReader<T> {
    parts: Arc<T>,
    content: StoredContent,
    next_part: usize,
    /// Bytes before the place, from the next part on.
    skip_bytes: u64,
    open: Option<Box<dyn Read + Send>>,
}

impl<T: PartOpener> Read for PartsReader<T> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(part) = &mut self.open {
                match part.read(buffer)? {
                    0 if !buffer.is_empty() => self.open = None,
                    count => return Ok(count),
                }
            }
            let Some(part) = self.content.parts.get(self.next_part) else { return Ok(0) };
            self.next_part += 1;
            if self.skip_bytes >= part.bytes {
                self.skip_bytes -= part.bytes;
                continue;
            }
            self.open = Some(self.parts.open_part(*part, std::mem::take(&mut self.skip_bytes))?);
        }
    }
}

/// The concrete files of a directory of this machine.
pub(crate) struct PartsHere {
    pub dir: PathBuf,
}

impl PartOpener for PartsHere {
    fn open_part(&self, part: StoredPart, offset: u64) -> std::io::Result<Box<dyn Read + Send>> {
        let files = ConcreteDirectory::open(self.dir.clone()).map_err(std::io::Error::other)?;
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        let reader = files.read(part.concrete, content).map_err(std::io::Error::other)?;
        Ok(Box::new(PartReader { reader, offset }))
    }

    fn replica_here(&self, part: StoredPart) -> Option<File> {
        let files = ConcreteDirectory::open(self.dir.clone()).ok()?;
        File::open(files.path(part.concrete)).ok()
    }
}

/// A reader of a concrete file on a disk of this machine.
pub(crate) struct PartReader {
    pub reader: ConcreteReader,
    pub offset: u64,
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.reader.read(self.offset, buffer.len()).map_err(std::io::Error::other)?;
        buffer[..piece.len()].copy_from_slice(piece);
        self.offset += piece.len() as u64;
        Ok(piece.len())
    }
}
