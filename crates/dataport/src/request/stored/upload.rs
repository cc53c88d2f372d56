//! An upload of parts to a disk of another node.

use crate::error::DataError;
use crate::request::client::{DataClient, Peer, SILENCE_MAX, Target};
use crate::request::copy::{Answered, LOOK_AGAIN, Request, silent, too_early};
use crate::request::stored::patience;
use crate::wire::data_scope::DataScope;
use crate::wire::stored::{GATHERED_BYTES, UPLOAD_END};
use bytes::{BufMut, Bytes, BytesMut};
use concretefile::Content;
use crossbeam_channel::{RecvTimeoutError, bounded};
use http_body::Frame;
use http_body_util::StreamBody;
use ids::{ConcreteId, DiskId};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Sender, channel};

/// Maximum number of pieces that wait for the connection.
const PIECES_MAX: usize = 2;

/// Parts on their way to a disk of a node. If it is dropped before it is finished, the node keeps nothing of it. After
/// an error it must be dropped.
pub struct PartsUpload {
    client: DataClient,
    peer: Peer,
    sender: Sender<Bytes>,
    /// An answer before the end of the upload refuses it.
    answered: Answered,
    _request: Request,
    /// Bytes that were not passed to the connection yet.
    gathered: BytesMut,
    /// Bytes of all parts so far, and the content of the current one.
    sent_bytes: u64,
    content: Content,
}

impl PartsUpload {
    pub(crate) fn start(client: &DataClient, peer: &Peer, disk: DiskId, bytes: u64) -> Self {
        let (sender, mut pieces) = channel::<Bytes>(PIECES_MAX);
        let (answer, answered) = bounded(1);
        let stream = futures_util::stream::poll_fn(move |context| {
            pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok::<_, Infallible>(Frame::data(piece))))
        });
        let (sending, to) = (client.clone(), peer.clone());
        let route = format!("{}/write?bytes={bytes}", disk.0);
        let body = reqwest::Body::wrap(StreamBody::new(stream));
        let task = client.runtime().spawn(async move {
            let target = Target { peer: &to, scope: DataScope::Stored, route: &route };
            // If nobody waits any more, the upload was dropped.
            let _ = answer.send(sending.send_copy(target, body).await);
        });
        Self {
            client: client.clone(),
            peer: peer.clone(),
            sender,
            answered,
            _request: Request(task.abort_handle()),
            gathered: BytesMut::new(),
            sent_bytes: 0,
            content: Content::default(),
        }
    }

    /// Begins a part. The one before it was ended.
    pub fn begin(&mut self, part: ConcreteId) -> Result<(), DataError> {
        self.content = Content::default();
        self.gathered.put_i64_le(part.0);
        self.pass_on_many()
    }

    /// Writes the next bytes of the part.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        for piece in bytes.chunks(GATHERED_BYTES) {
            self.content.crc32c = crc32c::crc32c_append(self.content.crc32c, piece);
            self.content.bytes += piece.len() as u64;
            self.sent_bytes += piece.len() as u64;
            self.gathered.put_u32_le(piece.len() as u32);
            self.gathered.extend_from_slice(piece);
            self.pass_on_many()?;
        }
        Ok(())
    }

    /// Ends the part, and returns its content.
    pub fn end(&mut self) -> Result<Content, DataError> {
        self.gathered.put_u32_le(0);
        self.gathered.put_u64_le(self.content.bytes);
        self.gathered.put_u32_le(self.content.crc32c);
        self.pass_on_many()?;
        Ok(self.content)
    }

    /// Waits until the node has synced everything.
    pub fn finish(mut self) -> Result<(), DataError> {
        self.gathered.put_u64_le(UPLOAD_END);
        self.pass_on()?;
        let Self { peer, sender, answered, _request, sent_bytes, .. } = self;
        // The body ends with its sender.
        drop(sender);
        answer_within(&answered, &peer, patience(sent_bytes))
    }

    fn pass_on_many(&mut self) -> Result<(), DataError> {
        if self.gathered.len() < GATHERED_BYTES { Ok(()) } else { self.pass_on() }
    }

    /// Passes the gathered bytes to the connection.
    fn pass_on(&mut self) -> Result<(), DataError> {
        let next = BytesMut::with_capacity(GATHERED_BYTES + (GATHERED_BYTES >> 2));
        let piece = std::mem::replace(&mut self.gathered, next).freeze();
        let silent_from = Instant::now();
        loop {
            if !self.answered.is_empty() {
                return Err(self.refusal());
            }
            let reserve = async { tokio::time::timeout(LOOK_AGAIN, self.sender.reserve()).await };
            match self.client.runtime().block_on(reserve) {
                Ok(Ok(place)) => {
                    place.send(piece);
                    return Ok(());
                }
                Ok(Err(_)) => return Err(self.refusal()),
                Err(_) if silent_from.elapsed() > SILENCE_MAX => return Err(silent(&self.peer)),
                Err(_) => {}
            }
        }
    }

    /// Returns the reason why the request ended before the upload.
    fn refusal(&self) -> DataError {
        match answer_within(&self.answered, &self.peer, SILENCE_MAX) {
            Ok(()) => too_early(&self.peer),
            Err(error) => error,
        }
    }
}

fn answer_within(answered: &Answered, peer: &Peer, wait_max: Duration) -> Result<(), DataError> {
    match answered.recv_timeout(wait_max) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(silent(peer)),
        Err(RecvTimeoutError::Disconnected) => Err(DataError::Stopped),
    }
}
