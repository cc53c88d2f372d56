//! Errors of the catalogue.

use filetree::{NameError, TreeError, TreeName, TtlError};
use ids::{DirectoryId, FileVersion, PutId};
use metastore::{GroupRefusal, StoreError};

/// Reason why a request about stored files was not done.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error(
        "{0:?} is no name of a user or a group: it is letters, digits, and . - _ @, at most 100 bytes, and @ is not the first"
    )]
    UserName(String),
    #[error(transparent)]
    Group(#[from] GroupRefusal),
    #[error("{text:?} is no name of a file: {source}")]
    Name { text: String, source: NameError },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Ttl(#[from] TtlError),
    #[error("there is no file or directory {0}{advice}", advice = .0.advice())]
    Missing(TreeName),
    #[error("there is no directory with the number {}", .0.0)]
    UnknownDirectory(DirectoryId),
    #[error("version {0} does not exist: `sailfish files versions` lists them")]
    NoSuchVersion(FileVersion),
    #[error(
        "the contents of {name} belong to {user:?}: only this user, readers whom {user:?} named and administrators may read them"
    )]
    ContentsOfOther { name: String, user: String },
    #[error("the put {0} was given up, or another client goes on with it: put the files again")]
    SessionOver(PutId),
    #[error("one put makes more than {} files and parts", ids::ITEMS_MAX)]
    TooMany,
    #[error("the put {put} is not complete: {problem}")]
    Incomplete { put: PutId, problem: &'static str },
    #[error(
        "the stored files of {user:?} have {stored} bytes, and with this put they would have more than {bytes_max} \
         (server --user-stored-max): remove some, also old versions"
    )]
    OverQuota { user: String, stored: u64, bytes_max: u64 },
    #[error("no node takes stored files: start nodes, or wait until they have joined")]
    NoNodes,
    #[error("the server has just begun, and no node has told of its stored files yet: try again in a moment")]
    NodesAwaited,
    #[error(
        "no node has room for {bytes} bytes of stored files: {nodes}; nodes keep a part of each disk free (--shuffle-reserve of the node, 20 % by default)"
    )]
    NoRoom { bytes: u64, nodes: String },
    #[error("{field} is {value}, and at most {max} are allowed")]
    Limit { field: &'static str, value: u64, max: u64 },
    #[error("the stored file {path} cannot be read by a job: {problem}")]
    JobInput { path: String, problem: String },
    #[error("a client cannot put the output of a job: name another source")]
    SourceOfJob,
    #[error("no node that has {part} of the output can be reached: run the job again, with more --replicas")]
    OutputPartLost { part: String },
    #[error("the disk {0:?} is not one of this node")]
    UnknownDisk(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CatalogError {
    /// Returns whether the thing that was asked for does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Missing(_)
                | Self::UnknownDirectory(_)
                | Self::Tree(TreeError::Missing(_))
                | Self::Group(GroupRefusal::Missing(_))
        )
    }

    /// Returns whether the caller lacks a right.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::ContentsOfOther { .. } => true,
            Self::Tree(error) => error.is_forbidden(),
            _ => false,
        }
    }

    /// Returns whether the store failed, and not the request.
    pub fn is_of_the_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}

/// Returns an error if a value is above its limit.
pub(crate) fn limited(field: &'static str, value: usize, max: usize) -> Result<(), CatalogError> {
    match value <= max {
        true => Ok(()),
        false => Err(CatalogError::Limit { field, value: value as u64, max: max as u64 }),
    }
}
