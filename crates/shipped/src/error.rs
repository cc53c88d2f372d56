//! Why a file was not taken in or given out.

use api::ContentHash;
use std::path::{Path, PathBuf};

/// Answers whose move it is: the sender's, whoever has the room, or the machine's.
#[derive(Debug, thiserror::Error)]
pub enum ShippedError {
    #[error("a file of {bytes} bytes is not shipped: at most {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error(
        "there is no room for {bytes} bytes more among the files that were shipped: at most {bytes_max} in all, and what jobs need stays"
    )]
    Full { bytes: u64, bytes_max: u64 },
    #[error(
        "the files that you shipped may have {bytes_max} bytes in all, and those that your jobs need stay: {bytes} more are too many now"
    )]
    OwnerFull { bytes: u64, bytes_max: u64 },
    #[error(
        "what arrived as {wanted} has the hash {found}: it was damaged, or the file changed while it was read"
    )]
    WrongHash { wanted: ContentHash, found: ContentHash },
    #[error("what arrived as {wanted} has not the {bytes} bytes that were announced")]
    WrongLength { wanted: ContentHash, bytes: u64 },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl ShippedError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }
}
