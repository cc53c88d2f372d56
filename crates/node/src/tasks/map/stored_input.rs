//! Inputs that are stored files: the concrete files of this machine, one after the other.

use api::StoredContent;
use concretefile::{ConcreteDirectory, ConcreteReader, Content};
use mapper::StoredFileSource;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

/// The concrete files of this machine.
pub(crate) struct StoredInput {
    dir: PathBuf,
}

impl StoredInput {
    pub fn source(dir: PathBuf) -> Arc<dyn StoredFileSource> {
        Arc::new(Self { dir })
    }
}

impl StoredFileSource for StoredInput {
    fn open(&self, content: &StoredContent, start: u64) -> std::io::Result<Box<dyn Read + Send>> {
        let files = ConcreteDirectory::open(self.dir.clone()).map_err(std::io::Error::other)?;
        Ok(Box::new(PartsReader {
            files,
            content: content.clone(),
            next_part: 0,
            skip_bytes: start,
            open: None,
        }))
    }
}

/// A reader of parts from a place on.
struct PartsReader {
    files: ConcreteDirectory,
    content: StoredContent,
    next_part: usize,
    /// Bytes before the place, from the next part on.
    skip_bytes: u64,
    /// The part that is being read, and the place in it.
    open: Option<(ConcreteReader, u64)>,
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some((reader, offset)) = &mut self.open {
                let piece = reader.read(*offset, buffer.len()).map_err(std::io::Error::other)?;
                if !piece.is_empty() || buffer.is_empty() {
                    buffer[..piece.len()].copy_from_slice(piece);
                    *offset += piece.len() as u64;
                    return Ok(piece.len());
                }
                self.open = None;
            }
            let Some(part) = self.content.parts.get(self.next_part) else { return Ok(0) };
            self.next_part += 1;
            if self.skip_bytes >= part.bytes {
                self.skip_bytes -= part.bytes;
                continue;
            }
            let content = Content { bytes: part.bytes, crc32c: part.crc32c };
            let reader = self.files.read(part.concrete, content).map_err(std::io::Error::other)?;
            self.open = Some((reader, std::mem::take(&mut self.skip_bytes)));
        }
    }
}
