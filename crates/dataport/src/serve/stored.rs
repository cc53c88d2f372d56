//! Stored files at the data port of a node: parts that are written, read, and fetched from other nodes.

mod answer;
pub(crate) mod services;
mod upload;

use crate::serve::body_reader::BodyReader;
use crate::serve::port::{Port, Refusal};
use crate::serve::stored::services::StoredFileService;
use crate::wire::messages::MESSAGE_BYTES_MAX;
use crate::wire::stored::{StoredFetchRequest, StoredReadRequest};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::routing::post;
use ids::{ConcreteId, DiskId};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trust::{FileRight, StoredGrant};

/// Maximum number of uploads at once, of answers to readers, and of fetches from other nodes. Further ones wait: each
/// has a thread, and waits for no other request to this node.
const WRITES_MAX: usize = 32;
const READS_MAX: usize = 32;
const FETCHES_MAX: usize = 16;
/// Maximum number of readers of local copies. Further ones are refused: such a read may wait for another node.
const COPY_READS_MAX: usize = 32;

/// Permits for requests about stored files.
#[derive(Clone)]
pub(crate) struct StoredPermits {
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    fetches: Arc<Semaphore>,
    copy_reads: Arc<Semaphore>,
}

impl Default for StoredPermits {
    fn default() -> Self {
        let at_most = |count| Arc::new(Semaphore::new(count));
        Self {
            writes: at_most(WRITES_MAX),
            reads: at_most(READS_MAX),
            fetches: at_most(FETCHES_MAX),
            copy_reads: at_most(COPY_READS_MAX),
        }
    }
}

/// Returns a permit, when it is free.
async fn permit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(permits).acquire_owned().await.map_err(|_| Refusal::Thread)
}

/// Returns the routes, below `/data/v1/stored`.
pub(crate) fn routes() -> Router<Port> {
    Router::new()
        .route("/data/v1/stored/read", post(read))
        .route("/data/v1/stored/read-copy", post(read_copy))
        .route("/data/v1/stored/{disk}/write", post(write))
        .route("/data/v1/stored/{disk}/fetch", post(fetch))
}

/// A request that was admitted: the files, and the right that it showed.
struct Admitted {
    files: Arc<dyn StoredFileService>,
    grant: StoredGrant,
}

impl Admitted {
    /// Checks that the right covers a concrete file.
    fn check(&self, file: ConcreteId, right: FileRight) -> Result<(), Refusal> {
        if self.grant.covers(file.0, right) { Ok(()) } else { Err(Refusal::WrongToken) }
    }
}

fn admit(port: &Port, headers: &HeaderMap) -> Result<Admitted, Refusal> {
    let (grant, files) = port.admit_to_stored(headers)?;
    Ok(Admitted { files, grant })
}

async fn write(
    State(port): State<Port>,
    Path(disk): Path<i64>,
    parameters: Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let admitted = admit(&port, &headers)?;
    if admitted.grant.right != FileRight::Write {
        return Err(Refusal::WrongToken);
    }
    let bytes =
        parameters.get("bytes").and_then(|text| text.parse().ok()).ok_or(Refusal::NoNumber("bytes"))?;
    let permit = permit(&port.stored.writes).await?;
    upload::receive(admitted, DiskId(disk), bytes, &mut BodyReader::new(body), permit).await
}

async fn read(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<Body, Refusal> {
    let admitted = admit(&port, &headers)?;
    let request = StoredReadRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    for range in &request.ranges {
        admitted.check(range.part.concrete, FileRight::Read)?;
    }
    let permit = permit(&port.stored.reads).await?;
    Ok(answer::stream(admitted.files, request.ranges, permit))
}

async fn read_copy(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<Body, Refusal> {
    let admitted = admit(&port, &headers)?;
    let request = StoredReadRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    let [range] = request.ranges[..] else {
        return Err(Refusal::Contradiction("a copy is read by one range in a request"));
    };
    admitted.check(range.part.concrete, FileRight::Read)?;
    let permit = Arc::clone(&port.stored.copy_reads).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let copy = admitted.files.open_copy(range.part)?;
    Ok(answer::stream_copy(admitted.files, range, copy, permit))
}

async fn fetch(
    State(port): State<Port>,
    Path(disk): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let admitted = admit(&port, &headers)?;
    let request = StoredFetchRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    for part in &request.parts {
        admitted.check(part.concrete, FileRight::Write)?;
    }
    let permit = permit(&port.stored.fetches).await?;
    let fetching = tokio::task::spawn_blocking(move || {
        let StoredFetchRequest { from, token, parts } = request;
        let fetched = admitted.files.fetch_stored(DiskId(disk), from, &token, &parts);
        drop(permit);
        fetched
    });
    Ok(fetching.await.map_err(|_| Refusal::Thread)??)
}
