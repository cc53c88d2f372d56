//! Intermediate files of users at the data port of a node: written by one writer, front to back, then complete and
//! immutable. Permissions are in the token, or in the grant that the server signed (`trust::FileGrant`).

use crate::serve::body_reader::BodyReader;
use crate::serve::port::{Port, Refusal};
use crate::serve::services::{IntermediateFileError, StageFileService, StatedContent};
use crate::serve::{copy, stage};
use crate::wire::data_scope::DataScope;
use crate::wire::messages::MESSAGE_BYTES_MAX;
use crate::wire::stage::StageReadRequest;
use crate::wire::stage_name::StageFileName;
use api::intermediate::{INTERMEDIATE_PIECE_BYTES_MAX, SILENCE_SECONDS, SILENCE_SECONDS_MAX};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use ids::IntermediateId;
use stagefile::{StageFileError, StageFileReader};
use std::collections::BTreeMap;
use std::io::Read;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use trust::FileRight;

/// Returns the routes, below `/data/v1/intermediate`.
pub(crate) fn routes() -> Router<Port> {
    Router::new()
        .route("/data/v1/intermediate/stage-blocks", post(blocks))
        .route("/data/v1/intermediate/stage-copies", post(copies))
        .route("/data/v1/intermediate/{file}", get(read))
        .route("/data/v1/intermediate/{file}/write", post(write))
        .route("/data/v1/intermediate/{file}/close", post(close))
        .route("/data/v1/intermediate/{file}/abandon", post(abandon))
}

type Parameters = Query<BTreeMap<String, String>>;

/// Returns a number among the parameters of a request.
fn number<T: FromStr>(parameters: &Parameters, name: &'static str) -> Result<Option<T>, Refusal> {
    let parse = |text: &String| text.parse().map_err(|_| Refusal::NoNumber(name));
    parameters.get(name).map(parse).transpose()
}

/// Runs blocking work on disks or with the server on another thread.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Thread)?
}

async fn write(
    State(port): State<Port>,
    Path(file): Path<i64>,
    parameters: Parameters,
    headers: HeaderMap,
    body: Body,
) -> Result<String, Refusal> {
    let file = IntermediateId(file);
    let (files, grant) = port.admit_to_user_file(file, FileRight::Write, &headers)?;
    let offset: u64 = number(&parameters, "offset")?.ok_or(Refusal::NoNumber("offset"))?;
    let silence = number(&parameters, "silence_seconds")?.unwrap_or(SILENCE_SECONDS);
    let silence = Duration::from_secs(silence.clamp(1, SILENCE_SECONDS_MAX).into());
    let bytes = BodyReader::new(body).rest(INTERMEDIATE_PIECE_BYTES_MAX).await?;
    if offset.saturating_add(bytes.len() as u64) > grant.bytes_max {
        return Err(IntermediateFileError::OverQuota { file, bytes_max: grant.bytes_max }.into());
    }
    let written = aside(move || Ok(files.write(file, offset, &bytes, silence)?)).await?;
    Ok(format!("{written}\n"))
}

async fn close(
    State(port): State<Port>,
    Path(file): Path<i64>,
    parameters: Parameters,
    headers: HeaderMap,
) -> Result<String, Refusal> {
    let file = IntermediateId(file);
    let (files, _) = port.admit_to_user_file(file, FileRight::Write, &headers)?;
    let stated =
        StatedContent { bytes: number(&parameters, "bytes")?, crc32c: number(&parameters, "crc32c")? };
    let payload = aside(move || Ok(files.close(file, stated)?)).await?;
    Ok(format!("{}\n", payload.bytes))
}

async fn abandon(
    State(port): State<Port>,
    Path(file): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<(), Refusal> {
    let file = IntermediateId(file);
    let (files, _) = port.admit_to_user_file(file, FileRight::Write, &headers)?;
    let reason = BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?;
    let reason = String::from_utf8_lossy(&reason).into_owned();
    aside(move || Ok(files.abandon(file, &reason)?)).await
}

/// Returns a range of the bytes of a complete file, verified here, for programs that speak plain HTTP. Bytes beyond its
/// end are left out.
async fn read(
    State(port): State<Port>,
    Path(file): Path<i64>,
    parameters: Parameters,
    headers: HeaderMap,
) -> Result<Vec<u8>, Refusal> {
    let file = IntermediateId(file);
    let (files, _) = port.admit_to_user_file(file, FileRight::Read, &headers)?;
    let offset: u64 = number(&parameters, "offset")?.unwrap_or(0);
    let length: u64 = number(&parameters, "length")?.unwrap_or(INTERMEDIATE_PIECE_BYTES_MAX as u64);
    let _permit = port.stage_reads.acquire().await.map_err(|_| Refusal::Thread)?;
    aside(move || {
        let name = StageFileName::of_user_file(file);
        let here = files.find(&name).ok_or(Refusal::UnknownStageFile(name))?;
        let offset = offset.min(here.payload.bytes);
        let left = here.payload.bytes - offset;
        let length = length.min(left).min(INTERMEDIATE_PIECE_BYTES_MAX as u64);
        let opened = StageFileReader::open(&here.path, here.payload, offset, length);
        let mut bytes = Vec::with_capacity(length as usize);
        let mut range = opened.map_err(Refusal::StageRead)?;
        let read = range.read_to_end(&mut bytes);
        read.map_err(|source| {
            Refusal::StageRead(StageFileError::Io { action: "read", path: here.path.clone(), source })
        })?;
        Ok(bytes)
    })
    .await
}

/// Returns blocks, as for stage files; see [`stage::blocks`].
async fn blocks(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<Body, Refusal> {
    let request = StageReadRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    let name = &request.file.name;
    let file = name.user_file().ok_or_else(|| Refusal::UnknownStageFile(name.clone()))?;
    let (files, _) = port.admit_to_user_file(file, FileRight::Read, &headers)?;
    stage::blocks(&port, files, request).await
}

/// Receives a copy from another node that has the right to send it.
async fn copies(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<(), Refusal> {
    let (files, file) = port.admit_copy(&headers)?;
    let files: Arc<dyn StageFileService> = files;
    let is_it = |name: &StageFileName| name.user_file() == Some(file);
    match port.takes_chunks() {
        true => {
            let mut body = BodyReader::new(body);
            copy::stage_copy(&port, DataScope::Users, files, &mut body, is_it).await
        }
        false => Err(Refusal::Draining),
    }
}
