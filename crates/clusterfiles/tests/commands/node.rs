//! A node with a disk of stored files behind a real data port.

use api::StoredPart;
use api::stored::cluster::StoredNode;
use chunkserver::ChunkServer;
use concretefile::{ConcreteDirectory, ConcreteWriter, Content};
use dataport::{
    Chunkservers, DataClient, OpenedPart, PartRange, PartReceiver, Peer, StoredFileError, StoredFileService,
    Token,
};
use ids::{ConcreteId, DiskId, JobId, NodeId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use trust::{DataRight, DataSigner, StoredGrant};

pub const INCARNATION: u64 = 7;
/// The time of the nodes, in seconds.
pub const NOW: u64 = 1000;

/// The addresses of all nodes.
pub type Peers = Arc<Mutex<BTreeMap<NodeId, Peer>>>;

pub struct Stored {
    pub disk: DiskId,
    pub files: ConcreteDirectory,
    /// True if every request fails.
    pub fails: Arc<AtomicBool>,
    /// True if it fails from its next synced upload on.
    pub dies: Arc<AtomicBool>,
    peers: Peers,
    client: DataClient,
}

struct Receiver {
    files: ConcreteDirectory,
    written: Vec<ConcreteId>,
    current: Option<(ConcreteId, ConcreteWriter)>,
    is_synced: bool,
    fails: Arc<AtomicBool>,
    dies: Arc<AtomicBool>,
}

impl PartReceiver for Receiver {
    fn begin(&mut self, part: ConcreteId) -> Result<(), StoredFileError> {
        self.current = Some((part, self.files.create_new(part)?));
        self.written.push(part);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoredFileError> {
        Ok(self.current.as_mut().unwrap().1.write(bytes)?)
    }

    fn end(&mut self, stated: Content) -> Result<(), StoredFileError> {
        let (file, writer) = self.current.take().unwrap();
        let present = writer.finish()?;
        match present == stated {
            true => Ok(()),
            false => Err(StoredFileError::WrongContent { file, stated, present }),
        }
    }

    fn sync(&mut self) -> Result<(), StoredFileError> {
        self.is_synced = true;
        self.fails.fetch_or(self.dies.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(self.files.sync(&self.written)?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.current = None;
        if !self.is_synced {
            self.written.iter().for_each(|file| self.files.remove(*file).unwrap());
        }
    }
}

impl Stored {
    fn check(&self) -> Result<(), StoredFileError> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(StoredFileError::Draining),
            false => Ok(()),
        }
    }

    fn receiver(&self) -> Receiver {
        let (fails, dies) = (Arc::clone(&self.fails), Arc::clone(&self.dies));
        let files = self.files.clone();
        Receiver { files, written: Vec::new(), current: None, is_synced: false, fails, dies }
    }

    /// Returns the files that exist.
    pub fn present(&self) -> Vec<ConcreteId> {
        let puts = self.files.puts().unwrap();
        puts.into_iter().flat_map(|put| self.files.files(put).unwrap()).collect()
    }

    pub fn path(&self, file: ConcreteId) -> PathBuf {
        self.files.path(file)
    }
}

impl StoredFileService for Stored {
    fn receive(&self, _: DiskId, _: u64) -> Result<Box<dyn PartReceiver>, StoredFileError> {
        self.check()?;
        Ok(Box::new(self.receiver()))
    }

    fn open_stored(&self, part: StoredPart) -> Result<OpenedPart, StoredFileError> {
        self.check()?;
        if !self.files.path(part.concrete).exists() {
            return Err(StoredFileError::Unknown(part.concrete));
        }
        let content = Content { bytes: part.bytes, crc32c: part.crc32c };
        Ok(OpenedPart { disk: self.disk, reader: self.files.read(part.concrete, content)? })
    }

    fn is_damaged(&self, _: StoredPart, _: DiskId, _: &str) {}

    fn fetch_stored(
        &self,
        _: DiskId,
        from: NodeId,
        token: &Token,
        parts: &[StoredPart],
    ) -> Result<(), StoredFileError> {
        self.check()?;
        let peer = self.peers.lock().unwrap().get(&from).cloned().unwrap();
        let client = self.client.with_token(Some(token.clone()));
        let ranges = parts.iter().copied().map(PartRange::whole).collect();
        let of_peer =
            |error: dataport::DataError| StoredFileError::Peer { node: from, reason: error.to_string() };
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

/// A node whose port is open.
pub struct TestNode {
    pub stored: Arc<Stored>,
    pub place: StoredNode,
}

impl TestNode {
    pub fn start(
        runtime: &tokio::runtime::Runtime,
        number: u32,
        dir: PathBuf,
        signer: &Arc<DataSigner>,
        peers: &Peers,
    ) -> Self {
        let disk = DiskId(i64::from(number) + 10);
        let stored = Arc::new(Stored {
            disk,
            files: ConcreteDirectory::open(dir).unwrap(),
            fails: Arc::default(),
            dies: Arc::default(),
            peers: Arc::clone(peers),
            client: DataClient::new(runtime.handle().clone()).unwrap(),
        });
        let port = Port { stored: Arc::clone(&stored), signer: Arc::clone(signer) };
        let url = crate::serve(runtime, dataport::router(Arc::new(port)));
        let node = NodeId(number);
        let peer = Peer { node, url: url.clone(), incarnation: INCARNATION };
        peers.lock().unwrap().insert(node, peer);
        let node_name = format!("n{number}");
        let place = StoredNode { disk, node, node_name, data_url: url, incarnation: INCARNATION };
        Self { stored, place }
    }
}
