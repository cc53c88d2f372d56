//! Nodes with a disk of stored files each, behind real ports and lines, and the grants to reach them.

use crate::line::{self, Line};
use crate::stage_files::draw;
use api::StoredPart;
use chunkserver::ChunkServer;
use concretefile::{ConcreteDirectory, ConcreteWriter, Content};
use dataport::{
    Chunkservers, DataClient, DataError, OpenedPart, PartRange, PartReceiver, PartStream, Peer,
    StoredFileError, StoredFileService, Token,
};
use ids::{ConcreteId, DiskId, JobId, NodeId, PutId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use trust::{DataRight, DataSigner, FileRight, StoredGrant};

pub const INCARNATION: u64 = 100;
/// The time of the nodes, in seconds.
pub const NOW: u64 = 1000;

/// The stored files of one node.
pub struct Stored {
    pub disk: DiskId,
    pub files: ConcreteDirectory,
    pub room_bytes: AtomicU64,
    /// Damage that readers found.
    pub damaged: Mutex<Vec<(StoredPart, String)>>,
    client: DataClient,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
}

impl Stored {
    /// Returns the files that exist, complete or not.
    pub fn present(&self) -> Vec<ConcreteId> {
        let mut files: Vec<ConcreteId> =
            self.files.puts().unwrap().into_iter().flat_map(|put| self.files.files(put).unwrap()).collect();
        files.sort();
        files
    }

    fn check(&self, disk: DiskId) -> Result<(), StoredFileError> {
        if disk == self.disk { Ok(()) } else { Err(StoredFileError::UnknownDisk(disk)) }
    }

    fn receiver(&self) -> Receiver {
        Receiver { files: self.files.clone(), written: Vec::new(), current: None, is_synced: false }
    }
}

struct Receiver {
    files: ConcreteDirectory,
    written: Vec<ConcreteId>,
    current: Option<(ConcreteId, Current)>,
    is_synced: bool,
}

enum Current {
    New(ConcreteWriter),
    Present(Content),
}

impl PartReceiver for Receiver {
    fn begin(&mut self, part: ConcreteId) -> Result<(), StoredFileError> {
        let current = match self.files.create_new(part) {
            Ok(writer) => {
                self.written.push(part);
                Current::New(writer)
            }
            Err(error) if error.is_existing() => Current::Present(Content::default()),
            Err(error) => return Err(error.into()),
        };
        self.current = Some((part, current));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoredFileError> {
        match &mut self.current {
            Some((_, Current::New(writer))) => Ok(writer.write(bytes)?),
            Some((_, Current::Present(content))) => {
                content.bytes += bytes.len() as u64;
                content.crc32c = crc32c::crc32c_append(content.crc32c, bytes);
                Ok(())
            }
            None => panic!("bytes without a part"),
        }
    }

    fn end(&mut self, stated: Content) -> Result<(), StoredFileError> {
        let (file, current) = self.current.take().expect("a part");
        let present = match current {
            Current::New(writer) => writer.finish()?,
            Current::Present(content) if self.files.holds(file, content) => content,
            Current::Present(_) => return Err(StoredFileError::Exists(file)),
        };
        match present == stated {
            true => Ok(()),
            false => Err(StoredFileError::WrongContent { file, stated, present }),
        }
    }

    fn sync(&mut self) -> Result<(), StoredFileError> {
        self.files.sync(&self.written)?;
        self.is_synced = true;
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.current = None;
        if !self.is_synced {
            self.written.iter().for_each(|file| self.files.remove(*file).expect("removed"));
        }
    }
}

impl StoredFileService for Stored {
    fn receive(&self, disk: DiskId, wanted_bytes: u64) -> Result<Box<dyn PartReceiver>, StoredFileError> {
        self.check(disk)?;
        let room_bytes = self.room_bytes.load(Ordering::Relaxed);
        if wanted_bytes > room_bytes {
            return Err(StoredFileError::NoRoom { disk, wanted_bytes, room_bytes, reserve_percent: 20 });
        }
        Ok(Box::new(self.receiver()))
    }

    fn open_stored(&self, part: StoredPart) -> Result<OpenedPart, StoredFileError> {
        if !self.files.path(part.concrete).exists() {
            return Err(StoredFileError::Unknown(part.concrete));
        }
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        Ok(OpenedPart { disk: self.disk, reader: self.files.read(part.concrete, content)? })
    }

    fn is_damaged(&self, part: StoredPart, disk: DiskId, reason: &str) {
        assert_eq!(disk, self.disk);
        self.damaged.lock().unwrap().push((part, reason.to_string()));
    }

    fn fetch_stored(
        &self,
        disk: DiskId,
        from: NodeId,
        token: &Token,
        parts: &[StoredPart],
    ) -> Result<(), StoredFileError> {
        self.check(disk)?;
        let peer =
            self.peers.lock().unwrap().get(&from).cloned().ok_or(StoredFileError::UnknownPeer(from))?;
        let of_peer = |error: DataError| StoredFileError::Peer { node: from, reason: error.to_string() };
        let client = self.client.with_token(Some(token.clone()));
        let ranges = parts.iter().copied().map(PartRange::whole).collect();
        let mut stream = client.read_parts(&peer, ranges).map_err(of_peer)?;
        let mut receiver = self.receiver();
        for part in parts {
            receiver.begin(part.concrete)?;
            while let Some(bytes) = stream.next_piece().map_err(of_peer)? {
                receiver.write(&bytes)?;
            }
            receiver.end(Content { bytes: part.bytes, crc32c: part.crc32c })?;
        }
        receiver.sync()
    }
}

struct Port {
    stored: Arc<Stored>,
    signer: Arc<DataSigner>,
}

impl Chunkservers for Port {
    fn chunkserver(&self, _: JobId, _: &str) -> Option<Arc<ChunkServer>> {
        None
    }

    fn incarnation(&self) -> u64 {
        INCARNATION
    }

    fn admits_to_job(&self, _: JobId, _: &str) -> bool {
        false
    }

    fn stored_files(&self) -> Option<Arc<dyn StoredFileService>> {
        let stored: Arc<dyn StoredFileService> = Arc::<Stored>::clone(&self.stored);
        Some(stored)
    }

    fn admits_to_stored(&self, shown: &str) -> Option<StoredGrant> {
        let grant = StoredGrant::claimed(shown, NOW)?;
        self.signer.key().has_signed(&DataRight::Stored(grant), shown).then_some(grant)
    }
}

pub struct World {
    pub nodes: Vec<Arc<Stored>>,
    pub lines: Vec<Line>,
    pub signer: Arc<DataSigner>,
    client: DataClient,
    _place: tempfile::TempDir,
    // Last: requests under way end with it.
    runtime: Runtime,
}

impl World {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let place = tempfile::tempdir().expect("a temporary directory");
        let client = DataClient::new(runtime.handle().clone()).expect("a client");
        let signer = Arc::new(DataSigner::generate().expect("a signer"));
        let (mut nodes, mut lines) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let stored = Arc::new(Stored {
                disk: DiskId(number + 10),
                files: ConcreteDirectory::open(place.path().join(format!("data-{number}")))
                    .expect("a directory"),
                room_bytes: AtomicU64::new(u64::MAX),
                damaged: Mutex::default(),
                client: client.clone(),
                peers: Mutex::default(),
            });
            let port = Port { stored: Arc::clone(&stored), signer: Arc::clone(&signer) };
            lines.push(runtime.block_on(serve(dataport::router(Arc::new(port)))));
            nodes.push(stored);
        }
        let world = Self { nodes, lines, signer, client, _place: place, runtime };
        *world.nodes[1].peers.lock().unwrap() = BTreeMap::from([(NodeId(1), world.peer(0))]);
        world
    }

    pub fn peer(&self, node: usize) -> Peer {
        let url = format!("http://{}", self.lines[node].address);
        Peer { node: NodeId(node as u32 + 1), url, incarnation: INCARNATION }
    }

    /// Starts a port that answers as it likes.
    pub fn peer_of(&self, router: axum::Router) -> (Peer, Line) {
        let line = self.runtime.block_on(serve(router));
        (Peer { node: NodeId(9), url: format!("http://{}", line.address), incarnation: INCARNATION }, line)
    }

    pub fn grant(&self, right: FileRight, first: i64, last: i64) -> String {
        let grant = StoredGrant { right, first, last, expires_seconds: NOW };
        self.signer.sign(&DataRight::Stored(grant))
    }

    /// A client that may act on all files.
    pub fn client(&self, right: FileRight) -> DataClient {
        self.client.with_token(Token::new(self.grant(right, 0, i64::MAX)))
    }

    /// Uploads parts with these bytes in one request.
    pub fn upload(&self, node: usize, parts: &[(ConcreteId, Vec<u8>)]) -> Result<Vec<StoredPart>, DataError> {
        let bytes = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let client = self.client(FileRight::Write);
        let mut upload = client.upload_parts(&self.peer(node), self.nodes[node].disk, bytes);
        let mut stored = Vec::new();
        for (concrete, bytes) in parts {
            upload.begin(*concrete)?;
            bytes.chunks(700_001).try_for_each(|piece| upload.write(piece))?;
            let content = upload.end()?;
            assert_eq!(content, Content { bytes: bytes.len() as u64, crc32c: crc32c::crc32c(bytes) });
            stored.push(StoredPart { concrete: *concrete, bytes: content.bytes, crc32c: content.crc32c });
        }
        upload.finish().map(|()| stored)
    }

    pub fn read(&self, peer: &Peer, ranges: Vec<PartRange>) -> Result<Vec<Vec<u8>>, DataError> {
        let count = ranges.len();
        let mut stream = self.client(FileRight::Read).read_parts(peer, ranges)?;
        let all = (0..count).map(|_| read_range(&mut stream)).collect();
        if let Ok(after) = stream.next_piece() {
            assert_eq!(after, None);
        }
        all
    }
}

/// Reads the current range to its end.
pub fn read_range(stream: &mut PartStream) -> Result<Vec<u8>, DataError> {
    let mut all = Vec::new();
    while let Some(bytes) = stream.next_piece()? {
        assert!(!bytes.is_empty());
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

async fn serve(router: axum::Router) -> Line {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    line::start(address, 0, 7).await
}

pub fn file(number: u32) -> ConcreteId {
    ConcreteId::of(PutId(3), number).expect("a number")
}

/// Some bytes that differ from part to part.
pub fn bytes_of(number: u32, count: usize) -> Vec<u8> {
    (0..count as u64).map(|place| draw(place / 8 + u64::from(number) * 1_000_003, 251) as u8).collect()
}

/// Parts of many lengths: small ones, those around a block, and a large one.
pub fn many_parts() -> Vec<(ConcreteId, Vec<u8>)> {
    let small = (0..400).map(|number| (number, draw(number.into(), 9000) as usize));
    let block = 64 << 10;
    let others = [0, 1, block - 1, block, block + 1, 4 * block, 5_000_003];
    small.chain((400..).zip(others)).map(|(number, count)| (file(number), bytes_of(number, count))).collect()
}
