//! A file as the body of a message.

use crate::hashing::PIECE_BYTES;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Pieces that are read ahead of sending.
const PIECES_MAX: usize = 4;

/// The bytes of an open file, read by a thread of the runtime as they are sent. A file that is shorter than announced
/// aborts the message.
pub struct FileBody {
    pieces: mpsc::Receiver<std::io::Result<Bytes>>,
    bytes_left: u64,
}

impl FileBody {
    /// Makes a body of the first `bytes` of a file. Call it from within a runtime.
    pub fn new(mut file: File, bytes: u64) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        tokio::task::spawn_blocking(move || {
            let mut left = bytes;
            while left > 0 {
                let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
                let read = match file.read(&mut piece) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(0) => Err(Error::from(ErrorKind::UnexpectedEof)),
                    other => other,
                };
                let piece = read.map(|read| {
                    left -= read as u64;
                    piece.truncate(read);
                    Bytes::from(piece)
                });
                let is_over = piece.is_err();
                // Reading stops if the message was abandoned.
                if sender.blocking_send(piece).is_err() || is_over {
                    return;
                }
            }
        });
        Self { pieces, bytes_left: bytes }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let piece = ready!(self.pieces.poll_recv(context));
        if let Some(Ok(piece)) = &piece {
            self.bytes_left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
