//! Intermediate files of users, as the data port of a node sees them: written by one writer, front to back, then complete and never
//! changed. Who may do what is in the token, or in the grant that the server signed (`trust::FileGrant`).

use crate::body_reader::BodyReader;
use crate::routes::{Port, Refusal};
use crate::stage_files::StageFiles;
use crate::stage_name::StageFileName;
use crate::stage_wire::StageReadRequest;
use crate::wire::MESSAGE_BYTES_MAX;
use crate::{receive_copy, stage_files};
use api::intermediate::{INTERMEDIATE_PIECE_BYTES_MAX, SILENCE_SECONDS, SILENCE_SECONDS_MAX};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use ids::IntermediateId;
use stagefile::{Payload, StageFileError, StageFileReader};
use std::collections::BTreeMap;
use std::io::Read;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use trust::FileRight;

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
    fn close(&self, file: IntermediateId, told: Told) -> Result<Payload, UserFileError>;
    /// Nothing more comes of it: its bytes go.
    fn abandon(&self, file: IntermediateId, reason: &str) -> Result<(), UserFileError>;
}

/// Size and checksum that a writer states for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
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
        "a write of file {file} begins at {offset}, and only {written} bytes are written: none may be left out"
    )]
    Gap { file: IntermediateId, offset: u64, written: u64 },
    #[error(
        "a write of file {file} begins at {offset}, before the end of the {written} bytes that are written, and goes beyond it: \
         a write repeats what stands, or goes on behind it"
    )]
    Overlap { file: IntermediateId, offset: u64, written: u64 },
    #[error("file {file} holds other bytes at {offset}: what is written stays as it is")]
    Differs { file: IntermediateId, offset: u64 },
    #[error("file {0} is complete: it never changes any more")]
    Complete(IntermediateId),
    #[error("file {file} has {written} bytes with the CRC-32C {crc32c:08x}, and its writer says otherwise")]
    NotAsTold { file: IntermediateId, written: u64, crc32c: u32 },
    #[error("nobody knows of file {0} any more: it was removed, or its writer was given up")]
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

/// The routes, below `/data/v1/intermediate`.
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

/// A number among the parameters of a request.
fn number<T: FromStr>(parameters: &Parameters, name: &'static str) -> Result<Option<T>, Refusal> {
    let parse = |text: &String| text.parse().map_err(|_| Refusal::NoNumber(name));
    parameters.get(name).map(parse).transpose()
}

/// Runs what waits for disks, or for the server, beside the threads that answer.
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
        return Err(UserFileError::OverQuota { file, bytes_max: grant.bytes_max }.into());
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
    let told = Told { bytes: number(&parameters, "bytes")?, crc32c: number(&parameters, "crc32c")? };
    let payload = aside(move || Ok(files.close(file, told)?)).await?;
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

/// A range of the bytes of a complete file, verified here, for programs that speak plain HTTP. What lies beyond its end is left
/// out.
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

/// As of stage files, see [`stage_files::blocks`].
async fn blocks(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<Body, Refusal> {
    let request = StageReadRequest::decode(&BodyReader::new(body).rest(MESSAGE_BYTES_MAX).await?)?;
    let name = &request.file.name;
    let file = name.user_file().ok_or_else(|| Refusal::UnknownStageFile(name.clone()))?;
    let (files, _) = port.admit_to_user_file(file, FileRight::Read, &headers)?;
    stage_files::blocks(&port, files, request).await
}

/// From other nodes, with the right to send this one.
async fn copies(State(port): State<Port>, headers: HeaderMap, body: Body) -> Result<(), Refusal> {
    let (files, file) = port.admit_copy(&headers)?;
    let files: Arc<dyn StageFiles> = files;
    let is_it = |name: &StageFileName| name.user_file() == Some(file);
    match port.takes_chunks() {
        true => {
            let mut body = BodyReader::new(body);
            receive_copy::stage_copy(&port, crate::DataOf::Users, files, &mut body, is_it).await
        }
        false => Err(Refusal::Draining),
    }
}
