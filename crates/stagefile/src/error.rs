//! Errors and damage of a stage file.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// Reason why a stage file was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StageFileError {
    /// The operating system refused; the file may be intact, missing, or on a failing disk.
    #[error("cannot {action} {path}", path = path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The file has other content than it should. A retry would not help: another copy must be read, or the data
    /// recomputed.
    #[error("{path} is damaged", path = path.display())]
    Damaged { path: PathBuf, source: StageFileDamage },
    /// The requested range is outside of the payload: an error of the caller.
    #[error("bytes {offset} to {end} are outside of a stage file of {bytes} bytes", end = .offset.saturating_add(*.length))]
    OutOfRange { bytes: u64, offset: u64, length: u64 },
}

impl StageFileError {
    /// Returns the damage of the file; None if the error is of another kind.
    pub fn damage(&self) -> Option<&StageFileDamage> {
        match self {
            Self::Damaged { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns whether the cause is the file and is permanent: the file is damaged or missing, or its disk fails. False
    /// for transient errors, such as a lack of file descriptors or memory.
    pub fn is_of_the_file(&self) -> bool {
        const PASSING: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => {
                !PASSING.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
            }
            Self::OutOfRange { .. } => false,
        }
    }

    /// Returns the error of this crate within an error from [`std::io::Read`] or [`std::io::Write`].
    pub fn of(error: &std::io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref::<Told>().map(|told| &told.0)
    }
}

/// An error of this crate within an I/O error. Its text includes its cause, because code that prints an I/O error
/// prints no chain.
#[derive(Debug)]
struct Told(StageFileError);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(cause) => write!(f, "{}: {cause}", self.0),
            None => self.0.fmt(f),
        }
    }
}

/// Has no source, because its text includes it.
impl Error for Told {}

impl From<StageFileError> for std::io::Error {
    /// Wraps the error in an I/O error, in which [`StageFileError::of`] finds it.
    fn from(error: StageFileError) -> Self {
        let kind = match &error {
            StageFileError::Io { source, .. } => source.kind(),
            StageFileError::Damaged { .. } => std::io::ErrorKind::InvalidData,
            StageFileError::OutOfRange { .. } => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, Told(error))
    }
}

/// Damage: bytes that differ from the stage file they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct StageFileDamage {
    pub place: DamagePlace,
    pub problem: DamageKind,
}

impl StageFileDamage {
    pub(crate) fn at(place: DamagePlace, problem: DamageKind) -> Self {
        Self { place, problem }
    }
}

/// Damaged part of a stage file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagePlace {
    /// The file as a whole.
    File,
    Header,
    /// Counts from 0.
    Block(u64),
    Footer,
    /// All blocks together; each of them is intact.
    Payload,
}

impl fmt::Display for DamagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => write!(f, "file"),
            Self::Header => write!(f, "header"),
            Self::Block(number) => write!(f, "block {number}"),
            Self::Footer => write!(f, "footer"),
            Self::Payload => write!(f, "payload"),
        }
    }
}

/// Kind of damage at a [`DamagePlace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// Not a stage file.
    Foreign,
    /// The version is unknown to this program.
    Version(u16),
    /// Too few bytes, or too many.
    Length { present_bytes: u64, expected_bytes: u64 },
    /// The end mark of a complete file is not at its end.
    NoEndMark,
    /// Bytes do not match their stored checksum.
    Checksum { stored: u32, computed: u32 },
    /// A field has an impossible value.
    Field { what: &'static str, value: u64 },
    /// A field differs from the expectation of the reader.
    Unexpected { what: &'static str, present: u64, expected: u64 },
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "not a stage file (the first bytes are foreign)"),
            Self::Version(version) => write!(f, "format version {version} is not known to this program"),
            Self::Length { present_bytes, expected_bytes } => {
                write!(f, "{present_bytes} bytes instead of {expected_bytes}")
            }
            Self::NoEndMark => write!(f, "the end mark is missing: the file is incomplete, or truncated"),
            Self::Checksum { stored, computed } => {
                write!(f, "checksum {stored:08x} stored, {computed:08x} computed")
            }
            Self::Field { what, value } => write!(f, "{what} cannot be {value}"),
            Self::Unexpected { what, present, expected } => {
                write!(f, "{what} is {present}, but {expected} was expected")
            }
        }
    }
}
