//! The store that takes and gives parts. It is a disk, or the nodes of a cluster.

use crate::error::TransferError;
use crate::put::{DonePart, FileToPut};
use concretefile::{ConcreteReader, ConcreteWriter, Content};
use ids::ConcreteId;
use rows::ConcreteRow;

/// The store that takes and gives parts; used by several threads at once.
pub trait PartStore: Sync {
    /// Begins a part. `bytes`: its length, if it is known. After [`TransferError::Node`] from the part, the caller may
    /// begin it again under the same number.
    fn create(&self, part: ConcreteId, bytes: Option<u64>) -> Result<Box<dyn PartSink + '_>, TransferError>;

    /// Opens a part.
    fn open(&self, part: &ConcreteRow) -> Result<Box<dyn PartSource + '_>, TransferError>;

    /// Makes complete files durable, and remembers them for a client that goes on after an interruption.
    fn keep(&self, files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError>;

    /// Returns whether only kept files can be committed, so that a put keeps all of them before it ends.
    fn keeps_all(&self) -> bool;
}

/// A part that is being written, front to back. If it is dropped before it is finished, nothing of it is kept.
pub trait PartSink {
    /// Writes the next bytes. After an error the sink must be dropped.
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError>;

    /// Completes the part.
    fn finish(self: Box<Self>) -> Result<Content, TransferError>;
}

/// An open part.
pub trait PartSource {
    /// Returns verified bytes from `offset` on: at least one, at most `bytes_max`; none at the end of the part.
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], TransferError>;
}

impl PartSink for ConcreteWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        Ok(Self::write(self, bytes)?)
    }

    fn finish(self: Box<Self>) -> Result<Content, TransferError> {
        Ok(Self::finish(*self)?)
    }
}

impl PartSource for ConcreteReader {
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], TransferError> {
        Ok(Self::read(self, offset, bytes_max)?)
    }
}
