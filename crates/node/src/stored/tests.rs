//! Tests of the stored files of a node with a made-up server, and between the data ports of two nodes.

mod copies;

use crate::stored::disk_orders::{DiskOrder, follow_orders};
use crate::stored::disks::{DiskPlace, DiskSpace, FileOrigin, StoredDisk, StoredDiskError};
use crate::stored::files::{StoredFiles, StoredSettings};
use crate::stored::inventory::Inventory;
use crate::stored::keeper;
use crate::stored::local_files::LocalFiles;
use crate::stored::scrub::{ScrubPosition, scrub_page};
use crate::stored::server::{StoredServer, TellError};
use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{
    ListedParts, PartsOfJob, StoredEnd, StoredFetch, StoredLook, StoredNews, StoredNode, StoredOrders,
    StoredOutcome, StoredPage, StoredRemoval,
};
use chunkserver::ChunkServer;
use client::ClientError;
use concretefile::Content;
use dataport::{Chunkservers, DataClient, Peer, StoredFileError, StoredFileService, Token};
use ids::{ConcreteId, DiskId, JobId, NodeId, PutId};
use listener::{ConnectionLimits, Door, HostNames};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use trust::{FileRight, StoredGrant};

const DISK: DiskId = DiskId(7);
const LONG: Duration = Duration::from_secs(30);

/// A server that records what it is told.
#[derive(Default)]
struct MadeUpServer {
    told: Mutex<Vec<StoredNews>>,
    /// Orders of the next answer, besides the numbers of disks.
    orders: Mutex<StoredOrders>,
    parts: Mutex<Vec<StoredPart>>,
    peers: Mutex<Vec<Peer>>,
    is_silent: Mutex<bool>,
    /// The answer about parts of jobs, and the questions.
    page: Mutex<StoredPage>,
    asked: Mutex<Vec<PartsOfJob>>,
}

impl StoredServer for MadeUpServer {
    fn tell(&self, news: StoredNews, _: Duration) -> Result<StoredOrders, TellError> {
        if *self.is_silent.lock().unwrap() {
            return Err(TellError::Silent { seconds: 1 });
        }
        let disks = (DISK.0..).map(|number| Some(DiskId(number))).take(news.disks.len()).collect();
        self.told.lock().unwrap().push(news);
        Ok(StoredOrders { disks, ..std::mem::take(&mut *self.orders.lock().unwrap()) })
    }

    fn parts_on(&self, _: &str, after: Option<ConcreteId>) -> Result<ListedParts, TellError> {
        let parts = self.parts.lock().unwrap();
        let next = parts.iter().filter(|part| after.is_none_or(|after| part.concrete > after));
        Ok(ListedParts { parts: next.take(2).copied().collect() })
    }

    fn parts_of(&self, _: JobId, question: &PartsOfJob) -> Result<StoredPage, ClientError> {
        self.asked.lock().unwrap().push(question.clone());
        let mut page = self.page.lock().unwrap().clone();
        page.sources.retain(|source| question.copies && !question.failed.contains(&source.node));
        Ok(page)
    }

    fn peer(&self, node: NodeId) -> Option<Peer> {
        self.peers.lock().unwrap().iter().find(|peer| peer.node == node).cloned()
    }
}

impl MadeUpServer {
    fn ends(&self) -> Vec<StoredEnd> {
        self.told.lock().unwrap().iter().flat_map(|news| news.ends.clone()).collect()
    }

    /// Gives orders, and waits for this many ends altogether.
    fn order(&self, orders: StoredOrders, ends: usize) -> Vec<StoredEnd> {
        *self.orders.lock().unwrap() = orders;
        wait_until(|| self.ends().len() >= ends);
        self.ends()
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "waited for too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A node with one disk.
struct Here {
    runtime: Runtime,
    server: Arc<MadeUpServer>,
    files: Arc<StoredFiles>,
    has_failed: Arc<AtomicBool>,
    dir: TempDir,
}

impl Here {
    fn with(reserve_percent: u8) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let server = Arc::<MadeUpServer>::default();
        let settings = StoredSettings { reserve_percent, ..StoredSettings::default() };
        let data = DataClient::new(runtime.handle().clone()).unwrap();
        let place = place(dir.path());
        let has_failed = Arc::clone(&place.has_failed);
        let of_node: Arc<dyn StoredServer> = Arc::<MadeUpServer>::clone(&server);
        let files = Arc::new(StoredFiles::new(vec![place], settings, data, of_node));
        Self { runtime, server, files, has_failed, dir }
    }

    /// Opens the disk, without threads.
    fn open() -> Self {
        let here = Self::with(0);
        here.open_now();
        here
    }

    fn open_now(&self) -> Arc<StoredDisk> {
        let (opened, _) = self.files.open_disks().remove(0);
        opened.disk.set_number(Some(DISK));
        opened.disk
    }

    /// Starts the threads, and waits until the server has numbered the disk.
    fn start() -> Self {
        let here = Self::with(0);
        let copies = LocalFiles::of_one_machine(vec![here.dir.path().join("copies")]);
        keeper::start(&here.files, &Arc::new(copies)).unwrap();
        wait_until(|| here.files.disk(DISK).is_some());
        here
    }

    fn disk(&self) -> Arc<StoredDisk> {
        self.files.disk(DISK).unwrap().disk
    }

    /// Stores files by one request.
    fn store(&self, contents: &[(ConcreteId, &[u8])]) -> Result<Vec<StoredPart>, StoredFileError> {
        let bytes = contents.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let mut receiver = self.files.receive(DISK, bytes)?;
        for (file, bytes) in contents {
            receiver.begin(*file)?;
            bytes.chunks(70_000).try_for_each(|piece| receiver.write(piece))?;
            receiver.end(content(bytes))?;
        }
        receiver.sync()?;
        Ok(contents.iter().map(|(file, bytes)| part(*file, bytes)).collect())
    }

    fn has(&self, file: ConcreteId) -> bool {
        self.disk().files.path(file).exists()
    }

    /// Opens the data port.
    fn serve(&self, node: NodeId) -> Peer {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let routes = dataport::router(Arc::new(Port(Arc::clone(&self.files))));
        let _inside = self.runtime.enter();
        let socket = tokio::net::TcpListener::from_std(socket).unwrap();
        let limits = ConnectionLimits { body_pace: None, ..ConnectionLimits::within(1000) };
        let door = Door { tls: None, names: HostNames::new(None), limits, refuse: listener::plain_text };
        self.runtime.spawn(listener::serve(socket, door, routes));
        Peer { node, url, incarnation: 1 }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.files.end();
    }
}

/// The data port of a node that believes every token.
struct Port(Arc<StoredFiles>);

impl Chunkservers for Port {
    fn chunkserver(&self, _: JobId, _: &str) -> Option<Arc<ChunkServer>> {
        None
    }

    fn incarnation(&self) -> u64 {
        1
    }

    fn admits_to_job(&self, _: JobId, _: &str) -> bool {
        false
    }

    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        let files: Arc<dyn StoredFileService> = Arc::<StoredFiles>::clone(&self.0);
        Some(files)
    }

    fn admits_to_stored(&self, _: &str) -> Option<StoredGrant> {
        Some(StoredGrant { right: FileRight::Write, first: 0, last: i64::MAX, expires_seconds: u64::MAX })
    }
}

fn place(path: &Path) -> DiskPlace {
    DiskPlace { path: path.to_path_buf(), has_failed: Arc::default() }
}

fn file(put: i64, number: u32) -> ConcreteId {
    ConcreteId::of(PutId(put), number).unwrap()
}

fn content(bytes: &[u8]) -> Content {
    Content { bytes: bytes.len() as u64, crc32c: crc32c::crc32c(bytes) }
}

fn part(concrete: ConcreteId, bytes: &[u8]) -> StoredPart {
    StoredPart { concrete, bytes: bytes.len() as u64, crc32c: crc32c::crc32c(bytes) }
}

fn outcomes(ends: &[StoredEnd]) -> Vec<(ConcreteId, String)> {
    let word = |outcome: &StoredOutcome| match outcome {
        StoredOutcome::Fetched => "fetched".to_string(),
        StoredOutcome::Removed => "removed".to_string(),
        StoredOutcome::Lost(_) => "lost".to_string(),
        StoredOutcome::Failed(_) => "failed".to_string(),
        StoredOutcome::Suspect(_) => "suspect".to_string(),
    };
    let mut outcomes: Vec<_> = ends.iter().map(|end| (end.file, word(&end.outcome))).collect();
    outcomes.sort();
    outcomes
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn identity_stays_with_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let first = StoredDisk::open(&place(dir.path())).unwrap();
    let (uuid, secret) = (first.uuid().to_string(), first.secret().clone());
    assert!(first.is_empty() && uuid.len() == 36 && secret.0.len() >= 64);
    let home = dir.path().join("sailfish-files");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&home.join("secret")), mode(&home.join("data"))), (0o700, 0o600, 0o700));
    let second = StoredDisk::open(&place(dir.path()));
    assert!(matches!(second, Err(StoredDiskError::InUse(_))), "{second:?}");
    drop(first);
    let next = StoredDisk::open(&place(dir.path())).unwrap();
    assert_eq!((next.uuid(), next.secret()), (uuid.as_str(), &secret));
    next.files.create_new(file(1, 0)).unwrap().finish().unwrap();
    drop(next);
    assert!(!StoredDisk::open(&place(dir.path())).unwrap().is_empty());
    // Another name would make another disk of it.
    std::fs::rename(home.join("name"), dir.path().join("name")).unwrap();
    assert!(matches!(StoredDisk::open(&place(dir.path())), Err(StoredDiskError::Nameless(_))));
    std::fs::rename(dir.path().join("name"), home.join("name")).unwrap();
    flip(&home.join("secret"));
    assert!(matches!(StoredDisk::open(&place(dir.path())), Err(StoredDiskError::Damaged(_))));
}

#[test]
fn unwritable_disk_is_left_out() {
    let here = Here::with(0);
    // A file instead of the directory represents any obstacle.
    std::fs::write(here.dir.path().join("sailfish-files"), "").unwrap();
    assert!(here.files.open_disks().is_empty() && here.files.disks().is_empty());
    assert!(here.files.tell(|_, _| panic!("there is nothing to tell")));
    // It is tried again later.
    std::fs::remove_file(here.dir.path().join("sailfish-files")).unwrap();
    assert!(here.files.open_disks().is_empty());
    wait_until(|| !here.files.open_disks().is_empty());
}

#[test]
fn broken_request_leaves_nothing() {
    let here = Here::open();
    let bytes = vec![1; 100_000];
    for syncs in [false, true] {
        let mut receiver = here.files.receive(DISK, 1 << 20).unwrap();
        receiver.begin(file(1, 0)).unwrap();
        receiver.write(&bytes).unwrap();
        receiver.end(content(&bytes)).unwrap();
        receiver.begin(file(1, 1)).unwrap();
        receiver.write(&bytes).unwrap();
        // Another request cannot build on what may go.
        assert!(matches!(here.store(&[(file(1, 0), &bytes)]), Err(StoredFileError::Exists(_))));
        if syncs {
            receiver.sync().unwrap();
        }
        drop(receiver);
        assert_eq!((here.has(file(1, 0)), here.has(file(1, 1))), (syncs, false));
    }
    here.disk().remove(file(1, 0)).unwrap();
    here.disk().remove_empty(&[file(1, 0)]).unwrap();
    assert!(here.disk().is_empty() && here.disk().files.puts().unwrap().is_empty());
    assert!(here.store(&[(file(1, 0), &bytes)]).is_ok());
}

#[test]
fn existing_file_counts_if_it_is_equal() {
    let here = Here::open();
    let (bytes, other) = (vec![1; 100_000], vec![2; 100_000]);
    here.store(&[(file(1, 0), &bytes)]).unwrap();
    here.store(&[(file(1, 0), &bytes), (file(1, 1), &other)]).unwrap();
    let refused = here.store(&[(file(1, 2), &other), (file(1, 0), &other)]);
    assert!(matches!(refused, Err(StoredFileError::Exists(_))), "{refused:?}");
    assert!(here.disk().files.holds(file(1, 0), content(&bytes)) && !here.has(file(1, 2)));
    // A torn file of an earlier process is no replica.
    here.disk().files.create_new(file(2, 0)).unwrap().finish().unwrap();
    assert!(matches!(here.store(&[(file(2, 0), &bytes)]), Err(StoredFileError::Exists(_))));
    let mut receiver = here.files.receive(DISK, 10).unwrap();
    receiver.begin(file(3, 0)).unwrap();
    receiver.write(b"12345").unwrap();
    let wrong = receiver.end(content(b"54321"));
    assert!(matches!(wrong, Err(StoredFileError::WrongContent { .. })), "{wrong:?}");
    assert!(!here.has(file(3, 0)));
}

#[test]
fn reserve_of_the_disk_stays_free() {
    let here = Here::with(100);
    let disk = here.open_now();
    let refused = here.files.receive(DISK, 1).err();
    assert!(matches!(refused, Some(StoredFileError::NoRoom { disk: DISK, .. })), "{refused:?}");
    let space = DiskSpace { free_bytes: 300, total_bytes: 1000, is_writable: true };
    assert_eq!((space.above(20), space.above(30), space.above(90)), (100, 0, 0));
    let mut first = disk.promise(60, space, 20).unwrap();
    assert!(disk.promise(60, space, 20).is_none() && disk.room(space, 20) == 40);
    assert!(first.spend(50) && disk.room(space, 20) == 90);
    assert!(!first.spend(11));
    drop((first, disk.promise(100, space, 20).unwrap()));
    assert_eq!(disk.room(space, 20), 100);
    here.files.drain();
    assert!(matches!(here.files.receive(DISK, 0).err(), Some(StoredFileError::Draining)));
}

#[test]
fn removed_file_in_use_does_not_stay() {
    let here = Here::open();
    let disk = here.disk();
    let mut receiver = here.files.receive(DISK, 10).unwrap();
    receiver.begin(file(1, 0)).unwrap();
    receiver.end(content(b"")).unwrap();
    disk.remove(file(1, 0)).unwrap();
    assert!(matches!(receiver.sync(), Err(StoredFileError::Unknown(_))));
    drop(receiver);
    assert!(!here.has(file(1, 0)) && disk.begin_use(file(1, 0)));
    disk.abandon(file(1, 0), FileOrigin::Present);
    assert_eq!(disk.end_use(&[file(1, 0)]), Ok(()));
}

#[test]
fn inventory_pages_touch_and_cover_all() {
    let here = Here::open();
    let disk = here.disk();
    let numbers = [(3, 5000), (3, 2), (1, 9), (200, 0), (1, 4097), (17, 16)];
    let mut expected = Vec::new();
    for (put, number) in numbers {
        let bytes = vec![0; number as usize];
        here.store(&[(file(put, number), &bytes)]).unwrap();
        expected.push((file(put, number), u64::from(number)));
    }
    expected.sort();
    // A file of a running request is not listed.
    let mut receiver = here.files.receive(DISK, 0).unwrap();
    receiver.begin(file(2, 2)).unwrap();
    for page_max in 1..9 {
        let mut inventory = Inventory::in_pages_of(&disk, page_max).unwrap();
        let (mut listed, mut next) = (Vec::new(), 0);
        while let Some(page) = inventory.next_page(&disk).unwrap() {
            assert!(page.first == ConcreteId(next) && page.first <= page.last);
            assert!(page.files.len() <= page_max);
            assert!(page.files.iter().all(|(file, _)| (page.first..=page.last).contains(file)));
            assert_eq!(page.is_last, page.last == ConcreteId(i64::MAX));
            next = page.last.0.wrapping_add(1);
            listed.extend(page.files);
        }
        assert_eq!((&listed, next), (&expected, i64::MIN), "pages of {page_max}");
    }
    let empty = Here::open();
    let page = Inventory::begin(&empty.disk()).unwrap().next_page(&empty.disk()).unwrap().unwrap();
    assert!(page.is_last && page.files.is_empty() && page.last == ConcreteId(i64::MAX));
}

#[test]
fn scrub_finds_a_flipped_bit() {
    let here = Here::open();
    let disk = here.disk();
    let bytes = vec![5; 200_000];
    let stored: Vec<_> = (0..5).map(|number| (file(1, number), &bytes[..])).collect();
    *here.server.parts.lock().unwrap() = here.store(&stored).unwrap();
    flip(&disk.files.path(file(1, 1)));
    std::fs::remove_file(disk.files.path(file(1, 3))).unwrap();
    let mut position = ScrubPosition::load(&disk);
    assert_eq!(position.after, None);
    assert!(scrub_page(&here.files, &disk, &mut position));
    // The next process goes on.
    position.save(&disk);
    let mut position = ScrubPosition::load(&disk);
    assert_eq!((position.after, position.is_complete), (Some(file(1, 1)), false));
    while !position.is_complete {
        assert!(scrub_page(&here.files, &disk, &mut position));
    }
    position.save(&disk);
    assert_eq!(ScrubPosition::load(&disk), position);
    let lost = |number| (file(1, number), "lost".to_string());
    assert_eq!(outcomes(&here.files.reports.take().ends), [lost(1), lost(3)]);
    let left: Vec<bool> = (0..5).map(|number| here.has(file(1, number))).collect();
    assert_eq!(left, [true, false, true, false, true]);
}

#[test]
fn failed_disk_loses_no_file() {
    let here = Here::open();
    let disk = here.disk();
    let stored = here.store(&[(file(1, 0), b"12345")]).unwrap();
    // As if the disk were not mounted.
    let home = here.dir.path().join("sailfish-files");
    std::fs::rename(&home, here.dir.path().join("elsewhere")).unwrap();
    assert_eq!(disk.verify(file(1, 0), content(b"12345")), None);
    std::fs::rename(here.dir.path().join("elsewhere"), &home).unwrap();
    std::fs::remove_file(disk.files.path(file(1, 0))).unwrap();
    assert!(disk.verify(file(1, 0), content(b"12345")).is_some());
    assert!(matches!(here.files.open_stored(stored[0]).err(), Some(StoredFileError::Unknown(_))));
}

#[test]
fn damage_for_a_reader_is_only_reported() {
    let here = Here::with(0);
    let (opened, inbox) = here.files.open_disks().remove(0);
    opened.disk.set_number(Some(DISK));
    let stored = here.store(&[(file(1, 0), b"intact"), (file(1, 1), b"damaged")]).unwrap();
    assert_eq!(here.files.open_stored(stored[0]).unwrap().disk, DISK);
    flip(&opened.disk.files.path(file(1, 1)));
    // A reader may state any content: nothing is removed for that.
    let wrong = StoredPart { crc32c: 1, ..stored[0] };
    let suspect = [wrong, stored[1], stored[1]];
    suspect.iter().for_each(|part| here.files.is_damaged(*part, DISK, "a reader says so"));
    assert!(here.files.open_stored(StoredPart { bytes: 4, ..stored[0] }).is_err());
    let ends = here.files.reports.take().ends;
    assert_eq!(outcomes(&ends), [0, 1].map(|number| (file(1, number), "suspect".to_string())));
    let files = Arc::clone(&here.files);
    let disk = Arc::clone(&opened.disk);
    let worker = std::thread::spawn(move || follow_orders(&files, &disk, &inbox));
    for part in &stored {
        opened.orders.try_send(DiskOrder::Verify(*part)).unwrap();
    }
    wait_until(|| here.files.reports.has_more());
    let ends = here.files.reports.take().ends;
    assert_eq!(outcomes(&ends), [(file(1, 1), "lost".to_string())]);
    assert!(here.has(file(1, 0)) && !here.has(file(1, 1)));
    here.files.end();
    worker.join().unwrap();
}

#[test]
fn orders_of_the_server_are_executed() {
    let here = Here::start();
    let bytes = vec![3; 70_000];
    let files: Vec<_> = (0..6).map(|number| (file(4, number), &bytes[..])).collect();
    let parts = here.store(&files).unwrap();
    std::fs::write(here.disk().files.path(file(4, 3)), "short").unwrap();
    std::fs::remove_file(here.disk().files.path(file(4, 4))).unwrap();
    let remove = vec![StoredRemoval { disk: DISK, files: vec![file(4, 0), file(4, 1), file(9, 9)] }];
    let look =
        parts[2..].iter().map(|part| StoredLook { disk: DISK, file: *part, verifies: false }).collect();
    let ends = here.server.order(StoredOrders { remove, look, ..StoredOrders::default() }, 5);
    let expected = [
        (file(4, 0), "removed"),
        (file(4, 1), "removed"),
        (file(4, 3), "lost"),
        (file(4, 4), "lost"),
        (file(9, 9), "removed"),
    ];
    assert_eq!(outcomes(&ends), expected.map(|(file, word)| (file, word.to_string())));
    here.server.order(StoredOrders { list: vec![DISK], ..StoredOrders::default() }, 0);
    let listed = || {
        let told = here.server.told.lock().unwrap();
        told.iter().flat_map(|news| news.listed.clone()).collect::<Vec<_>>()
    };
    wait_until(|| !listed().is_empty());
    let left: Vec<_> = listed()[0].files.iter().map(|(file, bytes)| (*file, *bytes)).collect();
    assert_eq!(left, [(file(4, 2), 70_000), (file(4, 5), 70_000)]);
    here.files.tell_leaving();
    let told = here.server.told.lock().unwrap();
    let last = told.last().unwrap();
    assert!(last.is_leaving && last.disks[0].takes_files && !last.disks[0].is_empty);
}

#[test]
fn ends_survive_a_silent_server() {
    let here = Here::start();
    here.store(&[(file(4, 0), b"1")]).unwrap();
    *here.server.is_silent.lock().unwrap() = true;
    let disk = here.files.disk(DISK).unwrap();
    disk.orders.send(DiskOrder::Remove(vec![file(4, 0)])).unwrap();
    wait_until(|| !here.has(file(4, 0)));
    std::thread::sleep(Duration::from_millis(100));
    assert!(here.server.ends().is_empty());
    *here.server.is_silent.lock().unwrap() = false;
    wait_until(|| !here.server.ends().is_empty());
    wait_until(|| here.server.told.lock().unwrap().last().is_some_and(|news| news.disks[0].is_empty));
}

#[test]
fn files_are_fetched_from_whichever_node_has_them() {
    let (here, [second, third]) = (Here::start(), [Here::open(), Here::open()]);
    let contents: Vec<Vec<u8>> = (0..40).map(|number| vec![number as u8; 5000 * number]).collect();
    let all: Vec<_> =
        (0..).map(|number| file(6, number)).zip(contents.iter().map(|bytes| &bytes[..])).collect();
    let parts = second.store(&all).unwrap();
    third.store(&all[..30]).unwrap();
    // One is damaged at one node, one is missing there, and one is damaged everywhere.
    flip(&second.disk().files.path(file(6, 20)));
    std::fs::remove_file(second.disk().files.path(file(6, 7))).unwrap();
    flip(&second.disk().files.path(file(6, 35)));
    // One is here already.
    here.store(&all[1..2]).unwrap();
    let node = |number, peer: Peer| StoredNode {
        disk: DiskId(number),
        node: peer.node,
        node_name: String::new(),
        data_url: peer.url,
        incarnation: peer.incarnation,
    };
    let gone = Peer { node: NodeId(9), url: "http://127.0.0.1:1".into(), incarnation: 1 };
    let from = vec![node(1, gone), node(2, second.serve(NodeId(2))), node(3, third.serve(NodeId(3)))];
    let grant = SecretText("grant".into());
    let fetch = parts.iter().map(|file| StoredFetch {
        disk: DISK,
        file: *file,
        from: from.clone(),
        grant: grant.clone(),
    });
    let ends = here.server.order(StoredOrders { fetch: fetch.collect(), ..StoredOrders::default() }, 40);
    let expected: Vec<_> = (0..40)
        .map(|number| (file(6, number), if number == 35 { "failed" } else { "fetched" }.to_string()))
        .collect();
    assert_eq!(outcomes(&ends), expected);
    for (number, part) in parts.iter().enumerate() {
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        assert_eq!(here.disk().files.holds(part.concrete, content), number != 35, "{number}");
    }
}

/// The server has no row for files that an interrupted put or an older state left.
#[test]
fn file_that_is_there_is_taken_in() {
    let here = Here::start();
    let bytes = vec![8; 100_000];
    let mut parts = here.store(&[(file(5, 0), &bytes), (file(5, 1), &bytes)]).unwrap();
    flip(&here.disk().files.path(file(5, 1)));
    parts.push(part(file(5, 2), &bytes));
    let grant = SecretText("grant".into());
    let fetch =
        |file: &StoredPart| StoredFetch { disk: DISK, file: *file, from: Vec::new(), grant: grant.clone() };
    let fetch = parts.iter().map(fetch).collect();
    let ends = here.server.order(StoredOrders { fetch, ..StoredOrders::default() }, 3);
    let expected = [(file(5, 0), "fetched"), (file(5, 1), "failed"), (file(5, 2), "failed")];
    assert_eq!(outcomes(&ends), expected.map(|(file, word)| (file, word.to_string())));
    assert!(here.has(file(5, 0)) && !here.has(file(5, 1)));
}

#[test]
fn failed_disk_is_not_reported() {
    let here = Here::open();
    here.store(&[(file(1, 0), b"12345")]).unwrap();
    let told = || {
        assert!(here.files.tell(|_, _| ()));
        here.server.told.lock().unwrap().len()
    };
    here.files.lose(&here.disk(), file(1, 0), "a test".into());
    assert_eq!(told(), 1);
    here.files.lose(&here.disk(), file(1, 1), "a test".into());
    here.has_failed.store(true, Ordering::Relaxed);
    assert_eq!(told(), 1);
    here.has_failed.store(false, Ordering::Relaxed);
    here.files.drain();
    assert_eq!(told(), 2);
    let last = here.server.told.lock().unwrap().pop().unwrap();
    assert!(!last.disks[0].takes_files && last.disks[0].room_bytes == 0);
}

#[test]
fn client_has_all_its_files_fetched_or_none() {
    let (here, second) = (Here::open(), Here::open());
    let parts = second.store(&[(file(6, 0), b"first"), (file(6, 1), b"second")]).unwrap();
    let token = Token::new("grant".into()).unwrap();
    let fetch = |parts: &[StoredPart]| here.files.fetch_stored(DISK, NodeId(2), &token, parts);
    assert!(matches!(fetch(&parts), Err(StoredFileError::UnknownPeer(NodeId(2)))));
    here.server.peers.lock().unwrap().push(second.serve(NodeId(2)));
    let unknown = part(file(6, 2), b"third");
    let refused = fetch(&[parts[0], unknown]);
    assert!(matches!(refused, Err(StoredFileError::Peer { node: NodeId(2), .. })), "{refused:?}");
    assert!(!here.has(file(6, 0)));
    fetch(&parts).unwrap();
    fetch(&parts).unwrap();
    assert!(here.disk().files.holds(file(6, 1), content(b"second")));
}
