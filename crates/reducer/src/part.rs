//! Writing one output part: bytes, records and checksum are counted on the way to the file.

use api::task::Part;
use api::{Blame, TaskFailure};
use faults::{CrashPoint, crash_point};
use ids::AttemptNumber;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A part file while it is written. Dropped before [`PartWriter::finish`] it removes its file.
#[derive(Debug)]
pub struct PartWriter {
    file: File,
    path: PathBuf,
    name: String,
    attempt_name: String,
    buffer: Vec<u8>,
    sync: bool,
    finished: bool,
    bytes: u64,
    line_ends: u64,
    last_byte: u8,
    crc32c: u32,
}

impl PartWriter {
    /// Creates `.part-PPPPP.attempt-A` in the staging directory. Error: [`Blame::Environment`], as for all
    /// of this type, naming the path.
    pub fn create(
        staging: &Path,
        part_index: u32,
        attempt: AttemptNumber,
        buffer_bytes: usize,
        sync: bool,
    ) -> Result<PartWriter, TaskFailure> {
        let name = format!("part-{part_index:05}");
        let attempt_name = format!(".{name}.attempt-{}", attempt.0);
        let path = staging.join(&attempt_name);
        let file = File::create(&path).map_err(|error| failure("create", &path, &error))?;
        let buffer = Vec::with_capacity(buffer_bytes.max(1));
        Ok(PartWriter {
            file,
            path,
            name,
            attempt_name,
            buffer,
            sync,
            finished: false,
            bytes: 0,
            line_ends: 0,
            last_byte: b'\n',
            crc32c: 0,
        })
    }

    /// Appends bytes. Lines may be cut anywhere between two calls.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TaskFailure> {
        if self.buffer.capacity() - self.buffer.len() < bytes.len() {
            self.flush()?;
            if bytes.len() >= self.buffer.capacity() {
                return self.write_through(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends the line of a pair: `key TAB value`, or only the key where the value is empty.
    #[inline]
    pub fn write_pair(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.write(key)?;
        if !value.is_empty() {
            self.write(b"\t")?;
            self.write(value)?;
        }
        self.write(b"\n")
    }

    /// Lines written so far; a last line without its end counts.
    pub fn records(&mut self) -> Result<u64, TaskFailure> {
        self.flush()?;
        Ok(self.line_ends + u64::from(self.last_byte != b'\n'))
    }

    /// Writes out what is buffered, syncs if asked to, and tells what the file holds.
    pub fn finish(mut self) -> Result<Part, TaskFailure> {
        let records = self.records()?;
        crash_point(CrashPoint::PartBeforeSync);
        if self.sync {
            self.file.sync_all().map_err(|error| failure("sync", &self.path, &error))?;
        }
        crash_point(CrashPoint::PartAfterSync);
        self.finished = true;
        Ok(Part {
            name: std::mem::take(&mut self.name),
            attempt_name: std::mem::take(&mut self.attempt_name),
            bytes: self.bytes,
            records,
            crc32c: self.crc32c,
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
        let Some(last_byte) = bytes.last() else {
            return Ok(());
        };
        self.file.write_all(bytes).map_err(|error| failure("write", &self.path, &error))?;
        self.last_byte = *last_byte;
        self.bytes += bytes.len() as u64;
        self.line_ends += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(())
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed here is a stray in the staging directory, which the commit removes.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failure(action: &str, path: &Path, error: &std::io::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot {action} output {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::PartWriter;
    use ids::AttemptNumber;

    fn check(pieces: &[&str], buffer_bytes: usize, records: u64) {
        let staging = tempfile::tempdir().unwrap();
        let mut part = PartWriter::create(staging.path(), 3, AttemptNumber(1), buffer_bytes, false).unwrap();
        pieces.iter().for_each(|piece| part.write(piece.as_bytes()).unwrap());
        let part = part.finish().unwrap();
        let bytes = std::fs::read(staging.path().join(".part-00003.attempt-1")).unwrap();
        assert_eq!(bytes, pieces.concat().as_bytes());
        assert_eq!((part.name.as_str(), part.attempt_name.as_str()), ("part-00003", ".part-00003.attempt-1"));
        assert_eq!((part.bytes, part.records), (bytes.len() as u64, records));
        assert_eq!(part.crc32c, crc32c::crc32c(&bytes));
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
    fn an_unfinished_part_is_removed() {
        let staging = tempfile::tempdir().unwrap();
        drop(PartWriter::create(staging.path(), 0, AttemptNumber(0), 16, true).unwrap());
        assert_eq!(std::fs::read_dir(staging.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_disk_is_named() {
        let staging = tempfile::tempdir().unwrap();
        let path = staging.path().join(".part-00000.attempt-0");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut part = PartWriter::create(staging.path(), 0, AttemptNumber(0), 16, true).unwrap();
        part.write(b"text").unwrap();
        let failure = part.finish().unwrap_err();
        assert!(failure.retryable(), "{failure:?}");
        assert!(failure.message.contains(".part-00000.attempt-0"), "{failure:?}");
    }
}
