//! Commands on a cluster of real data ports and a server in memory.

mod node;
mod server;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path as RoutePath;
use axum::routing::post;
use clusterfiles::ClusterFiles;
use filestore::{FilesError, PutOptions, PutSource, StoredTree};
use filetransfer::{Links, RecordEnds, Target, Watch};
use filetree::{TreeName, TreePath};
use ids::ConcreteId;
use node::{Peers, TestNode};
use server::{ServerState, TestServer};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use trust::{Credentials, DataSigner};

pub fn serve(runtime: &Runtime, router: Router) -> String {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

struct World {
    dir: tempfile::TempDir,
    nodes: Vec<TestNode>,
    server: Arc<TestServer>,
    files: ClusterFiles,
    _runtime: Runtime,
}

impl World {
    fn start(nodes: u32, replicas: u32) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let signer = Arc::new(DataSigner::generate().unwrap());
        let peers = Peers::default();
        let start = |number| {
            let data = dir.path().join(format!("data-{number}"));
            TestNode::start(&runtime, number, data, &signer, &peers)
        };
        let nodes: Vec<TestNode> = (1..=nodes).map(start).collect();
        let places = nodes.iter().map(|node| node.place.clone()).collect();
        let mut state = ServerState::default();
        (state.nodes, state.replicas) = (places, replicas);
        let state = Mutex::new(state);
        let server = Arc::new(TestServer { state, signer });
        let answering = Arc::clone(&server);
        let answer = move |RoutePath(route): RoutePath<String>, body: Bytes| {
            let answer = answering.answer(&route, &body);
            async move { answer.to_string() }
        };
        let url = serve(&runtime, Router::new().route("/v1/stored-files/{*route}", post(answer)));
        let files = ClusterFiles::connect(&url, &Credentials::none(), "u").unwrap();
        Self { dir, nodes, server, files, _runtime: runtime }
    }

    /// Writes the source: small files, empty ones, a large one and directories.
    fn source(&self) -> BTreeMap<String, Vec<u8>> {
        let source = self.dir.path().join("source");
        let mut files = BTreeMap::new();
        for number in 0..120usize {
            let bytes = vec![number as u8; number * 97 % 5000];
            files.insert(format!("many/{number}"), bytes);
        }
        files.insert("empty".to_string(), Vec::new());
        let large = (0..(5usize << 20) + 17).map(|at| ((at * 31) >> 5) as u8).collect();
        files.insert("large".to_string(), large);
        std::fs::create_dir_all(source.join("nothing/here")).unwrap();
        for (name, bytes) in &files {
            let path = source.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        files
    }

    fn put(&self, threads: usize) -> Result<filestore::CommittedChange, FilesError> {
        let options = PutOptions {
            parts: None,
            records: RecordEnds::Bytes,
            hash_by: None,
            links: Links::Refused,
            skip_unsuitable: false,
            keep_versions: 1,
            ttl: None,
            replicas: None,
            threads,
        };
        let source = self.dir.path().join("source");
        let name = TreePath::parse("data").unwrap();
        self.files.put(PutSource::Path(&source), &name, &options, &Watch::default(), &mut |_| ())
    }

    fn get(&self, target: &str) -> Result<[u64; 2], FilesError> {
        let target = Target { path: self.dir.path().join(target), overwrite: false };
        self.files.get(&name("data"), &target, 3, &Watch::default())
    }

    fn check_copy(&self, copy: &str, files: &BTreeMap<String, Vec<u8>>) {
        let copy = self.dir.path().join(copy);
        for (name, bytes) in files {
            assert!(std::fs::read(copy.join(name)).unwrap() == *bytes, "{name}");
        }
        assert!(copy.join("nothing/here").is_dir());
    }

    fn calls(&self, route: &str) -> u32 {
        self.server.state.lock().unwrap().calls.get(route).copied().unwrap_or(0)
    }

    fn part_of_file(&self, name: &str) -> ConcreteId {
        self.server.state.lock().unwrap().recorded[name].parts[0].file.concrete
    }
}

fn name(text: &str) -> TreeName {
    TreeName::parse(text).unwrap()
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn directory_comes_back_from_its_replicas() {
    let world = World::start(3, 2);
    let files = world.source();
    let committed = world.put(3).unwrap();
    assert_eq!((committed.files, committed.short_files), (122, 0));
    assert_eq!(world.get("copy").unwrap(), [122, committed.bytes]);
    world.check_copy("copy", &files);
    // Small files travel together.
    assert!(world.calls("puts/places") <= 4, "{}", world.calls("puts/places"));
    let held: usize = world.nodes.iter().map(|node| node.stored.present().len()).sum();
    let full = files.values().filter(|bytes| !bytes.is_empty()).count();
    assert_eq!(held, 2 * full);
    let checked = world.files.check(&name("data")).unwrap();
    assert_eq!((checked.files, checked.bytes, checked.problems), (122, committed.bytes, Vec::new()));
    let mut range = Vec::new();
    world.files.cat(&name("data/large"), 70_000, 100_000, &mut range).unwrap();
    assert!(range == files["large"][70_000..170_000]);
    // The same put again has nothing to write.
    let places = world.calls("puts/places");
    std::fs::remove_file(world.dir.path().join("source/many/7")).unwrap();
    assert_eq!(world.put(3).unwrap().files, 121);
    assert_eq!(world.calls("puts/places"), places);
}

#[test]
fn failed_node_is_passed_over() {
    let world = World::start(3, 2);
    let files = world.source();
    world.nodes[0].stored.fails.store(true, Ordering::Relaxed);
    let committed = world.put(2).unwrap();
    assert_eq!((committed.files, committed.short_files), (122, 0));
    assert!(world.nodes[0].stored.present().is_empty());
    world.nodes[1].stored.fails.store(true, Ordering::Relaxed);
    world.get("copy").unwrap();
    world.check_copy("copy", &files);
}

#[test]
fn node_that_dies_after_its_write_is_replaced() {
    let world = World::start(3, 2);
    let files = world.source();
    world.nodes[0].stored.dies.store(true, Ordering::Relaxed);
    let committed = world.put(2).unwrap();
    assert_eq!((committed.files, committed.short_files), (122, 0));
    // Nothing is recorded on its disk, which alone had the first parts.
    let dead = world.nodes[0].place.disk;
    let state = world.server.state.lock().unwrap();
    let mut parts = state.recorded.values().flat_map(|file| &file.parts);
    assert!(parts.all(|part| !part.disks.contains(&dead)));
    drop(state);
    world.get("copy").unwrap();
    world.check_copy("copy", &files);
}

#[test]
fn put_with_one_node_left_is_short() {
    let world = World::start(2, 2);
    let files = world.source();
    world.nodes[1].stored.fails.store(true, Ordering::Relaxed);
    let committed = world.put(2).unwrap();
    let full = files.values().filter(|bytes| !bytes.is_empty()).count() as u64;
    assert_eq!((committed.files, committed.short_files), (122, full));
    let checked = world.files.check(&name("data")).unwrap();
    assert_eq!(checked.problems.len() as u64, full);
    assert_eq!(checked.problems[0].text, "part 0 has 1 of 2 replicas");
}

#[test]
fn damaged_replica_is_never_returned() {
    let world = World::start(2, 2);
    let files = world.source();
    world.put(2).unwrap();
    for part in ["large", "many/9", "many/50"].map(|name| world.part_of_file(name)) {
        flip(&world.nodes[0].stored.path(part));
    }
    world.get("copy").unwrap();
    world.check_copy("copy", &files);
    // Without the intact replica it is an error that names the file.
    flip(&world.nodes[1].stored.path(world.part_of_file("many/9")));
    let checked = world.files.check(&name("data")).unwrap();
    let problems: Vec<_> = checked.problems.iter().map(|problem| problem.name.as_deref()).collect();
    assert_eq!(problems, [Some("many/9")]);
}

#[test]
fn stream_becomes_a_file() {
    let world = World::start(2, 1);
    let options = PutOptions {
        parts: None,
        records: RecordEnds::Bytes,
        hash_by: None,
        links: Links::Refused,
        skip_unsuitable: false,
        keep_versions: 1,
        ttl: None,
        replicas: Some(1),
        threads: 1,
    };
    for bytes in [Vec::new(), vec![1; 100], vec![2; 3 << 20]] {
        let mut stream: &[u8] = &bytes;
        let name = TreePath::parse("data").unwrap();
        let source = PutSource::Stream(&mut stream);
        world.files.put(source, &name, &options, &Watch::default(), &mut |_| ()).unwrap();
        let state = world.server.state.lock().unwrap();
        let stored = &state.recorded[""];
        assert_eq!((stored.bytes, stored.parts.len()), (bytes.len() as u64, usize::from(!bytes.is_empty())));
    }
}
