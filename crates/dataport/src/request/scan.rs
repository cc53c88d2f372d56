//! The reading side of a scan: runs of another node as cursors for a merge.

mod reader;
pub(crate) mod run;

use crate::error::ScanError;
use crate::request::client::{DataClient, Peer, ScanReader};
use crate::request::failover::Places;
use crate::request::scan::reader::{Piece, Reader};
use crate::request::scan::run::RemoteRun;
use crate::wire::messages::{BOUND_BYTES_MAX, RUNS_PER_SCAN_MAX, ScanRequest};
use crate::wire::scan::{EntryKind, RunSources};
use chunkserver::CursorReport;
use iappender::APPEND_TRIES_MAX;
use ids::{AttemptKey, JobId, NodeId, RunId};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of pieces of the stream that wait for the merge; beyond it the connection waits.
const PIECES_MAX: usize = 4;

/// Tries to start a scan if all its runs have replicas: one more than needed for a connection that is about to close.
const TRIES_BEFORE_COPIES: u32 = 3;

/// The runs and the range of a scan, and the attempt that reads them.
#[derive(Clone)]
pub struct ScanOptions {
    pub job: JobId,
    /// Runs of that node, in the order of their cursors.
    pub runs: Vec<RunId>,
    /// Records with lower <= partition key < upper.
    pub lower: Option<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    /// Empty, or for each run the number of records to skip at the front of the range.
    pub skip_records: Vec<u64>,
    /// Nodes with replicas: they are read when the node cannot be read any more.
    pub copies: BTreeMap<RunId, Peer>,
    /// Returns current locations of runs without an entry in `copies`.
    pub places: Option<Arc<dyn Places>>,
    /// Compression of blocks made for the scan; None compresses unless the node is on this machine.
    pub compress: Option<bool>,
    /// The reading attempt, if known; see [`crate::ATTEMPT_HEADER`].
    pub attempt: Option<AttemptKey>,
    /// Set when the attempt must stop.
    pub cancelled: Arc<AtomicBool>,
}

impl ScanOptions {
    /// Returns whether other nodes have all of it.
    fn is_elsewhere(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| self.copies.contains_key(run))
    }

    /// Returns the nodes other than `than` that have runs now.
    fn ask(&self, than: NodeId) -> BTreeMap<RunId, Peer> {
        self.places.as_ref().map(|places| places.elsewhere(&self.runs, than)).unwrap_or_default()
    }

    /// Returns the same scan with the current locations of the runs.
    fn by_now(&self, than: NodeId) -> Self {
        let mut copies = self.copies.clone();
        if !self.is_elsewhere() {
            for (run, peer) in self.ask(than) {
                copies.entry(run).or_insert(peer);
            }
        }
        Self { copies, ..self.clone() }
    }
}

/// Options of a scan, and the requesting client.
pub(crate) struct Scan {
    pub client: DataClient,
    pub options: ScanOptions,
    /// Locations of the runs when one of them could not be read any more.
    found: OnceLock<BTreeMap<RunId, Peer>>,
}

impl Scan {
    /// Returns a node other than `than` that has a run: one from the options, or a current one. Current locations are
    /// requested once for all runs.
    pub fn elsewhere(&self, run: RunId, than: NodeId) -> Option<Peer> {
        let known = self.options.copies.get(&run);
        let found = || self.found.get_or_init(|| self.options.ask(than)).get(&run);
        known.or_else(found).cloned()
    }
}

/// A running scan: one request, one stream, a cursor for each run.
pub struct RemoteScan {
    pieces: Receiver<Piece>,
    node: NodeId,
    scan: Arc<Scan>,
}

impl RemoteScan {
    /// Sends the request. Start the scans of all nodes before the first [`Self::into_runs`], so that they run in
    /// parallel.
    pub fn start(client: &DataClient, peer: &Peer, options: ScanOptions) -> Result<Self, ScanError> {
        let node = peer.node;
        let bounds = [&options.lower, &options.upper];
        if bounds.into_iter().flatten().any(|bound| bound.len() > BOUND_BYTES_MAX)
            || options.runs.len() > RUNS_PER_SCAN_MAX as usize
        {
            return Err(ScanError::Unexpected { node, what: "more runs than a scan may have" });
        }
        if !options.skip_records.is_empty() && options.skip_records.len() != options.runs.len() {
            return Err(ScanError::Unexpected { node, what: "another number of runs" });
        }
        let (sender, pieces) = channel(PIECES_MAX);
        let request = ScanRequest {
            runs: options.runs.clone(),
            skip_records: options.skip_records.clone(),
            lower: options.lower.clone(),
            upper: options.upper.clone(),
            compress: options.compress.unwrap_or(!peer.is_this_machine()),
        };
        let tries_max = if options.is_elsewhere() { TRIES_BEFORE_COPIES } else { APPEND_TRIES_MAX };
        let reader = ScanReader { attempt: options.attempt, tries_max };
        let carried = Carried { client: client.clone(), peer: peer.clone(), job: options.job, reader };
        client.runtime().spawn(carried.carry(request, sender));
        Ok(Self {
            pieces,
            node,
            scan: Arc::new(Scan { client: client.clone(), options, found: OnceLock::new() }),
        })
    }

    /// Waits for the source tables. Returns a cursor for each run, in the requested order. If the node cannot be read
    /// and all runs have replicas, these are opened.
    pub fn into_runs(self) -> Result<Vec<RemoteRun>, ScanError> {
        let (scan, node) = (Arc::clone(&self.scan), self.node);
        match self.open() {
            Err(error) if error.is_about_there() => {
                match open_copies(&scan.client, &scan.options.by_now(node)) {
                    None => Err(error),
                    Some(opened) => opened.map_err(|_| error),
                }
            }
            opened => opened,
        }
    }

    /// Opens the replicas of the runs of a node whose address is unknown.
    pub fn open_at_copies(
        client: &DataClient,
        node: NodeId,
        options: &ScanOptions,
    ) -> Result<Vec<RemoteRun>, ScanError> {
        open_copies(client, &options.by_now(node)).unwrap_or(Err(ScanError::UnknownNode { node }))
    }

    fn open(self) -> Result<Vec<RemoteRun>, ScanError> {
        let Self { pieces, node, scan } = self;
        let runs = &scan.options.runs;
        let cancelled = Arc::clone(&scan.options.cancelled);
        let mut reader = Reader::new(pieces, node, runs.len(), cancelled, scan.client.clone());
        let mut tables = Vec::with_capacity(runs.len());
        for (index, run) in runs.iter().enumerate() {
            let unexpected = |what| ScanError::Unexpected { node, what };
            let entry = reader.next_entry()?;
            if entry.head.kind != EntryKind::Sources || entry.head.run_index as usize != index {
                return Err(unexpected("a source table is missing"));
            }
            let sources = RunSources::decode(&entry.body);
            let sources = sources.map_err(|source| ScanError::DamagedRun { node, run: *run, source })?;
            if sources.run != *run {
                return Err(unexpected("another run"));
            }
            tables.push(sources);
        }
        let reader = Arc::new(Mutex::new(reader));
        let open =
            |(index, sources)| RemoteRun::new(Arc::clone(&reader), node, index, sources, Arc::clone(&scan));
        tables.into_iter().enumerate().map(open).collect()
    }
}

/// Opens replicas of all runs, those on one node in one scan; None if a run has no replica.
fn open_copies(client: &DataClient, options: &ScanOptions) -> Option<Result<Vec<RemoteRun>, ScanError>> {
    if !options.is_elsewhere() {
        return None;
    }
    let mut by_node: BTreeMap<NodeId, (Peer, Vec<usize>)> = BTreeMap::new();
    for (index, run) in options.runs.iter().enumerate() {
        let peer = options.copies.get(run)?;
        by_node.entry(peer.node).or_insert_with(|| (peer.clone(), Vec::new())).1.push(index);
    }
    let open = || {
        let mut scans = Vec::with_capacity(by_node.len());
        for (peer, of_node) in by_node.values() {
            let skip = |index: &usize| options.skip_records.get(*index).copied();
            let of_peer = ScanOptions {
                runs: of_node.iter().map(|index| options.runs[*index]).collect(),
                skip_records: of_node.iter().filter_map(skip).collect(),
                copies: BTreeMap::new(),
                places: None,
                ..options.clone()
            };
            scans.push((RemoteScan::start(client, peer, of_peer)?, of_node));
        }
        let mut opened: Vec<(usize, RemoteRun)> = Vec::with_capacity(options.runs.len());
        for (scan, of_node) in scans {
            let runs = scan.open()?.into_iter().map(|run| run.after(CursorReport::default()));
            opened.extend(of_node.iter().copied().zip(runs));
        }
        opened.sort_by_key(|(index, _)| *index);
        Ok(opened.into_iter().map(|(_, run)| run).collect())
    };
    Some(open())
}

/// A stream in flight.
struct Carried {
    client: DataClient,
    peer: Peer,
    job: JobId,
    /// The attempt, and its number of tries.
    reader: ScanReader,
}

impl Carried {
    /// Sends the request and passes the answer on, until nobody listens any more.
    async fn carry(self, request: ScanRequest, sender: Sender<Piece>) {
        let node = self.peer.node;
        let mut answer = match self.client.scan(&self.peer, self.job, &request, self.reader).await {
            Ok(answer) => answer,
            Err(error) => {
                // If nobody listens any more, nobody needs the error.
                let _ = sender.send(Err(error.into())).await;
                return;
            }
        };
        loop {
            let piece = match self.client.heard(node, answer.chunk()).await {
                Ok(Some(piece)) => Ok(piece),
                Ok(None) => return,
                Err(source) => Err(ScanError::CutOff { node, source: Some(source.without_url()) }),
            };
            let was_cut = piece.is_err();
            if sender.send(piece).await.is_err() || was_cut {
                return;
            }
        }
    }
}
