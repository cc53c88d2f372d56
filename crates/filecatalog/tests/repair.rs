//! A catalogue over a real store, with made-up nodes: from any loss that leaves one replica of each file, every file
//! gets its number of replicas back, and no disk keeps a file that nobody needs. Nodes that are drained stay until their
//! files have copies, and new nodes get their share.

use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{
    BeginStored, CommitStored, ListStored, NumberStored, PlaceStored, RecordStored, RecordedFile,
    RecordedPart, StoredChange, StoredDiskNews, StoredEnd, StoredListing, StoredNews, StoredOutcome,
};
use api::stored::need::{DrainingNode, StoredNeed};
use fastrand::Rng;
use filecatalog::{Asker, Catalog, CatalogError, RepairPace, ReportingNode};
use filetree::Changer;
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, NodeId};
use metastore::Metastore;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PACE: RepairPace = RepairPace {
    heard_within: Duration::from_millis(300),
    after: Duration::from_millis(600),
    grace: Duration::from_millis(300),
    scan_every: Duration::from_secs(2),
};
/// Far more than a repair takes here.
const REPAIRED_WITHIN: Duration = Duration::from_secs(60);

/// A node with one disk.
struct MadeUpNode {
    from: ReportingNode,
    uuid: String,
    disk: Option<DiskId>,
    files: BTreeMap<ConcreteId, u64>,
    ends: Vec<StoredEnd>,
    lists: bool,
    lives: bool,
    is_drained: bool,
    /// True if it does no fetches, and how many those were.
    drops_fetches: bool,
    dropped: usize,
    /// Bytes that files and other data may take.
    size_bytes: u64,
}

impl MadeUpNode {
    fn new(number: u32, rack: u32) -> Self {
        Self {
            from: ReportingNode {
                node: NodeId(number + 1),
                name: format!("n{number}"),
                rack: format!("r{rack}"),
            },
            uuid: format!("disk of n{number}"),
            disk: None,
            files: BTreeMap::new(),
            ends: Vec::new(),
            lists: false,
            lives: true,
            is_drained: false,
            drops_fetches: false,
            dropped: 0,
            size_bytes: 1 << 38,
        }
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().sum()
    }

    /// Makes the next report.
    fn news(&mut self) -> StoredNews {
        let listed = std::mem::take(&mut self.lists).then(|| StoredListing {
            uuid: self.uuid.clone(),
            first: ConcreteId(0),
            last: ConcreteId(i64::MAX),
            files: self.files.iter().map(|(file, bytes)| (*file, *bytes)).collect(),
            is_last: true,
        });
        StoredNews {
            data_url: format!("http://{}", self.from.name),
            disks: vec![StoredDiskNews {
                uuid: self.uuid.clone(),
                secret: SecretText(format!("secret of {}", self.uuid)),
                is_empty: self.files.is_empty(),
                total_bytes: 1 << 40,
                free_bytes: 1 << 39,
                room_bytes: self.size_bytes.saturating_sub(self.used_bytes()),
                takes_files: !self.is_drained,
            }],
            listed: listed.into_iter().collect(),
            ends: std::mem::take(&mut self.ends),
            ..StoredNews::default()
        }
    }
}

struct World {
    runtime: Runtime,
    catalog: Catalog,
    nodes: Vec<MadeUpNode>,
    random: Rng,
    next_node: u32,
}

fn asker() -> Asker {
    Asker { user: "ann".to_string(), changer: Changer::User("ann".to_string()), bytes_max: None }
}

impl World {
    fn new(state: &Path, seed: u64) -> World {
        let mut random = Rng::with_seed(seed);
        let racks = random.u32(1..4);
        let nodes = (0..random.u32(5..8)).map(|number| MadeUpNode::new(number, number % racks)).collect();
        World::with(state, nodes, random, PACE)
    }

    /// So many nodes in one rack.
    fn of(state: &Path, nodes: u32, seed: u64) -> World {
        let nodes = (0..nodes).map(|number| MadeUpNode::new(number, 0)).collect();
        World::with(state, nodes, Rng::with_seed(seed), PACE)
    }

    fn with(state: &Path, nodes: Vec<MadeUpNode>, random: Rng, pace: RepairPace) -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let catalog = runtime.block_on(async {
            let store = Metastore::open(state).await.unwrap();
            Catalog::open(store, Box::new(|_| "signed".to_string()), pace).await.unwrap()
        });
        World { runtime, catalog, nodes, random, next_node: 100 }
    }

    /// Lets each node report once, and do its orders.
    fn round(&mut self) {
        for index in 0..self.nodes.len() {
            if !self.nodes[index].lives {
                continue;
            }
            let node = &mut self.nodes[index];
            let news = node.news();
            let from = node.from.clone();
            let orders = self.runtime.block_on(self.catalog.news(&from, news)).unwrap();
            assert_eq!(orders.refused, []);
            let disk = orders.disks[0].unwrap();
            self.nodes[index].disk = Some(disk);
            self.nodes[index].lists |= orders.list.contains(&disk);
            for fetch in &orders.fetch {
                if self.nodes[index].drops_fetches {
                    self.nodes[index].dropped += 1;
                    continue;
                }
                let has_it = |other: &MadeUpNode| {
                    other.lives
                        && other.files.get(&fetch.file.concrete) == Some(&fetch.file.bytes)
                        && fetch.from.iter().any(|from| Some(from.disk) == other.disk)
                };
                let is_there = self.nodes[index].files.get(&fetch.file.concrete) == Some(&fetch.file.bytes);
                let outcome = match is_there || self.nodes.iter().any(has_it) {
                    true => StoredOutcome::Fetched,
                    false => StoredOutcome::Failed("nobody has it".to_string()),
                };
                let node = &mut self.nodes[index];
                if outcome == StoredOutcome::Fetched {
                    node.files.insert(fetch.file.concrete, fetch.file.bytes);
                }
                node.ends.push(StoredEnd { uuid: node.uuid.clone(), file: fetch.file.concrete, outcome });
            }
            let node = &mut self.nodes[index];
            for file in orders.remove.iter().flat_map(|removal| &removal.files) {
                node.files.remove(file);
                node.ends.push(StoredEnd {
                    uuid: node.uuid.clone(),
                    file: *file,
                    outcome: StoredOutcome::Removed,
                });
            }
            for look in &orders.look {
                let file = look.file.concrete;
                if node.files.get(&file) != Some(&look.file.bytes) {
                    node.files.remove(&file);
                    let outcome = StoredOutcome::Lost("it is missing".to_string());
                    node.ends.push(StoredEnd { uuid: node.uuid.clone(), file, outcome });
                }
            }
        }
        let drained = self.nodes.iter().filter(|node| node.is_drained && node.lives);
        let drained = drained.map(|node| DrainingNode { node: node.from.node, name: node.from.name.clone() });
        self.catalog.drain(&drained.collect::<Vec<_>>());
        self.runtime.block_on(self.catalog.keep_house()).unwrap();
    }

    /// Asks the catalogue. On a slow machine all nodes may count as silent: then they report again.
    fn ask<T>(&mut self, ask: impl AsyncFn(&Catalog) -> Result<T, CatalogError>) -> T {
        loop {
            match self.runtime.block_on(ask(&self.catalog)) {
                Err(CatalogError::NoNodes | CatalogError::NodesAwaited) => self.round(),
                answer => return answer.unwrap(),
            }
        }
    }

    /// Puts a directory of files.
    fn put(&mut self, name: &str, files: u32, replicas: u32) {
        let record = self.write(name, files, replicas);
        self.show(&record);
    }

    /// Writes a directory of files, each with one or two parts, to the disks of nodes. Returns their record.
    fn write(&mut self, name: &str, files: u32, replicas: u32) -> RecordStored {
        let begin = BeginStored {
            path: name.to_string(),
            is_directory: true,
            replicas: Some(replicas),
            keep_versions: 1,
            ..BeginStored::default()
        };
        let of = self.ask(async |catalog| catalog.begin(&asker(), &begin).await).of;
        let mut recorded = Vec::new();
        for number in 0..files {
            let parts = self.random.u32(1..3);
            let ask = NumberStored { of, count: parts };
            let numbered = self.ask(async |catalog| catalog.number(&asker(), &ask).await);
            let mut file = RecordedFile {
                name: format!("d{}/f{number}", number % 3),
                content: ContentId::of(of.put, numbered.first).unwrap(),
                bytes: 0,
                modified_ns: 1,
                parts: Vec::new(),
                hashed: None,
            };
            for part in 0..parts {
                let concrete = ConcreteId::of(of.put, numbered.first + part).unwrap();
                let bytes = self.random.u64(1..1 << 20);
                let ask = PlaceStored { of, bytes, avoid: Vec::new() };
                let placed = self.ask(async |catalog| catalog.place(&asker(), &ask).await);
                let disks: Vec<DiskId> = placed.disks.iter().map(|at| at.disk).collect();
                let holds = |node: &&mut MadeUpNode| node.disk.is_some_and(|disk| disks.contains(&disk));
                for node in self.nodes.iter_mut().filter(holds) {
                    node.files.insert(concrete, bytes);
                }
                file.bytes += bytes;
                let stored = StoredPart { concrete, bytes, crc32c: number };
                file.parts.push(RecordedPart { file: stored, disks });
            }
            recorded.push(file);
        }
        RecordStored { of, files: recorded, forgotten: Vec::new() }
    }

    /// Records written files, and makes them visible.
    fn show(&mut self, record: &RecordStored) {
        self.ask(async |catalog| catalog.record(&asker(), record).await);
        // A repeated report of the same files changes nothing: its answer was lost.
        self.ask(async |catalog| catalog.record(&asker(), record).await);
        let commit = CommitStored { of: record.of, empty_directories: vec!["empty/below".to_string()] };
        let committed = self.ask(async |catalog| catalog.commit(&asker(), &commit).await);
        assert_eq!(self.ask(async |catalog| catalog.commit(&asker(), &commit).await), committed);
        assert_eq!(committed.files, record.files.len() as u64);
    }

    /// Returns the files that rows know, with the disks that have them.
    fn rows(&self) -> BTreeMap<ConcreteId, BTreeSet<DiskId>> {
        let mut rows = BTreeMap::new();
        let mut pending = vec![DirectoryId(1)];
        while let Some(directory) = pending.pop() {
            let list = ListStored { directory, limit: 2000, parts: true, ..ListStored::default() };
            let page = self.runtime.block_on(self.catalog.list(&asker(), &list)).unwrap();
            for entry in page.entries {
                assert!(entry.since.0 > 0, "{entry:?} has no version");
                if let api::stored::cluster::StoredItem::Directory(below) = entry.item {
                    pending.push(below);
                }
            }
            rows.extend(
                page.parts.into_iter().map(|part| (part.file.concrete, part.disks.into_iter().collect())),
            );
        }
        rows
    }

    /// Returns the first difference between the state and the goal.
    fn difference(&self, replicas: usize) -> Option<String> {
        let rows = self.rows();
        let live: Vec<&MadeUpNode> = self.nodes.iter().filter(|node| node.lives).collect();
        for (file, disks) in &rows {
            let here: BTreeSet<DiskId> = live
                .iter()
                .filter(|node| node.files.contains_key(file))
                .filter_map(|node| node.disk)
                .collect();
            if here.len() != replicas.min(live.len()) {
                return Some(format!("{file} is on {here:?}, its rows say {disks:?}"));
            }
            if !here.is_subset(disks) {
                return Some(format!("{file} is on {here:?}, and rows say only {disks:?}"));
            }
        }
        let unknown = live.iter().flat_map(|node| node.files.keys()).find(|file| !rows.contains_key(file));
        unknown.map(|file| format!("{file} is on a disk, and nobody needs it"))
    }

    fn until_whole(&mut self, replicas: usize, seed: u64) {
        let began = Instant::now();
        loop {
            self.round();
            match self.difference(replicas) {
                None => return,
                Some(difference) => assert!(began.elapsed() < REPAIRED_WITHIN, "seed {seed}: {difference}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Loses nodes, files and the ends of files, but for one replica of each file.
    fn lose(&mut self) {
        let mut safe: BTreeMap<ConcreteId, usize> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for file in node.files.keys() {
                if !safe.contains_key(file) || self.random.bool() {
                    safe.insert(*file, index);
                }
            }
        }
        for index in 0..self.nodes.len() {
            let is_needed = safe.values().any(|safe| *safe == index);
            let node = &mut self.nodes[index];
            if !is_needed && self.random.bool() {
                node.lives = false;
            }
            let files: Vec<ConcreteId> = node.files.keys().copied().collect();
            for file in files.into_iter().filter(|file| safe[file] != index) {
                match self.random.u8(0..4) {
                    0 => drop(node.files.remove(&file)),
                    1 => drop(node.files.insert(file, 0)),
                    _ => {}
                }
            }
            // Its process begins anew, and lists its files.
            self.next_node += 1;
            node.from.node = NodeId(self.next_node);
        }
    }
}

fn check(seed: u64) {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), seed);
    let replicas = world.random.u32(2..4);
    world.round();
    world.put("first", 20, replicas);
    world.put("second", 7, replicas);
    world.until_whole(replicas as usize, seed);
    world.lose();
    world.until_whole(replicas as usize, seed);
    // Nodes return with old files, and a directory is gone meanwhile.
    let remove = StoredChange::Remove { path: "second".to_string(), recursive: true };
    world.runtime.block_on(world.catalog.change(&asker(), &remove)).unwrap();
    for index in 0..world.nodes.len() {
        world.next_node += 1;
        let node = &mut world.nodes[index];
        if !node.lives {
            (node.lives, node.from.node) = (true, NodeId(world.next_node));
        }
    }
    world.until_whole(replicas as usize, seed);
    // Removal leaves nothing.
    let remove = StoredChange::Remove { path: "first".to_string(), recursive: true };
    world.runtime.block_on(world.catalog.change(&asker(), &remove)).unwrap();
    world.until_whole(replicas as usize, seed);
    assert!(world.nodes.iter().all(|node| node.files.is_empty()), "seed {seed}");
}

#[test]
fn repair_reaches_its_goal_from_any_loss() {
    let seeds: Vec<u64> = match std::env::var("SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..9).collect(),
    };
    std::thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || check(seed));
        }
    });
}

#[test]
fn files_recorded_after_a_loss_are_copied() {
    let state = tempfile::tempdir().unwrap();
    let nodes = (0..3).map(|number| MadeUpNode::new(number, 0)).collect();
    // Scans happen only for a reason.
    let pace = RepairPace { scan_every: REPAIRED_WITHIN * 100, ..PACE };
    let mut world = World::with(state.path(), nodes, Rng::with_seed(1), pace);
    world.round();
    let record = world.write("late", 12, 2);
    world.nodes[0].lives = false;
    let lost = Instant::now();
    world.until("the loss was noticed, and scanned for", |_| lost.elapsed() > PACE.after * 4);
    world.show(&record);
    world.until_whole(2, 1);
}

/// A part that is on its disk when its put is given up has no row, and takes room from others.
#[test]
fn unrecorded_files_of_given_up_puts_go() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::of(state.path(), 2, 1);
    // The first inventories come before the put.
    (0..3).for_each(|_| world.round());
    world.put("kept", 2, 2);
    let kept = world.rows().len();
    let given_up = world.write("given-up", 2, 2);
    world.ask(async |catalog| catalog.abandon(&asker(), given_up.of).await);
    world.until("files without a row are removed", |world| {
        world.nodes.iter().all(|node| node.files.len() == kept)
    });
}

/// Copies were ordered from a node that ended before it made them.
#[test]
fn copies_leave_a_node_that_ended() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::of(state.path(), 3, 1);
    world.nodes[1].size_bytes = 0;
    world.round();
    world.put("data", 10, 2);
    let files = world.nodes[0].files.len();
    world.nodes[1].size_bytes = 1 << 38;
    world.nodes[1].drops_fetches = true;
    world.nodes[0].lives = false;
    world.until("copies are ordered", |world| world.nodes[1].dropped == files);
    world.nodes[1].lives = false;
    world.nodes.push(MadeUpNode::new(3, 0));
    world.until_whole(2, 1);
}

#[test]
fn disks_of_other_stores_stay_untouched() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), 1);
    let news = |secret: &str, is_empty| StoredNews {
        disks: vec![StoredDiskNews {
            uuid: "a disk".to_string(),
            secret: SecretText(secret.to_string()),
            is_empty,
            total_bytes: 10,
            free_bytes: 10,
            room_bytes: 10,
            takes_files: true,
        }],
        ..StoredNews::default()
    };
    let from = world.nodes.remove(0).from;
    let tell =
        |secret, is_empty| world.runtime.block_on(world.catalog.news(&from, news(secret, is_empty))).unwrap();
    let orders = tell("right", false);
    assert!(
        orders.disks == [None] && orders.list.is_empty() && orders.refused[0].1.contains("another server")
    );
    assert!(tell("right", true).disks[0].is_some());
    let orders = tell("wrong", true);
    assert!(orders.disks == [None] && orders.refused[0].1.contains("secret"), "{orders:?}");
    assert!(tell("right", false).disks[0].is_some());
}

impl World {
    /// Runs rounds until a condition holds.
    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(
                began.elapsed() < REPAIRED_WITHIN,
                "{what}: {:?} {:?}",
                self.catalog.needs(),
                shares(self)
            );
            self.round();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the need for a node that is being drained; None if no scan has found it yet.
    fn need(&self, index: usize) -> Option<StoredNeed> {
        let needs = self.catalog.needs();
        needs.into_iter().find(|each| each.node == self.nodes[index].from.node).map(|each| each.need)
    }

    /// Returns the numbers of nodes that have each file of the rows, without one of the nodes.
    fn counts_without(&self, index: usize) -> BTreeSet<usize> {
        let others = || self.nodes.iter().enumerate().filter(|(other, node)| *other != index && node.lives);
        let count = |file| others().filter(|(_, node)| node.files.contains_key(file)).count();
        self.rows().keys().map(count).collect()
    }
}

fn check_drain(seed: u64) {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::new(state.path(), seed);
    let replicas = world.random.u32(1..4);
    world.round();
    world.put("first", 20, replicas);
    world.until_whole(replicas as usize, seed);
    let index = world.random.usize(0..world.nodes.len());
    world.nodes[index].is_drained = true;
    if world.random.bool() {
        // The put of another client ends during the drain; it placed its files before.
        world.put("second", 10, replicas);
    }
    world.round();
    world.until("the drain ends", |world| world.need(index) == Some(StoredNeed::default()));
    assert_eq!(world.counts_without(index), [replicas as usize].into(), "seed {seed}");
    world.nodes[index].lives = false;
    world.until_whole(replicas as usize, seed);
    // It returns with its disk, as another process.
    world.next_node += 1;
    let node = &mut world.nodes[index];
    (node.lives, node.is_drained, node.from.node) = (true, false, NodeId(world.next_node));
    world.until_whole(replicas as usize, seed);
}

#[test]
fn drained_node_stays_until_copies_are_made() {
    std::thread::scope(|scope| {
        for seed in 1..7 {
            scope.spawn(move || check_drain(seed));
        }
    });
}

#[test]
fn drain_names_files_without_a_place() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::of(state.path(), 3, 3);
    world.round();
    world.put("few", 4, 2);
    world.put("many", 20, 3);
    world.nodes[0].is_drained = true;
    let is_stuck =
        |world: &World| world.need(0).is_some_and(|need| need.files > 0 && need.files == need.without_place);
    world.until("the files of three replicas find no place", is_stuck);
    let need = world.need(0).unwrap();
    assert!((20..=40).contains(&need.files), "{need:?}");
    assert!((1..=10).contains(&need.names.len()), "{need:?}");
    assert!(need.names.iter().all(|name| name.starts_with("many/d")), "{need:?}");
    // The other nodes have all that they can have.
    assert_eq!(world.counts_without(0), [2].into());
    // A node without room changes nothing, and one with room ends it.
    world.nodes.push(MadeUpNode { size_bytes: 0, ..MadeUpNode::new(3, 0) });
    (0..5).for_each(|_| world.round());
    assert!(is_stuck(&world));
    world.nodes[3].size_bytes = 1 << 38;
    world.until("the drain ends", |world| world.need(0) == Some(StoredNeed::default()));
    assert_eq!(world.counts_without(0), [2, 3].into());
}

#[test]
fn drains_of_two_nodes_lose_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::of(state.path(), 5, 4);
    world.round();
    world.put("data", 15, 2);
    world.nodes[0].is_drained = true;
    world.nodes[1].is_drained = true;
    let is_done = |world: &World, index| world.need(index) == Some(StoredNeed::default());
    world.until("both drains end", |world| is_done(world, 0) && is_done(world, 1));
    world.nodes[0].lives = false;
    assert_eq!(world.counts_without(1), [2].into());
}

/// The bytes of files on nodes, as shares of their disks in percent.
fn shares(world: &World) -> Vec<u64> {
    world.nodes.iter().map(|node| node.used_bytes() * 100 / node.size_bytes).collect()
}

#[test]
fn joined_node_gets_its_share() {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::of(state.path(), 3, 5);
    world.nodes.iter_mut().for_each(|node| node.size_bytes = 70 << 20);
    for part in 0..10 {
        // No node is silent for long.
        world.round();
        world.put(&format!("data{part}"), 10, 2);
    }
    world.until_whole(2, 5);
    let before = shares(&world);
    assert!(before.iter().all(|share| *share > 50), "{before:?}");
    world.nodes.push(MadeUpNode { size_bytes: 140 << 20, ..MadeUpNode::new(3, 0) });
    world.until("the new disk has its share", |world| {
        let shares = shares(world);
        let bounds = [shares.iter().min().unwrap(), shares.iter().max().unwrap()];
        bounds[1] - bounds[0] <= 6 && world.difference(2).is_none()
    });
    // Nothing moves any more.
    let settled = shares(&world);
    for _ in 0..50 {
        world.round();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((shares(&world), world.difference(2)), (settled, None));
    // Other data fills a disk up to its reserve: its files go elsewhere.
    world.nodes[0].size_bytes = 5 << 20;
    world.catalog.drain(&[]);
    world.until("the full disk has given files away", |world| {
        world.nodes[0].used_bytes() <= 5 << 20 && world.difference(2).is_none()
    });
}
