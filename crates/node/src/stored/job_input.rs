//! Parts of stored files that a job reads: from a disk of this node if it has them, else from another node. A node that
//! fails in the middle is replaced by another one. For local copies the server names the source, which may be a node
//! that is still making its copy.

use crate::stored::files::StoredFiles;
use crate::stored::passed_on::PassedCopy;
use crate::stored::range_cache::{CachedPart, RangeCache, RemoteParts};
use crate::stored::step_files::NO_REPLICA;
use crate::tasks::map::stored_input::{PartOpener, PartReader, StoredReads};
use api::StoredPart;
use api::stored::cluster::{FAILED_SOURCES_MAX, PartsOfJob, StoredPage};
use bytes::Bytes;
use dataport::{DataClient, PartRange, PartStream, Peer, StoredFileService as _, Token, with_causes};
use ids::{DiskId, JobId, NodeId};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a part without a replica in reach is awaited: nodes may be restarting.
const NO_REPLICA_MAX: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Time after which a node that passes on a copy must have sent this many bytes in a second on average.
const JUDGED_AFTER: Duration = Duration::from_secs(20);
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;

/// The stored files that a job of a cluster reads.
pub(crate) struct PartsOfCluster {
    pub job: JobId,
    pub files: Arc<StoredFiles>,
    pub reads: Arc<StoredReads>,
    /// Ranges that were read from other nodes before; None reads them anew each time.
    pub cache: Option<Arc<RangeCache>>,
}

impl PartOpener for Arc<PartsOfCluster> {
    fn open_part(&self, part: StoredPart, offset: u64) -> std::io::Result<Box<dyn Read + Send>> {
        Ok(self.opened(part, offset..part.bytes, None))
    }

    fn open_range(&self, part: StoredPart, range: Range<u64>) -> std::io::Result<Box<dyn Read + Send>> {
        Ok(self.opened(part, range, None))
    }

    fn open_for_copy(
        &self,
        part: StoredPart,
        copy: &Arc<PassedCopy>,
    ) -> std::io::Result<Box<dyn Read + Send>> {
        Ok(self.opened(part, 0..part.bytes, Some(Arc::clone(copy))))
    }

    fn replica_here(&self, part: StoredPart) -> Option<File> {
        let disks = self.files.disks();
        disks.iter().find_map(|each| File::open(each.disk.files.path(part.concrete)).ok())
    }
}

impl PartsOfCluster {
    fn opened(
        self: &Arc<Self>,
        part: StoredPart,
        range: Range<u64>,
        copy: Option<Arc<PassedCopy>>,
    ) -> Box<dyn Read + Send> {
        // The look reports a replica that is missing or damaged.
        let Ok(opened) = self.files.open_stored(part) else {
            return self.elsewhere(part, range, copy);
        };
        if let Some(copy) = &copy {
            copy.knows_sums(opened.reader.sums());
        }
        let Range { start: offset, end } = range;
        let here = PartReader { reader: opened.reader, offset };
        let (disk, elsewhere) = (opened.disk, Arc::clone(self));
        Box::new(HerePart { here, end, part, disk, elsewhere, copy, fallback: None })
    }

    /// Opens a part of which this node has no intact replica.
    fn elsewhere(
        self: &Arc<Self>,
        part: StoredPart,
        range: Range<u64>,
        copy: Option<Arc<PassedCopy>>,
    ) -> Box<dyn Read + Send> {
        match (&self.cache, copy) {
            (Some(cache), None) => {
                let remote = Box::new(Arc::clone(self));
                Box::new(CachedPart::new(cache, remote, &self.reads, part, range))
            }
            (_, copy) => self.source(part, range, copy),
        }
    }

    fn source(
        self: &Arc<Self>,
        part: StoredPart,
        range: Range<u64>,
        copy: Option<Arc<PassedCopy>>,
    ) -> Box<dyn Read + Send> {
        Box::new(ElsewherePart {
            parts: Arc::clone(self),
            part,
            at: range.start,
            end: range.end,
            copy,
            held: Bytes::new(),
            stream: None,
            tried: BTreeSet::new(),
            since: None,
            reason: None,
        })
    }
}

impl RemoteParts for Arc<PartsOfCluster> {
    fn open_elsewhere(&self, part: StoredPart, range: Range<u64>) -> Box<dyn Read + Send> {
        self.source(part, range, None)
    }
}

/// A part on a disk of this node; the rest comes from elsewhere if a block is damaged.
struct HerePart {
    here: PartReader,
    end: u64,
    part: StoredPart,
    disk: DiskId,
    elsewhere: Arc<PartsOfCluster>,
    /// The local copy that is made of it.
    copy: Option<Arc<PassedCopy>>,
    fallback: Option<Box<dyn Read + Send>>,
}

impl Read for HerePart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.fallback.is_none() {
            let left = self.end.saturating_sub(self.here.offset);
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match self.here.read(&mut buffer[..wanted]) {
                Ok(count) => {
                    self.elsewhere.reads.here_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
                Err(error) => {
                    self.elsewhere.files.is_damaged(self.part, self.disk, &error.to_string());
                    let (at, copy) = (self.here.offset, self.copy.take());
                    self.fallback = Some(self.elsewhere.elsewhere(self.part, at..self.end, copy));
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
    end: u64,
    /// The local copy that is made of it.
    copy: Option<Arc<PassedCopy>>,
    held: Bytes,
    stream: Option<SourceStream>,
    tried: BTreeSet<NodeId>,
    /// Since when no byte has come, and the last reason.
    since: Option<Instant>,
    reason: Option<String>,
}

/// The rest of a part on its way from a node.
struct SourceStream {
    stream: PartStream,
    node: NodeId,
    /// True if it comes from a local copy.
    has_copy: bool,
    opened: Instant,
    bytes: u64,
}

impl SourceStream {
    /// Returns whether another source should be tried, because this one passes its copy on too slowly.
    fn is_slow(&self) -> bool {
        let seconds = self.opened.elapsed().as_secs();
        let least_bytes = seconds.saturating_mul(SLOWEST_BYTES_PER_SECOND);
        self.has_copy && seconds >= JUDGED_AFTER.as_secs() && self.bytes < least_bytes
    }
}

/// A node to read from.
struct Source {
    peer: Peer,
    has_copy: bool,
}

impl ElsewherePart {
    fn places(&self) -> std::io::Result<StoredPage> {
        let failed = self.tried.iter().copied().take(FAILED_SOURCES_MAX).collect();
        let question = PartsOfJob { parts: vec![self.part.concrete], copies: self.copy.is_some(), failed };
        let page = self.parts.files.server.parts_of(self.parts.job, &question);
        page.map_err(|error| Error::other(with_causes(&error)))
    }

    /// Returns the next node to try: the one that the server names, else one with a replica.
    fn next_source(&self, page: &StoredPage) -> Option<Source> {
        let is_new = |node: NodeId| !self.tried.contains(&node);
        if let Some(named) = page.sources.iter().find(|source| is_new(source.node)) {
            let (url, incarnation) = (named.data_url.clone(), named.incarnation);
            return Some(Source {
                peer: Peer { node: named.node, url, incarnation },
                has_copy: named.has_copy,
            });
        }
        let has_replica = |disk: &DiskId| page.parts.iter().any(|part| part.disks.contains(disk));
        let found = page.nodes.iter().find(|each| has_replica(&each.disk) && is_new(each.node))?;
        let (url, incarnation) = (found.data_url.clone(), found.incarnation);
        Some(Source { peer: Peer { node: found.node, url, incarnation }, has_copy: false })
    }

    /// Opens the rest of the part on a node that has it.
    fn open(&mut self) -> std::io::Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        loop {
            let page = self.places()?;
            let source = self.next_source(&page);
            let token = page.grants.first().and_then(|range| Token::new(range.grant.0.clone()));
            if let (Some(Source { peer, has_copy }), Some(token)) = (source, token) {
                self.tried.insert(peer.node);
                let client: DataClient = self.parts.files.client(token);
                let bytes = self.end - self.at;
                let range = PartRange { part: self.part, offset: self.at, bytes };
                let stream = match has_copy {
                    true => client.read_copy(&peer, range),
                    false => client.read_parts(&peer, vec![range]),
                };
                match stream {
                    Ok(stream) => {
                        let (node, opened) = (peer.node, Instant::now());
                        self.stream = Some(SourceStream { stream, node, has_copy, opened, bytes: 0 });
                        return Ok(());
                    }
                    Err(error) => self.reason = Some(with_causes(&error)),
                }
                continue;
            }
            if since.elapsed() >= NO_REPLICA_MAX {
                return Err(self.unreachable(&page));
            }
            self.tried.clear();
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    fn unreachable(&mut self, page: &StoredPage) -> Error {
        let reason = self.reason.take().unwrap_or_else(|| "no node with it can be reached".to_string());
        let replicas: usize = page.parts.iter().map(|part| part.disks.len()).sum();
        let concrete = self.part.concrete;
        let maker = page.makers.iter().find(|maker| maker.put == concrete.put());
        let advice = maker.map(|maker| format!("; {}", maker.job.advice())).unwrap_or_default();
        let text = format!(
            "{concrete} of a stored file has {replicas} replicas, and none can be read: {reason}{advice}"
        );
        Error::new(NO_REPLICA, text)
    }

    /// Takes the next piece of the stream, or gives it up.
    fn take_piece(&mut self, mut source: SourceStream) {
        match source.stream.next_piece() {
            Ok(Some(piece)) if !piece.is_empty() => {
                if let Some(copy) = &self.copy {
                    copy.knows_sums(source.stream.sums());
                }
                let bytes = piece.len() as u64;
                if source.has_copy {
                    self.parts.reads.passed_on_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                source.bytes += bytes;
                self.at += bytes;
                (self.held, self.since) = (piece, None);
                self.tried.clear();
                match source.is_slow() {
                    true => _ = self.tried.insert(source.node),
                    false => self.stream = Some(source),
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.tried.insert(source.node);
                self.reason = Some(with_causes(&error));
            }
        }
    }
}

impl Read for ElsewherePart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.held.is_empty() && self.at < self.end {
            match self.stream.take() {
                Some(source) => self.take_piece(source),
                None => self.open()?,
            }
        }
        let count = buffer.len().min(self.held.len());
        self.parts.reads.elsewhere_bytes.fetch_add(count as u64, Ordering::Relaxed);
        buffer[..count].copy_from_slice(&self.held.split_to(count));
        Ok(count)
    }
}
