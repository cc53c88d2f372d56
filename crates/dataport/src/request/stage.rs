//! A range of a stage file on any node: read from one copy, and from the next one after a failure, starting at the
//! failed block.

use crate::error::{DataError, with_causes};
use crate::request::client::{DataClient, Peer, SILENCE_MAX};
use crate::wire::data_scope::DataScope;
use crate::wire::stage::{BLOCKS_PER_READ_MAX, StageFileRef, StageReadRequest};
use crate::wire::stage_name::StageFileName;
use api::{Blame, TaskFailure};
use iappender::APPEND_TRIES_MAX;
use ids::NodeId;
use stagefile::{RangeDecoder, RawFile, RawRange, STORED_BLOCK_BYTES, StageFileDamage, StageFileError};
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Maximum bytes read at once; the same amount is requested ahead from another node.
const WINDOW_BYTES_MAX: usize = BLOCKS_PER_READ_MAX as usize * STORED_BLOCK_BYTES;
/// How often a waiting reader checks whether its attempt is cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Tries to read from a node while another copy is left: one more than needed for a connection that is about to close.
const TRIES_BEFORE_COPIES: u32 = 3;
/// Timeout of a silent node while another copy is left. The node only reads a disk, and waits for nobody.
const SILENCE_BEFORE_COPIES: Duration = Duration::from_secs(20);

/// Location of a copy of a stage file.
#[derive(Clone)]
pub enum StageFileCopy {
    /// On this node.
    Here {
        node: NodeId,
        path: PathBuf,
    },
    There {
        client: DataClient,
        peer: Peer,
    },
    /// On a node whose address is unknown: it may be lost.
    Nowhere {
        node: NodeId,
    },
    /// Expected on this node, which does not know it.
    Missing {
        node: NodeId,
    },
}

impl StageFileCopy {
    pub fn node(&self) -> NodeId {
        match self {
            Self::Here { node, .. } | Self::Nowhere { node } | Self::Missing { node } => *node,
            Self::There { peer, .. } => peer.node,
        }
    }
}

/// The stage file to read, its copies, and its owner.
#[derive(Clone)]
pub struct StageFileOptions {
    pub of: DataScope,
    pub file: StageFileRef,
    /// Copies in the order in which to try them.
    pub copies: Vec<StageFileCopy>,
    /// Bytes read at once, between a block and a megabyte; twice as much is in memory if another node is read.
    pub window_bytes: usize,
    /// Set when the attempt must stop.
    pub cancelled: Arc<AtomicBool>,
}

/// The reason why a copy of a stage file could not be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    /// The local copy failed.
    #[error(transparent)]
    Here(StageFileError),
    #[error("its data is damaged")]
    Damaged(#[source] StageFileDamage),
    #[error("its address is unknown")]
    UnknownNode,
    #[error("not known there")]
    Missing,
    #[error(transparent)]
    There(DataError),
}

impl CopyProblem {
    /// Returns whether the node did not respond: nothing is known of its copy.
    pub fn is_unreachable(&self) -> bool {
        let is_away = |error: &DataError| {
            matches!(
                error,
                DataError::Unreachable { .. } | DataError::Silent { .. } | DataError::Length { .. }
            )
        };
        matches!(self, Self::UnknownNode) || matches!(self, Self::There(error) if is_away(error))
    }

    /// Returns whether the copy is lost or damaged: a retry would not help.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Missing => true,
            Self::Here(error) => error.is_of_the_file(),
            // Unknown there, another process of that node, damaged there.
            Self::There(DataError::Refused { status, .. }) => matches!(status, 404 | 410 | 422),
            Self::UnknownNode | Self::There(_) => false,
        }
    }
}

/// A copy that failed.
#[derive(Debug)]
pub struct CopyFailure {
    pub node: NodeId,
    pub problem: CopyProblem,
}

impl std::fmt::Display for CopyFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "on {}: {}", self.node, with_causes(&self.problem))
    }
}

/// The reason why a stage file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StageReadError {
    #[error("the attempt was told to stop")]
    Cancelled,
    /// A mistake of the caller.
    #[error(transparent)]
    OutOfRange(StageFileError),
    /// All copies failed at the same block or before it; with the failure of each.
    #[error("no copy of {name} can be read: {}", list(.failures))]
    NoCopy { name: StageFileName, failures: Vec<CopyFailure> },
}

fn list(failures: &[CopyFailure]) -> String {
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    if texts.is_empty() { "it has none".to_string() } else { texts.join("; ") }
}

impl StageReadError {
    /// Returns the error inside an error of [`Read`] on a stage file.
    pub fn of(error: &std::io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns the failure of each copy.
    pub fn failures(&self) -> &[CopyFailure] {
        match self {
            Self::NoCopy { failures, .. } => failures,
            Self::Cancelled | Self::OutOfRange(_) => &[],
        }
    }

    /// Converts the error to a failure of the attempt.
    pub fn to_failure(&self) -> TaskFailure {
        let blame = match self {
            Self::Cancelled => Blame::Cancelled,
            Self::OutOfRange(_) => Blame::Engine,
            Self::NoCopy { .. } => Blame::Environment,
        };
        let unreachable = self.failures().iter().find(|failure| failure.problem.is_unreachable());
        let unreachable = unreachable.map(|failure| failure.node);
        TaskFailure { unreachable, ..TaskFailure::new(blame, with_causes(self)) }
    }
}

impl From<StageReadError> for std::io::Error {
    /// Wraps the error, so that [`StageReadError::of`] finds it.
    fn from(error: StageReadError) -> Self {
        Self::other(error)
    }
}

/// A range of a stage file, on this and other nodes. Nothing is read in advance of a request.
pub struct AnyStageFile {
    options: StageFileOptions,
    decoder: RangeDecoder,
    /// Position of the copy that is read; the number of copies if none is left.
    current: usize,
    open: Option<RawFile>,
    /// Blocks in stored form; the next one to decode begins at `next_block`.
    window: Vec<u8>,
    next_block: usize,
    /// Range of `window` that was decoded and not returned yet.
    given: Range<usize>,
    /// The blocks after the window, in flight.
    coming: Option<Coming>,
    /// True if damaged blocks are requested again: the network may have caused it.
    again: bool,
    /// Copies that failed since the last block that was read.
    failed: Vec<bool>,
    /// Last failure of each copy.
    failures: Vec<Option<CopyFailure>>,
    waited: Duration,
}

/// Requested blocks.
struct Coming {
    raw: RawRange,
    answer: oneshot::Receiver<Result<Vec<u8>, DataError>>,
    task: AbortHandle,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AnyStageFile {
    /// Opens bytes [offset, offset + length) of the payload.
    pub fn open(options: StageFileOptions, offset: u64, length: u64) -> Result<Self, StageReadError> {
        let decoder = RangeDecoder::new(options.file.payload, offset, length);
        let decoder = decoder.map_err(StageReadError::OutOfRange)?;
        let count = options.copies.len();
        let window_bytes = options.window_bytes.clamp(STORED_BLOCK_BYTES, WINDOW_BYTES_MAX);
        Ok(Self {
            options: StageFileOptions { window_bytes, ..options },
            decoder,
            current: 0,
            open: None,
            window: Vec::new(),
            next_block: 0,
            given: 0..0,
            coming: None,
            again: false,
            failed: vec![false; count],
            failures: (0..count).map(|_| None).collect(),
            waited: Duration::ZERO,
        })
    }

    /// Returns the node whose copy is read; None if no copy is left.
    pub fn node(&self) -> Option<NodeId> {
        self.options.copies.get(self.current).map(StageFileCopy::node)
    }

    /// Returns the last failure of each copy that failed, even if another one did not.
    pub fn failures(&self) -> impl Iterator<Item = &CopyFailure> {
        self.failures.iter().flatten()
    }

    /// Returns the time spent waiting for other nodes.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the next bytes of the range, never more than a block; empty at its end. [`Self::consume`] marks them as
    /// read.
    pub fn fill(&mut self) -> Result<&[u8], StageReadError> {
        while self.given.is_empty() && self.decoder.left() > 0 {
            if let Err(problem) = self.next_block() {
                self.leave(problem)?;
            }
        }
        Ok(&self.window[self.given.clone()])
    }

    /// Marks `bytes` bytes of the result of [`Self::fill`] as read.
    pub fn consume(&mut self, bytes: usize) {
        self.given.start = (self.given.start + bytes).min(self.given.end);
    }

    fn next_block(&mut self) -> Result<(), CopyProblem> {
        if self.next_block == self.window.len() {
            self.load()?;
        }
        let damage = match self.decoder.decode(&self.window[self.next_block..]) {
            Ok(decoded) => {
                self.given = self.next_block + decoded.wanted.start..self.next_block + decoded.wanted.end;
                self.next_block += decoded.stored_bytes;
                self.again = false;
                self.failed.fill(false);
                return Ok(());
            }
            Err(damage) => damage,
        };
        self.drop_window();
        match &self.open {
            Some(file) => Err(CopyProblem::Here(file.damaged(damage))),
            None if self.again => Err(CopyProblem::Damaged(damage)),
            None => {
                self.again = true;
                Ok(())
            }
        }
    }

    fn drop_window(&mut self) {
        self.window.clear();
        (self.given, self.next_block, self.coming) = (0..0, 0, None);
    }

    /// Continues with another copy, or with none.
    fn leave(&mut self, problem: CopyProblem) -> Result<(), StageReadError> {
        if matches!(problem, CopyProblem::There(DataError::Cancelled | DataError::Stopped)) {
            return Err(StageReadError::Cancelled);
        }
        self.drop_window();
        (self.open, self.again) = (None, false);
        if let Some(node) = self.node() {
            self.failed[self.current] = true;
            self.failures[self.current] = Some(CopyFailure { node, problem });
        }
        if let Some(next) = self.failed.iter().position(|failed| !failed) {
            self.current = next;
            return Ok(());
        }
        // The next request starts with the first copy.
        (self.current, self.failed) = (0, vec![false; self.options.copies.len()]);
        let failures = self.failures.iter_mut().filter_map(Option::take).collect();
        Err(StageReadError::NoCopy { name: self.options.file.name.clone(), failures })
    }

    /// Fills the window with the next blocks.
    fn load(&mut self) -> Result<(), CopyProblem> {
        self.drop_given();
        let Some(raw) = self.decoder.next_raw(self.options.window_bytes) else { return Ok(()) };
        if self.options.cancelled.load(Ordering::Relaxed) {
            return Err(CopyProblem::There(DataError::Cancelled));
        }
        match self.options.copies.get(self.current) {
            Some(StageFileCopy::Here { path, .. }) => {
                let file = match self.open.take() {
                    Some(file) => file,
                    None => RawFile::open(path, self.decoder.payload()).map_err(CopyProblem::Here)?,
                };
                self.window.resize((raw.stored.end - raw.stored.start) as usize, 0);
                let read = file.read_exact(raw.stored.start, &mut self.window);
                self.open = Some(file);
                read.inspect_err(|_| self.window.clear()).map_err(CopyProblem::Here)
            }
            Some(StageFileCopy::There { client, peer }) => {
                let (client, peer) = (client.clone(), peer.clone());
                self.load_from(&client, &peer, raw)
            }
            Some(StageFileCopy::Missing { .. }) => Err(CopyProblem::Missing),
            Some(StageFileCopy::Nowhere { .. }) | None => Err(CopyProblem::UnknownNode),
        }
    }

    fn drop_given(&mut self) {
        self.window.clear();
        (self.given, self.next_block) = (0..0, 0);
    }

    fn load_from(&mut self, client: &DataClient, peer: &Peer, raw: RawRange) -> Result<(), CopyProblem> {
        let coming = self.coming.take().filter(|coming| coming.raw == raw);
        let mut coming = coming.unwrap_or_else(|| self.ask(client, peer, raw));
        let began = Instant::now();
        let answered = self.wait(client, peer, &mut coming);
        self.waited += began.elapsed();
        self.window = answered.map_err(CopyProblem::There)?;
        let after = self.decoder.raw_after(&coming.raw, self.options.window_bytes);
        self.coming = after.map(|raw| self.ask(client, peer, raw));
        Ok(())
    }

    /// Returns whether another copy is left to try.
    fn has_another(&self) -> bool {
        let others = self.failed.iter().enumerate().filter(|(index, _)| *index != self.current);
        others.into_iter().any(|(_, failed)| !failed)
    }

    fn ask(&self, client: &DataClient, peer: &Peer, raw: RawRange) -> Coming {
        let tries_max = if self.has_another() { TRIES_BEFORE_COPIES } else { APPEND_TRIES_MAX };
        let file = self.options.file.clone();
        let request = StageReadRequest { file, first_block: raw.first_block, blocks: raw.blocks as u32 };
        let (sender, answer) = oneshot::channel();
        let (client_of_task, peer, of) = (client.clone(), peer.clone(), self.options.of);
        let task = client.runtime().spawn(async move {
            let blocks = client_of_task.stage_blocks(&peer, of, &request, tries_max).await;
            // If nobody waits any more, nobody needs this.
            let _ = sender.send(blocks);
        });
        Coming { raw, answer, task: task.abort_handle() }
    }

    fn wait(&self, client: &DataClient, peer: &Peer, coming: &mut Coming) -> Result<Vec<u8>, DataError> {
        let silence_max = if self.has_another() { SILENCE_BEFORE_COPIES } else { SILENCE_MAX };
        let (began, cancelled) = (Instant::now(), &self.options.cancelled);
        client.runtime().block_on(async {
            loop {
                match tokio::time::timeout(LOOK_AGAIN, &mut coming.answer).await {
                    Ok(answer) => return answer.unwrap_or(Err(DataError::Stopped)),
                    Err(_) if cancelled.load(Ordering::Relaxed) => return Err(DataError::Cancelled),
                    Err(_) if began.elapsed() > silence_max => {
                        return Err(DataError::Silent { node: peer.node, url: peer.url.clone() });
                    }
                    Err(_) => {}
                }
            }
        })
    }
}

impl Read for AnyStageFile {
    /// Errors contain a [`StageReadError`].
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}
