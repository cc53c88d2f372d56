//! Parts on their way to a reader: the checksums of their blocks, and verified blocks.

use crate::error::with_causes;
use crate::serve::stored::services::{OpenedPart, StoredFileError, StoredFileService};
use crate::wire::stored::answer::{ANSWER_END, BROKEN_OFF, FAILED, HERE, NOT_HERE, put_reason};
use crate::wire::stored::{GATHERED_BYTES, PartRange, sums_sent};
use axum::body::Body;
use bytes::Bytes;
use concretefile::BLOCK_BYTES;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of batches that wait for the connection; beyond it the reading thread waits.
const BATCHES_MAX: usize = 2;
/// Timeout of a reader that takes nothing.
const STALL_MAX: Duration = Duration::from_secs(120);

/// The reader has disconnected, or takes nothing.
struct BrokeOff;

/// Starts the answer to a read.
pub(crate) fn stream(
    files: Arc<dyn StoredFileService>,
    ranges: Vec<PartRange>,
    permit: OwnedSemaphorePermit,
) -> Body {
    let (sender, mut batches): (_, Receiver<Bytes>) = channel(BATCHES_MAX);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let batch = Vec::with_capacity(2 * GATHERED_BYTES);
        // After a panic, or if the reader has disconnected, the end mark is missing.
        let _ = Answer { files, runtime, sender, batch }.all(&ranges);
    });
    let stream = futures_util::stream::poll_fn(move |context| {
        batches.poll_recv(context).map(|batch| batch.map(Ok::<Bytes, Infallible>))
    });
    Body::from_stream(stream)
}

/// The answer being written.
struct Answer {
    files: Arc<dyn StoredFileService>,
    runtime: Handle,
    sender: Sender<Bytes>,
    batch: Vec<u8>,
}

impl Answer {
    fn all(&mut self, ranges: &[PartRange]) -> Result<(), BrokeOff> {
        for range in ranges {
            match self.files.open_stored(range.part) {
                Ok(opened) => {
                    if let Err(reason) = self.range(range, opened)? {
                        self.batch.extend_from_slice(&BROKEN_OFF.to_le_bytes());
                        put_reason(&mut self.batch, &reason);
                        return self.pass_on();
                    }
                }
                Err(StoredFileError::Unknown(_)) => self.batch.push(NOT_HERE),
                Err(error) => {
                    self.batch.push(FAILED);
                    put_reason(&mut self.batch, &with_causes(&error));
                }
            }
            self.pass_on_many()?;
        }
        self.batch.push(ANSWER_END);
        self.pass_on()
    }

    /// Writes a range. Returns the reason if the part cannot be read to its end.
    fn range(&mut self, range: &PartRange, opened: OpenedPart) -> Result<Result<(), String>, BrokeOff> {
        let OpenedPart { disk, mut reader } = opened;
        self.batch.push(HERE);
        if sums_sent(&range.part) > 0 {
            for sums in reader.sums().blocks().chunks(GATHERED_BYTES / 4) {
                sums.iter().for_each(|sum| self.batch.extend_from_slice(&sum.to_le_bytes()));
                self.pass_on_many()?;
            }
        }
        let blocks = range.blocks();
        let mut offset = blocks.start * BLOCK_BYTES;
        let end = range.part.bytes.min(blocks.end * BLOCK_BYTES);
        while offset < end {
            let bytes_max = (end - offset).min(GATHERED_BYTES as u64) as usize;
            let piece = match reader.read(offset, bytes_max) {
                Ok(piece) if !piece.is_empty() => piece,
                Ok(_) => return Ok(Err("it is shorter than expected".to_string())),
                Err(error) => {
                    let reason = with_causes(&error);
                    if error.damage().is_some() {
                        self.files.is_damaged(range.part, disk, &reason);
                    }
                    return Ok(Err(reason));
                }
            };
            self.batch.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            self.batch.extend_from_slice(piece);
            offset += piece.len() as u64;
            self.pass_on_many()?;
        }
        Ok(Ok(()))
    }

    fn pass_on_many(&mut self) -> Result<(), BrokeOff> {
        if self.batch.len() < GATHERED_BYTES { Ok(()) } else { self.pass_on() }
    }

    fn pass_on(&mut self) -> Result<(), BrokeOff> {
        let next = Vec::with_capacity(2 * GATHERED_BYTES);
        let batch = Bytes::from(std::mem::replace(&mut self.batch, next));
        let sent = async { tokio::time::timeout(STALL_MAX, self.sender.send(batch)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(BrokeOff),
        }
    }
}
