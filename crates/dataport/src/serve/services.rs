//! Services that a node provides to its data port.

use crate::serve::stored::services::StoredFileService;
use crate::wire::growing::{GrowingPiece, GrowingRead};
use crate::wire::stage_name::StageFileName;
use axum::http::StatusCode;
use chunkserver::ChunkServer;
use ids::{IntermediateId, JobId};
use stagefile::{Payload, StageFileError, StageFileSummary};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trust::{FileGrant, FileRight, StoredGrant};

/// The chunkservers of a node, for its data port.
pub trait Chunkservers: Send + Sync + 'static {
    /// Returns the chunkserver of a job, for a caller whose token was accepted; None if the job is unknown here.
    fn chunkserver(&self, job: JobId, shown: &str) -> Option<Arc<ChunkServer>>;
    /// Returns the stage files of a job, in the same way.
    fn stage_files(&self, _job: JobId, _shown: &str) -> Option<Arc<dyn StageFileService>> {
        None
    }
    /// Returns whether new chunks are accepted here; not while the node is being drained.
    fn takes_chunks(&self) -> bool {
        true
    }
    /// Returns a number that distinguishes this process from earlier ones of the same node.
    fn incarnation(&self) -> u64;
    /// Returns the intermediate files of users; None if there are none.
    fn user_files(&self) -> Option<Arc<dyn IntermediateFileService>> {
        None
    }
    /// Returns the outputs that programs write here; None if there are none.
    fn growing_outputs(&self) -> Option<Arc<dyn GrowingOutputService>> {
        None
    }
    /// Returns whether a token gives access to the data of a job.
    fn admits_to_job(&self, job: JobId, shown: &str) -> bool;
    /// Returns the grant for a file of a user in a token; None if the token grants something else.
    fn admits_to_file(&self, _file: IntermediateId, _right: FileRight, _shown: &str) -> Option<FileGrant> {
        None
    }
    /// Returns the file of a user that a token permits to send as a copy.
    fn admits_copy(&self, _shown: &str) -> Option<IntermediateId> {
        None
    }
    /// Returns the stored files; None if this node has no disks for them.
    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        None
    }
    /// Returns the right to stored files in a token, which is signed and has not expired; None if the token grants
    /// something else.
    fn admits_to_stored(&self, _shown: &str) -> Option<StoredGrant> {
        None
    }
}

/// Outputs that programs of a node are writing.
pub trait GrowingOutputService: Send + Sync + 'static {
    /// Returns the next bytes of an output, at most [`crate::wire::growing::GROWING_BYTES_MAX`], without waiting.
    fn read(&self, request: &GrowingRead) -> std::io::Result<GrowingPiece>;
}

/// A complete stage file of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFileHere {
    pub path: PathBuf,
    pub payload: Payload,
    /// True if it was made here, and is no copy.
    pub is_own: bool,
}

/// The stage files of one job on a node.
pub trait StageFileService: Send + Sync + 'static {
    /// Returns the complete file of that name; None if there is none.
    fn find(&self, name: &StageFileName) -> Option<StageFileHere>;
    /// Returns the paths at which a copy may be written, one per disk, the preferred one first. The caller tries the
    /// others if that fails.
    fn places(&self, name: &StageFileName) -> Vec<PathBuf>;
    /// Adds a complete and verified copy: from now on it is found.
    fn received(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary);
}

/// The files of users on a node. Calls may block on disks, and on the server.
pub trait IntermediateFileService: StageFileService {
    /// Writes bytes of a file at an offset, and returns the bytes of the file afterwards. The first bytes of a file
    /// begin it. `silence`: the time without a message of the writer after which the file is abandoned.
    fn write(
        &self,
        file: IntermediateId,
        offset: u64,
        bytes: &[u8],
        silence: Duration,
    ) -> Result<u64, IntermediateFileError>;
    /// Completes a file and tells the server. A repeated call returns the same.
    fn close(&self, file: IntermediateId, stated: StatedContent) -> Result<Payload, IntermediateFileError>;
    /// Abandons a file: its bytes are removed.
    fn abandon(&self, file: IntermediateId, reason: &str) -> Result<(), IntermediateFileError>;
}

/// Size and checksum that a writer states for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedContent {
    pub bytes: Option<u64>,
    /// CRC-32C of all of it.
    pub crc32c: Option<u32>,
}

/// The reason why a file is not written, or not completed.
#[derive(Debug, thiserror::Error)]
pub enum IntermediateFileError {
    #[error(
        "file {0} is not being written here: its writer was silent for too long or gave it up, or it was removed"
    )]
    NotWriting(IntermediateId),
    #[error(
        "a write of file {file} begins at {offset}, but only {written} bytes are written: write without gaps"
    )]
    Gap { file: IntermediateId, offset: u64, written: u64 },
    #[error(
        "a write of file {file} begins at {offset}, before the end of the {written} bytes that are written, and goes beyond it: \
         a write must repeat existing bytes, or continue after them"
    )]
    Overlap { file: IntermediateId, offset: u64, written: u64 },
    #[error("file {file} holds other bytes at {offset}: written bytes never change")]
    Differs { file: IntermediateId, offset: u64 },
    #[error("file {0} is complete: it never changes any more")]
    Complete(IntermediateId),
    #[error(
        "file {file} has {written} bytes with the CRC-32C {crc32c:08x}, but its writer states another size or checksum"
    )]
    NotAsTold { file: IntermediateId, written: u64, crc32c: u32 },
    #[error("file {0} is unknown: it was removed, or its writer was given up")]
    Forgotten(IntermediateId),
    #[error("file {file} may have {bytes_max} bytes: its user has no room for more intermediate files")]
    OverQuota { file: IntermediateId, bytes_max: u64 },
    #[error("this node is being drained and accepts no new files")]
    Draining,
    #[error("too many files are being written here")]
    TooMany,
    #[error("the bytes of file {file} cannot be written")]
    Disk { file: IntermediateId, source: StageFileError },
    #[error("the server cannot be told of file {file}: {reason}")]
    Untold { file: IntermediateId, reason: String },
}

impl IntermediateFileError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotWriting(_) | Self::Forgotten(_) => StatusCode::NOT_FOUND,
            Self::Gap { .. }
            | Self::Overlap { .. }
            | Self::Differs { .. }
            | Self::Complete(_)
            | Self::NotAsTold { .. } => StatusCode::CONFLICT,
            Self::OverQuota { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Draining | Self::Disk { .. } => StatusCode::INSUFFICIENT_STORAGE,
            Self::TooMany | Self::Untold { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
