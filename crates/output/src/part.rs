//! Writing of an output part: pairs become lines or plain bytes; bytes, records and checksum are counted on the way to
//! the file.

use crate::codec::PartSink;
use crate::part_file::PartFile;
use crate::stored::StoredParts;
use api::flow::stage_file_name;
use api::task::Part;
use api::{Blame, ContentHash, Formats, OutputFormat, TaskFailure};
use arena::append_piece;
use diskfile::Syncing;
use faults::{CrashPoint, crash_point};
use ids::{AttemptNumber, TaskIndex};
use objects::{ObjectError, ObjectUrl, Upload};
use roots::shown;
use sha2::Digest;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The location of a part: its staging directory, number and attempt.
#[derive(Clone, Copy, Debug)]
pub struct PartPlace<'a> {
    /// The staging directory of the job, or the URL of its staging prefix.
    pub staging: &'a Path,
    pub part_index: u32,
    pub attempt: AttemptNumber,
    /// Bytes that are buffered before a write.
    pub buffer_bytes: usize,
    /// Bytes of memory for an upload.
    pub object_buffer_bytes: usize,
    /// True if the file must be synced when it is finished.
    pub sync: bool,
    /// True if later stages read the part: an intermediate file in `staging`, which is a directory of this node.
    pub is_stage_file: bool,
    /// True if the hash of its bytes is wanted.
    pub is_hashed: bool,
    /// The stored files of the cluster, if they get the part.
    pub stored: Option<&'a Arc<dyn StoredParts>>,
}

/// A part that is being written. If it is dropped before [`PartWriter::finish`], its file is removed, or its upload
/// aborted.
pub struct PartWriter {
    /// None only during [`PartWriter::finish`].
    sink: Option<PartSink>,
    output: OutputFormat,
    path: PathBuf,
    name: String,
    attempt_name: String,
    buffer: Vec<u8>,
    finished: bool,
    /// Number of pairs and records, for formats in which the bytes do not show it.
    counted_records: u64,
    line_ends: u64,
    last_byte: u8,
    /// True if the part becomes a stored file of a cluster: its path is only a name.
    is_stored: bool,
    /// True if the value of the pair begun by [`PartWriter::start_pair`] has begun.
    value_begun: bool,
}

impl PartWriter {
    /// Creates `.part-PPPPP.attempt-A`, with the extension of the codec after the number, in the staging directory.
    /// Fails with [`Blame::Environment`], like all functions of this type, and names the path.
    pub fn create(place: PartPlace<'_>, formats: &Formats) -> Result<PartWriter, TaskFailure> {
        let name = formats.part_name(place.part_index);
        let attempt_name = match place.is_stage_file {
            true => stage_file_name(TaskIndex(place.part_index), place.attempt),
            false => format!(".{name}.attempt-{}", place.attempt.0),
        };
        let path = place.staging.join(&attempt_name);
        let file = part_file(&place, &path, &name, &attempt_name);
        let mut file = file.map_err(|error| failure("create", &path, &error))?;
        file.sha256 = place.is_hashed.then(Box::default);
        let output = formats.output.clone();
        let codec = formats.output_codec.filter(|_| output != OutputFormat::Discard);
        let sink = PartSink::new(file, codec).map_err(|error| failure("create", &path, &error))?;
        let last_byte = line_terminator(&output);
        Ok(PartWriter {
            sink: Some(sink),
            output,
            path,
            name,
            attempt_name,
            buffer: Vec::with_capacity(place.buffer_bytes.max(1)),
            finished: false,
            counted_records: 0,
            line_ends: 0,
            last_byte,
            is_stored: place.stored.is_some(),
            value_begun: false,
        })
    }

    /// Appends output of a program unchanged. A call may end within a line.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        if self.output == OutputFormat::Discard {
            self.count_lines(bytes);
            return Ok(());
        }
        self.append(bytes)
    }

    /// Appends a pair with its separator, even if its value is empty.
    #[cold]
    pub fn write_separated(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.start_pair(key)?;
        self.extend_value(value)?;
        if !self.value_begun {
            self.separate()?;
        }
        self.end_pair()
    }

    /// Appends a pair in the output format.
    #[inline]
    pub fn write_pair(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        match &self.output {
            OutputFormat::Lines { separator, terminator, always_separate } => {
                let bytes = key.len() + separator.len() + value.len() + 1;
                if self.buffer.capacity() - self.buffer.len() < bytes {
                    return self.write_pair_slowly(key, value);
                }
                append_piece(&mut self.buffer, key);
                if *always_separate || !value.is_empty() {
                    append_piece(&mut self.buffer, separator);
                    append_piece(&mut self.buffer, value);
                }
                append_piece(&mut self.buffer, &[*terminator]);
            }
            OutputFormat::Raw => {
                if self.buffer.capacity() - self.buffer.len() < key.len() + value.len() {
                    return self.write_pair_slowly(key, value);
                }
                append_piece(&mut self.buffer, key);
                append_piece(&mut self.buffer, value);
                self.counted_records += 1;
            }
            OutputFormat::Discard => self.counted_records += 1,
        }
        Ok(())
    }

    /// Appends a pair for which the buffer has no room.
    #[cold]
    fn write_pair_slowly(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.start_pair(key)?;
        self.extend_value(value)?;
        self.end_pair()
    }

    /// Begins a pair whose value follows in pieces.
    pub fn start_pair(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.value_begun = false;
        self.append_unless_discarded(key)
    }

    /// Appends a piece of the value of the current pair. The separator goes before its first byte.
    pub fn extend_value(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.separate()?;
        self.append_unless_discarded(bytes)
    }

    /// Ends the current pair.
    pub fn end_pair(&mut self) -> Result<(), TaskFailure> {
        match self.output {
            OutputFormat::Lines { always_separate, terminator, .. } => {
                if always_separate {
                    self.separate()?;
                }
                self.append(&[terminator])
            }
            OutputFormat::Raw | OutputFormat::Discard => {
                self.counted_records += 1;
                Ok(())
            }
        }
    }

    /// Returns whether records may be appended with their number, instead of being counted from the bytes.
    pub fn takes_records(&self) -> bool {
        !matches!(self.output, OutputFormat::Lines { .. })
    }

    /// Appends whole records of [`OutputFormat::Raw`] at once.
    pub fn write_records(&mut self, bytes: &[u8], records: u64) -> Result<(), TaskFailure> {
        self.counted_records += records;
        if self.output == OutputFormat::Discard {
            return Ok(());
        }
        self.flush()?;
        self.write_through(bytes)
    }

    fn separate(&mut self) -> Result<(), TaskFailure> {
        if let OutputFormat::Lines { separator, .. } = &self.output
            && !self.value_begun
        {
            let separator = separator.clone();
            self.append(&separator)?;
        }
        self.value_begun = true;
        Ok(())
    }

    fn append_unless_discarded(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        match self.output {
            OutputFormat::Discard => Ok(()),
            OutputFormat::Lines { .. } | OutputFormat::Raw => self.append(bytes),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        if self.buffer.capacity() - self.buffer.len() < bytes.len() {
            self.flush()?;
            if bytes.len() >= self.buffer.capacity() {
                return self.write_through(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the number of records so far: lines (an unfinished last one counts), or pairs of a format without lines.
    /// Raw bytes of a program have no countable records.
    pub fn records(&mut self) -> Result<u64, TaskFailure> {
        self.flush()?;
        let open_line = self.last_byte != line_terminator(&self.output);
        Ok(self.counted_records + self.line_ends + u64::from(open_line))
    }

    /// Writes out the buffer, ends the compressed stream, syncs if requested, and returns the description of the file.
    pub fn finish(mut self) -> Result<Part, TaskFailure> {
        let records = self.records()?;
        let sink = self.sink.take().expect("a part is finished once");
        let file = sink.finish().map_err(|error| failure("write", &self.path, &error))?;
        let (bytes, crc32c) = (file.bytes, file.crc32c);
        let sha256 = file.sha256.clone().map(|sha256| ContentHash(sha256.finalize().into()));
        crash_point(CrashPoint::PartBeforeSync);
        let stored = file.close().map_err(|error| failure("write", &self.path, &error))?;
        crash_point(CrashPoint::PartAfterSync);
        self.finished = true;
        Ok(Part {
            name: std::mem::take(&mut self.name),
            attempt_name: std::mem::take(&mut self.attempt_name),
            bytes,
            records,
            crc32c,
            sha256,
            node: None,
            stored,
        })
    }

    fn flush(&mut self) -> Result<(), TaskFailure> {
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = self.write_through(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        outcome
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sink = self.sink.as_mut().expect("a part is written before it is finished");
        sink.write_all(bytes).map_err(|error| failure("write", &self.path, &error))?;
        if self.output != OutputFormat::Raw {
            self.count_lines(bytes);
        }
        Ok(())
    }

    fn count_lines(&mut self, bytes: &[u8]) {
        let Some(last_byte) = bytes.last() else {
            return;
        };
        self.last_byte = *last_byte;
        self.line_ends += memchr::memchr_iter(line_terminator(&self.output), bytes).count() as u64;
    }
}

fn part_file(
    place: &PartPlace<'_>,
    path: &Path,
    name: &str,
    attempt_name: &str,
) -> std::io::Result<PartFile> {
    if let Some(stored) = place.stored {
        return Ok(PartFile::storing(Arc::clone(stored)));
    }
    if place.is_stage_file {
        return PartFile::for_later_stages(path);
    }
    if !api::is_object_url(place.staging) {
        let syncing = if place.sync { Syncing::Synced } else { Syncing::NotSynced };
        return PartFile::create(path, syncing, place.buffer_bytes);
    }
    let staging = ObjectUrl::from_path(place.staging)?;
    let upload = Upload::begin(&staging, name, attempt_name, place.object_buffer_bytes)?;
    Ok(PartFile::uploading(upload))
}

/// Returns the byte that ends the lines by which output is counted.
fn line_terminator(output: &OutputFormat) -> u8 {
    match output {
        OutputFormat::Lines { terminator, .. } => *terminator,
        OutputFormat::Raw | OutputFormat::Discard => b'\n',
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        // A dropped upload and a stored part abort themselves.
        if !self.finished && !api::is_object_url(&self.path) && !self.is_stored {
            // A file that cannot be removed here stays in the staging directory, which the commit removes.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failure(action: &str, path: &Path, error: &std::io::Error) -> TaskFailure {
    if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<ObjectError>()) {
        return TaskFailure::new(error.blame(), format!("output: {error}"));
    }
    TaskFailure::new(Blame::Environment, format!("cannot {action} output {}: {error}", shown(path).display()))
}

#[cfg(test)]
mod tests {
    use super::{ContentHash, Digest, PartPlace, PartWriter};
    use api::task::Part;
    use api::{Compression, Formats, OutputFormat};
    use ids::AttemptNumber;
    use std::io::Read;
    use std::path::Path;

    fn place(staging: &Path, buffer_bytes: usize) -> PartPlace<'_> {
        PartPlace {
            staging,
            part_index: 3,
            attempt: AttemptNumber(1),
            buffer_bytes,
            object_buffer_bytes: 0,
            sync: false,
            is_stage_file: false,
            is_hashed: true,
            stored: None,
        }
    }

    /// Writes a part. Returns its description and the content of the file.
    fn written(
        formats: &Formats,
        buffer_bytes: usize,
        write: impl FnOnce(&mut PartWriter),
    ) -> (Part, Vec<u8>) {
        let staging = tempfile::tempdir().unwrap();
        let mut part = PartWriter::create(place(staging.path(), buffer_bytes), formats).unwrap();
        write(&mut part);
        let part = part.finish().unwrap();
        let bytes = std::fs::read(staging.path().join(&part.attempt_name)).unwrap();
        assert_eq!((part.bytes, part.crc32c), (bytes.len() as u64, crc32c::crc32c(&bytes)));
        assert_eq!(part.sha256, Some(ContentHash(sha2::Sha256::digest(&bytes).into())));
        (part, bytes)
    }

    fn lines(separator: &str, terminator: u8, always_separate: bool) -> OutputFormat {
        OutputFormat::Lines { separator: separator.into(), terminator, always_separate }
    }

    fn check(pieces: &[&str], buffer_bytes: usize, records: u64) {
        let (part, bytes) = written(&Formats::default(), buffer_bytes, |part| {
            pieces.iter().for_each(|piece| part.write(piece.as_bytes()).unwrap());
        });
        assert_eq!(bytes, pieces.concat().as_bytes());
        assert_eq!((part.name.as_str(), part.attempt_name.as_str()), ("part-00003", ".part-00003.attempt-1"));
        assert_eq!(part.records, records);
    }

    #[test]
    fn parts_are_counted_and_summed() {
        for buffer_bytes in [0, 1, 4, 1000] {
            check(&[], buffer_bytes, 0);
            check(&["a\n", "bb\ncc", "c\n"], buffer_bytes, 3);
            check(&["a\n", "no end"], buffer_bytes, 2);
            check(&["\n\n"], buffer_bytes, 2);
        }
    }

    #[test]
    fn pairs_are_written_by_format() {
        let rows = [
            (lines("\t", b'\n', false), "k\tv\nlonger\na\tb,c\ne\ns\t\nt\tu\n"),
            (lines("\t", b'\n', true), "k\tv\nlonger\t\na\tb,c\ne\t\ns\t\nt\tu\n"),
            (lines("::", 0, false), "k::v\0longer\0a::b,c\0e\0s::\0t::u\0"),
            (OutputFormat::Raw, "kvlongerab,cestu"),
            (OutputFormat::Discard, ""),
        ];
        for (output, expected) in rows {
            let formats = Formats { output, ..Formats::default() };
            for buffer_bytes in [0, 1, 5, 9, 1000] {
                let (part, bytes) = written(&formats, buffer_bytes, |part| {
                    part.write_pair(b"k", b"v").unwrap();
                    part.write_pair(b"longer", b"").unwrap();
                    part.start_pair(b"a").unwrap();
                    ["b", "", ",", "c"].iter().for_each(|piece| part.extend_value(piece.as_bytes()).unwrap());
                    part.end_pair().unwrap();
                    part.start_pair(b"e").unwrap();
                    part.end_pair().unwrap();
                    part.write_separated(b"s", b"").unwrap();
                    part.write_separated(b"t", b"u").unwrap();
                });
                assert_eq!(bytes.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
                assert_eq!(part.records, 6, "{formats:?}");
            }
        }
        let formats = Formats { output: OutputFormat::Raw, ..Formats::default() };
        let (part, bytes) = written(&formats, 4, |part| {
            part.write_pair(b"ab", b"c").unwrap();
            part.write_records(b"defghi", 2).unwrap();
        });
        assert_eq!((bytes.as_slice(), part.records), (&b"abcdefghi"[..], 3));
        let formats = Formats { output: OutputFormat::Discard, ..Formats::default() };
        assert_eq!(written(&formats, 4, |part| part.write(b"a\nb").unwrap()).0.records, 2);
    }

    fn unpacked(codec: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        match codec {
            Compression::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut text),
            Compression::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut text),
            Compression::Bzip2 => bzip2::read::BzDecoder::new(bytes).read_to_end(&mut text),
            Compression::Xz => liblzma::read::XzDecoder::new(bytes).read_to_end(&mut text),
        }
        .unwrap();
        text
    }

    #[test]
    fn parts_are_compressed() {
        for (codec, name) in [
            (Compression::Gzip, "part-00003.gz"),
            (Compression::Zstd, "part-00003.zst"),
            (Compression::Bzip2, "part-00003.bz2"),
            (Compression::Xz, "part-00003.xz"),
        ] {
            let formats = Formats { output_codec: Some(codec), ..Formats::default() };
            for pairs in [0, 50_000] {
                let (part, bytes) = written(&formats, 1000, |part| {
                    (0..pairs).for_each(|_| part.write_pair(b"key", b"value").unwrap());
                });
                assert_eq!((part.name.as_str(), part.records), (name, pairs));
                assert_eq!(unpacked(codec, &bytes), "key\tvalue\n".repeat(pairs as usize).as_bytes());
                assert!(!bytes.is_empty() && bytes.len() < 10_000, "{codec:?}: {}", bytes.len());
            }
        }
    }

    #[test]
    fn an_unfinished_part_is_removed() {
        let staging = tempfile::tempdir().unwrap();
        drop(PartWriter::create(place(staging.path(), 16), &Formats::default()).unwrap());
        assert_eq!(std::fs::read_dir(staging.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_write_that_fails_is_named() {
        for codec in [None, Some(Compression::Gzip), Some(Compression::Xz)] {
            let staging = tempfile::tempdir().unwrap();
            let formats = Formats { output_codec: codec, ..Formats::default() };
            let attempt_name = format!(".{}.attempt-1", formats.part_name(3));
            // A pipe without a reader accepts no bytes.
            let pipe = staging.path().join(&attempt_name);
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
            let no_wait = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
            let reader = rustix::fs::open(&pipe, no_wait, rustix::fs::Mode::empty()).unwrap();
            let mut part = PartWriter::create(place(staging.path(), 16), &formats).unwrap();
            drop(reader);
            part.write(b"text").unwrap();
            let failure = part.finish().unwrap_err();
            assert!(failure.retryable(), "{failure:?}");
            assert!(failure.message.contains(&attempt_name), "{failure:?}");
        }
    }

    #[test]
    fn link_in_place_of_part_is_not_followed() {
        for sync in [false, true] {
            let staging = tempfile::tempdir().unwrap();
            let victim = staging.path().join("victim");
            std::fs::write(&victim, "whole").unwrap();
            std::os::unix::fs::symlink(&victim, staging.path().join(".part-00003.attempt-1")).unwrap();
            let place = PartPlace { sync, ..place(staging.path(), 4096) };
            assert!(PartWriter::create(place, &Formats::default()).is_err());
            assert_eq!(std::fs::read(&victim).unwrap(), b"whole");
        }
    }
}
