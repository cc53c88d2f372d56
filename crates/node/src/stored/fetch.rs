//! Fetches concrete files from other nodes: for clients, and by order of the server.

use crate::stored::disk_orders::content_of;
use crate::stored::disks::StoredDisk;
use crate::stored::files::StoredFiles;
use crate::stored::receive::Receiving;
use api::StoredPart;
use api::stored::cluster::{StoredFetch, StoredNode, StoredOutcome};
use dataport::{
    DataClient, DataError, PARTS_PER_REQUEST_MAX, PartRange, PartReceiver as _, PartStream, Peer,
    StoredFileError, Token, with_causes,
};
use ids::{ConcreteId, DiskId};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that fetch by order of the server.
const FETCHERS: usize = 2;
/// Requests that wait for them.
const BATCHES_MAX: usize = 1024;
/// Bytes beyond which no further file joins a request.
const BATCH_BYTES_MAX: u64 = 64 << 20;
const BATCH_FILES_MAX: usize = 1000;
const _: () = assert!(BATCH_FILES_MAX <= PARTS_PER_REQUEST_MAX as usize);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reason why a file was not fetched.
#[derive(Debug)]
pub(crate) enum FetchProblem {
    /// This node cannot keep it.
    Here(StoredFileError),
    /// The other node does not give it.
    There { peer: Peer, error: DataError },
}

impl FetchProblem {
    pub fn into_error(self) -> StoredFileError {
        match self {
            Self::Here(error) => error,
            Self::There { peer, error } => {
                StoredFileError::Peer { node: peer.node, reason: with_causes(&error) }
            }
        }
    }

    /// Returns whether the cause is this one file, and the others may be fetched.
    fn is_of_the_file(&self) -> bool {
        match self {
            Self::Here(error) => {
                matches!(error, StoredFileError::Exists(_) | StoredFileError::WrongContent { .. })
            }
            Self::There { error, .. } => matches!(error, DataError::StoredDamaged { .. }),
        }
    }
}

/// A request for files of another node.
pub(crate) struct Fetching {
    peer: Peer,
    stream: PartStream,
}

impl Fetching {
    /// Asks for whole files, in this order.
    pub fn begin(client: &DataClient, peer: &Peer, parts: &[StoredPart]) -> Result<Self, StoredFileError> {
        let ranges = parts.iter().map(|part| PartRange::whole(*part)).collect();
        let stream = client
            .read_parts(peer, ranges)
            .map_err(|error| FetchProblem::There { peer: peer.clone(), error }.into_error())?;
        Ok(Self { peer: peer.clone(), stream })
    }

    /// Receives the next file; its bytes are verified as they arrive, and its content at the end.
    pub fn next_part(&mut self, to: &mut Receiving, part: &StoredPart) -> Result<(), FetchProblem> {
        to.begin(part.concrete).map_err(FetchProblem::Here)?;
        loop {
            match self.stream.next_piece() {
                Ok(Some(piece)) => to.write(&piece).map_err(FetchProblem::Here)?,
                Ok(None) => break,
                Err(error) => {
                    to.drop_open();
                    return Err(FetchProblem::There { peer: self.peer.clone(), error });
                }
            }
        }
        to.end(content_of(*part)).map_err(FetchProblem::Here)
    }

    /// Returns whether the file after a failed one follows.
    fn goes_on_after(&mut self, problem: &FetchProblem) -> bool {
        // A file that is not kept here would have to be read to its end.
        matches!(problem, FetchProblem::There { .. }) && problem.is_of_the_file() && self.stream.goes_on()
    }
}

/// Files that the server wants on a disk, from the same nodes.
struct Batch {
    disk: Arc<StoredDisk>,
    number: DiskId,
    from: Vec<StoredNode>,
    token: Token,
    parts: Vec<StoredPart>,
}

/// A file that was not fetched, with the reason.
struct Unfetched {
    part: StoredPart,
    reason: String,
}

/// The threads that fetch by order of the server.
pub(crate) struct FetchPool {
    batches: SyncSender<Batch>,
    /// Files that wait or are being fetched: the server may repeat an order.
    under_way: Arc<Mutex<BTreeSet<(DiskId, ConcreteId)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FetchPool {
    /// Starts the threads; they end with the files.
    pub fn start(files: &Arc<StoredFiles>) -> std::io::Result<Self> {
        let (batches, inbox) = sync_channel(BATCHES_MAX);
        let inbox = Arc::new(Mutex::new(inbox));
        let under_way = Arc::<Mutex<BTreeSet<_>>>::default();
        for number in 0..FETCHERS {
            let (files, inbox, under_way) = (Arc::clone(files), Arc::clone(&inbox), Arc::clone(&under_way));
            let thread = std::thread::Builder::new().name(format!("stored-fetch-{number}"));
            thread.spawn(move || fetch_loop(&files, &inbox, &under_way))?;
        }
        Ok(Self { batches, under_way })
    }

    /// Takes orders. Consecutive small files from the same nodes to the same disk travel in one request.
    pub fn take(&self, files: &StoredFiles, orders: Vec<StoredFetch>) {
        let mut batch: Option<(Batch, String)> = None;
        for order in orders {
            if lock(&self.under_way).contains(&(order.disk, order.file.concrete)) {
                continue;
            }
            if let Some((open, grant)) = &mut batch
                && open.number == order.disk
                && open.from == order.from
                && *grant == order.grant.0
                && open.has_room_for(&order.file)
            {
                open.parts.push(order.file);
                continue;
            }
            if let Some((full, _)) = batch.take() {
                self.send(files, full);
            }
            // An unknown disk is not in use any more.
            let Some(disk) = files.disk(order.disk) else { continue };
            match Token::new(order.grant.0.clone()) {
                Some(token) => {
                    let (number, from, parts) = (order.disk, order.from, vec![order.file]);
                    batch = Some((Batch { disk: disk.disk, number, from, token, parts }, order.grant.0));
                }
                None => {
                    let reason = "the right to read it is no token".to_string();
                    let outcome = StoredOutcome::Failed(reason);
                    files.reports.add(disk.disk.uuid(), order.file.concrete, outcome);
                }
            }
        }
        if let Some((last, _)) = batch {
            self.send(files, last);
        }
    }

    fn send(&self, files: &StoredFiles, batch: Batch) {
        lock(&self.under_way).extend(batch.keys());
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.batches.try_send(batch)
        {
            let keys: BTreeSet<_> = batch.keys().collect();
            lock(&self.under_way).retain(|key| !keys.contains(key));
            for part in &batch.parts {
                let reason = "too many files wait to be fetched by this node".to_string();
                files.reports.add(batch.disk.uuid(), part.concrete, StoredOutcome::Failed(reason));
            }
        }
    }
}

impl Batch {
    fn keys(&self) -> impl Iterator<Item = (DiskId, ConcreteId)> {
        self.parts.iter().map(|part| (self.number, part.concrete))
    }

    fn has_room_for(&self, part: &StoredPart) -> bool {
        let bytes = self.parts.iter().fold(part.bytes, |sum, part| sum.saturating_add(part.bytes));
        self.parts.len() < BATCH_FILES_MAX && bytes <= BATCH_BYTES_MAX
    }

    /// Fetches the files from each node in turn, as far as those before did not have them.
    fn fetch(&self, files: &StoredFiles) {
        let nobody = || "no node that has it can be reached".to_string();
        let unfetched = |part: &StoredPart| Unfetched { part: *part, reason: nobody() };
        let (here, left): (Vec<&StoredPart>, Vec<&StoredPart>) =
            self.parts.iter().partition(|part| self.disk.take_in(part.concrete, content_of(**part)));
        for part in here {
            files.reports.add(self.disk.uuid(), part.concrete, StoredOutcome::Fetched);
        }
        let mut left: Vec<Unfetched> = left.into_iter().map(unfetched).collect();
        for source in &self.from {
            if left.is_empty() || files.ending.has_ended() {
                break;
            }
            let peer =
                Peer { node: source.node, url: source.data_url.clone(), incarnation: source.incarnation };
            let parts: Vec<StoredPart> = left.iter().map(|each| each.part).collect();
            left = self.fetch_from(files, &peer, &parts);
        }
        for Unfetched { part, reason } in left {
            tracing::debug!(file = %part.concrete, disk = %self.number, reason, "a file was not fetched");
            files.reports.add(self.disk.uuid(), part.concrete, StoredOutcome::Failed(reason));
        }
    }

    /// Fetches files from one node. Returns those that it did not give.
    fn fetch_from(&self, files: &StoredFiles, peer: &Peer, parts: &[StoredPart]) -> Vec<Unfetched> {
        let mut unfetched = Vec::new();
        let mut rest = parts;
        while !rest.is_empty() {
            let before = rest.len();
            let (after, ended) = self.fetch_run(files, peer, rest, &mut unfetched);
            rest = after;
            if let Err(reason) = ended {
                unfetched.extend(rest.iter().map(|part| Unfetched { part: *part, reason: reason.clone() }));
                break;
            }
            debug_assert!(rest.len() < before, "each request decides about a file");
        }
        unfetched
    }

    /// Fetches files by one request, and syncs those that came. Returns those after the end of the stream, with an error
    /// if the node or this one cannot go on.
    fn fetch_run<'a>(
        &self,
        files: &StoredFiles,
        peer: &Peer,
        parts: &'a [StoredPart],
        unfetched: &mut Vec<Unfetched>,
    ) -> (&'a [StoredPart], Result<(), String>) {
        let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
        let begun = files.receive_on(&self.disk, bytes).and_then(|receiving| {
            Ok((receiving, Fetching::begin(&files.client(self.token.clone()), peer, parts)?))
        });
        let (mut receiving, mut fetching) = match begun {
            Ok(begun) => begun,
            Err(error) => return (parts, Err(with_causes(&error))),
        };
        let (mut fetched, mut rest, mut ended) = (Vec::new(), parts, Ok(()));
        while let Some((part, after)) = rest.split_first() {
            match fetching.next_part(&mut receiving, part) {
                Ok(()) => fetched.push(*part),
                Err(problem) => {
                    let goes_on = fetching.goes_on_after(&problem);
                    let is_of_the_file = problem.is_of_the_file();
                    let reason = with_causes(&problem.into_error());
                    if !is_of_the_file {
                        ended = Err(reason);
                        break;
                    }
                    unfetched.push(Unfetched { part: *part, reason });
                    if !goes_on {
                        rest = after;
                        break;
                    }
                }
            }
            rest = after;
        }
        match receiving.sync() {
            Ok(()) => {
                let done = |part: &StoredPart| {
                    files.reports.add(self.disk.uuid(), part.concrete, StoredOutcome::Fetched);
                };
                fetched.iter().for_each(done);
            }
            Err(error) => {
                let reason = with_causes(&error);
                unfetched.extend(fetched.into_iter().map(|part| Unfetched { part, reason: reason.clone() }));
            }
        }
        (rest, ended)
    }
}

fn fetch_loop(
    files: &StoredFiles,
    inbox: &Mutex<Receiver<Batch>>,
    under_way: &Mutex<BTreeSet<(DiskId, ConcreteId)>>,
) {
    while !files.ending.has_ended() {
        let received = lock(inbox).recv_timeout(LOOK_EVERY);
        let batch = match received {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        batch.fetch(files);
        let keys: BTreeSet<_> = batch.keys().collect();
        lock(under_way).retain(|key| !keys.contains(key));
    }
}
