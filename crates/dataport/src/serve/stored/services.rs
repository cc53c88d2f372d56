//! The service that a node provides for stored files: concrete files on its disks.

use crate::wire::token::Token;
use api::StoredPart;
use axum::http::StatusCode;
use concretefile::{BlockSums, ConcreteError, ConcreteReader, Content};
use ids::{ConcreteId, DiskId, NodeId};

/// The stored files of a node. Calls block on disks, and on other nodes.
pub trait StoredFileService: Send + Sync + 'static {
    /// Begins to receive parts on a disk, at most so many bytes.
    fn receive(&self, disk: DiskId, bytes: u64) -> Result<Box<dyn PartReceiver>, StoredFileError>;
    /// Opens a part on whichever disk of this node has it. Damage that is found now is the service's to report, with the
    /// same caution as for [`Self::is_damaged`].
    fn open_stored(&self, part: StoredPart) -> Result<OpenedPart, StoredFileError>;
    /// Reports that a block of a part did not verify when it was read. The content of the part is what the reader
    /// states: it may be wrong, so that nothing may be removed before the server has said what it should be.
    fn is_damaged(&self, part: StoredPart, disk: DiskId, reason: &str);
    /// Fetches parts from another node onto a disk, verifies and syncs them. The token is shown to that node.
    fn fetch_stored(
        &self,
        disk: DiskId,
        from: NodeId,
        token: &Token,
        parts: &[StoredPart],
    ) -> Result<(), StoredFileError>;
    /// Takes a place among the readers of a local copy of a part, which may be incomplete. Does not wait.
    fn open_copy(&self, part: StoredPart) -> Result<Box<dyn PassedPart>, PassError> {
        Err(PassError::NoCopy(part.concrete))
    }
}

/// A local copy of a part that is passed on while it is made. Dropped, it gives its place to another reader.
pub trait PassedPart: Send {
    /// Returns the checksums of the blocks. Waits for them, but not for long.
    fn sums(&mut self) -> Result<&BlockSums, PassError>;
    /// Returns verified whole blocks from the beginning of a block on: at least one, at most `bytes_max` bytes. Waits for
    /// the first one, but not for long.
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], PassError>;
}

/// The reason why a local copy is not passed on.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("there is no copy of {0} here")]
    NoCopy(ConcreteId),
    #[error("the copy of {0} is passed on to as many nodes as it may be: take another source")]
    Busy(ConcreteId),
    #[error("no more of {file} has arrived here for {seconds} s")]
    Stalled { file: ConcreteId, seconds: u64 },
    #[error("the copy of {0} was given up")]
    GivenUp(ConcreteId),
    #[error("block {block} of the copy of {file} was changed by a program or a disk")]
    Changed { file: ConcreteId, block: u64 },
    #[error("cannot read the copy of {file}")]
    Io { file: ConcreteId, source: std::io::Error },
}

impl PassError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoCopy(_) => StatusCode::NOT_FOUND,
            Self::Busy(_) | Self::Stalled { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::GivenUp(_) | Self::Changed { .. } | Self::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A receiver of parts on a disk. Dropped before [`PartReceiver::sync`] returns, it removes what it wrote.
pub trait PartReceiver: Send {
    /// Begins a part. The part before it was completed.
    fn begin(&mut self, part: ConcreteId) -> Result<(), StoredFileError>;
    /// Writes the next bytes of the part.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoredFileError>;
    /// Completes the part begun last; its content must be this one.
    fn end(&mut self, content: Content) -> Result<(), StoredFileError>;
    /// Puts all parts on disk.
    fn sync(&mut self) -> Result<(), StoredFileError>;
}

/// A part that is being read, and the disk it lies on.
#[derive(Debug)]
pub struct OpenedPart {
    pub disk: DiskId,
    pub reader: ConcreteReader,
}

/// The reason why stored files are not received, read or fetched.
#[derive(Debug, thiserror::Error)]
pub enum StoredFileError {
    #[error("{0} is not a disk of this node")]
    UnknownDisk(DiskId),
    #[error("{0} is on no disk of this node")]
    Unknown(ConcreteId),
    #[error(
        "{disk} has room for {room_bytes} more bytes of stored files, not for {wanted_bytes}: {reserve_percent} % of the \
         disk stay free for other data (--shuffle-reserve)"
    )]
    NoRoom { disk: DiskId, wanted_bytes: u64, room_bytes: u64, reserve_percent: u32 },
    #[error("{0} exists on this disk with other content, or is being written: concrete files never change")]
    Exists(ConcreteId),
    #[error(
        "{file} has {present_bytes} bytes with the CRC-32C {present_crc32c:08x}, but its sender states {stated_bytes} \
         bytes with {stated_crc32c:08x}",
        present_bytes = .present.bytes, present_crc32c = .present.crc32c,
        stated_bytes = .stated.bytes, stated_crc32c = .stated.crc32c
    )]
    WrongContent { file: ConcreteId, stated: Content, present: Content },
    #[error("this node is being drained and accepts no new files")]
    Draining,
    #[error(transparent)]
    Concrete(#[from] ConcreteError),
    #[error("the files cannot be fetched from {node}: {reason}")]
    Peer { node: NodeId, reason: String },
    #[error("the address of {0} is unknown here, so nothing can be fetched from it")]
    UnknownPeer(NodeId),
}

impl StoredFileError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::UnknownDisk(_) | Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::NoRoom { .. } | Self::Draining => StatusCode::INSUFFICIENT_STORAGE,
            Self::Exists(_) => StatusCode::CONFLICT,
            Self::WrongContent { .. } => StatusCode::BAD_REQUEST,
            Self::Concrete(error) if error.is_full() => StatusCode::INSUFFICIENT_STORAGE,
            Self::Concrete(error) if error.damage().is_some() => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Concrete(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Peer { .. } | Self::UnknownPeer(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns whether the part is missing or damaged here, so that it must be read from another disk.
    pub fn is_of_the_part(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::Concrete(error) => error.damage().is_some(),
            _ => false,
        }
    }
}
