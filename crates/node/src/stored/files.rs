//! The stored files of this node, for its data port and its threads.

use crate::stored::disk_orders::DiskOrder;
use crate::stored::disks::{DiskPlace, DiskSpace, PromisedRoom, StoredDisk, StoredDiskError};
use crate::stored::ending::Ending;
use crate::stored::fetch::{FetchProblem, Fetching};
use crate::stored::receive::Receiving;
use crate::stored::reports::{CarriedReports, Reports};
use crate::stored::server::StoredServer;
use api::StoredPart;
use api::stored::cluster::{StoredDiskNews, StoredNews, StoredOrders, StoredOutcome};
use concretefile::Content;
use dataport::{
    DataClient, OpenedPart, PartReceiver, StoredFileError, StoredFileService, Token, with_causes,
};
use ids::{ConcreteId, DiskId, NodeId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Orders that wait for the thread of a disk; the next inventory shows those beyond it.
const DISK_ORDERS_MAX: usize = 256;
/// Longest wait for an answer of the server to a report, and to the last one.
const TELL_PATIENCE: Duration = Duration::from_secs(20);
/// How long a node waits for its first report before it says that it has joined.
const KNOWN_MAX: Duration = Duration::from_secs(2);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Pause before a disk that was not opened is tried again.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time for which a suspect file is not reported again, and maximum number of such files.
const SUSPECT_REST: Duration = Duration::from_secs(10);
const SUSPECTS_MAX: usize = 1000;
/// Time for which a lock of another process is no news: a process that was killed may hold it for a moment.
const DYING_MAX: Duration = Duration::from_secs(5);

/// Settings of a node for stored files.
#[derive(Clone, Copy, Debug)]
pub struct StoredSettings {
    /// Percentage of each disk that stays free for other data.
    pub reserve_percent: u8,
    /// Least time in which all stored files are verified once.
    pub scrub_every: Duration,
    /// Age at which the verification of a local copy counts no more: a program gets the copy after another one.
    pub verify_after: Duration,
    /// Maximum bytes of local copies that no attempt uses.
    pub unused_copy_bytes_max: u64,
    /// Maximum bytes of kept ranges that were read twice from other nodes; 0 keeps none.
    pub cache_bytes_max: u64,
}

impl Default for StoredSettings {
    fn default() -> Self {
        Self {
            reserve_percent: 20,
            scrub_every: Duration::from_secs(7 * 24 * 3600),
            verify_after: Duration::from_secs(24 * 3600),
            unused_copy_bytes_max: 4 << 30,
            cache_bytes_max: 0,
        }
    }
}

/// A disk in use, with the queue of its thread.
#[derive(Clone)]
pub(crate) struct DiskInUse {
    pub disk: Arc<StoredDisk>,
    pub orders: SyncSender<DiskOrder>,
}

/// The disks that are not in use yet.
struct UnopenedDisks {
    places: Vec<DiskPlace>,
    since: Instant,
    tried: Option<Instant>,
    /// The last warning about each.
    warned: BTreeMap<PathBuf, String>,
}

/// The stored files of this node.
pub(crate) struct StoredFiles {
    pub settings: StoredSettings,
    pub server: Arc<dyn StoredServer>,
    pub reports: Reports,
    pub ending: Arc<Ending>,
    data: DataClient,
    disks: Mutex<Vec<DiskInUse>>,
    unopened: Mutex<UnopenedDisks>,
    /// Held while a report is at the server.
    telling: Mutex<()>,
    draining: AtomicBool,
    is_leaving: AtomicBool,
    /// True after the server refused a report: the next one has neither ends nor pages, which may be the cause.
    is_bare: AtomicBool,
    /// Files that were reported as suspect a moment ago.
    suspects: Mutex<BTreeMap<(DiskId, ConcreteId), Instant>>,
    /// True after the server has taken a report.
    is_known: Mutex<bool>,
    became_known: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoredFiles {
    /// Creates the files of these disks; none is opened yet.
    pub fn new(
        places: Vec<DiskPlace>,
        settings: StoredSettings,
        data: DataClient,
        server: Arc<dyn StoredServer>,
    ) -> Self {
        let (since, tried, warned) = (Instant::now(), None, BTreeMap::new());
        Self {
            settings,
            server,
            reports: Reports::default(),
            suspects: Mutex::default(),
            is_known: Mutex::default(),
            became_known: Condvar::new(),
            ending: Arc::default(),
            data,
            disks: Mutex::default(),
            unopened: Mutex::new(UnopenedDisks { places, since, tried, warned }),
            telling: Mutex::default(),
            draining: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            is_bare: AtomicBool::new(false),
        }
    }

    /// Returns the disks in use.
    pub fn disks(&self) -> Vec<DiskInUse> {
        lock(&self.disks).clone()
    }

    pub fn disk(&self, number: DiskId) -> Option<DiskInUse> {
        self.disks().into_iter().find(|each| each.disk.number() == Some(number))
    }

    /// Opens the disks that are not in use yet, now and then. Returns the new ones, with their orders.
    pub fn open_disks(&self) -> Vec<(DiskInUse, Receiver<DiskOrder>)> {
        let mut unopened = lock(&self.unopened);
        if unopened.tried.is_some_and(|tried| tried.elapsed() < OPEN_AGAIN_AFTER) {
            return Vec::new();
        }
        unopened.tried = Some(Instant::now());
        let mut opened = Vec::new();
        for place in std::mem::take(&mut unopened.places) {
            match StoredDisk::open(&place) {
                Ok(disk) => {
                    let (orders, inbox) = sync_channel(DISK_ORDERS_MAX);
                    opened.push((DiskInUse { disk: Arc::new(disk), orders }, inbox));
                }
                Err(error) => {
                    unopened.warn(&place, &error);
                    unopened.places.push(place);
                }
            }
        }
        drop(unopened);
        let mut disks = lock(&self.disks);
        // Nothing begins after the end.
        if self.ending.has_ended() {
            return Vec::new();
        }
        disks.extend(opened.iter().map(|(disk, _)| disk.clone()));
        opened
    }

    /// Begins a drain: no new files are taken.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.reports.wake();
    }

    /// Ends everything, because the node ends or joins again under another number. The locks of the disks end with the
    /// last request.
    pub fn end(&self) {
        self.ending.end();
        self.reports.wake();
        lock(&self.disks).clear();
    }

    fn takes_files(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && !self.ending.has_ended()
    }

    /// Returns the disks that work. One that fails or hangs is not reported, so that the server counts it as silent, and
    /// its replicas as lost after a while.
    fn working_disks(&self) -> Vec<(DiskInUse, DiskSpace)> {
        let working = |each: DiskInUse| {
            let space = each.disk.space().filter(|_| !each.disk.has_failed())?;
            Some((each, space))
        };
        self.disks().into_iter().filter_map(working).collect()
    }

    fn news_of(&self, disk: &StoredDisk, space: DiskSpace) -> StoredDiskNews {
        let takes_files = self.takes_files() && space.is_writable;
        let room_bytes = if takes_files { disk.room(space, self.settings.reserve_percent) } else { 0 };
        StoredDiskNews {
            uuid: disk.uuid().to_string(),
            secret: disk.secret().clone(),
            is_empty: disk.is_empty(),
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            room_bytes,
            takes_files,
        }
    }

    /// Reports to the server, and passes its answer on. Returns false if it did not answer.
    pub fn tell(&self, take: impl FnOnce(&[DiskInUse], StoredOrders)) -> bool {
        let _telling = lock(&self.telling);
        let working = self.working_disks();
        let news = working.iter().map(|(each, space)| self.news_of(&each.disk, *space)).collect();
        let disks: Vec<DiskInUse> = working.into_iter().map(|(each, _)| each).collect();
        if disks.is_empty() || self.is_leaving.load(Ordering::Relaxed) || self.ending.has_ended() {
            // There is nothing to wait for.
            self.is_known_now();
            return true;
        }
        // The next inventory shows the outcome of the others.
        self.reports.retain(|uuid| disks.iter().any(|each| each.disk.is_used_as(uuid)));
        let is_bare = self.is_bare.load(Ordering::Relaxed);
        let carried = if is_bare { CarriedReports::default() } else { self.reports.take() };
        let news = StoredNews {
            disks: news,
            listed: carried.page.iter().cloned().collect(),
            ends: carried.ends.clone(),
            ..StoredNews::default()
        };
        match self.server.tell(news, TELL_PATIENCE) {
            Ok(orders) => {
                self.is_bare.store(false, Ordering::Relaxed);
                take(&disks, orders);
                self.is_known_now();
                let told = carried.page.filter(|page| !page.is_last);
                let next = told.and_then(|page| disks.iter().find(|each| each.disk.uuid() == page.uuid));
                // If the queue is full, the thread makes the next page by itself.
                next.into_iter().for_each(|each| drop(each.orders.try_send(DiskOrder::NextPage)));
                true
            }
            Err(error) => {
                tracing::debug!(error = with_causes(&error), "the server was not told of stored files");
                self.is_bare.store(!error.may_pass(), Ordering::Relaxed);
                self.reports.put_back(carried);
                false
            }
        }
    }

    fn is_known_now(&self) {
        *lock(&self.is_known) = true;
        self.became_known.notify_all();
    }

    /// Waits until the server has taken a report, so that a put finds the disks, but not for long.
    pub fn wait_until_known(&self) {
        let known = lock(&self.is_known);
        let waited = self.became_known.wait_timeout_while(known, KNOWN_MAX, |known| !*known);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells the server that this node is about to end and will return.
    pub fn tell_leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        let until = Instant::now() + LAST_PATIENCE;
        let _telling = loop {
            match self.telling.try_lock() {
                Ok(telling) => break telling,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() > until => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let disks = self.working_disks();
        self.reports.retain(|uuid| disks.iter().any(|(each, _)| each.disk.is_used_as(uuid)));
        let ends = self.reports.take().ends;
        let disks: Vec<_> = disks.iter().map(|(each, space)| self.news_of(&each.disk, *space)).collect();
        if disks.is_empty() {
            return;
        }
        let news = StoredNews { disks, ends, is_leaving: true, ..StoredNews::default() };
        // If the server is unavailable, it learns this from the silence.
        if let Err(error) = self.server.tell(news, LAST_PATIENCE) {
            tracing::debug!(error = with_causes(&error), "the server was not told that the node leaves");
        }
    }

    /// Removes a file that is missing or damaged, and reports it as lost.
    pub fn lose(&self, disk: &StoredDisk, file: ConcreteId, reason: String) {
        let home = disk.home().display();
        tracing::warn!(%file, disk = %home, reason, "a stored file is lost here; the server makes another replica");
        let removed = disk.remove(file).and_then(|()| disk.remove_empty(&[file]));
        if let Err(error) = removed {
            tracing::debug!(%file, error = with_causes(&error), "cannot remove a lost file");
        }
        self.reports.add(disk.uuid(), file, StoredOutcome::Lost(reason));
    }

    /// Returns the disk with the most room, if it takes so many bytes more.
    pub fn roomiest(&self, bytes: u64) -> Option<Arc<StoredDisk>> {
        let percent = self.settings.reserve_percent;
        let takes = |(each, space): (DiskInUse, DiskSpace)| {
            let is_usable = space.is_writable && each.disk.number().is_some();
            let room = if is_usable { each.disk.room(space, percent) } else { 0 };
            (room >= bytes).then_some((room, each.disk))
        };
        let usable = self.working_disks().into_iter().filter(|_| self.takes_files()).filter_map(takes);
        usable.max_by_key(|(room, _)| *room).map(|(_, disk)| disk)
    }

    /// Begins to receive files on a disk.
    pub fn receive_on(&self, disk: &Arc<StoredDisk>, bytes: u64) -> Result<Receiving, StoredFileError> {
        let room = self.promise_on(disk, bytes)?;
        Ok(Receiving::begin(room, Arc::clone(disk), Arc::clone(&self.ending)))
    }

    /// Promises room for further bytes on a disk.
    pub fn promise_on(&self, disk: &Arc<StoredDisk>, bytes: u64) -> Result<PromisedRoom, StoredFileError> {
        let Some(number) = disk.number() else { return Err(StoredFileError::Draining) };
        if !self.takes_files() {
            return Err(StoredFileError::Draining);
        }
        let space = if disk.has_failed() { None } else { Some(disk.measure()?) };
        let (space, reserve_percent) = (space.unwrap_or_default(), self.settings.reserve_percent);
        disk.promise(bytes, space, reserve_percent).ok_or_else(|| StoredFileError::NoRoom {
            disk: number,
            wanted_bytes: bytes,
            room_bytes: disk.room(space, reserve_percent),
            reserve_percent: reserve_percent.into(),
        })
    }

    /// Returns a client of other data ports that shows this token.
    pub fn client(&self, token: Token) -> DataClient {
        self.data.with_token(Some(token))
    }
}

impl UnopenedDisks {
    /// Warns once of each obstacle.
    fn warn(&mut self, place: &DiskPlace, error: &StoredDiskError) {
        if matches!(error, StoredDiskError::InUse(_)) && self.since.elapsed() < DYING_MAX {
            return;
        }
        let error = with_causes(error);
        if self.warned.get(&place.path) != Some(&error) {
            tracing::warn!(disk = %place.path.display(), error, "the disk takes no stored files");
            self.warned.insert(place.path.clone(), error);
        }
    }
}

impl StoredFileService for StoredFiles {
    fn receive(&self, disk: DiskId, bytes: u64) -> Result<Box<dyn PartReceiver>, StoredFileError> {
        let DiskInUse { disk, .. } = self.disk(disk).ok_or(StoredFileError::UnknownDisk(disk))?;
        Ok(Box::new(self.receive_on(&disk, bytes)?))
    }

    fn open_stored(&self, part: StoredPart) -> Result<OpenedPart, StoredFileError> {
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        let mut failure = StoredFileError::Unknown(part.concrete);
        let disks = self.disks();
        let is_here = |each: &DiskInUse| each.disk.files.path(part.concrete).exists();
        if !disks.iter().any(is_here) {
            // The server knows on which disk it should be.
            let numbers = disks.iter().filter_map(|each| each.disk.number());
            numbers.for_each(|number| self.is_damaged(part, number, "it is missing"));
        }
        for each in disks {
            let Some(number) = each.disk.number() else { continue };
            if !is_here(&each) {
                continue;
            }
            match each.disk.files.read(part.concrete, content) {
                Ok(reader) => return Ok(OpenedPart { disk: number, reader }),
                Err(error) => {
                    self.is_damaged(part, number, &with_causes(&error));
                    failure = error.into();
                }
            }
        }
        Err(failure)
    }

    fn is_damaged(&self, part: StoredPart, disk: DiskId, reason: &str) {
        let Some(each) = self.disk(disk) else { return };
        let mut suspects = lock(&self.suspects);
        suspects.retain(|_, since| since.elapsed() < SUSPECT_REST);
        let suspect = (disk, part.concrete);
        if suspects.len() < SUSPECTS_MAX && !suspects.contains_key(&suspect) {
            suspects.insert(suspect, Instant::now());
            // The reader stated the content, and may state anything: the server orders a look with the right one.
            self.reports.add(each.disk.uuid(), part.concrete, StoredOutcome::Suspect(reason.to_string()));
        }
    }

    fn fetch_stored(
        &self,
        disk: DiskId,
        from: NodeId,
        token: &Token,
        parts: &[StoredPart],
    ) -> Result<(), StoredFileError> {
        let DiskInUse { disk, .. } = self.disk(disk).ok_or(StoredFileError::UnknownDisk(disk))?;
        let peer = self.server.peer(from).ok_or(StoredFileError::UnknownPeer(from))?;
        let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
        let mut receiving = self.receive_on(&disk, bytes)?;
        let client = self.client(token.clone());
        let mut fetching = Fetching::begin(&client, &peer, parts)?;
        for part in parts {
            fetching.next_part(&mut receiving, part).map_err(FetchProblem::into_error)?;
        }
        receiving.sync()
    }
}
