//! Parts that are read from nodes, verified. A node that fails is passed over.

use crate::connection::{Connection, of_node, sentence};
use crate::lease::Lease;
use crate::places::{Places, Replica};
use crate::read_ahead::ReadAhead;
use api::StoredPart;
use api::stored::cluster::{ListStored, STORED_PAGE_MAX};
use bytes::Bytes;
use dataport::{DataError, PartRange, PartStream};
use filetransfer::{DonePart, FileToPut, PartSink, PartSource, PartStore, TransferError};
use ids::{ConcreteId, DiskId};
use rows::ConcreteRow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a reader waits for a replica that can be reached: nodes may be restarting.
pub(crate) const NO_REPLICA_MAX: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The parts of a version that is read.
pub(crate) struct PartReads {
    pub connection: Arc<Connection>,
    /// It is held until everything is read.
    lease: Arc<Lease>,
    places: Mutex<Places>,
    ahead: ReadAhead,
    /// How long a part without a replica that can be reached is awaited.
    patience: Duration,
}

impl PartReads {
    /// `order`: the parts in the order in which they will be read, for reading ahead.
    pub fn new(
        connection: Arc<Connection>,
        lease: Arc<Lease>,
        places: Places,
        order: impl IntoIterator<Item = StoredPart>,
        patience: Duration,
    ) -> Self {
        let ahead = ReadAhead::new(order);
        Self { connection, lease, places: Mutex::new(places), ahead, patience }
    }

    pub fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read a range of a part.
    pub fn range(&self, part: StoredPart, offset: u64, end: u64) -> PartReading<'_> {
        let waiting = Waiting::default();
        PartReading { reads: self, part, at: offset, end, stream: None, tried: HashSet::new(), waiting }
    }

    /// Chooses a disk for a part, and what a request to it needs.
    pub fn replica(&self, part: ConcreteId, tried: &HashSet<DiskId>) -> Option<Replica> {
        let places = self.places();
        let disk = places.choose(part, tried)?;
        places.replica(&self.connection, part, disk)
    }

    /// Asks the server again where a part is, after a pause. Fails if that takes too long; it asks at least once.
    pub fn ask_again(&self, part: ConcreteId, waiting: &mut Waiting) -> Result<(), TransferError> {
        let since = *waiting.since.get_or_insert_with(Instant::now);
        if waiting.has_asked && since.elapsed() >= self.patience {
            return Err(self.unreadable(part, waiting));
        }
        if waiting.has_asked {
            std::thread::sleep(ASK_AGAIN_AFTER.min(self.patience));
        }
        waiting.has_asked = true;
        let list = {
            let places = self.places();
            let Some(known) = places.part(part) else { return Err(self.unreadable(part, waiting)) };
            let file = &places.files[known.file];
            // The page behind the file before it has the file and its neighbors, which are read next.
            let before = known.file.checked_sub(1).map(|before| &places.files[before]);
            let after = before.filter(|before| before.directory == file.directory);
            ListStored {
                directory: file.directory,
                version: Some(self.lease.version),
                after: after.map(|before| before.entry().to_string()).unwrap_or_default(),
                only: after.is_none().then(|| file.entry().to_string()),
                limit: STORED_PAGE_MAX,
                parts: true,
                lease: self.lease.number,
            }
        };
        let page = self.connection.ask(async |client| client.list_stored(&list).await);
        let page = page.map_err(|error| TransferError::Store(error.to_string()))?;
        self.places().refresh(page);
        Ok(())
    }

    fn unreadable(&self, part: ConcreteId, waiting: &Waiting) -> TransferError {
        let places = self.places();
        let Some(known) = places.part(part) else {
            return TransferError::Store(format!("the server did not name the places of {part}"));
        };
        let replicas = known.disks.len() as u32;
        let reason = match (&waiting.reason, replicas) {
            (_, 0) => "all of them are lost".to_string(),
            (Some(reason), _) => reason.clone(),
            (None, _) => "none of their nodes can be reached".to_string(),
        };
        let reason = places.with_maker(part, reason);
        let name = places.files[known.file].name.clone();
        TransferError::NoReplica { name, part: known.position, replicas, reason }
    }

    /// Handles a failure of a replica: other disks are preferred, unless this process is the cause. A right that was
    /// refused is not shown again: the server gives another one.
    pub fn failed(
        &self,
        disk: DiskId,
        error: &DataError,
        waiting: &mut Waiting,
    ) -> Result<(), TransferError> {
        match of_node(error) {
            _ if matches!(error, DataError::Refused { status: 401 | 403, .. }) => {
                waiting.reason = Some(sentence(error));
                self.places().forget_grants();
                Ok(())
            }
            TransferError::Node { reason } => {
                waiting.reason = Some(reason);
                self.places().pass_over(disk);
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// The state of a reader that finds no replica.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
    has_asked: bool,
    /// The last failure of a node.
    pub reason: Option<String>,
}

/// A range of a part that is being read, front to back.
pub(crate) struct PartReading<'a> {
    reads: &'a PartReads,
    part: StoredPart,
    at: u64,
    end: u64,
    stream: Option<(DiskId, PartStream)>,
    tried: HashSet<DiskId>,
    waiting: Waiting,
}

impl PartReading<'_> {
    /// Returns the next verified bytes; None at the end of the range.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, TransferError> {
        while self.at < self.end {
            let (disk, mut stream) = match self.stream.take() {
                Some(open) => open,
                None => match self.open()? {
                    Some(open) => open,
                    None => continue,
                },
            };
            match stream.next_piece() {
                Ok(Some(piece)) if !piece.is_empty() => {
                    self.at += piece.len() as u64;
                    self.tried.clear();
                    self.waiting = Waiting::default();
                    self.stream = Some((disk, stream));
                    return Ok(Some(piece));
                }
                Ok(_) => {
                    // It is verified, so it cannot be short; another replica has the rest in any case.
                    self.tried.insert(disk);
                }
                Err(error) => {
                    self.tried.insert(disk);
                    self.reads.failed(disk, &error, &mut self.waiting)?;
                }
            }
        }
        Ok(None)
    }

    /// Opens the rest of the range on a replica; None if the caller must try again.
    fn open(&mut self) -> Result<Option<(DiskId, PartStream)>, TransferError> {
        let Some(replica) = self.reads.replica(self.part.concrete, &self.tried) else {
            self.reads.ask_again(self.part.concrete, &mut self.waiting)?;
            self.tried.clear();
            return Ok(None);
        };
        let range = PartRange { part: self.part, offset: self.at, bytes: self.end - self.at };
        match replica.client.read_parts(&replica.peer, vec![range]) {
            Ok(stream) => Ok(Some((replica.disk, stream))),
            Err(error) => {
                self.tried.insert(replica.disk);
                self.reads.failed(replica.disk, &error, &mut self.waiting)?;
                Ok(None)
            }
        }
    }
}

/// A large part that is read by a get.
struct LargeSource<'a> {
    reading: PartReading<'a>,
    held: Bytes,
    held_at: u64,
}

impl PartSource for LargeSource<'_> {
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], TransferError> {
        let held_end = self.held_at + self.held.len() as u64;
        if offset < self.held_at || offset >= held_end {
            if offset != held_end {
                let (part, end) = (self.reading.part, self.reading.end);
                self.reading = self.reading.reads.range(part, offset.min(end), end);
            }
            (self.held, self.held_at) = (self.reading.next_piece()?.unwrap_or_default(), offset);
        }
        let within = (offset - self.held_at) as usize;
        let end = within.saturating_add(bytes_max).min(self.held.len());
        Ok(&self.held[within.min(end)..end])
    }
}

/// A small part, whole in memory.
struct SmallSource(Bytes);

impl PartSource for SmallSource {
    fn read(&mut self, offset: u64, bytes_max: usize) -> Result<&[u8], TransferError> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let end = begin.saturating_add(bytes_max).min(self.0.len());
        Ok(&self.0[begin..end])
    }
}

pub(crate) fn part_of(row: &ConcreteRow) -> StoredPart {
    StoredPart { concrete: row.concrete, bytes: row.bytes, crc32c: row.crc32c }
}

impl PartStore for PartReads {
    fn create(
        &self,
        _part: ConcreteId,
        _bytes: Option<u64>,
    ) -> Result<Box<dyn PartSink + '_>, TransferError> {
        Err(TransferError::Store("a get writes no parts".to_string()))
    }

    fn open(&self, row: &ConcreteRow) -> Result<Box<dyn PartSource + '_>, TransferError> {
        let part = part_of(row);
        if self.ahead.has(part.concrete) {
            return Ok(Box::new(SmallSource(self.ahead.take(self, part.concrete)?)));
        }
        let reading = self.range(part, 0, part.bytes);
        Ok(Box::new(LargeSource { reading, held: Bytes::new(), held_at: 0 }))
    }

    fn keep(&self, _files: &[(FileToPut, Vec<DonePart>)]) -> Result<(), TransferError> {
        Err(TransferError::Store("a get keeps no files of a put".to_string()))
    }

    fn keeps_all(&self) -> bool {
        false
    }
}

/// Reads a group of small parts with few requests: as many as possible from one node. Gives each to `deliver`, in any
/// order. Ends early if `is_wanted` says so when parts have no replica that can be reached.
pub(crate) fn read_group(
    reads: &PartReads,
    group: &[StoredPart],
    is_wanted: &dyn Fn() -> bool,
    deliver: &mut dyn FnMut(ConcreteId, Bytes),
) -> Result<(), TransferError> {
    let mut left: Vec<(StoredPart, HashSet<DiskId>)> =
        group.iter().map(|part| (*part, HashSet::new())).collect();
    let mut waiting = Waiting::default();
    while let Some((first, _)) = left.first() {
        let first = *first;
        let found = left.iter().find_map(|(part, tried)| reads.replica(part.concrete, tried));
        let Some(replica) = found else {
            if !is_wanted() {
                return Ok(());
            }
            reads.ask_again(first.concrete, &mut waiting)?;
            left.iter_mut().for_each(|(_, tried)| tried.clear());
            continue;
        };
        let asked: Vec<StoredPart> = {
            let places = reads.places();
            let is_there = |(part, tried): &&(StoredPart, HashSet<DiskId>)| {
                !tried.contains(&replica.disk) && places.is_at(part.concrete, replica.disk, &replica.range)
            };
            left.iter().filter(is_there).map(|(part, _)| *part).collect()
        };
        let mut done = HashSet::new();
        let failures = read_from(&replica, &asked, &mut |part, bytes| {
            done.insert(part);
            deliver(part, bytes);
        });
        for (part, error) in failures {
            if let Some((_, tried)) = left.iter_mut().find(|(each, _)| each.concrete == part) {
                tried.insert(replica.disk);
            }
            reads.failed(replica.disk, &error, &mut waiting)?;
        }
        if !done.is_empty() {
            waiting = Waiting::default();
        }
        left.retain(|(part, _)| !done.contains(&part.concrete));
    }
    Ok(())
}

/// Reads parts from a node, as far as it has them. Returns those that failed; behind a broken stream the rest is
/// neither delivered nor returned.
fn read_from(
    replica: &Replica,
    asked: &[StoredPart],
    deliver: &mut dyn FnMut(ConcreteId, Bytes),
) -> Vec<(ConcreteId, DataError)> {
    let ranges = asked.iter().map(|part| PartRange::whole(*part)).collect();
    let mut stream = match replica.client.read_parts(&replica.peer, ranges) {
        Ok(stream) => stream,
        Err(error) => return asked.first().map(|part| (part.concrete, error)).into_iter().collect(),
    };
    let mut failures = Vec::new();
    for part in asked {
        match read_whole(&mut stream, part) {
            Ok(bytes) => deliver(part.concrete, bytes),
            Err(error) => {
                failures.push((part.concrete, error));
                if !stream.goes_on() {
                    break;
                }
            }
        }
    }
    failures
}

fn read_whole(stream: &mut PartStream, part: &StoredPart) -> Result<Bytes, DataError> {
    let Some(first) = stream.next_piece()? else { return Ok(Bytes::new()) };
    let mut pieces = Vec::new();
    while let Some(piece) = stream.next_piece()? {
        if pieces.is_empty() {
            pieces.reserve_exact(part.bytes as usize);
            pieces.extend_from_slice(&first);
        }
        pieces.extend_from_slice(&piece);
    }
    Ok(if pieces.is_empty() { first } else { pieces.into() })
}
