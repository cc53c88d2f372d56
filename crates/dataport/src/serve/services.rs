//! Services that a node gives its data port.

use crate::wire::stage_name::StageFileName;
use axum::http::StatusCode;
use chunkserver::ChunkServer;
use ids::{IntermediateId, JobId};
use stagefile::{Payload, StageFileError, StageFileSummary};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trust::{FileGrant, FileRight};

/// The chunkservers of a node, as its data port sees them.
pub trait Chunkservers: Send + Sync + 'static {
    /// The chunkserver of a job, for somebody who was admitted to it by what they showed; None where the job is not known here.
    fn chunkserver(&self, job: JobId, shown: &str) -> Option<Arc<ChunkServer>>;
    /// The stage files of a job, as above.
    fn stage_files(&self, _job: JobId, _shown: &str) -> Option<Arc<dyn StageFiles>> {
        None
    }
    /// Whether new chunks may lie here; a node that is being emptied takes none.
    fn takes_chunks(&self) -> bool {
        true
    }
    /// Tells this process from earlier ones of the same node.
    fn incarnation(&self) -> u64;
    /// The intermediate files of users; None where there are none.
    fn user_files(&self) -> Option<Arc<dyn UserFiles>> {
        None
    }
    /// Whether whoever shows this may come to data of a job.
    fn admits_to_job(&self, job: JobId, shown: &str) -> bool;
    /// The grant of a file of a user that a token shows; None: it grants something else.
    fn admits_to_file(&self, _file: IntermediateId, _right: FileRight, _shown: &str) -> Option<FileGrant> {
        None
    }
    /// The file of a user that whoever shows this may send a copy of.
    fn admits_copy(&self, _shown: &str) -> Option<IntermediateId> {
        None
    }
}

/// A complete stage file of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFileHere {
    pub path: PathBuf,
    pub payload: Payload,
    /// It was made here, and is no copy.
    pub is_own: bool,
}

/// The stage files that a node has of one job.
pub trait StageFiles: Send + Sync + 'static {
    /// The complete file of that name; None where there is none.
    fn find(&self, name: &StageFileName) -> Option<StageFileHere>;
    /// Returns the paths at which a copy may be written, one per disk, the preferred one first; the others are tried if that fails.
    fn places(&self, name: &StageFileName) -> Vec<PathBuf>;
    /// A copy is complete and verified: from now on it is found.
    fn received(&self, name: StageFileName, path: PathBuf, summary: StageFileSummary);
}

/// The files of users on a node. Calls may wait for disks, and for the server.
pub trait UserFiles: StageFiles {
    /// Takes bytes of a file at an offset, and gives how many it has then. The first bytes of a file begin it. `silence`: the
    /// writer is given up when nothing is heard of it for so long.
    fn write(
        &self,
        file: IntermediateId,
        offset: u64,
        bytes: &[u8],
        silence: Duration,
    ) -> Result<u64, UserFileError>;
    /// Completes a file and tells the server. To close it again gives the same.
    fn close(&self, file: IntermediateId, stated: StatedContent) -> Result<Payload, UserFileError>;
    /// Nothing more comes of it: its bytes go.
    fn abandon(&self, file: IntermediateId, reason: &str) -> Result<(), UserFileError>;
}

/// Size and checksum that a writer states for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedContent {
    pub bytes: Option<u64>,
    /// CRC-32C of all of it.
    pub crc32c: Option<u32>,
}

/// Why a file is not written, or not completed.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
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
         a write repeats what stands, or goes on behind it"
    )]
    Overlap { file: IntermediateId, offset: u64, written: u64 },
    #[error("file {file} holds other bytes at {offset}: written bytes never change")]
    Differs { file: IntermediateId, offset: u64 },
    #[error("file {0} is complete: it never changes any more")]
    Complete(IntermediateId),
    #[error("file {file} has {written} bytes with the CRC-32C {crc32c:08x}, and its writer says otherwise")]
    NotAsTold { file: IntermediateId, written: u64, crc32c: u32 },
    #[error("file {0} is unknown: it was removed, or its writer was given up")]
    Forgotten(IntermediateId),
    #[error("file {file} may have {bytes_max} bytes: its user has no room for more intermediate files")]
    OverQuota { file: IntermediateId, bytes_max: u64 },
    #[error("this node is being emptied and takes no new files")]
    Draining,
    #[error("too many files are being written here")]
    TooMany,
    #[error("the bytes of file {file} cannot be written")]
    Disk { file: IntermediateId, source: StageFileError },
    #[error("the server cannot be told of file {file}: {reason}")]
    Untold { file: IntermediateId, reason: String },
}

impl UserFileError {
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
