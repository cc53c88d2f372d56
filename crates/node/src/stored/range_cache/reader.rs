//! A reader of a part that takes kept segments from this node, and the others from elsewhere.

use super::{RangeCache, SEGMENT_BYTES, SegmentKey};
use crate::tasks::map::stored_input::StoredReads;
use api::StoredPart;
use bytes::Bytes;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Kept segments in a row for which an open stream from another node is given up: a later stream costs a question to the
/// server and a request.
const RUN_MIN: u64 = 2;

/// The way to the replicas of parts on other nodes.
pub(crate) trait RemoteParts: Send {
    /// Opens a range of a part. Its bytes are verified as they are read, and an error names the reason.
    fn open_elsewhere(&self, part: StoredPart, range: Range<u64>) -> Box<dyn Read + Send>;
}

/// A segment that comes from elsewhere, from its first byte on.
struct Passing {
    key: SegmentKey,
    /// Its bytes so far, if it will be kept.
    bytes: Option<Vec<u8>>,
}

/// A part that other nodes have, from a place on.
pub(crate) struct CachedPart {
    cache: Arc<RangeCache>,
    remote: Box<dyn RemoteParts>,
    reads: Arc<StoredReads>,
    part: StoredPart,
    at: u64,
    end: u64,
    /// Bytes of a kept segment, from `at` on.
    held: Bytes,
    /// A stream from another node, whose next byte is at `at`.
    stream: Option<Box<dyn Read + Send>>,
    passing: Option<Passing>,
}

impl CachedPart {
    pub fn new(
        cache: &Arc<RangeCache>,
        remote: Box<dyn RemoteParts>,
        reads: &Arc<StoredReads>,
        part: StoredPart,
        range: Range<u64>,
    ) -> Self {
        let (cache, reads) = (Arc::clone(cache), Arc::clone(reads));
        let Range { start: at, end } = range;
        Self { cache, remote, reads, part, at, end, held: Bytes::new(), stream: None, passing: None }
    }

    /// Takes the segment at the current place from this node, if it is kept.
    fn take_kept(&mut self) {
        let key = SegmentKey::at(self.part, self.at);
        if self.stream.is_some() && (self.at != key.start() || !self.cache.has_run(&key, RUN_MIN)) {
            return;
        }
        if let Some(bytes) = self.cache.get(&key) {
            self.held = bytes.slice((self.at - key.start()) as usize..);
            (self.stream, self.passing) = (None, None);
        }
    }

    /// Reads bytes of the current segment from another node.
    fn read_elsewhere(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let key = SegmentKey::at(self.part, self.at);
        if self.at == key.start() {
            let bytes = self.cache.wants(&key).then(|| Vec::with_capacity(SEGMENT_BYTES as usize));
            self.passing = Some(Passing { key, bytes });
        }
        let stream =
            self.stream.get_or_insert_with(|| self.remote.open_elsewhere(self.part, self.at..self.end));
        let wanted = buffer.len().min((key.end().min(self.end) - self.at) as usize);
        let count = stream.read(&mut buffer[..wanted])?;
        self.at += count as u64;
        if let Some(bytes) = self.passing.as_mut().and_then(|passing| passing.bytes.as_mut()) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        if self.at == key.end()
            && let Some(Passing { key, bytes }) = self.passing.take()
        {
            match bytes {
                Some(bytes) => self.cache.keep(key, &bytes),
                None => self.cache.note(key),
            }
        }
        Ok(count)
    }
}

impl Read for CachedPart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() || self.at >= self.end {
            return Ok(0);
        }
        if self.held.is_empty() {
            self.take_kept();
        }
        if self.held.is_empty() {
            return self.read_elsewhere(buffer);
        }
        let count = buffer.len().min(self.held.len()).min((self.end - self.at) as usize);
        buffer[..count].copy_from_slice(&self.held.split_to(count));
        self.at += count as u64;
        self.reads.here_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
