//! A request body, read independently of its pieces on the wire.

use axum::body::Body;
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use std::time::Duration;

/// Timeout of a silent sender; a live one that waits for its own memory is faster.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The reason why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the request is cut off")]
    CutOff,
    #[error("the connection failed")]
    Connection(#[source] axum::Error),
    #[error("the sender was silent for too long")]
    Silent,
    #[error("the request is too long")]
    TooLong,
}

pub(crate) struct BodyReader {
    body: Body,
    piece: Bytes,
}

impl BodyReader {
    pub fn new(body: Body) -> Self {
        Self { body, piece: Bytes::new() }
    }

    /// Moves to the next piece that is not empty. Returns false at the end.
    async fn next_piece(&mut self) -> Result<bool, BodyError> {
        while self.piece.is_empty() {
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            match frame.map_err(|_| BodyError::Silent)? {
                None => return Ok(false),
                Some(frame) => {
                    let frame = frame.map_err(BodyError::Connection)?;
                    self.piece = frame.into_data().unwrap_or_default();
                }
            }
        }
        Ok(true)
    }

    /// Returns the next bytes, at most `count` of them and at least one.
    pub async fn some(&mut self, count: usize) -> Result<Bytes, BodyError> {
        if !self.next_piece().await? {
            return Err(BodyError::CutOff);
        }
        Ok(self.piece.split_to(count.min(self.piece.len())))
    }

    /// Fills `buffer`.
    pub async fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), BodyError> {
        while !buffer.is_empty() {
            let mut some = self.some(buffer.len()).await?;
            let count = some.len();
            some.copy_to_slice(&mut buffer[..count]);
            buffer = &mut buffer[count..];
        }
        Ok(())
    }

    /// Passes the next `count` bytes to `put`, piece by piece.
    pub async fn each(&mut self, mut count: usize, mut put: impl FnMut(&[u8])) -> Result<(), BodyError> {
        while count > 0 {
            let some = self.some(count).await?;
            count -= some.len();
            put(&some);
        }
        Ok(())
    }

    /// Returns the rest, at most `bytes_max`.
    pub async fn rest(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        while self.next_piece().await? {
            if all.len() + self.piece.len() > bytes_max {
                return Err(BodyError::TooLong);
            }
            all.extend_from_slice(&self.piece);
            self.piece.clear();
        }
        Ok(all)
    }

    /// Returns whether everything was read.
    pub async fn is_at_end(&mut self) -> Result<bool, BodyError> {
        Ok(!self.next_piece().await?)
    }
}
