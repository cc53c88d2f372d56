//! Reasons why a file was not accepted or returned.

use api::ContentHash;
use std::path::{Path, PathBuf};

/// The variant shows who can act: the sender, the owner of the space, or the operator of the machine.
#[derive(Debug, thiserror::Error)]
pub enum ShippedError {
    #[error("a file of {bytes} bytes is too large to ship: the limit is {bytes_max} bytes")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error(
        "the server has no room for {bytes} more bytes of shipped files: the limit is {bytes_max} bytes in \
         all, and files that jobs need stay"
    )]
    Full { bytes: u64, bytes_max: u64 },
    #[error(
        "there is no room for {bytes} more bytes of your files: the limit of a user is {bytes_max} bytes \
         in all, and files that your jobs need stay"
    )]
    OwnerFull { bytes: u64, bytes_max: u64 },
    #[error(
        "the file that arrived as {wanted} has the hash {found}: it was damaged, or it changed while it \
         was read"
    )]
    WrongHash { wanted: ContentHash, found: ContentHash },
    #[error("the file that arrived as {wanted} does not have the {bytes} bytes that were announced")]
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
