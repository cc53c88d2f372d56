//! Parts of stored files that a job reads: from a disk of this node if it has them, else from another node. A node that
//! fails in the middle is replaced by another one.

use crate::link::node_link::NodeLink;
use crate::stored::files::StoredFiles;
use crate::stored::range_cache::{CachedPart, RangeCache, RemoteParts};
use crate::tasks::map::stored_input::{PartOpener, PartReader, StoredReads};
use api::StoredPart;
use api::stored::cluster::StoredNode;
use bytes::Bytes;
use dataport::{DataClient, PartRange, PartStream, Peer, StoredFileService as _, Token, with_causes};
use ids::{DiskId, JobId};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a part without a replica in reach is awaited: nodes may be restarting.
const NO_REPLICA_MAX: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The stored files that a job of a cluster reads.
pub(crate) struct PartsOfCluster {
    pub job: JobId,
    pub link: Arc<NodeLink>,
    pub files: Arc<StoredFiles>,
    pub reads: Arc<StoredReads>,
    /// Ranges that were read from other nodes before; None reads them anew each time.
    pub cache: Option<Arc<RangeCache>>,
}

impl PartOpener for Arc<PartsOfCluster> {
    fn open_part(&self, part: StoredPart, offset: u64) -> std::io::Result<Box<dyn Read + Send>> {
        // The look reports a replica that is missing or damaged.
        if let Ok(opened) = self.files.open_stored(part) {
            let here = PartReader { reader: opened.reader, offset };
            let (disk, elsewhere) = (opened.disk, Arc::clone(self));
            return Ok(Box::new(HerePart { here, part, disk, elsewhere, fallback: None }));
        }
        Ok(self.elsewhere(part, offset))
    }

    fn replica_here(&self, part: StoredPart) -> Option<File> {
        let disks = self.files.disks();
        disks.iter().find_map(|each| File::open(each.disk.files.path(part.concrete)).ok())
    }
}

impl PartsOfCluster {
    /// Opens a part of which this node has no intact replica.
    fn elsewhere(self: &Arc<Self>, part: StoredPart, at: u64) -> Box<dyn Read + Send> {
        match &self.cache {
            Some(cache) => {
                let remote = Box::new(Arc::clone(self));
                Box::new(CachedPart::new(cache, remote, &self.reads, part, at))
            }
            None => self.open_elsewhere(part, at),
        }
    }
}

impl RemoteParts for Arc<PartsOfCluster> {
    fn open_elsewhere(&self, part: StoredPart, offset: u64) -> Box<dyn Read + Send> {
        Box::new(ElsewherePart {
            parts: Arc::clone(self),
            part,
            at: offset,
            held: Bytes::new(),
            stream: None,
            tried: BTreeSet::new(),
            since: None,
            reason: None,
        })
    }
}

/// A part on a disk of this node; the rest comes from elsewhere if a block is damaged.
struct HerePart {
    here: PartReader,
    part: StoredPart,
    disk: DiskId,
    elsewhere: Arc<PartsOfCluster>,
    fallback: Option<Box<dyn Read + Send>>,
}

impl Read for HerePart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.fallback.is_none() {
            match self.here.read(buffer) {
                Ok(count) => {
                    self.elsewhere.reads.here_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
                Err(error) => {
                    self.elsewhere.files.is_damaged(self.part, self.disk, &error.to_string());
                    self.fallback = Some(self.elsewhere.elsewhere(self.part, self.here.offset));
                }
            }
        }
        match &mut self.fallback {
            Some(elsewhere) => elsewhere.read(buffer),
            None => Ok(0),
        }
    }
}

/// A part that other nodes have.
struct ElsewherePart {
    parts: Arc<PartsOfCluster>,
    part: StoredPart,
    at: u64,
    held: Bytes,
    stream: Option<(DiskId, PartStream)>,
    tried: BTreeSet<DiskId>,
    /// Since when no byte has come, and the last reason.
    since: Option<Instant>,
    reason: Option<String>,
}

impl ElsewherePart {
    /// Opens the rest of the part on a node that has it.
    fn open(&mut self) -> std::io::Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        loop {
            let page = self.parts.link.stored_places(self.parts.job, self.part.concrete);
            let page = page.map_err(|error| Error::other(with_causes(&error)))?;
            let disks: Vec<DiskId> = page.parts.iter().flat_map(|part| part.disks.iter().copied()).collect();
            let usable = |node: &&StoredNode| disks.contains(&node.disk) && !self.tried.contains(&node.disk);
            let node = page.nodes.iter().find(usable);
            let token = page.grants.first().and_then(|range| Token::new(range.grant.0.clone()));
            if let (Some(node), Some(token)) = (node, token) {
                self.tried.insert(node.disk);
                let (url, incarnation) = (node.data_url.clone(), node.incarnation);
                let peer = Peer { node: node.node, url, incarnation };
                let client: DataClient = self.parts.files.client(token);
                let bytes = self.part.bytes - self.at;
                let range = PartRange { part: self.part, offset: self.at, bytes };
                match client.read_parts(&peer, vec![range]) {
                    Ok(stream) => {
                        self.stream = Some((node.disk, stream));
                        return Ok(());
                    }
                    Err(error) => self.reason = Some(with_causes(&error)),
                }
                continue;
            }
            if since.elapsed() >= NO_REPLICA_MAX {
                let reason =
                    self.reason.take().unwrap_or_else(|| "no node with it can be reached".to_string());
                let maker = page.makers.iter().find(|maker| maker.put == self.part.concrete.put());
                let advice = maker.map(|maker| format!("; {}", maker.job.advice())).unwrap_or_default();
                let text = format!(
                    "{} of a stored file has {} replicas, and none can be read: {reason}{advice}",
                    self.part.concrete,
                    disks.len()
                );
                return Err(Error::other(text));
            }
            self.tried.clear();
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }
}

impl Read for ElsewherePart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.held.is_empty() && self.at < self.part.bytes {
            let Some((disk, stream)) = &mut self.stream else {
                self.open()?;
                continue;
            };
            match stream.next_piece() {
                Ok(Some(piece)) if !piece.is_empty() => {
                    self.at += piece.len() as u64;
                    (self.held, self.since) = (piece, None);
                    self.tried.clear();
                }
                Ok(_) => self.stream = None,
                Err(error) => {
                    self.tried.insert(*disk);
                    self.reason = Some(with_causes(&error));
                    self.stream = None;
                }
            }
        }
        let count = buffer.len().min(self.held.len());
        self.parts.reads.elsewhere_bytes.fetch_add(count as u64, Ordering::Relaxed);
        buffer[..count].copy_from_slice(&self.held.split_to(count));
        Ok(count)
    }
}
