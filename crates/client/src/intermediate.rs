//! Intermediate files of a user, for any program: the calls of table 2 of the paper on the intermediate storage system,
//! ISS (create, write at an offset, open with offset and length, read, close). The server knows the location of a file;
//! bytes travel to and from the data ports of nodes, with checksums in both directions.
//!
//! ```no_run
//! use api::intermediate::NewIntermediate;
//! use client::Intermediates;
//! use std::io::Read;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let files = Intermediates::with("http://127.0.0.1:7070", &trust::Credentials::none())?;
//! let new = NewIntermediate { name: "edges".into(), silence_seconds: 60, ..NewIntermediate::default() };
//! let mut writer = files.create_intermediate(&new)?;
//! writer.write_at(0, b"a b\n")?;
//! writer.write_at(4, b"b c\n")?;
//! writer.close()?;
//! // In another program, which may have started before the first one ended:
//! let mut text = String::new();
//! files.open("edges", 4, None, Duration::from_secs(30))?.read_to_string(&mut text)?;
//! assert_eq!(text, "b c\n");
//! # Ok(())
//! # }
//! ```

use crate::{Blocking, ClientError};
use api::control::POLL_MS_MAX;
use api::intermediate::{
    ChangeIntermediate, INTERMEDIATE_PIECE_BYTES_MAX, IntermediateChange, IntermediatePlace,
    IntermediateState, IntermediateStatus, NewIntermediate, OpenIntermediate, OpenedIntermediate,
    RemoveIntermediate,
};
use bytes::Bytes;
use dataport::{
    AnyStageFile, DataClient, DataError, DataScope, Peer, StageFileCopy, StageFileName, StageFileOptions,
    StageFileRef, StageReadError, Token,
};
use ids::IntermediateId;
use stagefile::Payload;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use trust::Credentials;

/// Bytes read at once; twice as much is in memory.
const WINDOW_BYTES: usize = 1 << 20;
/// Time for which a reader continues without a readable copy: within it the server may notice the loss of a node, and
/// promote another copy.
const NO_COPY_MAX: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Number of keep-alives of an idle writer within its permitted silence.
const HEARD_PER_SILENCE: u64 = 4;

/// The reason why a file was not created, written or read.
#[derive(Debug, thiserror::Error)]
pub enum IntermediateError {
    /// The server refused, or is unreachable.
    #[error(transparent)]
    Server(#[from] ClientError),
    /// The node of the file failed or refused.
    #[error("the intermediate file {name:?} cannot be written: {}", dataport::with_causes(.source))]
    Write { name: String, source: DataError },
    #[error(
        "the intermediate file {name:?} is not complete after {seconds} seconds: its writer has not closed it"
    )]
    NotComplete { name: String, seconds: u64 },
    #[error("the intermediate file {name:?} is {}: {problem}", .state.word())]
    Failed { name: String, state: IntermediateState, problem: String },
    /// The file was removed and created anew during the read.
    #[error("the intermediate file {name:?} was removed and created anew")]
    Replaced { name: String },
    #[error("the intermediate file {name:?} has {bytes} bytes: there is nothing at {offset}")]
    OutOfRange { name: String, bytes: u64, offset: u64 },
    #[error("the intermediate file {name:?} cannot be read: {}", dataport::with_causes(.source))]
    Read { name: String, source: StageReadError },
    #[error("the server's answer about the intermediate file {name:?} is invalid: {what}")]
    Nonsense { name: String, what: &'static str },
}

impl From<IntermediateError> for std::io::Error {
    fn from(error: IntermediateError) -> Self {
        Self::other(error)
    }
}

/// The intermediate files of a cluster, through one server. Cheap to clone. Calls block, and must not be made from
/// async code.
#[derive(Clone)]
pub struct Intermediates {
    connection: Arc<Blocking>,
    data: DataClient,
    /// Owner of the files; none is the user of the credentials.
    user: Option<String>,
    /// The node on which this program runs.
    near: Option<String>,
}

impl Intermediates {
    /// Creates a client with credentials for the server and the nodes; connects to nothing yet.
    pub fn with(url: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let connection = Arc::new(Blocking::with(url, credentials)?);
        let runtime = connection.parts().0.handle().clone();
        let data = DataClient::with(runtime, credentials).map_err(|error| match error {
            DataError::Trust(error) => ClientError::Trust(error),
            DataError::Client(source) => ClientError::Unreachable { url: url.to_string(), source },
            other => ClientError::Runtime(std::io::Error::other(other)),
        })?;
        Ok(Self { connection, data, user: None, near: None })
    }

    /// Returns the same client for the files of another user, as far as groups of the files, or the role of an
    /// administrator, permit it.
    #[must_use]
    pub fn of_user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    /// Returns the same client for a program on a node, given by its name: new files are put there if possible, and
    /// copies there are preferred.
    #[must_use]
    pub fn near(self, node: Option<String>) -> Self {
        Self { near: node, ..self }
    }

    /// Creates a file and its only writer. The name must be free, or [`NewIntermediate::replace`] set: a file is never
    /// written twice. Before the close nobody can read it, and it is removed with this process.
    pub fn create_intermediate(
        &self,
        new: &NewIntermediate,
    ) -> Result<IntermediateWriter, IntermediateError> {
        let user = new.user.clone().or_else(|| self.user.clone());
        let near = new.near.clone().or_else(|| self.near.clone());
        let new = NewIntermediate { user, near, ..new.clone() };
        let created = self.connection.run(async |client| client.create_intermediate(&new).await)?;
        let peer = peer_of(&created.place);
        let data = self.data.with_token(created.grant.and_then(Token::new));
        let (file, silence_seconds) = (created.file, created.silence_seconds);
        let alive = self.stay_alive(data.clone(), peer.clone(), file, silence_seconds);
        Ok(IntermediateWriter {
            connection: Arc::clone(&self.connection),
            data,
            peer,
            file,
            name: new.name,
            silence_seconds,
            written: Payload::default(),
            alive,
            is_closed: false,
        })
    }

    /// Keeps an idle writer alive for the node, as long as its process lives.
    fn stay_alive(&self, data: DataClient, peer: Peer, file: IntermediateId, seconds: u32) -> AbortHandle {
        let every = Duration::from_millis(u64::from(seconds) * 1000 / HEARD_PER_SILENCE);
        let task = self.connection.parts().0.spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                // A write of no bytes at the beginning is always valid. The next write reports any error.
                let _ = data.write_user_file(&peer, file, 0, Bytes::new(), seconds).await;
            }
        });
        task.abort_handle()
    }

    /// Opens at most `length` bytes of a file from `offset`; None reads to its end. Waits at most `wait` until the file
    /// is complete, and fails if it is not.
    pub fn open(
        &self,
        name: &str,
        offset: u64,
        length: Option<u64>,
        wait: Duration,
    ) -> Result<IntermediateReader, IntermediateError> {
        let began = Instant::now();
        loop {
            let left = wait.saturating_sub(began.elapsed());
            let wait_ms = (left.as_millis() as u64).min(POLL_MS_MAX);
            let opened = self.ask(name, wait_ms)?;
            if opened.status.state != IntermediateState::Writing {
                return IntermediateReader::begin(self.clone(), opened, offset, length);
            }
            if began.elapsed() >= wait {
                let (name, seconds) = (name.to_string(), wait.as_secs());
                return Err(IntermediateError::NotComplete { name, seconds });
            }
        }
    }

    fn ask(&self, name: &str, wait_ms: u64) -> Result<OpenedIntermediate, IntermediateError> {
        let open = OpenIntermediate { name: name.to_string(), user: self.user.clone(), wait_ms };
        Ok(self.connection.run(async |client| client.open_intermediate(&open).await)?)
    }

    /// Returns the state of a file.
    pub fn stat(&self, name: &str) -> Result<IntermediateStatus, IntermediateError> {
        Ok(self.ask(name, 0)?.status)
    }

    /// Returns the files that the caller may read, of any user.
    pub fn list(&self) -> Result<Vec<IntermediateStatus>, IntermediateError> {
        Ok(self.connection.run(async |client| client.intermediates().await)?.files)
    }

    /// Removes a file, even while it is being written: its writer fails then.
    pub fn remove(&self, name: &str) -> Result<(), IntermediateError> {
        let remove = RemoveIntermediate { name: name.to_string(), user: self.user.clone() };
        Ok(self.connection.run(async |client| client.remove_intermediate(&remove).await)?)
    }

    /// Changes the groups or the owner of a file.
    pub fn change(&self, name: &str, change: IntermediateChange) -> Result<(), IntermediateError> {
        let change = ChangeIntermediate { name: name.to_string(), user: self.user.clone(), change };
        Ok(self.connection.run(async |client| client.change_intermediate(&change).await)?)
    }
}

fn peer_of(place: &IntermediatePlace) -> Peer {
    Peer { node: place.node, url: place.data_url.clone(), incarnation: place.incarnation }
}

/// The only writer of a file. If it is dropped before the close, nothing of the file is left.
pub struct IntermediateWriter {
    connection: Arc<Blocking>,
    data: DataClient,
    peer: Peer,
    file: IntermediateId,
    name: String,
    silence_seconds: u32,
    written: Payload,
    /// The task that sends keep-alives.
    alive: AbortHandle,
    is_closed: bool,
}

impl IntermediateWriter {
    /// Returns the number of the file.
    pub fn file(&self) -> IntermediateId {
        self.file
    }

    /// Returns the number of bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written.bytes
    }

    /// Writes bytes at an offset, and returns the size of the file afterwards. A file is written front to back: the
    /// offset is the current end, or lies before it for a repeated write of the same bytes, which has no effect.
    /// Anything else is an error.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, IntermediateError> {
        let (runtime, _) = self.connection.parts();
        let mut at = offset;
        for piece in bytes.chunks(INTERMEDIATE_PIECE_BYTES_MAX) {
            let sent = Bytes::copy_from_slice(piece);
            let write = self.data.write_user_file(&self.peer, self.file, at, sent, self.silence_seconds);
            let name = || self.name.clone();
            let there = runtime.block_on(write);
            let there = there.map_err(|source| IntermediateError::Write { name: name(), source })?;
            if at == self.written.bytes {
                self.written.crc32c = crc32c::crc32c_append(self.written.crc32c, piece);
                self.written.bytes += piece.len() as u64;
            }
            if there != self.written.bytes {
                let what = "the node does not have as many bytes as were written";
                return Err(IntermediateError::Nonsense { name: name(), what });
            }
            at += piece.len() as u64;
        }
        Ok(self.written.bytes)
    }

    /// Completes the file: from now on it can be read, and never changes. When this returns, the file is on the disk of
    /// its node, the server knows it, and a replica is being made. Returns its size in bytes.
    pub fn close(mut self) -> Result<u64, IntermediateError> {
        let (runtime, _) = self.connection.parts();
        let closed = runtime.block_on(self.data.close_user_file(&self.peer, self.file, self.written));
        let name = self.name.clone();
        let bytes = closed.map_err(|source| IntermediateError::Write { name, source })?;
        self.is_closed = true;
        Ok(bytes)
    }
}

impl Write for IntermediateWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let piece = &bytes[..bytes.len().min(INTERMEDIATE_PIECE_BYTES_MAX)];
        self.write_at(self.written.bytes, piece)?;
        Ok(piece.len())
    }

    /// Does nothing: nobody can read the file before the close.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for IntermediateWriter {
    fn drop(&mut self) {
        self.alive.abort();
        // Async code must not block; the node notices the silence.
        if !self.is_closed && tokio::runtime::Handle::try_current().is_err() {
            let reason = "its writer abandoned it";
            let abandoned = self.data.abandon_user_file(&self.peer, self.file, reason);
            let _ = self.connection.parts().0.block_on(abandoned);
        }
    }
}

/// A range of a complete file. Every block is verified before any byte of it is returned; if a copy becomes unreadable,
/// reading continues with the other one.
pub struct IntermediateReader {
    files: Intermediates,
    status: IntermediateStatus,
    payload: Payload,
    file: AnyStageFile,
    /// Current position and end of the range, in the payload.
    position: u64,
    end: u64,
    /// Time since which no copy was readable.
    failing_since: Option<Instant>,
}

impl IntermediateReader {
    fn begin(
        files: Intermediates,
        opened: OpenedIntermediate,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Self, IntermediateError> {
        let (status, payload) = complete(&opened)?;
        let name = status.name.clone();
        if offset > payload.bytes {
            return Err(IntermediateError::OutOfRange { name, bytes: payload.bytes, offset });
        }
        let left = payload.bytes - offset;
        let end = offset + length.map_or(left, |length| length.min(left));
        let file = any_copy(&files, &opened, payload, offset, end)?;
        Ok(Self { files, status, payload, file, position: offset, end, failing_since: None })
    }

    /// Returns the status of the file.
    pub fn status(&self) -> &IntermediateStatus {
        &self.status
    }

    /// Returns the number of bytes left to read.
    pub fn left(&self) -> u64 {
        self.end - self.position
    }

    /// Asks for the current locations of the file, and continues there.
    fn look_again(&mut self) -> Result<(), IntermediateError> {
        let opened = self.files.ask(&self.status.name, 0)?;
        let name = || self.status.name.clone();
        if opened.status.file != self.status.file {
            return Err(IntermediateError::Replaced { name: name() });
        }
        let (status, payload) = complete(&opened)?;
        if payload != self.payload {
            let what = "its content has changed";
            return Err(IntermediateError::Nonsense { name: name(), what });
        }
        self.file = any_copy(&self.files, &opened, payload, self.position, self.end)?;
        self.status = status;
        Ok(())
    }
}

impl Read for IntermediateReader {
    /// Errors contain an [`IntermediateError`].
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let error = match self.file.read(buffer) {
                Ok(count) => {
                    self.position += count as u64;
                    self.failing_since = None;
                    return Ok(count);
                }
                Err(error) => error,
            };
            let since = *self.failing_since.get_or_insert_with(Instant::now);
            let is_no_copy = matches!(StageReadError::of(&error), Some(StageReadError::NoCopy { .. }));
            if !is_no_copy || since.elapsed() > NO_COPY_MAX {
                let inner = error.into_inner().and_then(|inner| inner.downcast::<StageReadError>().ok());
                let source = inner.map_or(StageReadError::Cancelled, |inner| *inner);
                return Err(IntermediateError::Read { name: self.status.name.clone(), source }.into());
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
            self.look_again()?;
        }
    }
}

/// Returns the status and the payload of a complete file. Fails if the file will never be complete.
fn complete(opened: &OpenedIntermediate) -> Result<(IntermediateStatus, Payload), IntermediateError> {
    let status = &opened.status;
    let name = status.name.clone();
    match (status.state, status.bytes, status.crc32c) {
        (IntermediateState::Complete, Some(bytes), Some(crc32c)) if bytes <= stagefile::PAYLOAD_BYTES_MAX => {
            Ok((status.clone(), Payload { bytes, crc32c }))
        }
        (IntermediateState::Complete, ..) => {
            Err(IntermediateError::Nonsense { name, what: "it has no size" })
        }
        (state, ..) => {
            let problem = status.problem.clone().unwrap_or_default();
            Err(IntermediateError::Failed { name, state, problem })
        }
    }
}

fn any_copy(
    files: &Intermediates,
    opened: &OpenedIntermediate,
    payload: Payload,
    begin: u64,
    end: u64,
) -> Result<AnyStageFile, IntermediateError> {
    let client = files.data.with_token(opened.grant.clone().and_then(Token::new));
    let mut places: Vec<&IntermediatePlace> = opened.places.iter().collect();
    places.sort_by_key(|place| files.near.as_deref() != Some(&place.node_name));
    let there =
        |place: &IntermediatePlace| StageFileCopy::There { client: client.clone(), peer: peer_of(place) };
    let name = StageFileName::of_user_file(opened.status.file);
    let options = StageFileOptions {
        of: DataScope::Users,
        file: StageFileRef { name, payload },
        copies: places.into_iter().map(there).collect(),
        window_bytes: WINDOW_BYTES,
        cancelled: Arc::default(),
    };
    let name = opened.status.name.clone();
    AnyStageFile::open(options, begin, end - begin).map_err(|source| IntermediateError::Read { name, source })
}
