//! The routes of the data port, and what each answers when it cannot do what it was asked.

use crate::body_reader::{BodyError, BodyReader};
use crate::token::{self, Admission, Token};
use crate::wire::{BindReply, BindRequest, MESSAGE_BYTES_MAX, ReleaseRequest, ScanRequest};
use crate::{INCARNATION_HEADER, receive, receive_copy, scan_source};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use chunkserver::{ChunkServer, ChunkServerError};
use iappender::AppendError;
use ids::JobId;
use ifile::FormatError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Scans that may be under way at once, each with a thread that mostly waits for its reader. More are sent away and
/// come again: to make them wait here could make two nodes wait for each other.
const SCANS_MAX: usize = 256;
/// Copies of runs that may be received at once, each with a thread and a file of its own.
const COPIES_MAX: usize = 4;
/// What is still read of a copy that is refused, and for how long: a sender that is refused in the middle of its sending
/// may not see why.
const REFUSED_BYTES_MAX: u64 = 1 << 20;
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

/// The chunkservers of a node, as its data port sees them.
pub trait Chunkservers: Send + Sync + 'static {
    /// The chunkserver of a job; None where the job is not known here.
    fn chunkserver(&self, job: JobId) -> Option<Arc<ChunkServer>>;
    /// Whether new chunks may lie here; a node that is being emptied takes none.
    fn takes_chunks(&self) -> bool {
        true
    }
    /// Tells this process from earlier ones of the same node.
    fn incarnation(&self) -> u64;
    /// What a request for the job must bring; None lets everybody in.
    fn token(&self, job: JobId) -> Option<Token>;
}

#[derive(Clone)]
pub(crate) struct Port {
    chunkservers: Arc<dyn Chunkservers>,
    pub scans: Arc<Semaphore>,
    pub copies: Arc<Semaphore>,
}

/// Why a request was not done. Each has one status, by which the other end knows whether to try again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("a token is needed")]
    NoToken,
    #[error("the token is not good for this job")]
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
            Self::UnknownJob(_) => StatusCode::NOT_FOUND,
            Self::OtherIncarnation | Self::Append(AppendError::Gone(_)) => StatusCode::GONE,
            Self::Body(BodyError::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::Silent) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(_) | Self::Damaged(_) | Self::Contradiction(_) => StatusCode::BAD_REQUEST,
            Self::Append(AppendError::Cancelled) | Self::Scan(ChunkServerError::Cancelled) => {
                StatusCode::CONFLICT
            }
            Self::Draining | Self::Append(AppendError::Spill { .. }) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Append(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Copy(error) => copy_status(error),
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
    let (scans, copying) = (Semaphore::new(SCANS_MAX), Semaphore::new(COPIES_MAX));
    let port = Port { chunkservers, scans: Arc::new(scans), copies: Arc::new(copying) };
    Router::new()
        .route("/data/v1/jobs/{job}/bind", post(bind))
        .route("/data/v1/jobs/{job}/frames", post(frames))
        .route("/data/v1/jobs/{job}/release", post(release))
        .route("/data/v1/jobs/{job}/scan", post(scan))
        .route("/data/v1/jobs/{job}/copies", post(copies))
        .with_state(port)
}

impl Port {
    /// The chunkserver that a request means, if it may have it.
    fn admit(&self, job: i64, headers: &HeaderMap) -> Result<Arc<ChunkServer>, Refusal> {
        let job = JobId(job);
        match token::check(self.chunkservers.token(job).as_ref(), headers) {
            Admission::Admitted => {}
            Admission::NoToken => return Err(Refusal::NoToken),
            Admission::WrongToken => return Err(Refusal::WrongToken),
        }
        let given = headers.get(INCARNATION_HEADER).and_then(|value| value.to_str().ok());
        if given.and_then(|text| text.parse().ok()) != Some(self.chunkservers.incarnation()) {
            return Err(Refusal::OtherIncarnation);
        }
        self.chunkservers.chunkserver(job).ok_or(Refusal::UnknownJob(job))
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
    if !port.chunkservers.takes_chunks() {
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
    scan_source::stream(&port, server, request).await
}

async fn copies(
    State(port): State<Port>,
    Path(job): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let server = port.admit(job, &headers)?;
    let mut body = BodyReader::new(body);
    let received = match port.chunkservers.takes_chunks() {
        true => receive_copy::copy(&port, server, &mut body).await,
        false => Err(Refusal::Draining),
    };
    if received.is_err() {
        let rest = body.pass_over(REFUSED_BYTES_MAX);
        let _ = tokio::time::timeout(REFUSED_WAIT_MAX, rest).await;
    }
    received
}
