//! Admission to the data port of a node, and the reasons to refuse a request.

use crate::serve::body_reader::BodyError;
use crate::serve::receiving::Receiving;
use crate::serve::services::{
    Chunkservers, GrowingOutputService, IntermediateFileError, IntermediateFileService, StageFileService,
};
use crate::serve::stored::StoredPermits;
use crate::serve::stored::services::{PassError, StoredFileError, StoredFileService};
use crate::wire::stage_name::StageFileName;
use crate::wire::{INCARNATION_HEADER, token};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use chunkserver::{ChunkServer, ChunkServerError};
use iappender::AppendError;
use ids::{IntermediateId, JobId};
use ifile::FormatError;
use stagefile::StageFileError;
use std::sync::Arc;
use tokio::sync::Semaphore;
use trust::{FileGrant, FileRight, StoredGrant};

#[derive(Clone)]
pub(crate) struct Port {
    pub chunkservers: Arc<dyn Chunkservers>,
    pub scans: Arc<Semaphore>,
    pub copies: Arc<Semaphore>,
    pub stage_reads: Arc<Semaphore>,
    pub growing_reads: Arc<Semaphore>,
    pub stored: StoredPermits,
    pub receiving: Arc<Receiving>,
}

/// The reason why a request was refused. Each has a status, which tells the other side whether to retry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a token is needed")]
    NoToken,
    #[error("the token does not permit this request")]
    WrongToken,
    #[error("job {0} is not known here")]
    UnknownJob(JobId),
    #[error("node restarted; the requested data was lost")]
    OtherIncarnation,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the request is damaged: {0}")]
    Damaged(#[from] FormatError),
    #[error("the request contradicts itself: {0}")]
    Contradiction(&'static str),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Scan(#[from] ChunkServerError),
    #[error("the copy cannot be taken")]
    Copy(#[source] ChunkServerError),
    #[error("the stage file {0} is not known here")]
    UnknownStageFile(StageFileName),
    #[error("the stage file cannot be read")]
    StageRead(#[source] StageFileError),
    #[error("the copy of a stage file cannot be taken")]
    StageCopy(#[source] StageFileError),
    #[error("the stage file {0} was made here, or differs from the one here")]
    OtherStageFile(StageFileName),
    #[error("no program writes outputs here")]
    NoGrowingOutputs,
    #[error("the output of a program cannot be read")]
    GrowingOutput(#[source] std::io::Error),
    #[error("intermediate files of users are not known here")]
    NoUserFiles,
    #[error("this node has no disks for stored files")]
    NoStoredFiles,
    #[error(transparent)]
    Stored(#[from] StoredFileError),
    #[error(transparent)]
    Pass(#[from] PassError),
    #[error("the parameter {0} is missing or not a number")]
    NoNumber(&'static str),
    #[error(transparent)]
    UserFile(#[from] IntermediateFileError),
    #[error("this node is being drained and accepts no new data")]
    Draining,
    #[error("too many such requests are under way")]
    Busy,
    #[error("a thread of this node failed")]
    Thread,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::WrongToken => StatusCode::FORBIDDEN,
            Self::UnknownJob(_)
            | Self::UnknownStageFile(_)
            | Self::NoUserFiles
            | Self::NoStoredFiles
            | Self::NoGrowingOutputs => StatusCode::NOT_FOUND,
            Self::Stored(error) => error.status(),
            Self::Pass(error) => error.status(),
            Self::UserFile(error) => error.status(),
            Self::OtherIncarnation | Self::Append(AppendError::Gone(_)) => StatusCode::GONE,
            Self::Body(BodyError::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::Silent) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(_) | Self::Damaged(_) | Self::Contradiction(_) | Self::NoNumber(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Append(AppendError::Cancelled) | Self::Scan(ChunkServerError::Cancelled) => {
                StatusCode::CONFLICT
            }
            Self::Draining | Self::Append(AppendError::Spill { .. }) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Append(_) | Self::OtherStageFile(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Copy(error) => copy_status(error),
            Self::StageRead(error) if error.is_of_the_file() => StatusCode::UNPROCESSABLE_ENTITY,
            Self::StageRead(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::StageCopy(error) if error.damage().is_some() => StatusCode::BAD_REQUEST,
            Self::StageCopy(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Scan(_) | Self::Thread | Self::GrowingOutput(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

fn copy_status(error: &ChunkServerError) -> StatusCode {
    match error {
        ChunkServerError::Disk { .. } => StatusCode::INSUFFICIENT_STORAGE,
        ChunkServerError::Damaged { .. } | ChunkServerError::CopyLength { .. } => StatusCode::BAD_REQUEST,
        ChunkServerError::BeingReceived(_) => StatusCode::SERVICE_UNAVAILABLE,
        ChunkServerError::OwnRun(_) | ChunkServerError::OtherCopy(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ChunkServerError::Cancelled => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(&self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        (self.status(), text).into_response()
    }
}

impl Port {
    /// Returns the chunkserver for a request, if the request may access it.
    pub fn admit(&self, job: i64, headers: &HeaderMap) -> Result<Arc<ChunkServer>, Refusal> {
        let (job, shown) = self.check(job, headers)?;
        self.chunkservers.chunkserver(job, shown).ok_or(Refusal::UnknownJob(job))
    }

    /// Returns the stage files for a request, if the request may access them.
    pub fn admit_to_stage_files(
        &self,
        job: i64,
        headers: &HeaderMap,
    ) -> Result<Arc<dyn StageFileService>, Refusal> {
        let (job, shown) = self.check(job, headers)?;
        self.chunkservers.stage_files(job, shown).ok_or(Refusal::UnknownJob(job))
    }

    /// Returns the outputs that programs write here, for a request that may read those of the job.
    pub fn admit_to_growing_outputs(
        &self,
        job: i64,
        headers: &HeaderMap,
    ) -> Result<Arc<dyn GrowingOutputService>, Refusal> {
        self.check(job, headers)?;
        self.chunkservers.growing_outputs().ok_or(Refusal::NoGrowingOutputs)
    }

    /// Checks that a request is permitted and addresses this process. Returns the presented token too.
    fn check<'h>(&self, job: i64, headers: &'h HeaderMap) -> Result<(JobId, &'h str), Refusal> {
        let job = JobId(job);
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        if !self.chunkservers.admits_to_job(job, shown) {
            return Err(Refusal::WrongToken);
        }
        self.check_incarnation(headers)?;
        Ok((job, shown))
    }

    /// Returns the files of users, and the file that the sender may send a copy of.
    pub fn admit_copy(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Arc<dyn IntermediateFileService>, IntermediateId), Refusal> {
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        let file = self.chunkservers.admits_copy(shown).ok_or(Refusal::WrongToken)?;
        self.check_incarnation(headers)?;
        Ok((self.chunkservers.user_files().ok_or(Refusal::NoUserFiles)?, file))
    }

    /// Returns the files of users for a sender with this right to the file.
    pub fn admit_to_user_file(
        &self,
        file: IntermediateId,
        right: FileRight,
        headers: &HeaderMap,
    ) -> Result<(Arc<dyn IntermediateFileService>, FileGrant), Refusal> {
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        let grant = self.chunkservers.admits_to_file(file, right, shown).ok_or(Refusal::WrongToken)?;
        self.check_incarnation(headers)?;
        Ok((self.chunkservers.user_files().ok_or(Refusal::NoUserFiles)?, grant))
    }

    /// Returns the stored files, and the right to some of them that the sender shows.
    pub fn admit_to_stored(
        &self,
        headers: &HeaderMap,
    ) -> Result<(StoredGrant, Arc<dyn StoredFileService>), Refusal> {
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        let grant = self.chunkservers.admits_to_stored(shown).ok_or(Refusal::WrongToken)?;
        self.check_incarnation(headers)?;
        Ok((grant, self.chunkservers.stored_files().ok_or(Refusal::NoStoredFiles)?))
    }

    /// Returns whether new data is accepted.
    pub fn takes_chunks(&self) -> bool {
        self.chunkservers.takes_chunks()
    }

    fn check_incarnation(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let given = headers.get(INCARNATION_HEADER).and_then(|value| value.to_str().ok());
        if given.and_then(|text| text.parse().ok()) != Some(self.chunkservers.incarnation()) {
            return Err(Refusal::OtherIncarnation);
        }
        Ok(())
    }
}
