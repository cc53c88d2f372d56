//! Answers to readers of stage files.

use crate::serve::port::{Port, Refusal};
use crate::serve::services::StageFileService;
use crate::wire::stage::StageReadRequest;
use axum::body::Body;
use bytes::Bytes;
use stagefile::{RawFile, StageFileError};
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Blocks on their way to the connection: the next reader is admitted when they are sent.
struct Answer {
    blocks: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.blocks
    }
}

/// Reads blocks in stored form. The receiver verifies them, which it must do anyway.
pub(crate) async fn blocks(
    port: &Port,
    files: Arc<dyn StageFileService>,
    request: StageReadRequest,
) -> Result<Body, Refusal> {
    // Readers hold nothing that others wait for, so it is safe to let them wait.
    let permit = Arc::clone(&port.stage_reads).acquire_owned().await.map_err(|_| Refusal::Thread)?;
    let reading = tokio::task::spawn_blocking(move || read(&*files, &request));
    let blocks = reading.await.map_err(|_| Refusal::Thread)??;
    Ok(Body::from(Bytes::from_owner(Answer { blocks, _permit: permit })))
}

fn read(files: &dyn StageFileService, request: &StageReadRequest) -> Result<Vec<u8>, Refusal> {
    let file = &request.file;
    let here = files.find(&file.name).ok_or_else(|| Refusal::UnknownStageFile(file.name.clone()))?;
    let read = || {
        let raw = request.raw().stored;
        let opened = RawFile::open(&here.path, file.payload)?;
        let mut blocks = vec![0; (raw.end - raw.start) as usize];
        opened.read_exact(raw.start, &mut blocks)?;
        Ok(blocks)
    };
    read().map_err(|error| match error {
        StageFileError::Io { ref source, .. } if source.kind() == ErrorKind::NotFound => {
            Refusal::UnknownStageFile(file.name.clone())
        }
        error => Refusal::StageRead(error),
    })
}
