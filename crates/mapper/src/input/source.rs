//! The stored bytes of an input, from a file or from an object.

use api::task::TASK_WARNINGS_MAX;
use api::{InputFile, StoredContent, TaskFailure};
use objects::{ObjectReader, ObjectUrl};
use roots::{JobPaths, OutsideRoots};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Opener of intermediate files of earlier stages: the node knows their places.
pub trait StageFileSource: Send + Sync {
    /// Opens such an input at `start`; its bytes are verified as they are read. Its errors, also later ones, may
    /// contain a [`StageFileFailure`].
    fn open(&self, input: &InputFile, start: u64) -> std::io::Result<Box<dyn Read + Send>>;
}

/// Error of an unreadable intermediate file, for the report of its attempt.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct StageFileFailure(pub TaskFailure);

/// Opener of stored files: the node has their concrete files.
pub trait StoredFileSource: Send + Sync {
    /// Opens a stored file at `start`; its bytes are verified as they are read.
    fn open(&self, content: &StoredContent, start: u64) -> std::io::Result<Box<dyn Read + Send>>;
}

/// Openers of inputs: files of this machine, intermediate files of stages, and stored files.
#[derive(Clone, Default)]
pub struct Openers {
    /// Access to files of this machine.
    pub paths: JobPaths,
    /// Access to files below directories that this node sees and not every other; None if there are none.
    pub seen: Option<JobPaths>,
    pub stage_files: Option<Arc<dyn StageFileSource>>,
    pub stored_files: Option<Arc<dyn StoredFileSource>>,
    /// Copies of stored files that programs open by themselves, by positions of inputs.
    pub copies: Arc<BTreeMap<u32, PathBuf>>,
}

/// Openers and limits of inputs.
#[derive(Clone)]
pub(crate) struct Opening {
    /// Bytes of memory for reading an object ahead.
    pub object_buffer_bytes: usize,
    pub openers: Openers,
    pub warnings: Warnings,
}

/// Warnings about the inputs of one attempt. Clones share one list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning, unless there are many.
    pub fn add(&self, warning: String) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < TASK_WARNINGS_MAX && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) enum Source {
    File(File),
    Object(Box<ObjectReader>),
    /// An intermediate file of a stage, or a stored file: verified as it is read.
    Verified(Box<dyn Read + Send>),
}

impl Source {
    /// Opens an input at the start of `planned`. The errors of an object contain an [`objects::ObjectError`].
    pub(crate) fn open(input: &InputFile, planned: Range<u64>, opening: &Opening) -> std::io::Result<Source> {
        if input.stage_file.is_some() {
            let files = opening.openers.stage_files.as_ref();
            let files = files.ok_or_else(|| {
                std::io::Error::other("this process cannot open intermediate files of stages")
            })?;
            return Ok(Source::Verified(files.open(input, planned.start)?));
        }
        if let Some(content) = &input.stored {
            let files = opening.openers.stored_files.as_ref();
            let files = files.ok_or_else(|| std::io::Error::other("this process has no stored files"))?;
            return Ok(Source::Verified(files.open(content, planned.start)?));
        }
        let Some(pin) = &input.object else {
            let openers = &opening.openers;
            let mut file = match input.seen {
                Some(_) => open_seen(openers.seen.as_ref(), &input.path)?,
                None => openers.paths.open_file(&input.path)?,
            };
            if planned.start > 0 {
                file.seek(SeekFrom::Start(planned.start))?;
            }
            return Ok(Source::File(file));
        };
        let url = ObjectUrl::from_path(&input.path)?;
        let reader = ObjectReader::open(&url, input.size_bytes, pin, planned, opening.object_buffer_bytes)?;
        Ok(Source::Object(Box::new(reader)))
    }
}

/// Opens a file below a directory that this node sees.
pub(crate) fn open_seen(seen: Option<&JobPaths>, path: &Path) -> std::io::Result<File> {
    let seen = seen.ok_or_else(|| outside(path, ErrorKind::PermissionDenied.into()))?;
    seen.open_file(path).map_err(|error| outside(path, error))
}

/// Names the reason for a path that leads out of the directories that this node sees.
pub(crate) fn outside(path: &Path, error: Error) -> Error {
    let is_outside = error.get_ref().is_some_and(|inner| inner.is::<OutsideRoots>());
    match error.raw_os_error().is_none() && error.kind() == ErrorKind::PermissionDenied || is_outside {
        true => Error::new(ErrorKind::PermissionDenied, NotSeen { path: path.to_path_buf() }),
        false => error,
    }
}

/// Error: a path lies in no directory of `node --sees`, or a link in it leads out.
#[derive(Debug, thiserror::Error)]
#[error("{} leads out of the directories that this node sees (node --sees)", path.display())]
struct NotSeen {
    path: PathBuf,
}

impl Read for Source {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Object(reader) => reader.read(buffer),
            Source::Verified(reader) => reader.read(buffer),
        }
    }
}
