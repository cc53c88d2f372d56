//! Three nodes with a chunkserver each, and lines between them.

use crate::line::{self, Line};
use crate::model::Case;
use crate::stage_files::Files;
use api::task::SealResult;
use chunkserver::{ChunkServer, Config, Run};
use dataport::{
    Chunkservers, DataClient, Peer, RemoteChunks, RemoteChunksOptions, SpreadByIfile, StageFileService, Token,
};
use ids::{IfileIndex, JobId, NodeId, RunId, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;

pub const NODES: usize = 3;
pub const JOB: JobId = JobId(7);
static PLACEMENT: SpreadByIfile = SpreadByIfile::by_number(0);

/// State that the port of one node serves.
pub struct Served {
    server: Mutex<Arc<ChunkServer>>,
    incarnation: AtomicU64,
    pub draining: AtomicBool,
    pub token: Token,
    pub stage_files: Arc<Files>,
}

impl Served {
    pub fn server(&self) -> Arc<ChunkServer> {
        Arc::clone(&self.server.lock().unwrap())
    }
}

impl Chunkservers for Served {
    fn chunkserver(&self, job: JobId, _: &str) -> Option<Arc<ChunkServer>> {
        (job == JOB).then(|| self.server())
    }

    fn stage_files(&self, job: JobId, _: &str) -> Option<Arc<dyn StageFileService>> {
        let files: Arc<dyn StageFileService> = Arc::<Files>::clone(&self.stage_files);
        (job == JOB).then_some(files)
    }

    fn takes_chunks(&self) -> bool {
        !self.draining.load(Ordering::Relaxed)
    }

    fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Relaxed)
    }

    fn admits_to_job(&self, _: JobId, shown: &str) -> bool {
        self.token.is(shown)
    }
}

pub struct Node {
    pub id: NodeId,
    pub served: Arc<Served>,
    pub line: Line,
    config: Config,
}

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub client: DataClient,
    _place: tempfile::TempDir,
    // Last: requests under way end with it.
    _runtime: Runtime,
}

impl Cluster {
    pub fn start(case: &Case) -> Self {
        let token = Token::new("secret".into()).expect("visible");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let place = tempfile::tempdir().expect("a temporary directory");
        let client =
            DataClient::new(runtime.handle().clone()).expect("a client").with_token(Some(token.clone()));
        let nodes = (0..NODES)
            .map(|index| {
                let dir = place.path().join(format!("node-{index}"));
                std::fs::create_dir(&dir).expect("a disk directory");
                // 0 is the embedded node; here are others.
                let id = NodeId(index as u32 + 1);
                let config = case.config(id, dir);
                let server = Arc::new(ChunkServer::start(config.clone()).expect("a chunkserver"));
                let served = Arc::new(Served {
                    server: Mutex::new(server),
                    incarnation: AtomicU64::new(100),
                    draining: AtomicBool::new(false),
                    token: token.clone(),
                    stage_files: Arc::new(Files::start(place.path().join(format!("stage-{index}")))),
                });
                let seed = case.seed.wrapping_add(index as u64);
                let line = runtime.block_on(serve(Arc::clone(&served), case.lines_cut_per_mille, seed));
                Node { id, served, line, config }
            })
            .collect();
        Self { nodes, client, _place: place, _runtime: runtime }
    }

    pub fn peer(&self, node: usize) -> Peer {
        let node = &self.nodes[node];
        Peer {
            node: node.id,
            url: format!("http://{}", node.line.address),
            incarnation: node.served.incarnation(),
        }
    }

    /// The service of an attempt on node `here`, with chunks on `hosts`.
    pub fn service(&self, here: usize, source: Source, hosts: &[usize]) -> RemoteChunks<'static> {
        let options = RemoteChunksOptions {
            job: JOB,
            source,
            here: self.nodes[here].id,
            local: self.nodes[here].served.server(),
            is_candidate: hosts.contains(&here),
            avoided: None,
            peers: hosts.iter().filter(|host| **host != here).map(|host| self.peer(*host)).collect(),
            slots: 2,
            cancelled: Arc::new(AtomicBool::new(false)),
        };
        RemoteChunks::new(&self.client, &PLACEMENT, options)
    }

    pub fn incarnations(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.served.incarnation()).collect()
    }

    /// The node loses its chunks and comes back empty.
    pub fn restart(&self, node: usize) {
        let node = &self.nodes[node];
        // The process before it may still be writing to its own directory.
        let mut config = node.config.clone();
        config.disk_dirs[0].push("anew");
        std::fs::create_dir(&config.disk_dirs[0]).expect("a disk directory");
        let anew = Arc::new(ChunkServer::start(config).expect("a chunkserver"));
        node.served.incarnation.fetch_add(1, Ordering::Relaxed);
        *node.served.server.lock().unwrap() = anew;
    }

    pub fn stop_line(&self, node: usize) {
        self.nodes[node].line.state.stopped.store(true, Ordering::Relaxed);
    }

    /// The line carries again.
    pub fn mend_line(&self, node: usize) {
        let state = &self.nodes[node].line.state;
        state.stop_at.store(u64::MAX, Ordering::Relaxed);
        state.flip_at.store(u64::MAX, Ordering::Relaxed);
        state.stopped.store(false, Ordering::Relaxed);
    }

    /// The runs of a node.
    pub fn runs(&self, node: usize) -> Vec<Arc<Run>> {
        let all: Vec<IfileIndex> = (0..8).map(IfileIndex).collect();
        self.nodes[node].served.server().runs_of(&all)
    }

    /// Copies all runs of a node to another one; says where each is then.
    pub fn copy_all(&self, from: usize, to: usize) -> BTreeMap<RunId, Peer> {
        let (server, peer) = (self.nodes[from].served.server(), self.peer(to));
        let copy = |run: Arc<Run>| {
            self.client.copy_run(&peer, JOB, &server, run.id, &|_| true).expect("copied");
            (run.id, peer.clone())
        };
        self.runs(from).into_iter().map(copy).collect()
    }

    /// The files in the directory of a node.
    pub fn files(&self, node: usize) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory(node)).expect("a disk directory");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    pub fn directory(&self, node: usize) -> &Path {
        &self.nodes[node].config.disk_dirs[0]
    }

    pub fn seal(&self) -> Vec<SealResult> {
        self.nodes.iter().map(|node| node.served.server().seal(&[]).expect("sealed")).collect()
    }
}

async fn serve(served: Arc<Served>, cut_per_mille: u64, seed: u64) -> Line {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = dataport::router(served);
    tokio::spawn(async move { axum::serve(listener, router).await });
    line::start(address, cut_per_mille, seed).await
}
