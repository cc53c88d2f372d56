//! The routes of the data port.

use crate::serve::body_reader::BodyReader;
use crate::serve::port::{Port, Refusal};
use crate::serve::refused_body::pass_over_refused;
use crate::serve::services::Chunkservers;
use crate::serve::stored::StoredPermits;
use crate::serve::{append, copy, growing, intermediate, scan as run_scan, stage, stored};
use crate::wire::ATTEMPT_HEADER;
use crate::wire::messages::{BindReply, BindRequest, MESSAGE_BYTES_MAX, ReleaseRequest, ScanRequest};
use crate::wire::stage::StageReadRequest;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::middleware::from_fn;
use axum::routing::post;
use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of scans at once, each with a thread that mostly waits for its reader. Further ones are refused and
/// retried: if they waited here, two nodes could wait for each other.
const SCANS_MAX: usize = 256;
/// Maximum number of runs and stage files that are received at once, each with a thread and a file.
pub const COPIES_MAX: usize = 4;
/// Maximum number of answers with blocks of stage files at once, each with a megabyte.
const STAGE_READS_MAX: usize = 32;
/// Maximum number of readers that wait at once for outputs which programs are writing, each with a megabyte at most. A
/// further one tries again.
const GROWING_READS_MAX: usize = 64;

/// Returns the routes, below `/data/v1`. The caller binds them to a port, possibly beside others.
pub fn router(chunkservers: Arc<dyn Chunkservers>) -> Router {
    let at_most = |count| Arc::new(Semaphore::new(count));
    let port = Port {
        chunkservers,
        scans: at_most(SCANS_MAX),
        copies: at_most(COPIES_MAX),
        stage_reads: at_most(STAGE_READS_MAX),
        growing_reads: at_most(GROWING_READS_MAX),
        stored: StoredPermits::default(),
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
        .route("/data/v1/jobs/{job}/outputs", post(growing::outputs))
        .merge(intermediate::routes())
        .merge(stored::routes())
        .layer(from_fn(pass_over_refused))
        .with_state(port)
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
    append::frames(&server, BodyReader::new(body)).await
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
    run_scan::stream(&port, server, request, attempt_of(JobId(job), &headers)).await
}

/// Returns the attempt for which runs are scanned, if the request names it correctly.
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
        true => copy::copy(&port, server, &mut BodyReader::new(body)).await,
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
    stage::blocks(&port, files, request).await
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
            copy::stage_copy(&port, of, files, &mut BodyReader::new(body), |_| true).await
        }
        false => Err(Refusal::Draining),
    }
}
