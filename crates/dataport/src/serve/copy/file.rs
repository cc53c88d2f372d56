//! A file of another node, received from a connection to a local disk.

use crate::serve::body_reader::BodyReader;
use crate::serve::port::{Port, Refusal};
use crate::wire::messages::COPY_CRC_BYTES;
use bytes::Bytes;
use ifile::{FormatError, Problem};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of pieces that wait for the disk, and maximum bytes of each.
const PIECES_MAX: usize = 4;
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Target of a file. If it is dropped before its end, nothing of the file is left.
pub(crate) trait FileTarget: Sized {
    fn write(&mut self, piece: &[u8]) -> Result<(), Refusal>;
    /// Completes the file after all bytes have arrived.
    fn finish(self) -> Result<(), Refusal>;
}

/// Message to the writing thread. Without the end there is no copy, however much has arrived.
enum Piece {
    Bytes(Bytes),
    End { crc32c: u32 },
}

/// The writing thread has ended early, and reports the reason itself.
struct Stopped;

/// Returns a permit for one of the few copies that may be received at once.
pub(crate) fn permit(port: &Port) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(&port.copies).try_acquire_owned().map_err(|_| Refusal::Busy)
}

/// Receives a file of this size and its checksum. When it returns, the file is complete here, or nothing of it is left.
pub(crate) async fn receive<T: FileTarget>(
    body: &mut BodyReader,
    bytes: u64,
    permit: OwnedSemaphorePermit,
    begin: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<(), Refusal> {
    let (sender, pieces) = channel(PIECES_MAX);
    // The thread keeps the permit: a broken-off request is done when its file is removed.
    let writing = tokio::task::spawn_blocking(move || {
        let written = begin().and_then(|target| write(target, bytes, pieces));
        drop(permit);
        written
    });
    let sent = send(body, bytes, sender).await;
    let written = writing.await.map_err(|_| Refusal::Thread)?;
    match sent {
        Ok(Ok(()) | Err(Stopped)) => written,
        Err(refusal) => Err(refusal),
    }
}

async fn send(
    body: &mut BodyReader,
    bytes: u64,
    sender: Sender<Piece>,
) -> Result<Result<(), Stopped>, Refusal> {
    let mut left = bytes;
    while left > 0 {
        let piece = body.some(left.min(PIECE_BYTES_MAX) as usize).await?;
        left -= piece.len() as u64;
        if sender.send(Piece::Bytes(piece)).await.is_err() {
            return Ok(Err(Stopped));
        }
    }
    let mut crc = [0; COPY_CRC_BYTES];
    body.fill(&mut crc).await?;
    if !body.is_at_end().await? {
        return Err(Refusal::Contradiction("bytes after the end of a copy"));
    }
    let end = Piece::End { crc32c: u32::from_le_bytes(crc) };
    Ok(sender.send(end).await.map_err(|_| Stopped))
}

fn write(mut target: impl FileTarget, bytes: u64, mut pieces: Receiver<Piece>) -> Result<(), Refusal> {
    let mut computed = 0;
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(piece)) => {
                computed = crc32c::crc32c_append(computed, &piece);
                target.write(&piece)?;
            }
            Some(Piece::End { crc32c: stored }) if stored == computed => return target.finish(),
            Some(Piece::End { crc32c: stored }) => {
                let problem = Problem::Checksum { what: "copy of a file", stored, computed };
                return Err(FormatError::at(bytes, problem).into());
            }
            // The side that broke it off knows the reason.
            None => return Err(Refusal::Contradiction("no end")),
        }
    }
}
