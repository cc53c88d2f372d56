//! Errors of files.

use api::stored::MakingJob;
use concretefile::ConcreteError;
use filetransfer::{TransferError, Unsuitable};
use filetree::{NameError, TreeError, TreeName, TtlError};
use metastore::StoreError;
use std::path::PathBuf;

/// The kind of an error of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteFault {
    /// The user must change a name, an option or the address.
    Refused,
    /// A name or a version does not exist.
    Missing,
    /// The token does not allow it: contents belong to another user, for instance.
    Forbidden,
    /// The server cannot be reached, or failed: the same command may succeed later.
    Failed,
}

/// Reason why a command on files did nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{text:?} is no name of a file: {source}")]
    Name { text: String, source: NameError },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Ttl(#[from] TtlError),
    #[error("there is no file or directory {0}{advice}", advice = .0.advice())]
    Missing(TreeName),
    #[error("{0} is a directory")]
    IsADirectory(TreeName),
    #[error("version {0} does not exist: `sailfish files versions` lists them")]
    NoSuchVersion(ids::FileVersion),
    #[error("a version cannot be changed: give {0} without `@`")]
    OfVersion(TreeName),
    #[error(
        "the files of one machine have no owners and no groups: whoever can read the state directory can read them. \
         --server names the cluster whose files are meant"
    )]
    OneUser,
    #[error("--hash-by distributes the records of one file: put the files of a directory one by one")]
    HashedDirectory,
    /// Files of a source that cannot be put; nothing was put.
    #[error("{} below {source_path} cannot be put", counted(unsuitable.len()), source_path = source_path.display())]
    Unsuitable { source_path: PathBuf, unsuitable: Vec<Unsuitable> },
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    Concrete(#[from] ConcreteError),
    /// Damage of a file that a job can make again.
    #[error("a file that {job} made is lost: run that job again")]
    OfJob { job: MakingJob, source: Box<FilesError> },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server of a cluster, or the way to it; the text is a whole sentence.
    #[error("{text}")]
    Remote { fault: RemoteFault, text: String },
    /// All replicas of a part of a file that are known cannot be read.
    #[error("part {part} of {name} cannot be read, of which {replicas} replicas are known: {reason}")]
    OnlyReplicasLost { name: String, part: u32, replicas: u32, reason: String },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("cannot {action} {path}", path = path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 entry".to_string(),
        count => format!("{count} entries"),
    }
}

impl FilesError {
    /// Returns whether the user can change the cause: a name, an option or the source.
    pub fn is_of_the_user(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::Tree(_)
            | Self::Ttl(_)
            | Self::Missing(_)
            | Self::IsADirectory(_)
            | Self::NoSuchVersion(_)
            | Self::OfVersion(_)
            | Self::OneUser
            | Self::HashedDirectory
            | Self::Unsuitable { .. } => true,
            Self::Remote { fault, .. } => *fault != RemoteFault::Failed,
            Self::Transfer(error) => matches!(
                error,
                TransferError::RaggedRecords { .. }
                    | TransferError::LongRecord { .. }
                    | TransferError::Keys { .. }
                    | TransferError::TooMany
                    | TransferError::Io { .. }
            ),
            _ => false,
        }
    }

    /// Returns whether bytes of a stored file are damaged or missing.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Concrete(error) | Self::Transfer(TransferError::Concrete(error)) => {
                error.damage().is_some()
            }
            Self::Transfer(error) => {
                matches!(error, TransferError::WrongBytes { .. } | TransferError::WrongRecords { .. })
            }
            _ => false,
        }
    }

    /// Adds the job that made the file, if this is damage of it.
    pub(crate) fn of_job(self, job: Option<&MakingJob>) -> Self {
        match job.filter(|_| self.is_damage()) {
            Some(job) => Self::OfJob { job: job.clone(), source: Box::new(self) },
            None => self,
        }
    }

    /// Returns whether the command was interrupted by a signal.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Transfer(TransferError::Interrupted))
    }
}
