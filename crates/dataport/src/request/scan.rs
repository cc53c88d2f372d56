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

/// Pieces of the stream that wait for the merge; the connection waits when there are more.
const PIECES_MAX: usize = 4;

/// Tries to start a scan whose runs can all be had elsewhere: one more than a request needs that met a connection which was
/// about to close.
const TRIES_BEFORE_COPIES: u32 = 3;

/// Runs and range to scan, and the attempt that reads them.
#[derive(Clone)]
pub struct ScanOptions {
    pub job: JobId,
    /// Runs of that node, in the order of their cursors.
    pub runs: Vec<RunId>,
    /// Records with lower <= partition key < upper.
    pub lower: Option<Vec<u8>>,
    pub upper: Option<Vec<u8>>,
    /// Empty, or for each run how many records at the front of the range are not wanted.
    pub skip_records: Vec<u64>,
    /// Nodes on which runs also lie: they are read on there when the node cannot be read any more.
    pub copies: BTreeMap<RunId, Peer>,
    /// Knows the places by then of the runs of which `copies` knows nothing.
    pub places: Option<Arc<dyn Places>>,
    /// Whether blocks that are made on the way are compressed; None: unless the node is on this machine.
    pub compress: Option<bool>,
    /// Attempt that reads, if it is told; see [`crate::ATTEMPT_HEADER`].
    pub attempt: Option<AttemptKey>,
    /// Set when the attempt is to stop.
    pub cancelled: Arc<AtomicBool>,
}

impl ScanOptions {
    /// Whether all of it can be had from other nodes.
    fn is_elsewhere(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| self.copies.contains_key(run))
    }

    /// Returns the nodes other than `than` on which runs lie by now.
    fn ask(&self, than: NodeId) -> BTreeMap<RunId, Peer> {
        self.places.as_ref().map(|places| places.elsewhere(&self.runs, than)).unwrap_or_default()
    }

    /// Returns the same scan with the places of runs that are known by now.
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

/// Options of a scan, and the client that asks.
pub(crate) struct Scan {
    pub client: DataClient,
    pub options: ScanOptions,
    /// Places of the runs at the time when one of them could not be read any more.
    found: OnceLock<BTreeMap<RunId, Peer>>,
}

impl Scan {
    /// Returns a node other than `than` on which a run lies: the one known at first, or the one known by now. The places are
    /// asked for once
    /// for all runs.
    pub fn elsewhere(&self, run: RunId, than: NodeId) -> Option<Peer> {
        let known = self.options.copies.get(&run);
        let found = || self.found.get_or_init(|| self.options.ask(than)).get(&run);
        known.or_else(found).cloned()
    }
}

/// A scan under way: one request, one stream, a cursor for each run.
pub struct RemoteScan {
    pieces: Receiver<Piece>,
    node: NodeId,
    scan: Arc<Scan>,
}

impl RemoteScan {
    /// Sends the request. Start those to all nodes before the first [`Self::into_runs`], so that they run at once.
    pub fn start(client: &DataClient, peer: &Peer, options: ScanOptions) -> Result<Self, ScanError> {
        let node = peer.node;
        let bounds = [&options.lower, &options.upper];
        if bounds.into_iter().flatten().any(|bound| bound.len() > BOUND_BYTES_MAX)
            || options.runs.len() > RUNS_PER_SCAN_MAX as usize
        {
            return Err(ScanError::Unexpected { node, what: "more than one scan can be" });
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

    /// Waits for the source tables and gives a cursor for each run, in the order asked for. Where the node cannot be
    /// read and all of the runs have copies, these are opened.
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

    /// The runs of a node whose address is unknown, opened at their copies.
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

/// Opens all runs at their copies, those of a node in one scan; None where one of them has no copy.
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

/// A stream on its way.
struct Carried {
    client: DataClient,
    peer: Peer,
    job: JobId,
    /// Which attempt, and how often it tries.
    reader: ScanReader,
}

impl Carried {
    /// Sends the request and hands on what is answered, until nobody listens any more.
    async fn carry(self, request: ScanRequest, sender: Sender<Piece>) {
        let node = self.peer.node;
        let mut answer = match self.client.scan(&self.peer, self.job, &request, self.reader).await {
            Ok(answer) => answer,
            Err(error) => {
                // Where nobody listens any more, nobody needs to know.
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
