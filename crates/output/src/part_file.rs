//! The file or the upload of a part: it counts and sums all bytes.

use crate::stored::{StoredPartFile, StoredParts};
use api::stored::cluster::RecordedPart;
use diskfile::{SequentialWriter, Syncing, Through};
use faults::{IoCall, io_call};
use objects::Upload;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use stagefile::StageFileWriter;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file whose stored bytes are counted and summed.
pub(crate) struct PartFile {
    file: Target,
    pub bytes: u64,
    pub crc32c: u32,
    /// Set if its content is to be known.
    pub sha256: Option<Box<Sha256>>,
}

/// The destinations of a part.
enum Target {
    /// An object store, in which nobody sees the object yet.
    Upload(Box<Upload>),
    /// A file through the page cache, from the caller's own buffer.
    PageCache(File, PathBuf),
    /// An intermediate file.
    StageFile(Box<StageFileWriter>),
    /// A stored file of the cluster, which begins with its first byte: an empty one has no concrete file.
    Stored { parts: Arc<dyn StoredParts>, file: Option<Box<dyn StoredPartFile>> },
    /// A file past the page cache, written in the background: for data that must be on disk before it is published.
    Durable(SequentialWriter),
}

impl PartFile {
    /// Creates the file. A synced one gathers about `buffer_bytes` in each of a few buffers.
    pub(crate) fn create(path: &Path, syncing: Syncing, buffer_bytes: usize) -> std::io::Result<PartFile> {
        let file = match syncing {
            Syncing::Synced => {
                Target::Durable(SequentialWriter::create(path, Through::Direct, buffer_bytes)?)
            }
            Syncing::NotSynced => {
                io_call(IoCall::Create, path)?;
                // Another user may put a link there, if the directory is writable for that user.
                let no_link = OFlags::NOFOLLOW.bits() as i32;
                let mut options = File::options();
                options.create(true).truncate(true).write(true).custom_flags(no_link);
                Target::PageCache(options.open(path)?, path.to_path_buf())
            }
        };
        Ok(PartFile { file, bytes: 0, crc32c: 0, sha256: None })
    }

    /// Creates a part for later stages.
    pub(crate) fn for_later_stages(path: &Path) -> std::io::Result<PartFile> {
        let file = Target::StageFile(Box::new(StageFileWriter::create(path)?));
        Ok(PartFile { file, bytes: 0, crc32c: 0, sha256: None })
    }

    /// Creates a part that is uploaded.
    pub(crate) fn uploading(upload: Upload) -> PartFile {
        PartFile { file: Target::Upload(Box::new(upload)), bytes: 0, crc32c: 0, sha256: None }
    }

    /// Creates a part that becomes a stored file.
    pub(crate) fn storing(parts: Arc<dyn StoredParts>) -> PartFile {
        PartFile { file: Target::Stored { parts, file: None }, bytes: 0, crc32c: 0, sha256: None }
    }

    /// Writes the rest and, if durable, waits until everything is on disk. Returns the place of a stored file with bytes.
    pub(crate) fn close(self) -> std::io::Result<Option<RecordedPart>> {
        match self.file {
            Target::Stored { file, .. } => file.map(StoredPartFile::finish).transpose(),
            file => file.close().map(|()| None),
        }
    }
}

impl Target {
    fn close(self) -> std::io::Result<()> {
        match self {
            Target::Stored { .. } => Ok(()),
            Target::Upload(upload) => Ok(upload.finish()?),
            // Data lost with a machine is recomputed.
            Target::StageFile(file) => {
                file.finish(Syncing::NotSynced).map(drop).map_err(std::io::Error::from)
            }
            Target::PageCache(..) => Ok(()),
            Target::Durable(file) => file.finish(Syncing::Synced).map(drop),
        }
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = match &mut self.file {
            Target::Upload(upload) => upload.write(bytes)?,
            Target::StageFile(file) => file.write(bytes)?,
            Target::PageCache(file, path) => {
                io_call(IoCall::Write, path)?;
                file.write(bytes)?
            }
            Target::Stored { parts, file } => {
                let file = match file {
                    Some(file) => file,
                    None => file.insert(parts.begin()?),
                };
                file.write(bytes)?;
                bytes.len()
            }
            Target::Durable(file) => file.write(bytes)?,
        };
        self.bytes += written as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..written]);
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
