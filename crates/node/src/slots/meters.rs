//! Progress and waiting times of the map and reduce attempts on this node, as reported to the server for decisions
//! about slow ones.

use api::KeyBytes;
use api::machine::AttemptProgress;
use api::task::AttemptUsage;
use arena::{Charge, SlabWriter};
use iappender::{AppendAnswer, AppendError, AppendFrame, AppendReply, ChunkService};
use ids::{AttemptKey, ChunkId, IfileIndex, NodeId, Source};
use program::Reports;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Age from which an attempt is reported.
const TOLD_AFTER: Duration = Duration::from_millis(500);
/// Placeholder for no node.
const NOBODY: u32 = u32::MAX;

/// Progress of an attempt. The attempt writes, others read.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    total_bytes: u64,
    done_bytes: AtomicU64,
    /// Reports of its program, if it has one.
    reports: OnceLock<Arc<Reports>>,
    read_ns: AtomicU64,
    read_from: AtomicU32,
    append_ns: AtomicU64,
    append_to: AtomicU32,
    /// Bytes of frames that were appended to chunks, and of those to chunks of other nodes.
    appended_bytes: AtomicU64,
    away_bytes: AtomicU64,
    /// Time, since the start of the attempt, at which it began to wait for its input or for chunks; 0 if it does not
    /// wait. A long wait is reported while it lasts.
    reads_since_ns: AtomicU64,
    appends_since_ns: AtomicU64,
    /// Keys before one of which the attempt should end, if it can.
    end_keys: Mutex<Vec<KeyBytes>>,
    is_to_end: AtomicBool,
}

impl Meter {
    fn new(total_bytes: u64) -> Self {
        Self {
            began: Instant::now(),
            total_bytes,
            done_bytes: AtomicU64::new(0),
            reports: OnceLock::new(),
            read_ns: AtomicU64::new(0),
            read_from: AtomicU32::new(NOBODY),
            append_ns: AtomicU64::new(0),
            append_to: AtomicU32::new(NOBODY),
            appended_bytes: AtomicU64::new(0),
            away_bytes: AtomicU64::new(0),
            reads_since_ns: AtomicU64::new(0),
            appends_since_ns: AtomicU64::new(0),
            end_keys: Mutex::default(),
            is_to_end: AtomicBool::new(false),
        }
    }

    /// Returns whether the attempt is asked to end earlier; [`Self::take_end_keys`] has the keys.
    #[inline]
    pub fn is_to_end(&self) -> bool {
        self.is_to_end.load(Ordering::Relaxed)
    }

    pub fn take_end_keys(&self) -> Vec<KeyBytes> {
        self.is_to_end.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.end_keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the total of processed bytes.
    #[inline]
    pub fn has_done(&self, bytes: u64) {
        self.done_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts the bytes that a program has taken instead of the bytes that wait for it.
    pub fn is_done_by(&self, reports: &Arc<Reports>) {
        // Called once for each attempt.
        let _ = self.reports.set(Arc::clone(reports));
    }

    fn bytes(&self) -> u64 {
        let taken = self.reports.get().and_then(|reports| reports.taken_bytes());
        taken.unwrap_or_else(|| self.done_bytes.load(Ordering::Relaxed))
    }

    fn elapsed_ns(&self) -> u64 {
        (self.began.elapsed().as_nanos() as u64).max(1)
    }

    /// Records that it waits for its input, until [`Self::has_waited_to_read`].
    pub fn waits_to_read(&self) {
        self.reads_since_ns.store(self.elapsed_ns(), Ordering::Relaxed);
    }

    /// Sets the total time that it has waited for its input, and the node for which it waited longest.
    pub fn has_waited_to_read(&self, waited: Duration, from: Option<NodeId>) {
        self.reads_since_ns.store(0, Ordering::Relaxed);
        self.read_ns.store(waited.as_nanos() as u64, Ordering::Relaxed);
        self.read_from.store(from.map_or(NOBODY, |node| node.0), Ordering::Relaxed);
    }

    fn told(&self, attempt: AttemptKey) -> Option<AttemptProgress> {
        let elapsed_ns = self.elapsed_ns();
        let waited = |ended_ns: &AtomicU64, since_ns: &AtomicU64| {
            let waits_ns = match since_ns.load(Ordering::Relaxed) {
                0 => 0,
                since_ns => elapsed_ns.saturating_sub(since_ns),
            };
            ended_ns.load(Ordering::Relaxed).saturating_add(waits_ns).min(elapsed_ns)
        };
        let read_ns = waited(&self.read_ns, &self.reads_since_ns);
        let append_ns = waited(&self.append_ns, &self.appends_since_ns);
        let node = |place: &AtomicU32| {
            let number = place.load(Ordering::Relaxed);
            (number != NOBODY).then_some(NodeId(number))
        };
        (elapsed_ns >= TOLD_AFTER.as_nanos() as u64).then(|| AttemptProgress {
            attempt,
            done_bytes: self.bytes(),
            total_bytes: self.total_bytes,
            read_ns,
            program_ns: elapsed_ns.saturating_sub(read_ns.saturating_add(append_ns)),
            append_ns,
            read_from: node(&self.read_from),
            append_to: node(&self.append_to),
        })
    }
}

/// The meters of all running attempts.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    running: Mutex<BTreeMap<AttemptKey, Arc<Meter>>>,
    /// Bytes that attempts have used so far; the slot of an attempt takes them at its end.
    used: Mutex<BTreeMap<AttemptKey, AttemptUsage>>,
}

/// The meter of an attempt, which is removed when this is dropped.
pub(crate) struct Metering<'a> {
    meters: &'a Meters,
    attempt: AttemptKey,
    pub meter: Arc<Meter>,
}

impl Meters {
    fn running(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Arc<Meter>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt with this total of bytes; 0 if unknown.
    pub fn begin(&self, attempt: AttemptKey, total_bytes: u64) -> Metering<'_> {
        let meter = Arc::new(Meter::new(total_bytes));
        self.running().insert(attempt, Arc::clone(&meter));
        Metering { meters: self, attempt, meter }
    }

    /// Adds to what an attempt has used.
    pub fn add_used(&self, attempt: AttemptKey, more: AttemptUsage) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.entry(attempt).or_default().add(&more);
    }

    /// Removes what an attempt has used, and returns it.
    pub fn take_used(&self, attempt: AttemptKey) -> AttemptUsage {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).remove(&attempt).unwrap_or_default()
    }

    /// Asks a reduce attempt to end before the first of these keys that it has not reached.
    pub fn end_before(&self, attempt: AttemptKey, keys: Vec<KeyBytes>) {
        if let Some(meter) = self.running().get(&attempt) {
            *meter.end_keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
            meter.is_to_end.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the progress of all attempts.
    pub fn told(&self) -> Vec<AttemptProgress> {
        self.running().iter().filter_map(|(attempt, meter)| meter.told(*attempt)).collect()
    }
}

impl Drop for Metering<'_> {
    fn drop(&mut self) {
        self.meters.running().remove(&self.attempt);
        let bytes = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (shuffled_bytes, moved_bytes) =
            (bytes(&self.meter.appended_bytes), bytes(&self.meter.away_bytes));
        self.meters
            .add_used(self.attempt, AttemptUsage { shuffled_bytes, moved_bytes, ..AttemptUsage::default() });
    }
}

/// The chunks of an attempt, with the time that it waits for them.
pub(crate) struct MeteredChunks<'a> {
    inner: &'a dyn ChunkService,
    meter: &'a Meter,
    here: NodeId,
    /// Waiting time by node of the chunk.
    by_node: Mutex<BTreeMap<NodeId, Duration>>,
}

impl<'a> MeteredChunks<'a> {
    pub fn new(inner: &'a dyn ChunkService, meter: &'a Meter, here: NodeId) -> Self {
        Self { inner, meter, here, by_node: Mutex::default() }
    }

    fn timed<T>(&self, to: Option<NodeId>, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.meter.appends_since_ns.store(self.meter.elapsed_ns(), Ordering::Relaxed);
        let answer = call();
        self.meter.appends_since_ns.store(0, Ordering::Relaxed);
        let took = began.elapsed();
        self.meter.append_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        if let Some(to) = to {
            let mut by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
            *by_node.entry(to).or_default() += took;
            let longest = by_node.iter().max_by_key(|(_, waited)| **waited).map(|(node, _)| *node);
            let away = longest.filter(|node| *node != self.here);
            self.meter.append_to.store(away.map_or(NOBODY, |node| node.0), Ordering::Relaxed);
        }
        answer
    }
}

impl ChunkService for MeteredChunks<'_> {
    fn slab(&self) -> Result<SlabWriter, AppendError> {
        self.timed(None, || self.inner.slab())
    }

    fn oversize(&self, bytes: u64) -> Result<Charge, AppendError> {
        self.timed(None, || self.inner.oversize(bytes))
    }

    fn bind(&self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> Result<ChunkId, AppendError> {
        self.timed(None, || self.inner.bind(ifile, source, frame_bytes))
    }

    fn append(&self, chunk: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        let bytes = frame.header.sum.bytes;
        let reply = self.timed(Some(chunk.node()), || self.inner.append(chunk, frame))?;
        if !matches!(reply, AppendReply::Closed { .. }) {
            self.meter.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
            let away_bytes = if chunk.node() == self.here { 0 } else { bytes };
            self.meter.away_bytes.fetch_add(away_bytes, Ordering::Relaxed);
        }
        Ok(reply)
    }

    fn answers(&self, wait: bool) -> Result<Vec<AppendAnswer>, AppendError> {
        self.timed(None, || self.inner.answers(wait))
    }

    fn release(&self, chunk: ChunkId, source: Source) {
        self.inner.release(chunk, source);
    }
}

#[cfg(test)]
mod tests {
    use super::Meter;
    use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    /// A current wait counts: the attempt is slow because of it.
    #[test]
    fn waiting_is_reported_before_it_ends() {
        let task = TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        let began =
            Instant::now().checked_sub(Duration::from_secs(5)).expect("the machine has run for longer");
        let meter = Meter { began, ..Meter::new(10) };
        meter.reads_since_ns.store(1, Ordering::Relaxed);
        let told = meter.told(attempt).expect("it has run for long enough");
        assert!(told.read_ns >= 4_000_000_000 && told.program_ns < 1_000_000_000, "{told:?}");
        meter.has_waited_to_read(Duration::from_secs(3), None);
        meter.appends_since_ns.store(3_000_000_001, Ordering::Relaxed);
        let told = meter.told(attempt).expect("it has run for long enough");
        assert!(told.read_ns == 3_000_000_000 && told.append_ns >= 1_000_000_000, "{told:?}");
    }
}
