//! The file or the upload behind a part: what reaches it is counted and summed, and compressed before that where asked for.

use api::OutputCodec;
use bzip2::write::BzEncoder;
use diskfile::{SequentialWriter, Through};
use faults::{IoCall, io_call};
use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use objects::Upload;
use rustix::fs::OFlags;
use stagefile::StageFileWriter;
use std::fs::File;
use std::io::{BufWriter, IntoInnerError, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Compressed bytes gathered before they go to the file.
const COMPRESSED_BUFFER_BYTES: usize = 64 << 10;
/// Level of xz: its window is 1 MiB, so that an encoder takes 9 MiB; the tool's own default takes 94.
const XZ_LEVEL: u32 = 1;

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

type Buffered = BufWriter<PartFile>;

/// A part file, or a compressor in front of it.
pub(crate) enum PartSink {
    Plain(PartFile),
    Gzip(Box<GzEncoder<Buffered>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Buffered>>),
    Bzip2(Box<BzEncoder<Buffered>>),
    Xz(Box<XzEncoder<Buffered>>),
}

impl PartSink {
    pub(crate) fn new(file: PartFile, codec: Option<OutputCodec>) -> std::io::Result<PartSink> {
        let buffered = |file| BufWriter::with_capacity(COMPRESSED_BUFFER_BYTES, file);
        Ok(match codec {
            None => Self::Plain(file),
            Some(OutputCodec::Gzip) => {
                Self::Gzip(Box::new(GzEncoder::new(buffered(file), flate2::Compression::default())))
            }
            Some(OutputCodec::Zstd) => {
                let mut encoder = zstd::stream::write::Encoder::new(buffered(file), 0)?;
                // As the command line tool does: without it damage to literals cannot be seen.
                encoder.include_checksum(true)?;
                Self::Zstd(Box::new(encoder))
            }
            Some(OutputCodec::Bzip2) => {
                Self::Bzip2(Box::new(BzEncoder::new(buffered(file), bzip2::Compression::best())))
            }
            Some(OutputCodec::Xz) => Self::Xz(Box::new(XzEncoder::new(buffered(file), XZ_LEVEL))),
        })
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Bzip2(encoder) => encoder.write_all(bytes),
            Self::Xz(encoder) => encoder.write_all(bytes),
        }
    }

    /// Ends the compressed stream; gives back the file with its final counts.
    pub(crate) fn finish(self) -> std::io::Result<PartFile> {
        let buffered = match self {
            Self::Plain(file) => return Ok(file),
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Bzip2(encoder) => encoder.finish()?,
            Self::Xz(encoder) => encoder.finish()?,
        };
        buffered.into_inner().map_err(IntoInnerError::into_error)
    }
}
