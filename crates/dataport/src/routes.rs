//! The routes of the data port, and what each answers when it cannot do what it was asked.

use crate::body_reader::{BodyError, BodyReader};
use crate::receive_copy::Receiving;
use crate::refused_body::pass_over_refused;
use crate::stage_files::StageFiles;
use crate::stage_name::StageFileName;
use crate::stage_wire::StageReadRequest;
use crate::token;
use crate::user_files::{UserFileError, UserFiles};
use crate::wire::{BindReply, BindRequest, MESSAGE_BYTES_MAX, ReleaseRequest, ScanRequest};
use crate::{
    ATTEMPT_HEADER, INCARNATION_HEADER, receive, receive_copy, scan_source, stage_files, user_files,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use chunkserver::{ChunkServer, ChunkServerError};
use iappender::AppendError;
use ids::{AttemptKey, AttemptNumber, IntermediateId, JobId, StageIndex, TaskIndex, TaskKey};
use ifile::FormatError;
use stagefile::StageFileError;
use std::sync::Arc;
use tokio::sync::Semaphore;
use trust::{FileGrant, FileRight};

/// Scans that may be under way at once, each with a thread that mostly waits for its reader. More are sent away and
/// come again: to make them wait here could make two nodes wait for each other.
const SCANS_MAX: usize = 256;
/// Copies of runs and stage files that may be received at once, each with a thread and a file of its own.
pub const COPIES_MAX: usize = 4;
/// Answers with blocks of stage files that may be under way at once, each with a megabyte.
const STAGE_READS_MAX: usize = 32;

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

#[derive(Clone)]
pub(crate) struct Port {
    chunkservers: Arc<dyn Chunkservers>,
    pub scans: Arc<Semaphore>,
    pub copies: Arc<Semaphore>,
    pub stage_reads: Arc<Semaphore>,
    pub receiving: Arc<Receiving>,
}

/// Why a request was not done. Each has one status, by which the other end knows whether to try again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a token is needed")]
    NoToken,
    #[error("the token is not good for this")]
    WrongToken,
    #[error("job {0} is not known here")]
    UnknownJob(JobId),
    #[error("this node was started anew: what you mean is gone")]
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
    #[error("the stage file {0} was made here, or is another one here")]
    OtherStageFile(StageFileName),
    #[error("intermediate files of users are not known here")]
    NoUserFiles,
    #[error("the parameter {0} is missing, or no number")]
    NoNumber(&'static str),
    #[error(transparent)]
    UserFile(#[from] UserFileError),
    #[error("this node is being emptied and takes no new data")]
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
            Self::UnknownJob(_) | Self::UnknownStageFile(_) | Self::NoUserFiles => StatusCode::NOT_FOUND,
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
            Self::Scan(_) | Self::Thread => StatusCode::INTERNAL_SERVER_ERROR,
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

/// The routes, below `/data/v1`. The caller binds them to a port, beside others if it likes.
pub fn router(chunkservers: Arc<dyn Chunkservers>) -> Router {
    let at_most = |count| Arc::new(Semaphore::new(count));
    let port = Port {
        chunkservers,
        scans: at_most(SCANS_MAX),
        copies: at_most(COPIES_MAX),
        stage_reads: at_most(STAGE_READS_MAX),
        receiving: Arc::default(),
    };
    Router::new()
        .route("/data/v1/jobs/{job}/bind", post(bind))
        .route("/data/v1/jobs/{job}/frames", post(frames))
        .route("/data/v1/jobs/{job}/release", post(release))
        .route("/data/v1/jobs/{job}/scan", post(scan))
        .route("/data/v1/jobs/{job}/copies", post(copies))
        .route("/data/v1/jobs/{job}/stage-blocks", post(stage_blocks))
        .route("/data/v1/jobs/{job}/stage-copies", post(stage_copies))
        .merge(user_files::routes())
        .layer(from_fn(pass_over_refused))
        .with_state(port)
}

impl Port {
    /// The chunkserver that a request means, if it may have it.
    fn admit(&self, job: i64, headers: &HeaderMap) -> Result<Arc<ChunkServer>, Refusal> {
        let (job, shown) = self.check(job, headers)?;
        self.chunkservers.chunkserver(job, shown).ok_or(Refusal::UnknownJob(job))
    }

    /// The stage files that a request means, if it may have them.
    fn admit_to_stage_files(&self, job: i64, headers: &HeaderMap) -> Result<Arc<dyn StageFiles>, Refusal> {
        let (job, shown) = self.check(job, headers)?;
        self.chunkservers.stage_files(job, shown).ok_or(Refusal::UnknownJob(job))
    }

    /// Whether a request may come, and means this process; with what it shows.
    fn check<'h>(&self, job: i64, headers: &'h HeaderMap) -> Result<(JobId, &'h str), Refusal> {
        let job = JobId(job);
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        if !self.chunkservers.admits_to_job(job, shown) {
            return Err(Refusal::WrongToken);
        }
        self.check_incarnation(headers)?;
        Ok((job, shown))
    }

    /// The files of users, for whoever may send a copy of one, which is named.
    pub(crate) fn admit_copy(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Arc<dyn UserFiles>, IntermediateId), Refusal> {
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        let file = self.chunkservers.admits_copy(shown).ok_or(Refusal::WrongToken)?;
        self.check_incarnation(headers)?;
        Ok((self.chunkservers.user_files().ok_or(Refusal::NoUserFiles)?, file))
    }

    /// The same for whoever may do this with the one file.
    pub(crate) fn admit_to_user_file(
        &self,
        file: IntermediateId,
        right: FileRight,
        headers: &HeaderMap,
    ) -> Result<(Arc<dyn UserFiles>, FileGrant), Refusal> {
        let shown = token::shown(headers).ok_or(Refusal::NoToken)?;
        let grant = self.chunkservers.admits_to_file(file, right, shown).ok_or(Refusal::WrongToken)?;
        self.check_incarnation(headers)?;
        Ok((self.chunkservers.user_files().ok_or(Refusal::NoUserFiles)?, grant))
    }

    /// Whether new data may come.
    pub(crate) fn takes_chunks(&self) -> bool {
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

async fn bind(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Vec<u8>, Refusal> {
    let server = port.admit(job, &headers)?;
    let request = BindRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    if request.ifile.0 >= server.layout().ifile_count {
        return Err(Refusal::Contradiction("the job has no such I-file"));
    }
    if !port.takes_chunks() {
        return Err(Refusal::Draining);
    }
    let chunk = server.service().bind(request.ifile, request.source, request.frame_bytes)?;
    Ok(BindReply { chunk }.encode())
}

async fn frames(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Vec<u8>, Refusal> {
    let server = port.admit(job, &headers)?;
    receive::frames(&server, BodyReader::new(body)).await
}

async fn release(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let server = port.admit(job, &headers)?;
    let request = ReleaseRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    for chunk in request.chunks {
        server.service().release(chunk, request.source);
    }
    Ok(())
}

async fn scan(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Body, Refusal> {
    let server = port.admit(job, &headers)?;
    let request = ScanRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    scan_source::stream(&port, server, request, attempt_of(JobId(job), &headers)).await
}

/// For which attempt runs are scanned, where the request says so in a way that can be understood.
fn attempt_of(job: JobId, headers: &HeaderMap) -> Option<AttemptKey> {
    let mut numbers = headers.get(ATTEMPT_HEADER)?.to_str().ok()?.split('-').map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let (stage, task, attempt) = (next()?, next()?, next()?);
    let task = TaskKey { job, stage: StageIndex(stage.try_into().ok()?), task: TaskIndex(task) };
    Some(AttemptKey { task, attempt: AttemptNumber(attempt) })
}

async fn copies(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let server = port.admit(job, &headers)?;
    match port.takes_chunks() {
        true => receive_copy::copy(&port, server, &mut BodyReader::new(body)).await,
        false => Err(Refusal::Draining),
    }
}

async fn stage_blocks(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Body, Refusal> {
    let files = port.admit_to_stage_files(job, &headers)?;
    let request = StageReadRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    stage_files::blocks(&port, files, request).await
}

async fn stage_copies(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let files = port.admit_to_stage_files(job, &headers)?;
    match port.takes_chunks() {
        true => {
            let of = JobId(job).into();
            receive_copy::stage_copy(&port, of, files, &mut BodyReader::new(body), |_| true).await
        }
        false => Err(Refusal::Draining),
    }
}
