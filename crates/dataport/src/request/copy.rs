//! A file of this node on its way to another one: after a header that describes it, before a checksum.

pub(crate) mod run;
mod stage_file;

use crate::error::{CopyError, DataError};
use crate::request::client::{DataClient, Peer, SILENCE_MAX, Target};
use crate::wire::messages::COPY_CRC_BYTES;
use bytes::Bytes;
use crossbeam_channel::{RecvTimeoutError, bounded};
use http_body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

/// Maximum number of read pieces that wait for the connection.
const PIECES_MAX: usize = 2;
/// How often a caller that waits for the other node asks whether the copy is still wanted.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A pacer, called before each piece with its bytes, and with 0 while the other node is awaited: it waits until the
/// piece may be sent, and returns whether the copy is still wanted.
pub(crate) type Pace<'a> = &'a (dyn Fn(usize) -> bool + Send + Sync);

/// A file to be sent, front to back. Everything that is read is verified before it is sent.
pub(crate) trait FilePieces {
    /// Returns the bytes of the whole file.
    fn bytes(&self) -> u64;
    /// Returns the next piece of the file; None at its end.
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, CopyError>;
}

impl DataClient {
    /// Sends a file, once, and waits until the other node has it.
    pub(crate) fn send_file(
        &self,
        target: Target<'_>,
        head: Vec<u8>,
        source: impl FilePieces,
        pace: Pace<'_>,
    ) -> Result<(), CopyError> {
        let (sender, pieces) = channel(PIECES_MAX);
        let (answer, answered) = bounded(1);
        let Target { peer, scope, route } = target;
        let (client, to, route) = (self.clone(), peer.clone(), route.to_string());
        let bytes_left = head.len() as u64 + source.bytes() + COPY_CRC_BYTES as u64;
        let body = reqwest::Body::wrap(FileBody { pieces, bytes_left });
        let task = self.runtime().spawn(async move {
            // If nobody waits any more, the copy was cancelled.
            let _ = answer.send(client.send_copy(Target { peer: &to, scope, route: &route }, body).await);
        });
        let _request = Request(task.abort_handle());
        let sending = Sending { client: self, peer, sender, answered: &answered, pace };
        let sent_all = sending.send(head.into(), source)?;
        let silent_from = Instant::now();
        loop {
            match answered.recv_timeout(LOOK_AGAIN) {
                Ok(Ok(())) if !sent_all => return Err(CopyError::Peer(too_early(peer))),
                Ok(answer) => return answer.map_err(CopyError::Peer),
                Err(RecvTimeoutError::Disconnected) => return Err(CopyError::Peer(DataError::Stopped)),
                Err(RecvTimeoutError::Timeout) if !pace(0) => return Err(CopyError::Cancelled),
                Err(RecvTimeoutError::Timeout) if silent_from.elapsed() > SILENCE_MAX => {
                    return Err(CopyError::Peer(silent(peer)));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

pub(crate) fn too_early(peer: &Peer) -> DataError {
    let reason = "it answered before it had all".to_string();
    DataError::Refused { node: peer.node, status: 200, reason }
}

pub(crate) fn silent(peer: &Peer) -> DataError {
    DataError::Silent { node: peer.node, url: peer.url.clone() }
}

/// A request in flight. When it is dropped, it breaks off, and the other node keeps nothing of it.
pub(crate) struct Request(pub AbortHandle);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) type Answered = crossbeam_channel::Receiver<Result<(), DataError>>;

struct Sending<'a> {
    client: &'a DataClient,
    peer: &'a Peer,
    sender: Sender<Bytes>,
    /// An answer before the end of the body refuses the rest.
    answered: &'a Answered,
    pace: Pace<'a>,
}

impl Sending<'_> {
    /// Passes everything to the request. Returns false if the request has ended before.
    fn send(self, head: Bytes, mut source: impl FilePieces) -> Result<bool, CopyError> {
        if !self.put(head)? {
            return Ok(false);
        }
        let mut crc32c = 0;
        while let Some(piece) = source.next_piece()? {
            if !(self.pace)(piece.len()) {
                return Err(CopyError::Cancelled);
            }
            crc32c = crc32c::crc32c_append(crc32c, &piece);
            if !self.put(piece.into())? {
                return Ok(false);
            }
        }
        self.put(Bytes::copy_from_slice(&crc32c.to_le_bytes()))
    }

    fn put(&self, piece: Bytes) -> Result<bool, CopyError> {
        let silent_from = Instant::now();
        loop {
            if !self.answered.is_empty() {
                return Ok(false);
            }
            let reserve = async { tokio::time::timeout(LOOK_AGAIN, self.sender.reserve()).await };
            match self.client.runtime().block_on(reserve) {
                Ok(Ok(place)) => {
                    place.send(piece);
                    return Ok(true);
                }
                Ok(Err(_)) => return Ok(false),
                Err(_) if !(self.pace)(0) => return Err(CopyError::Cancelled),
                Err(_) if silent_from.elapsed() > SILENCE_MAX => {
                    return Err(CopyError::Peer(silent(self.peer)));
                }
                Err(_) => {}
            }
        }
    }
}

/// The body of the request, whose length is announced. A cancelled body ends early, which the length reveals.
struct FileBody {
    pieces: Receiver<Bytes>,
    bytes_left: u64,
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.pieces.poll_recv(context).map(|piece| {
            let piece = piece?;
            self.bytes_left = self.bytes_left.saturating_sub(piece.len() as u64);
            Some(Ok(Frame::data(piece)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
