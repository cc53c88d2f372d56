//! What can go wrong in a chunkserver.

use api::{Blame, TaskFailure};
use iappender::AppendError;
use ids::{ChunkId, JobId, RunId};
use ifile::FormatError;
use std::path::PathBuf;

/// A failure of the chunkserver. `Disk`, `Memory` and `Thread` are the machine's fault and worth another attempt;
/// the others mean that the engine's own data is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ChunkServerError {
    #[error(transparent)]
    Memory(arena::ArenaError),
    #[error("cannot start a sorter thread")]
    Thread(#[source] std::io::Error),
    #[error("cannot {action} {path}", path = path.display())]
    Disk { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The user's to mend: somebody took a file away, or its permissions.
    #[error("cannot open {path}, which job {job} kept", path = path.display())]
    Kept { path: PathBuf, job: JobId, source: std::io::Error },
    #[error("{path} is damaged", path = path.display())]
    Damaged { path: PathBuf, source: FormatError },
    #[error("a frame of {chunk} holds bytes that are no record (at byte {offset_bytes})")]
    NoRecord { chunk: ChunkId, offset_bytes: usize },
    #[error("{0} is not known to this chunkserver")]
    UnknownRun(RunId),
    #[error("the job was told to stop")]
    Cancelled,
    #[error("a sorter thread panicked")]
    SorterPanicked,
}

impl ChunkServerError {
    /// The failure of the attempt that met it.
    pub fn to_failure(&self) -> TaskFailure {
        let blame = match self {
            Self::Memory(_) | Self::Thread(_) | Self::Disk { .. } => Blame::Environment,
            Self::Kept { .. } => Blame::UserData,
            Self::Cancelled => Blame::Cancelled,
            Self::Damaged { .. } | Self::NoRecord { .. } | Self::UnknownRun(_) | Self::SorterPanicked => {
                Blame::Engine
            }
        };
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        TaskFailure::new(blame, message)
    }

    /// The same failure as an appender sees it.
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
