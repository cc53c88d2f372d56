//! Parts that become stored files of a cluster: the node keeps them on its disks, and other nodes get replicas.

use api::stored::cluster::RecordedPart;

/// A destination of parts in the stored files of a cluster.
pub trait StoredParts: std::fmt::Debug + Send + Sync {
    /// Begins a part, which nobody sees before the commit of the job.
    fn begin(&self) -> std::io::Result<Box<dyn StoredPartFile>>;
}

/// A part that is being stored. If it is dropped before [`StoredPartFile::finish`], nothing of it stays.
pub trait StoredPartFile: Send {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()>;

    /// Syncs the part, and makes its replicas. Returns the disks that have it.
    fn finish(self: Box<Self>) -> std::io::Result<RecordedPart>;
}
