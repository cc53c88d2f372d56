//! The file or the upload behind a part: bytes that reach it are counted and summed.

use diskfile::{SequentialWriter, Through};
use faults::{IoCall, io_call};
use objects::Upload;
use rustix::fs::OFlags;
use stagefile::StageFileWriter;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file whose stored bytes are counted and summed.
pub(crate) struct PartFile {
    file: Target,
    pub bytes: u64,
    pub crc32c: u32,
}

/// The ways to a part.
enum Target {
    /// To an object store, which lets nobody see it yet.
    Upload(Box<Upload>),
    /// Through the page cache, from the caller's own buffer.
    PageCache(File, PathBuf),
    /// An intermediate file.
    StageFile(Box<StageFileWriter>),
    /// Past it, in the background: for what must be on the disk before anybody may see it.
    Durable(SequentialWriter),
}

impl PartFile {
    /// Creates the file. A durable one gathers about `buffer_bytes` in each of a few buffers.
    pub(crate) fn create(path: &Path, durable: bool, buffer_bytes: usize) -> std::io::Result<PartFile> {
        let file = match durable {
            true => Target::Durable(SequentialWriter::create(path, Through::Direct, buffer_bytes)?),
            false => {
                io_call(IoCall::Create, path)?;
                // Others may put a link there, where the directory is theirs too.
                let no_link = OFlags::NOFOLLOW.bits() as i32;
                let mut options = File::options();
                options.create(true).truncate(true).write(true).custom_flags(no_link);
                Target::PageCache(options.open(path)?, path.to_path_buf())
            }
        };
        Ok(PartFile { file, bytes: 0, crc32c: 0 })
    }

    /// A part that later stages read.
    pub(crate) fn for_later_stages(path: &Path) -> std::io::Result<PartFile> {
        let file = Target::StageFile(Box::new(StageFileWriter::create(path)?));
        Ok(PartFile { file, bytes: 0, crc32c: 0 })
    }

    /// A part that is uploaded.
    pub(crate) fn uploading(upload: Upload) -> PartFile {
        PartFile { file: Target::Upload(Box::new(upload)), bytes: 0, crc32c: 0 }
    }

    /// Writes what is left and, where it is durable, waits until all is on the disk.
    pub(crate) fn close(self) -> std::io::Result<()> {
        match self.file {
            Target::Upload(upload) => Ok(upload.finish()?),
            // What is lost with a machine is made again.
            Target::StageFile(file) => file.finish(false).map(drop).map_err(std::io::Error::from),
            Target::PageCache(..) => Ok(()),
            Target::Durable(file) => file.finish(true).map(drop),
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
            Target::Durable(file) => file.write(bytes)?,
        };
        self.bytes += written as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
