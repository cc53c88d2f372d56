//! Files that are shipped by the hash of their content.

use crate::calls::refusal;
use crate::{Client, ClientError};
use api::ContentHash;
use api::shipping::{Contents, SHIPPED_FILE_BYTES_MAX};
use bytes::Bytes;
use reqwest::{Body, Method, Response};
use shipped::FileBody;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Least speed of a transfer, which leaves some time for the disk on the other side.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
const TIMEOUT_MIN: Duration = Duration::from_secs(60);

fn timeout(bytes: u64) -> Duration {
    TIMEOUT_MIN + Duration::from_secs(bytes.min(SHIPPED_FILE_BYTES_MAX) / BYTES_PER_SECOND_MIN)
}

impl Client {
    /// Returns the contents among these that the caller must send before a job may need them.
    pub async fn missing_files(&self, sha256: Vec<ContentHash>) -> Result<Vec<ContentHash>, ClientError> {
        let asked = Contents { sha256 };
        let missing = self.patiently(async || self.post::<Contents>("/v1/files/missing", &asked).await).await;
        Ok(missing?.sha256)
    }

    /// Sends a file of this size, and retries while the server is unreachable.
    pub async fn send_file(&self, content: ContentHash, path: &Path, bytes: u64) -> Result<(), ClientError> {
        let url = format!("/v1/files/{content}");
        let send = async || {
            let file = File::open(path);
            let file = file.map_err(|source| ClientError::File { path: path.to_path_buf(), source })?;
            let request = self.request(Method::PUT, &url).timeout(timeout(bytes));
            let request = request.header("content-type", "application/octet-stream");
            self.answer(request.body(Body::wrap(FileBody::new(file, bytes))), &url).await
        };
        self.patiently(send).await
    }

    /// Begins to fetch a file of about this size.
    pub async fn fetch_file(&self, content: ContentHash, bytes: u64) -> Result<Fetched, ClientError> {
        self.patiently(async || {
            let path = format!("/v1/files/{content}");
            let response = self.sent(self.request(Method::GET, &path).timeout(timeout(bytes))).await?;
            let (status, url) = (response.status(), format!("{}{path}", self.url()));
            match status.is_success() {
                true => Ok(Fetched { url: self.url().to_string(), response }),
                false => Err(refusal(&self.whole(response, &url).await?, url, status.as_u16())),
            }
        })
        .await
    }
}

/// A file that is being received.
pub struct Fetched {
    url: String,
    response: Response,
}

impl Fetched {
    /// Returns the next bytes; None at the end. The caller must compare the hash.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = self.response.chunk().await;
        piece.map_err(|source| ClientError::Broken { url: self.url.clone(), source })
    }
}
