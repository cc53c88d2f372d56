//! An input file or object during reading: plain or decompressed bytes, and the check that it is unchanged since it was
//! pinned at submit.

use crate::input::gzip::GzipReader;
use crate::input::source::{Opening, Source, StageFileFailure, Warnings};
use crate::input::{self, pinned_facts};
use api::{Blame, Compression, InputFile, TaskFailure};
use bzip2::bufread::MultiBzDecoder;
use liblzma::bufread::XzDecoder;
use objects::{ObjectError, ObjectUrl};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::ops::Range;

/// Size of the buffer of compressed bytes.
const COMPRESSED_BUFFER_BYTES: usize = 128 << 10;

/// Counter of the compressed bytes that a decoder took, to report the position of an error.
struct CountedReader {
    inner: BufReader<Source>,
    taken_bytes: u64,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.taken_bytes += count as u64;
        Ok(count)
    }
}

impl BufRead for CountedReader {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken_bytes += count as u64;
        self.inner.consume(count);
    }
}

enum Decoder {
    Plain(Source),
    Gzip(Box<GzipReader<CountedReader>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, CountedReader>>),
    Bzip2(Box<MultiBzDecoder<CountedReader>>),
    Xz(Box<XzDecoder<CountedReader>>),
}

/// An open input file.
pub(crate) struct StoredFile {
    input: InputFile,
    decoder: Decoder,
    warnings: Warnings,
}

impl StoredFile {
    /// Opens a file (a plain one at the start of `planned`; compressed ones are planned whole) and checks that it is
    /// the pinned one. An object is read ahead up to the end of `planned`.
    pub(crate) fn open(
        input: &InputFile,
        planned: Range<u64>,
        opening: &Opening,
    ) -> Result<StoredFile, TaskFailure> {
        let source = open_pinned(input, planned, opening)?;
        let environment = |error: std::io::Error| read_failure(input, Blame::Environment, &error);
        let counted = |source| CountedReader {
            inner: BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, source),
            taken_bytes: 0,
        };
        let decoder = match input.compression {
            None => Decoder::Plain(source),
            Some(Compression::Gzip) => Decoder::Gzip(Box::new(GzipReader::new(counted(source)))),
            Some(Compression::Zstd) => {
                let decoder =
                    zstd::stream::read::Decoder::with_buffer(counted(source)).map_err(environment)?;
                Decoder::Zstd(Box::new(decoder))
            }
            Some(Compression::Bzip2) => Decoder::Bzip2(Box::new(MultiBzDecoder::new(counted(source)))),
            Some(Compression::Xz) => Decoder::Xz(Box::new(XzDecoder::new_multi_decoder(counted(source)))),
        };
        Ok(StoredFile { input: input.clone(), decoder, warnings: opening.warnings.clone() })
    }

    /// Reads some bytes; 0 only at the end of the file (or of an empty buffer).
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TaskFailure> {
        loop {
            let outcome = match &mut self.decoder {
                Decoder::Plain(file) => file.read(buffer),
                Decoder::Gzip(decoder) => decoder.read(buffer),
                Decoder::Zstd(decoder) => decoder.read(buffer),
                Decoder::Bzip2(decoder) => decoder.read(buffer),
                Decoder::Xz(decoder) => decoder.read(buffer),
            };
            match outcome {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(&error)),
            }
        }
    }

    /// Checks that the file has not changed since submit. Call it after the end.
    pub(crate) fn check_at_end(&self) -> Result<(), TaskFailure> {
        if let Decoder::Gzip(decoder) = &self.decoder
            && decoder.has_garbage()
        {
            let (path, at) = (input::name(&self.input), decoder.source().taken_bytes);
            self.warnings.add(format!(
                "input {path}: the bytes after its gzip data, at byte {at}, are not gzip data and \
                 were left out"
            ));
        }
        self.check_unchanged()
    }

    /// Checks the same at any position.
    fn check_unchanged(&self) -> Result<(), TaskFailure> {
        let source = match &self.decoder {
            Decoder::Plain(source) => source,
            Decoder::Gzip(decoder) => decoder.source().inner.get_ref(),
            Decoder::Zstd(decoder) => decoder.get_ref().inner.get_ref(),
            Decoder::Bzip2(decoder) => decoder.get_ref().inner.get_ref(),
            Decoder::Xz(decoder) => decoder.get_ref().inner.get_ref(),
        };
        check_pinned(&self.input, source)
    }

    /// Distinguishes a changed file, a bad disk and damaged data.
    fn failure(&self, error: &std::io::Error) -> TaskFailure {
        if let Err(changed) = self.check_unchanged() {
            return changed;
        }
        let (kind, taken_bytes) = match &self.decoder {
            Decoder::Plain(_) => return read_failure(&self.input, Blame::Environment, error),
            Decoder::Gzip(decoder) => ("gzip", decoder.source().taken_bytes),
            Decoder::Zstd(decoder) => ("zstd", decoder.get_ref().taken_bytes),
            Decoder::Bzip2(decoder) => ("bzip2", decoder.get_ref().taken_bytes),
            Decoder::Xz(decoder) => ("xz", decoder.get_ref().taken_bytes),
        };
        if error.raw_os_error().is_some() || object_error(error).is_some() {
            return read_failure(&self.input, Blame::Environment, error);
        }
        let path = input::name(&self.input);
        let message = match error.kind() {
            ErrorKind::UnexpectedEof => {
                format!("input {path} is truncated: its {kind} data breaks off at byte {taken_bytes}")
            }
            _ => format!("input {path} is corrupt: its {kind} data is bad at byte {taken_bytes}: {error}"),
        };
        TaskFailure::new(Blame::UserData, message)
    }
}

/// Checks that an input is the pinned one, without reading it.
pub(crate) fn check(input: &InputFile, opening: &Opening) -> Result<(), TaskFailure> {
    let Some(pin) = &input.object else { return open_pinned(input, 0..0, opening).map(drop) };
    let is_pinned =
        ObjectUrl::from_path(&input.path).and_then(|url| objects::check_pinned(&url, input.size_bytes, pin));
    is_pinned.map_err(|error| read_failure(input, Blame::Environment, &error.into()))
}

/// Opens an input and checks that it is the pinned one, as far as is known before reading it.
fn open_pinned(input: &InputFile, planned: Range<u64>, opening: &Opening) -> Result<Source, TaskFailure> {
    let source = Source::open(input, planned, opening).map_err(|error| match error.kind() {
        _ if object_error(&error).is_some() => read_failure(input, Blame::Environment, &error),
        _ if input.stage_file.is_some() || input.stored.is_some() => {
            read_failure(input, Blame::Environment, &error)
        }
        ErrorKind::NotFound => gone(input),
        ErrorKind::PermissionDenied => read_failure(input, Blame::UserData, &error),
        _ => read_failure(input, Blame::Environment, &error),
    })?;
    check_pinned(input, &source)?;
    Ok(source)
}

/// Checks size and time of a file. The windows of an object are checked one by one, when they arrive.
fn check_pinned(input: &InputFile, source: &Source) -> Result<(), TaskFailure> {
    let Source::File(file) = source else { return Ok(()) };
    let metadata = file_metadata(input, file)?;
    match pinned_facts(&metadata) == (input.size_bytes, input.mtime_ns) {
        true => Ok(()),
        false => Err(changed(input)),
    }
}

fn file_metadata(input: &InputFile, file: &File) -> Result<std::fs::Metadata, TaskFailure> {
    file.metadata().map_err(|error| read_failure(input, Blame::Environment, &error))
}

fn changed(input: &InputFile) -> TaskFailure {
    TaskFailure::new(Blame::UserData, format!("input {}: file changed during the run", input::name(input)))
}

fn gone(input: &InputFile) -> TaskFailure {
    TaskFailure::new(
        Blame::UserData,
        format!("input {}: the file was removed during the run", input::name(input)),
    )
}

fn object_error(error: &std::io::Error) -> Option<&ObjectError> {
    error.get_ref()?.downcast_ref()
}

/// Makes the task failure of a failed read. An error of an object names the object and decides the blame.
fn read_failure(input: &InputFile, blame: Blame, error: &std::io::Error) -> TaskFailure {
    if let Some(StageFileFailure(failure)) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return failure.clone();
    }
    match object_error(error) {
        Some(error) => TaskFailure::new(error.blame(), format!("input: {error}")),
        None => TaskFailure::new(blame, format!("input {} cannot be read: {error}", input::name(input))),
    }
}
