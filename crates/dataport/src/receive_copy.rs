//! The file of another node's run, from a connection to a disk of this one.

use crate::body_reader::BodyReader;
use crate::routes::{Port, Refusal};
use crate::wire::{COPY_CRC_BYTES, COPY_HEAD_BYTES, CopyHead};
use bytes::Bytes;
use chunkserver::ChunkServer;
use ifile::{FormatError, Problem};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that wait for the disk, and the most bytes of each.
const PIECES_MAX: usize = 4;
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// What the thread that writes is told. Without the end there is no copy, however much has come.
enum Piece {
    Bytes(Bytes),
    End { crc32c: u32 },
}

/// The thread that writes has ended before it was told to, and says why itself.
struct Stopped;

/// Receives one copy. When it comes back the copy is here, or nothing of it is.
pub(crate) async fn copy(
    port: &Port,
    server: Arc<ChunkServer>,
    body: &mut BodyReader,
) -> Result<(), Refusal> {
    let permit = Arc::clone(&port.copies).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let mut head = [0; COPY_HEAD_BYTES];
    body.fill(&mut head).await?;
    let head = CopyHead::decode(&head)?;
    let (sender, pieces) = channel(PIECES_MAX);
    // It keeps the permit: where the request is broken off, it is done when its file is gone.
    let writing = tokio::task::spawn_blocking(move || {
        let written = write(&server, head, pieces);
        drop(permit);
        written
    });
    let sent = send(body, head, sender).await;
    let written = writing.await.map_err(|_| Refusal::Thread)?;
    match sent {
        Ok(Ok(()) | Err(Stopped)) => written,
        Err(refusal) => Err(refusal),
    }
}

async fn send(
    body: &mut BodyReader,
    head: CopyHead,
    sender: Sender<Piece>,
) -> Result<Result<(), Stopped>, Refusal> {
    let mut left = head.bytes;
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

fn write(server: &ChunkServer, head: CopyHead, mut pieces: Receiver<Piece>) -> Result<(), Refusal> {
    let mut writer = server.receive_copy(head.run, head.bytes).map_err(Refusal::Copy)?;
    let mut computed = 0;
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(piece)) => {
                computed = crc32c::crc32c_append(computed, &piece);
                writer.write(&piece).map_err(Refusal::Copy)?;
            }
            Some(Piece::End { crc32c: stored }) if stored == computed => {
                return writer.finish().map_err(Refusal::Copy);
            }
            Some(Piece::End { crc32c: stored }) => {
                let problem = Problem::Checksum { what: "copy of a run", stored, computed };
                return Err(FormatError::at(head.bytes, problem).into());
            }
            // Whoever broke it off knows.
            None => return Err(Refusal::Contradiction("no end")),
        }
    }
}
