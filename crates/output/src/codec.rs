//! The compressors of a part file.

use crate::part_file::PartFile;
use api::Compression;
use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;
use std::io::{BufWriter, IntoInnerError, Write};

/// Bytes of compressed data that are buffered before they are written to the file.
const COMPRESSED_BUFFER_BYTES: usize = 64 << 10;
/// Level of xz: its window is 1 MiB, so an encoder takes 9 MiB; the default level of the tool takes 94 MiB.
const XZ_LEVEL: u32 = 1;

type Buffered = BufWriter<PartFile>;

/// A part file, with or without a compressor.
pub(crate) enum PartSink {
    Plain(PartFile),
    Gzip(Box<GzEncoder<Buffered>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Buffered>>),
    Bzip2(Box<BzEncoder<Buffered>>),
    Xz(Box<XzEncoder<Buffered>>),
}

impl PartSink {
    pub(crate) fn new(file: PartFile, codec: Option<Compression>) -> std::io::Result<PartSink> {
        let buffered = |file| BufWriter::with_capacity(COMPRESSED_BUFFER_BYTES, file);
        Ok(match codec {
            None => Self::Plain(file),
            Some(Compression::Gzip) => {
                Self::Gzip(Box::new(GzEncoder::new(buffered(file), flate2::Compression::default())))
            }
            Some(Compression::Zstd) => {
                let mut encoder = zstd::stream::write::Encoder::new(buffered(file), 0)?;
                // As in the command line tool: without the checksum, damage to literals would go unnoticed.
                encoder.include_checksum(true)?;
                Self::Zstd(Box::new(encoder))
            }
            Some(Compression::Bzip2) => {
                Self::Bzip2(Box::new(BzEncoder::new(buffered(file), bzip2::Compression::best())))
            }
            Some(Compression::Xz) => Self::Xz(Box::new(XzEncoder::new(buffered(file), XZ_LEVEL))),
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

    /// Ends the compressed stream. Returns the file with its final counts.
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
