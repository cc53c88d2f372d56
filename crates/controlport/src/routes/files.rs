//! Routes for shipped files: clients announce and send contents, nodes fetch them.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::Caller;
use crate::port::Port;
use api::ContentHash;
use api::control::ErrorCode;
use api::shipping::{Contents, SHIPPED_FILES_MAX};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use shipped::{Depot, FileBody, Incoming, ShippedError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

/// Maximum number of files in transfer at once, each with a thread of the runtime: from clients, and to nodes.
const RECEIVED_AT_ONCE: usize = 32;
const SENT_AT_ONCE: usize = 64;
/// Maximum number of received pieces that wait for the disk.
const PIECES_MAX: usize = 4;
/// Timeout of a silent sender.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Limits for the files in transfer.
pub(crate) struct Passages {
    receive: Semaphore,
    send: Arc<Semaphore>,
}

impl Default for Passages {
    fn default() -> Self {
        Self { receive: Semaphore::new(RECEIVED_AT_ONCE), send: Arc::new(Semaphore::new(SENT_AT_ONCE)) }
    }
}

fn busy() -> Problem {
    Problem::new(ErrorCode::TooMany, "too many files are in transfer: retry in a moment")
}

fn depot(port: &Port) -> Result<Arc<Depot>, Problem> {
    let none = || Problem::new(ErrorCode::NotFound, "this server has no nodes that could fetch files");
    port.server.depot().cloned().ok_or_else(none)
}

fn content(text: &str) -> Result<ContentHash, Problem> {
    text.parse()
        .map_err(|error: api::shipping::NotAHash| Problem::new(ErrorCode::BadRequest, error.to_string()))
}

/// Runs blocking disk work on another thread.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Problem::new(ErrorCode::Failed, "a thread of the server failed"))
}

#[utoipa::path(
    post,
    path = "/v1/files/missing",
    tag = "clients",
    request_body = Contents,
    responses((status = 200, description = "The contents among these that the caller has not shipped, or that are no longer kept", body = Contents), (status = "default", response = Refusal))
)]
pub(crate) async fn missing(
    State(port): State<Port>,
    caller: Caller,
    Message(asked): Message<Contents>,
) -> Result<Message<Contents>, Problem> {
    if asked.sha256.len() > SHIPPED_FILES_MAX {
        let message = format!("give at most {SHIPPED_FILES_MAX} contents at once");
        return Err(Problem::new(ErrorCode::BadRequest, message));
    }
    let (depot, owner) = (depot(&port)?, caller.owner_name().to_string());
    let sha256 = aside(move || depot.missing(&owner, &asked.sha256)).await?;
    Ok(Message(Contents { sha256 }))
}

#[utoipa::path(
    put,
    path = "/v1/files/{sha256}",
    tag = "clients",
    params(("sha256" = String, Path, description = "SHA-256 of the body, 64 lower-case hex digits")),
    request_body(content = String, content_type = "application/octet-stream", description = "The content; its length must be announced"),
    responses((status = 200, description = "The content is kept, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn receive(
    State(port): State<Port>,
    caller: Caller,
    Named(sha256): Named<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Message<()>, Problem> {
    let content = content(&sha256)?;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let unknown = || Problem::new(ErrorCode::BadRequest, "the length of the file must be announced");
    let bytes: u64 = length.ok_or_else(unknown)?;
    let (depot, owner) = (depot(&port)?, caller.owner_name().to_string());
    let _passage: SemaphorePermit<'_> = port.passages.receive.try_acquire().map_err(|_| busy())?;
    let incoming = aside(move || depot.receive(&owner, content, bytes)).await??;
    let (pieces, written) = mpsc::channel(PIECES_MAX);
    let writing = tokio::task::spawn_blocking(move || write(incoming, written));
    let sent = pass_on(body, pieces).await;
    let kept = writing.await.map_err(|_| Problem::new(ErrorCode::Failed, "a thread of the server failed"))?;
    // If the client broke off, nobody reads the answer; a write error is reported first.
    kept?;
    sent.map(Message)
}

/// Passes the pieces of a body on, followed by None as its end. Abandons a body that breaks off.
async fn pass_on(mut body: Body, pieces: mpsc::Sender<Option<Bytes>>) -> Result<(), Problem> {
    let broken = |why: &str| Problem::new(ErrorCode::BadRequest, format!("the file did not arrive: {why}"));
    loop {
        let frame =
            tokio::time::timeout(SILENCE_MAX, body.frame()).await.map_err(|_| broken("no byte came"))?;
        let piece = match frame {
            None => None,
            Some(Err(error)) => return Err(broken(&error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => Some(piece),
                Err(_trailers) => continue,
            },
        };
        let is_end = piece.is_none();
        // The writer has failed, and reports the reason.
        if pieces.send(piece).await.is_err() || is_end {
            return Ok(());
        }
    }
}

fn write(mut incoming: Incoming, mut pieces: mpsc::Receiver<Option<Bytes>>) -> Result<(), ShippedError> {
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Some(piece) => incoming.write(&piece)?,
            None => return incoming.finish(),
        }
    }
    // The body broke off: nothing of it is kept.
    Ok(())
}

#[utoipa::path(
    get,
    path = "/v1/files/{sha256}",
    tag = "nodes",
    params(("sha256" = String, Path, description = "SHA-256 of a content that a job needs")),
    responses((status = 200, description = "The content; the receiver must compare the hash", body = String, content_type = "application/octet-stream"), (status = "default", response = Refusal))
)]
pub(crate) async fn send(
    State(port): State<Port>,
    Named(sha256): Named<String>,
) -> Result<Response, Problem> {
    let (content, depot) = (content(&sha256)?, depot(&port)?);
    let passage = Arc::clone(&port.passages.send).try_acquire_owned().map_err(|_| busy())?;
    let opened = aside(move || depot.open_to_send(content)).await?;
    let none = || Problem::new(ErrorCode::NotFound, format!("the file {content} is not here, or no longer"));
    let (file, bytes) = opened.ok_or_else(none)?;
    // The permit is released with the body.
    let body = Body::new(FileBody::new(file, bytes).map_frame(move |frame| {
        let _held = &passage;
        frame
    }));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_string()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    Ok((headers, body).into_response())
}
