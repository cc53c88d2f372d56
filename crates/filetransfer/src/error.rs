//! Errors of transfers.

use concretefile::ConcreteError;
use std::path::{Path, PathBuf};

/// Reason why a put or a get ended without its result.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("cannot {action} {path}", path = path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} changed while it was read; put it again when it is complete", path = path.display())]
    Changed { path: PathBuf },
    #[error("{path} has {bytes} bytes, which are not whole records of {record_bytes} bytes", path = path.display())]
    RaggedRecords { path: PathBuf, bytes: u64, record_bytes: u64 },
    #[error(
        "one put has more than {} files and parts: put its directories one by one, or larger parts",
        ids::ITEMS_MAX
    )]
    TooMany,
    /// A part has other bytes than its row says.
    #[error(
        "part {part} of {name} has other bytes than were put: its checksum is {computed:#010x} instead of {expected:#010x}"
    )]
    WrongBytes { name: String, part: usize, expected: u32, computed: u32 },
    /// The records of a file are not those that were put.
    #[error(
        "{name} is damaged: it has {found} records and was put with {expected}, or with others; put it again, or get an \
         older version"
    )]
    WrongRecords { name: String, expected: u64, found: u64 },
    #[error(
        "{path} has a record of more than {} MiB: put it without --hash-by, or name the right --records",
        crate::RECORD_BYTES_MAX >> 20, path = path.display()
    )]
    LongRecord { path: PathBuf },
    #[error("the records of {path} cannot be distributed", path = path.display())]
    Keys { path: PathBuf, source: keys::KeyRulesError },
    /// Records on their way to parts.
    #[error(
        "a temporary file in {dir} has other bytes than were written; put it again, with another directory in TMPDIR",
        dir = dir.display()
    )]
    DamagedSpool { dir: PathBuf },
    #[error(transparent)]
    Concrete(#[from] ConcreteError),
    /// A node failed while a part travelled to it; the part can be written again from its source.
    #[error("a part was not stored: {reason}")]
    Node { reason: String },
    /// A node failed while a part of a stream travelled to it, and the stream cannot be read again.
    #[error("{path} cannot be read again after a node failed ({reason}); put it again", path = path.display())]
    StreamBroken { path: PathBuf, reason: String },
    /// A part is on no node that can be reached.
    #[error("part {part} of {name} cannot be read: {reason}")]
    NoReplica { name: String, part: u32, replicas: u32, reason: String },
    #[error("it was interrupted")]
    Interrupted,
    /// The store could not keep files; the text is a whole sentence.
    #[error("{0}")]
    Store(String),
}

impl TransferError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Returns whether a disk has no space left.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            Self::Concrete(error) => error.is_full(),
            _ => false,
        }
    }
}
