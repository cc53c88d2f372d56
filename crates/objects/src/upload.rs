//! Writing of a part of an output, invisible until it is completed.

use crate::error::ObjectError;
use crate::record::{UploadRecord, WholeUpload};
use crate::staging::{attribute_of, output_of};
use crate::store::{Pending, begin, delete, put, store, wait};
use crate::url::ObjectUrl;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::{PutMultipartOptions, PutPayload};
use std::io::Write;

/// Minimum piece that S3 accepts; the last one may be smaller.
const PIECE_BYTES_MIN: usize = 5 << 20;
const PIECE_BYTES_MAX: usize = 32 << 20;
/// Maximum pieces of an upload that S3 accepts.
const PIECES_MAX: usize = 10_000;
/// Number of buffers: one is filled while another is sent.
const BUFFERS: usize = 2;

/// A part being uploaded. Dropping it before [`Upload::finish`] aborts the upload.
pub struct Upload {
    object: ObjectUrl,
    record_url: ObjectUrl,
    record: UploadRecord,
    piece_bytes: usize,
    buffer: Vec<u8>,
    under_way: Option<Pending<PartId>>,
    tags: Vec<String>,
    bytes: u64,
    finished: bool,
}

impl Upload {
    /// Begins the upload of a part: `name` is its final name in the output, `attempt_name` that of its record in the
    /// staging prefix. `buffer_bytes` is the memory that it may use, if it can work with so little.
    pub fn begin(
        staging: &ObjectUrl,
        name: &str,
        attempt_name: &str,
        buffer_bytes: usize,
    ) -> Result<Self, ObjectError> {
        let object = output_of(staging)?.join(name)?;
        let record_url = staging.join(attempt_name)?;
        let attributes = attribute_of(&record_url);
        let (begun, first_record, name) = (object.clone(), record_url.clone(), name.to_string());
        let record = wait(async move {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            let upload = store(&begun)?.create_multipart_opts(begun.location(), options).await;
            let upload = upload.map_err(|error| ObjectError::of_store("write", &begun, &error))?;
            let record = UploadRecord { name, upload, whole: None };
            match put(first_record, record.to_bytes()).await {
                Ok(()) => Ok(record),
                Err(error) => {
                    // Nothing was sent; an upload that cannot be aborted has no bytes.
                    let _ = store(&begun)?.abort_multipart(begun.location(), &record.upload).await;
                    Err(error)
                }
            }
        })?;
        let piece_bytes = (buffer_bytes / BUFFERS).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        Ok(Self {
            object,
            record_url,
            record,
            piece_bytes,
            buffer: Vec::new(),
            under_way: None,
            tags: Vec::new(),
            bytes: 0,
            finished: false,
        })
    }

    /// Sends the rest and records the data that completes the upload.
    pub fn finish(mut self) -> Result<(), ObjectError> {
        if !self.buffer.is_empty() {
            self.send()?;
        }
        self.take_answer()?;
        let mut record = self.record.clone();
        record.whole = Some(WholeUpload { bytes: self.bytes, tags: std::mem::take(&mut self.tags) });
        wait(put(self.record_url.clone(), record.to_bytes()))?;
        self.finished = true;
        Ok(())
    }

    fn send(&mut self) -> Result<(), ObjectError> {
        self.take_answer()?;
        let index = self.tags.len();
        if index == PIECES_MAX {
            let (url, piece_bytes) = (self.object.clone(), self.piece_bytes);
            return Err(ObjectError::TooLarge { url, max: PIECES_MAX, piece_bytes });
        }
        let piece = PutPayload::from(Bytes::from(std::mem::take(&mut self.buffer)));
        let (object, upload) = (self.object.clone(), self.record.upload.clone());
        self.under_way = Some(begin(async move {
            let sent = store(&object)?.put_part(object.location(), &upload, index, piece).await;
            sent.map_err(|error| ObjectError::of_store("write", &object, &error))
        })?);
        Ok(())
    }

    fn take_answer(&mut self) -> Result<(), ObjectError> {
        if let Some(under_way) = self.under_way.take() {
            self.tags.push(under_way.wait()?.content_id);
        }
        Ok(())
    }
}

impl Write for Upload {
    /// Its errors contain an [`ObjectError`].
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.buffer.len() == self.piece_bytes {
            self.send()?;
        }
        if self.buffer.capacity() == 0 {
            // A small part needs no large buffer.
            let enough =
                if self.tags.is_empty() && self.under_way.is_none() { bytes.len() } else { self.piece_bytes };
            self.buffer.reserve_exact(enough.min(self.piece_bytes));
        }
        let count = bytes.len().min(self.piece_bytes - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    /// Does nothing: pieces have a size.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // A piece that arrives later would stay.
        let _ = self.take_answer();
        let (object, record_url, upload) =
            (self.object.clone(), self.record_url.clone(), self.record.upload.clone());
        // An upload that cannot be aborted stays recorded, and is removed when the job is cleaned.
        let _ = wait(async move {
            let aborted = store(&object)?.abort_multipart(object.location(), &upload).await;
            aborted.map_err(|error| ObjectError::of_store("take back", &object, &error))?;
            delete(record_url).await
        });
    }
}
