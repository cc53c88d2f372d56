//! Parts on their way to a reader: the checksums of their blocks, and verified blocks.

use crate::error::with_causes;
use crate::serve::stored::services::{OpenedPart, PassedPart, StoredFileError, StoredFileService};
use crate::wire::stored::answer::{ANSWER_END, BROKEN_OFF, FAILED, HERE, NOT_HERE, put_reason};
use crate::wire::stored::{GATHERED_BYTES, PartRange, sums_sent};
use api::StoredPart;
use axum::body::Body;
use bytes::Bytes;
use concretefile::{BLOCK_BYTES, BlockSums};
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
    answer_by(files, permit, move |answer| answer.all(&ranges))
}

/// Starts the answer to a read of a local copy.
pub(crate) fn stream_copy(
    files: Arc<dyn StoredFileService>,
    range: PartRange,
    copy: Box<dyn PassedPart>,
    permit: OwnedSemaphorePermit,
) -> Body {
    answer_by(files, permit, move |answer| answer.copy(&range, copy))
}

/// Starts an answer that a thread writes.
fn answer_by(
    files: Arc<dyn StoredFileService>,
    permit: OwnedSemaphorePermit,
    write: impl FnOnce(&mut Answer) -> Result<(), BrokeOff> + Send + 'static,
) -> Body {
    let (sender, mut batches): (_, Receiver<Bytes>) = channel(BATCHES_MAX);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let batch = Vec::with_capacity(2 * GATHERED_BYTES);
        // After a panic, or if the reader has disconnected, the end mark is missing.
        let _ = write(&mut Answer { files, runtime, sender, batch });
    });
    let stream = futures_util::stream::poll_fn(move |context| {
        batches.poll_recv(context).map(|batch| batch.map(Ok::<Bytes, Infallible>))
    });
    Body::from_stream(stream)
}

/// The blocks of a part that is sent.
trait SentBlocks {
    /// Returns the checksums of all blocks, or the reason why there are none.
    fn sums(&mut self) -> Result<&BlockSums, String>;
    /// Returns verified bytes from a place on; none at the end of the part.
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], String>;
}

/// A replica.
struct Replica<'a> {
    files: &'a dyn StoredFileService,
    part: StoredPart,
    opened: OpenedPart,
}

impl SentBlocks for Replica<'_> {
    fn sums(&mut self) -> Result<&BlockSums, String> {
        Ok(self.opened.reader.sums())
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], String> {
        let (files, part, disk) = (self.files, self.part, self.opened.disk);
        self.opened.reader.read(offset, bytes_max).map_err(|error| {
            let reason = with_causes(&error);
            if error.damage().is_some() {
                files.is_damaged(part, disk, &reason);
            }
            reason
        })
    }
}

/// A local copy.
impl SentBlocks for Box<dyn PassedPart> {
    fn sums(&mut self) -> Result<&BlockSums, String> {
        PassedPart::sums(&mut **self).map_err(|error| with_causes(&error))
    }

    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], String> {
        PassedPart::read(&mut **self, offset, bytes_max).map_err(|error| with_causes(&error))
    }
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
            let files = Arc::clone(&self.files);
            match files.open_stored(range.part) {
                Ok(opened) => {
                    let mut replica = Replica { files: &*files, part: range.part, opened };
                    if let Err(reason) = self.range(range, &mut replica)? {
                        return self.break_off(&reason);
                    }
                }
                Err(StoredFileError::Unknown(_)) => self.batch.push(NOT_HERE),
                Err(error) => self.fail(&with_causes(&error)),
            }
            self.pass_on_many()?;
        }
        self.batch.push(ANSWER_END);
        self.pass_on()
    }

    /// Writes a range of a local copy, as fast as the copy grows.
    fn copy(&mut self, range: &PartRange, mut copy: Box<dyn PassedPart>) -> Result<(), BrokeOff> {
        if let Err(reason) = self.range(range, &mut copy)? {
            return self.break_off(&reason);
        }
        self.batch.push(ANSWER_END);
        self.pass_on()
    }

    fn fail(&mut self, reason: &str) {
        self.batch.push(FAILED);
        put_reason(&mut self.batch, reason);
    }

    /// Ends the answer in the middle of a range.
    fn break_off(&mut self, reason: &str) -> Result<(), BrokeOff> {
        self.batch.extend_from_slice(&BROKEN_OFF.to_le_bytes());
        put_reason(&mut self.batch, reason);
        self.pass_on()
    }

    /// Writes a range. Returns the reason if the part cannot be read to its end.
    fn range(
        &mut self,
        range: &PartRange,
        blocks: &mut dyn SentBlocks,
    ) -> Result<Result<(), String>, BrokeOff> {
        let sums = match blocks.sums() {
            Ok(sums) => sums,
            Err(reason) => {
                self.fail(&reason);
                return Ok(Ok(()));
            }
        };
        self.batch.push(HERE);
        if sums_sent(&range.part) > 0 {
            for sums in sums.blocks().chunks(GATHERED_BYTES / 4) {
                sums.iter().for_each(|sum| self.batch.extend_from_slice(&sum.to_le_bytes()));
                self.pass_on_many()?;
            }
        }
        let sent = range.blocks();
        let mut offset = sent.start * BLOCK_BYTES;
        let end = range.part.bytes.min(sent.end * BLOCK_BYTES);
        while offset < end {
            let bytes_max = (end - offset).min(GATHERED_BYTES as u64) as usize;
            let piece = match blocks.read(offset, bytes_max) {
                Ok([]) => return Ok(Err("it is shorter than expected".to_string())),
                Ok(piece) => piece,
                Err(reason) => return Ok(Err(reason)),
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
