//! Errors and damage of concrete files.

use std::path::{Path, PathBuf};

/// Reason why a concrete file was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum ConcreteError {
    /// The operating system refused; the file may be intact, missing, or on a failing disk.
    #[error("cannot {action} {path}", path = path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The file has other content than it should. A retry does not help: another replica must be read.
    #[error("{path} is damaged: {damage}", path = path.display())]
    Damaged { path: PathBuf, damage: ConcreteDamage },
}

/// Difference between a file and its expected content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConcreteDamage {
    #[error("it does not exist")]
    Missing,
    #[error("it has {present} bytes instead of {expected}")]
    Length { present: u64, expected: u64 },
    #[error(
        "the checksum of block {block} (64 KiB each, from 0) is {computed:#010x} instead of {stored:#010x}"
    )]
    Block { block: u64, stored: u32, computed: u32 },
    #[error("its checksum is {computed:#010x} instead of {expected:#010x}")]
    Whole { expected: u32, computed: u32 },
    /// The file with the checksums is damaged; nothing is known about the file itself.
    #[error("its checksums cannot be read: {0}")]
    Sums(&'static str),
}

impl ConcreteError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, damage: ConcreteDamage) -> Self {
        Self::Damaged { path: path.to_path_buf(), damage }
    }

    /// Returns the damage of the file; None if the error is of another kind.
    pub fn damage(&self) -> Option<&ConcreteDamage> {
        match self {
            Self::Damaged { damage, .. } => Some(damage),
            Self::Io { .. } => None,
        }
    }

    /// Returns whether a file could not be created because it exists.
    pub fn is_existing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
    }

    /// Returns whether the disk has no space left.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}
