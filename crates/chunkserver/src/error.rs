//! Errors of a chunkserver.

use api::{Blame, TaskFailure};
use iappender::AppendError;
use ids::{ChunkId, JobId, RunId};
use ifile::FormatError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Errors of opening or reading a file that may be transient.
const PASSING: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];

/// Returns whether a failure to read a file is permanent.
pub fn is_of_the_file(error: &std::io::Error) -> bool {
    !PASSING.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A failure of the chunkserver. `Disk`, `Memory` and `Thread` are caused by the machine and worth another attempt; the
/// others mean that the engine's own data is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ChunkServerError {
    #[error(transparent)]
    Memory(arena::ArenaError),
    #[error("cannot start a sorter thread")]
    Thread(#[source] std::io::Error),
    #[error("cannot {action} {path}", path = path.display())]
    Disk { action: &'static str, path: PathBuf, source: std::io::Error },
    /// For the user to repair: a file was removed, or its permissions were changed.
    #[error("cannot open {path}, which job {job} kept", path = path.display())]
    Kept { path: PathBuf, job: JobId, source: std::io::Error },
    #[error("{path} is damaged", path = path.display())]
    Damaged { path: PathBuf, source: FormatError },
    #[error("a frame of {chunk} has bytes that are not a record (at byte {offset_bytes})")]
    NoRecord { chunk: ChunkId, offset_bytes: usize },
    #[error("{0} is not known to this chunkserver")]
    UnknownRun(RunId),
    /// A run cannot be read, and a retry would not help.
    #[error("{run} is lost")]
    LostRun { run: RunId, source: Box<ChunkServerError> },
    /// A run of this node: a copy here would be useless.
    #[error("{0} was made here")]
    OwnRun(RunId),
    #[error("a copy of {0} is already being received")]
    BeingReceived(RunId),
    #[error("a copy of {run} is incomplete: {present_bytes} of {bytes} bytes arrived")]
    CopyLength { run: RunId, bytes: u64, present_bytes: u64 },
    /// A run never changes, so one of the two is wrong.
    #[error("a copy of {0} differs from the one that is here")]
    OtherCopy(RunId),
    #[error("the job was cancelled")]
    Cancelled,
    #[error("a sorter thread panicked")]
    SorterPanicked,
}

impl ChunkServerError {
    /// Converts the error to the failure of the attempt that met it.
    pub fn to_failure(&self) -> TaskFailure {
        let blame = match self {
            Self::Memory(_)
            | Self::Thread(_)
            | Self::Disk { .. }
            | Self::LostRun { .. }
            | Self::UnknownRun(_)
            | Self::BeingReceived(_)
            | Self::CopyLength { .. } => Blame::Environment,
            Self::Kept { .. } => Blame::UserData,
            Self::Cancelled => Blame::Cancelled,
            Self::Damaged { .. }
            | Self::NoRecord { .. }
            | Self::OwnRun(_)
            | Self::OtherCopy(_)
            | Self::SorterPanicked => Blame::Engine,
        };
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        TaskFailure { lost_runs: self.lost_run().into_iter().collect(), ..TaskFailure::new(blame, message) }
    }

    /// Returns the run that this error reports as lost or damaged.
    pub fn lost_run(&self) -> Option<RunId> {
        match self {
            Self::LostRun { run, .. } | Self::UnknownRun(run) => Some(*run),
            _ => None,
        }
    }

    /// Makes the error for a reader of a run: the run is lost if its file itself is damaged or missing.
    pub(crate) fn of_run(self, run: RunId) -> Self {
        if self.is_of_the_file() { Self::LostRun { run, source: Box::new(self) } } else { self }
    }

    /// Returns whether the cause is the file itself, and not the load of the machine.
    fn is_of_the_file(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Disk { source, .. } => is_of_the_file(source),
            _ => false,
        }
    }

    /// Converts the failure to an error for appenders.
    pub(crate) fn to_append_error(&self) -> AppendError {
        match self {
            Self::Cancelled => AppendError::Cancelled,
            Self::Disk { path, source, .. } => AppendError::Spill {
                path: path.clone(),
                source: std::io::Error::new(source.kind(), source.to_string()),
            },
            other => AppendError::Spill {
                path: PathBuf::new(),
                source: std::io::Error::other(other.to_failure().message),
            },
        }
    }
}
