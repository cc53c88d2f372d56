//! Stored files that programs read through the node's mount: a program gets the ranges that it reads, and no copy is made
//! (Clustera, section 3.5).

use crate::stored::local_files::WantedFile;
use crate::stored::step_files::NO_REPLICA;
use crate::tasks::map::stored_input::PartOpener;
use api::{Blame, LostFile, StoredContent, TaskFailure, name_beside};
use std::any::Any;
use std::fmt::Debug;
use std::io::{Error, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const BUFFER_BYTES: u64 = 1 << 20;

/// Shows stored files as files of this machine.
pub trait FileViews: Send + Sync + Debug {
    /// Shows a file under its name, read-only, until the answer is dropped. None: nothing can be mounted here.
    fn show(&self, file: &Arc<ViewedFile>) -> Option<ShownView>;
}

/// A file that is shown as long as this exists.
pub struct ShownView {
    /// Absolute path, which ends with the name of the file.
    pub path: PathBuf,
    /// Hides the file when it is dropped.
    pub shown: Box<dyn Any + Send + Sync>,
}

/// A version of a stored file, for programs of an attempt.
pub struct ViewedFile {
    path: PathBuf,
    content: StoredContent,
    opener: Arc<dyn PartOpener>,
    /// The first read that failed.
    failure: Mutex<Option<TaskFailure>>,
}

impl ViewedFile {
    pub(crate) fn new(wanted: &WantedFile<'_>, opener: Arc<dyn PartOpener>) -> Self {
        let (path, content) = (wanted.path.to_path_buf(), wanted.content.clone());
        Self { path, content, opener, failure: Mutex::default() }
    }

    /// Returns its name, with the version.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last part of its name.
    pub fn name(&self) -> &str {
        // The server has checked it.
        name_beside(&self.path).and_then(|name| name.to_str()).unwrap_or("file")
    }

    pub fn bytes(&self) -> u64 {
        self.content.bytes()
    }

    /// Returns whether all bytes lie on disks of this node.
    pub fn is_near(&self) -> bool {
        self.content.parts.iter().all(|part| self.opener.replica_here(*part).is_some())
    }

    /// Writes verified bytes from `offset` on, at most `bytes_max`; fewer only at the end of the file. A failure fails the
    /// attempt, whatever its program makes of it.
    pub fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> std::io::Result<()> {
        self.read_parts(offset, bytes_max, out).inspect_err(|error| {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| self.failed(error));
        })
    }

    fn read_parts(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> std::io::Result<()> {
        let end = offset.saturating_add(bytes_max).min(self.bytes());
        let mut begins_at = 0;
        let mut buffer = vec![0; end.saturating_sub(offset).min(BUFFER_BYTES) as usize];
        for part in &self.content.parts {
            let part_end = begins_at + part.bytes;
            let (from, to) = (offset.max(begins_at), end.min(part_end));
            if from < to {
                let mut reader = self.opener.open_range(*part, from - begins_at..to - begins_at)?;
                let mut left = to - from;
                while left > 0 {
                    let wanted = left.min(BUFFER_BYTES) as usize;
                    let count = reader.read(&mut buffer[..wanted])?;
                    if count == 0 {
                        let text = format!("{} is shorter than it should be", part.concrete);
                        return Err(Error::new(ErrorKind::UnexpectedEof, text));
                    }
                    out.write_all(&buffer[..count])?;
                    left -= count as u64;
                }
            }
            begins_at = part_end;
        }
        Ok(())
    }

    fn failed(&self, error: &Error) -> TaskFailure {
        let lost = || Box::new(LostFile::Stored(self.path.clone()));
        let lost_file = (error.kind() == NO_REPLICA).then(lost);
        let message = format!("a program could not read {}: {error}", self.path.display());
        TaskFailure { lost_file, ..TaskFailure::new(Blame::Environment, message) }
    }

    /// Returns the failure of the attempt, if a read failed.
    pub(crate) fn failure(&self) -> Option<TaskFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::ViewedFile;
    use crate::stored::local_files::{CopyUse, WantedFile};
    use crate::stored::step_files::NO_REPLICA;
    use crate::tasks::map::stored_input::PartOpener;
    use api::{Blame, StoredContent, StoredPart};
    use ids::ConcreteId;
    use std::fs::File;
    use std::io::{Cursor, Read};
    use std::path::Path;
    use std::sync::Arc;

    const PART_BYTES: u64 = 10;
    /// Number of a part that no node has.
    const LOST: i64 = 9;

    /// Parts whose bytes are their numbers. One that is asked for too few bytes ends early.
    struct Parts;

    impl PartOpener for Parts {
        fn open_part(&self, part: StoredPart, offset: u64) -> std::io::Result<Box<dyn Read + Send>> {
            match part.concrete.0 {
                LOST => Err(NO_REPLICA.into()),
                number => {
                    let length = if number == 8 { 5 } else { part.bytes };
                    let mut bytes = Cursor::new(vec![number as u8; length as usize]);
                    bytes.set_position(offset);
                    Ok(Box::new(bytes))
                }
            }
        }

        fn replica_here(&self, part: StoredPart) -> Option<File> {
            (part.concrete.0 == 1).then(|| tempfile::tempfile().unwrap())
        }
    }

    fn viewed(numbers: &[i64]) -> ViewedFile {
        let part = |number: &i64| StoredPart { concrete: ConcreteId(*number), bytes: PART_BYTES, crc32c: 0 };
        let content = StoredContent { parts: numbers.iter().map(part).collect() };
        let path = Path::new("files:refs/ge@nes.db@7");
        let wanted = WantedFile { user: "ann", path, content: &content, of: CopyUse::Input };
        ViewedFile::new(&wanted, Arc::new(Parts))
    }

    #[test]
    fn ranges_are_read_over_parts() {
        let file = viewed(&[1, 2, 3]);
        assert_eq!((file.name(), file.bytes(), file.is_near()), ("ge@nes.db", 30, false));
        assert!(viewed(&[1, 1]).is_near());
        let read = |offset, bytes_max| {
            let mut bytes = Vec::new();
            file.read(offset, bytes_max, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(0, 3), [1, 1, 1]);
        assert_eq!(read(9, 12), [[1].as_slice(), &[2; 10], &[3]].concat());
        assert_eq!(read(28, 100), [3, 3]);
        assert_eq!((read(30, 5), read(100, 5), read(4, 0)), (vec![], vec![], vec![]));
        assert_eq!(file.failure(), None);
    }

    #[test]
    fn first_failed_read_is_kept() {
        for (number, is_lost, reason) in [(LOST, true, "unreachable"), (8, false, "shorter")] {
            let file = viewed(&[1, number]);
            file.read(0, 10, &mut Vec::new()).unwrap();
            assert_eq!(file.failure(), None);
            assert!(file.read(5, 10, &mut Vec::new()).is_ok() != is_lost);
            assert!(file.read(15, 5, &mut Vec::new()).is_err());
            let failure = file.failure().unwrap();
            assert_eq!((failure.blame, failure.lost_file.is_some()), (Blame::Environment, is_lost));
            let message = failure.message;
            assert!(message.contains("files:refs/ge@nes.db@7") && message.contains(reason), "{message}");
        }
    }
}
