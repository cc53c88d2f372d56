//! Reasons why nothing is mounted, and the errors that programs see.

use filestore::{FilesError, RemoteFault};
use filetree::TreeError;
use fuser::Errno;
use std::error::Error;
use std::path::PathBuf;

/// Reason why a directory was not mounted, or is no longer.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("the mount point {path} does not exist: make it with `mkdir`", path = path.display())]
    Missing { path: PathBuf },
    #[error("the mount point {path} is not a directory", path = path.display())]
    NotADirectory { path: PathBuf },
    #[error("the mount point {path} is not empty: give an empty directory", path = path.display())]
    NotEmpty { path: PathBuf },
    #[error("{path} is a mount point already: unmount it, or give another directory", path = path.display())]
    Busy { path: PathBuf },
    #[error(
        "{path} is the mount point of a process that is gone: unmount it with `umount -l {path}`",
        path = path.display()
    )]
    Dead { path: PathBuf },
    #[error("the mount point {path} cannot be read: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("this machine has no /dev/fuse: load the kernel module `fuse`, or give the container the device")]
    NoDevice,
    #[error(
        "this user may not mount: it needs root or the program `fusermount3` of the package fuse3 ({reason})"
    )]
    NotPermitted { reason: String },
    #[error("other users see a mount only if root mounts it: leave out --allow-other")]
    OthersNeedRoot,
    #[error("cannot mount {path}: {source}", path = path.display())]
    Mount { path: PathBuf, source: std::io::Error },
    #[error("cannot unmount {path}: {source}", path = path.display())]
    Unmount { path: PathBuf, source: std::io::Error },
    #[error("cannot start the watcher of the mount: {0}")]
    Watcher(std::io::Error),
    #[error("cannot make a directory for the mount: {0}")]
    Directory(std::io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl MountError {
    /// Returns whether nothing was mounted, and the user or the machine must change for that.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unmount { .. } | Self::Watcher(_) | Self::Directory(_) | Self::Thread(_))
    }
}

/// Returns an error with its causes, each of them once.
fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// Returns the number that a program gets. Damage, and a server or nodes that fail, are logged.
pub(crate) fn errno_of(error: &FilesError, name: &str) -> Errno {
    match error {
        FilesError::Missing(_)
        | FilesError::NoSuchVersion(_)
        | FilesError::Name { .. }
        | FilesError::Tree(TreeError::Missing(_))
        | FilesError::Remote { fault: RemoteFault::Missing, .. } => Errno::ENOENT,
        FilesError::IsADirectory(_) => Errno::EISDIR,
        FilesError::Tree(TreeError::NotADirectory(_)) => Errno::ENOTDIR,
        FilesError::Tree(TreeError::OfOther { .. })
        | FilesError::Remote { fault: RemoteFault::Forbidden, .. } => Errno::EACCES,
        other => {
            let reason = sentence(other);
            tracing::warn!("{name:?} cannot be read: {reason}");
            Errno::EIO
        }
    }
}
