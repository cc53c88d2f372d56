//! The table of a chunkserver: chunks, queues, runs. Pure state changes without I/O.

use crate::error::ChunkServerError;
use crate::run::Run;
use crate::to_copy::ToCopy;
use api::task::{ChunkSummary, RunSummary};
use api::{DataSum, Layout};
use faults::{PlantedFault, planted};
use iappender::{AppendError, AppendFrame, AppendReply};
use ids::{ChunkId, DiskIndex, IfileIndex, NodeId, RunId, Source};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum appenders bound to one chunk at a time (Sailfish section 6.1); for more, a second chunk of the I-file opens.
pub const APPENDERS_PER_CHUNK_MAX: usize = 128;

/// State of a chunk: Open -> Stable (closed, waiting for a sorter) -> Sorting -> Sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    Open,
    Stable,
    Sorting,
    Sorted,
}

/// Frames and sum of one source in a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChunkSource {
    /// Number of frames sent to this chunk that are in it: it contains all below.
    pub standing_end: u64,
    pub sum: DataSum,
    /// True if it counts among the chunk's appenders.
    pub bound: bool,
}

/// Frames of a chunk that were spilled unsorted.
#[derive(Clone, Debug)]
pub(crate) struct RawFile {
    pub path: PathBuf,
    pub frames: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Chunk {
    pub ifile: IfileIndex,
    pub disk: DiskIndex,
    pub capacity_bytes: u64,
    pub oversize: bool,
    pub state: ChunkState,
    /// Frames in memory, in order of arrival.
    pub frames: Vec<AppendFrame>,
    pub appended_bytes: u64,
    pub memory_bytes: u64,
    pub sources: BTreeMap<Source, ChunkSource>,
    pub raw: Option<RawFile>,
    /// True while a raw spill is being written; the chunk cannot be sorted until then.
    pub spilling: bool,
}

impl Chunk {
    fn appenders(&self) -> usize {
        self.sources.values().filter(|source| source.bound).count()
    }
}

/// Figures for the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub raw_spills: u64,
    pub raw_spill_bytes: u64,
    pub sort_seconds: f64,
    pub write_seconds: f64,
}

/// Table of a chunkserver: its chunks, queues and runs. The simulator drives them without the threads and files around
/// them.
pub struct ChunkTable {
    node: NodeId,
    layout: Layout,
    pub(crate) chunks: BTreeMap<ChunkId, Chunk>,
    /// Open chunks per I-file, in order of opening.
    open: BTreeMap<IfileIndex, Vec<ChunkId>>,
    /// Stable chunks per disk, in order of closing.
    pub(crate) queues: Vec<VecDeque<ChunkId>>,
    /// Number of working sorters.
    pub(crate) busy_sorters: usize,
    /// Number of appenders that wait for memory.
    pub(crate) memory_waiters: usize,
    pub(crate) runs: BTreeMap<RunId, Arc<Run>>,
    pub(crate) summaries: BTreeMap<RunId, RunSummary>,
    /// Runs only in memory, oldest first: the next to be written when memory is short.
    pub(crate) memory_runs: VecDeque<RunId>,
    /// Copies of runs of other nodes.
    pub(crate) copies: BTreeMap<RunId, (Arc<Run>, RunSummary)>,
    /// Copies that were sealed here in place of runs of lost nodes.
    pub(crate) standing: BTreeSet<RunId>,
    /// Runs whose copies are being received.
    pub(crate) receiving: BTreeSet<RunId>,
    /// Runs of this node, and promoted copies, that need a copy on another node.
    pub(crate) to_copy: ToCopy,
    /// Chunks whose data is lost.
    pub(crate) lost: BTreeSet<ChunkId>,
    /// Reason of the first loss.
    pub(crate) lost_because: Option<String>,
    pub(crate) sealing: bool,
    pub(crate) stopping: bool,
    pub(crate) failure: Option<Arc<ChunkServerError>>,
    pub(crate) figures: Figures,
    next_chunk: u64,
    next_run: u64,
    disk_assigned_bytes: Vec<u64>,
}

impl ChunkTable {
    /// Creates the table of a job on a node with this many disks.
    pub fn new(node: NodeId, layout: Layout, disk_count: usize) -> Self {
        Self {
            node,
            layout,
            chunks: BTreeMap::new(),
            open: BTreeMap::new(),
            queues: vec![VecDeque::new(); disk_count],
            busy_sorters: 0,
            memory_waiters: 0,
            runs: BTreeMap::new(),
            summaries: BTreeMap::new(),
            memory_runs: VecDeque::new(),
            copies: BTreeMap::new(),
            standing: BTreeSet::new(),
            receiving: BTreeSet::new(),
            to_copy: ToCopy::default(),
            lost: BTreeSet::new(),
            lost_because: None,
            sealing: false,
            stopping: false,
            failure: None,
            figures: Figures::default(),
            next_chunk: 0,
            next_run: 0,
            disk_assigned_bytes: vec![0; disk_count],
        }
    }

    /// Returns a run of this node, or a copy of another's.
    pub fn run(&self, id: RunId) -> Option<&Arc<Run>> {
        self.runs.get(&id).or_else(|| self.copies.get(&id).map(|(run, _)| run))
    }

    /// Adds a run that was made here.
    pub fn register(&mut self, run: Run, summary: RunSummary) {
        if run.is_in_memory() {
            self.memory_runs.push_back(run.id);
        }
        self.to_copy.add(run.id);
        self.summaries.insert(run.id, summary);
        self.runs.insert(run.id, Arc::new(run));
    }

    /// Removes merged runs, and returns those that existed. Copies stay until the job is over, except for promoted
    /// ones: if the merge does not count, no data may exist twice.
    pub fn forget_runs(&mut self, ids: &[RunId]) -> Vec<Arc<Run>> {
        self.to_copy.forget(ids);
        self.memory_runs.retain(|each| !ids.contains(each));
        let mut forgotten = Vec::with_capacity(ids.len());
        for id in ids {
            self.summaries.remove(id);
            forgotten.extend(self.runs.remove(id));
            if self.standing.remove(id) {
                forgotten.extend(self.copies.remove(id).map(|(run, _)| run));
            }
        }
        forgotten
    }

    /// Returns a number for a new run.
    pub fn take_run_id(&mut self) -> RunId {
        self.next_run += 1;
        RunId::on(self.node, self.next_run - 1)
    }

    /// Makes the numbers of later runs higher than this one, which came from another node.
    pub fn keep_run_ids_above(&mut self, run: RunId) {
        if run.node() == self.node {
            self.next_run = self.next_run.max(run.number() + 1);
        }
    }

    /// Chooses an open chunk with room for one more appender, or opens one.
    pub fn bind(&mut self, ifile: IfileIndex, source: Source, frame_bytes: u64) -> ChunkId {
        let oversize = frame_bytes > self.layout.chunk_bytes;
        let found = self.open.get(&ifile).into_iter().flatten().copied().find(|chunk| {
            let chunk = &self.chunks[chunk];
            !oversize && !chunk.oversize && chunk.appenders() < APPENDERS_PER_CHUNK_MAX
        });
        let chunk = found.unwrap_or_else(|| self.open_chunk(ifile, oversize, frame_bytes));
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.sources.entry(source).or_default().bound = true;
        }
        chunk
    }

    fn open_chunk(&mut self, ifile: IfileIndex, oversize: bool, frame_bytes: u64) -> ChunkId {
        let id = ChunkId::on(self.node, self.next_chunk);
        self.next_chunk += 1;
        let capacity_bytes = if oversize { frame_bytes } else { self.layout.chunk_bytes };
        let least = (0..self.disk_assigned_bytes.len()).min_by_key(|disk| self.disk_assigned_bytes[*disk]);
        let disk = least.unwrap_or(0);
        self.disk_assigned_bytes[disk] += capacity_bytes;
        self.chunks.insert(
            id,
            Chunk {
                ifile,
                disk: DiskIndex(disk as u16),
                capacity_bytes,
                oversize,
                state: ChunkState::Open,
                frames: Vec::new(),
                appended_bytes: 0,
                memory_bytes: 0,
                sources: BTreeMap::new(),
                raw: None,
                spilling: false,
            },
        );
        self.open.entry(ifile).or_default().push(id);
        id
    }

    /// Appends a frame. A repeated frame is acknowledged again. A frame for a closed chunk is answered with the
    /// standing frames, and so is the first frame that does not fit, which closes the chunk.
    pub fn append(&mut self, id: ChunkId, frame: AppendFrame) -> Result<AppendReply, AppendError> {
        let chunk = self.chunks.get_mut(&id).ok_or(AppendError::Gone(id))?;
        let header = frame.header;
        let refused = |why| AppendError::Refused { from: header.source, ifile: header.ifile, why };
        if header.ifile != chunk.ifile {
            return Err(refused("the chunk belongs to another I-file"));
        }
        if header.sum.bytes != frame.payload.len() as u64 {
            return Err(refused("the payload is not as long as the header says"));
        }
        let of_source = chunk.sources.entry(header.source).or_default();
        if header.sequence < of_source.standing_end {
            return Ok(AppendReply::Acked);
        }
        let closed = AppendReply::Closed { standing_end: of_source.standing_end };
        if chunk.state != ChunkState::Open {
            return Ok(closed);
        }
        if chunk.appended_bytes + header.sum.bytes > chunk.capacity_bytes {
            // An oversize record gets its own chunk; this one stays open for the following records.
            if header.sum.bytes <= chunk.capacity_bytes {
                self.close(id);
            }
            return Ok(closed);
        }
        of_source.standing_end = header.sequence + 1;
        if planted(PlantedFault::FrameDropped) {
            return Ok(AppendReply::Acked);
        }
        of_source.sum.add(&header.sum);
        chunk.appended_bytes += header.sum.bytes;
        chunk.memory_bytes += header.sum.bytes;
        let frame = if planted(PlantedFault::FrameAltered) { altered(frame) } else { frame };
        if planted(PlantedFault::FrameDuplicated) {
            chunk.frames.push(frame.clone());
        }
        chunk.frames.push(frame);
        if chunk.capacity_bytes - chunk.appended_bytes < self.layout.frame_bytes {
            self.close(id);
        }
        Ok(AppendReply::Acked)
    }

    /// Records that the source sends no more to the chunk.
    pub fn release(&mut self, id: ChunkId, source: Source) {
        if let Some(of_source) = self.chunks.get_mut(&id).and_then(|chunk| chunk.sources.get_mut(&source)) {
            of_source.bound = false;
        }
    }

    /// Closes a chunk if it is open.
    pub fn close_one(&mut self, id: ChunkId) {
        if self.chunks.get(&id).is_some_and(|chunk| chunk.state == ChunkState::Open) {
            self.close(id);
        }
    }

    /// Closes a chunk permanently.
    fn close(&mut self, id: ChunkId) {
        let Some(chunk) = self.chunks.get_mut(&id) else { return };
        chunk.state = if chunk.appended_bytes == 0 { ChunkState::Sorted } else { ChunkState::Stable };
        if chunk.state == ChunkState::Stable {
            self.queues[chunk.disk.0 as usize].push_back(id);
        }
        if let Some(open) = self.open.get_mut(&chunk.ifile) {
            open.retain(|each| *each != id);
        }
    }

    /// Returns the open chunks that have frames.
    pub fn begun_chunks(&self) -> Vec<ChunkId> {
        let open = self.open.values().flatten().copied();
        open.filter(|id| self.chunks[id].appended_bytes > 0).collect()
    }

    /// Closes every open chunk: no map attempt appends any more.
    pub fn close_all(&mut self) {
        let open: Vec<ChunkId> = self.open.values().flatten().copied().collect();
        for id in open {
            self.close(id);
        }
    }

    /// Takes the next chunks to sort: one, or while sealing several small ones of an I-file together. Chunks that are
    /// still in memory go first: sorting them frees memory, but reading a raw one back needs it.
    pub fn take_sort_work(&mut self) -> Option<Vec<ChunkId>> {
        let in_memory = |chunk: &Chunk| !chunk.spilling && chunk.raw.is_none();
        let ready = |chunk: &Chunk| !chunk.spilling;
        let first = self.pop_stable(&in_memory).or_else(|| self.pop_stable(&ready))?;
        let mut taken = vec![first];
        let (ifile, mut bytes, single) = {
            let chunk = &self.chunks[&first];
            (chunk.ifile, chunk.appended_bytes, chunk.raw.is_some())
        };
        if self.sealing && !single {
            let limit = self.layout.chunk_bytes;
            loop {
                let fits = |chunk: &Chunk| {
                    in_memory(chunk) && chunk.ifile == ifile && bytes + chunk.appended_bytes <= limit
                };
                let Some(more) = self.pop_stable(&fits) else { break };
                bytes += self.chunks[&more].appended_bytes;
                taken.push(more);
            }
        }
        for id in &taken {
            if let Some(chunk) = self.chunks.get_mut(id) {
                chunk.state = ChunkState::Sorting;
            }
        }
        Some(taken)
    }

    fn pop_stable(&mut self, wanted: &dyn Fn(&Chunk) -> bool) -> Option<ChunkId> {
        for queue in &mut self.queues {
            if let Some(position) = queue.iter().position(|id| wanted(&self.chunks[id])) {
                return queue.remove(position);
            }
        }
        None
    }

    /// Returns the frames of chunks that a sorter has taken, with their common I-file and disk.
    pub fn take_frames(
        &mut self,
        chunks: &[ChunkId],
    ) -> (IfileIndex, DiskIndex, Vec<(ChunkId, AppendFrame)>) {
        let (mut ifile, mut disk, mut frames) = (IfileIndex(0), DiskIndex(0), Vec::new());
        for id in chunks {
            let Some(chunk) = self.chunks.get_mut(id) else { continue };
            (ifile, disk) = (chunk.ifile, chunk.disk);
            frames.extend(chunk.frames.drain(..).map(|frame| (*id, frame)));
            chunk.memory_bytes = 0;
        }
        (ifile, disk, frames)
    }

    /// Records that these chunks are in a run now.
    pub fn sorted(&mut self, chunks: &[ChunkId]) {
        for id in chunks {
            if let Some(chunk) = self.chunks.get_mut(id) {
                chunk.state = ChunkState::Sorted;
                chunk.raw = None;
            }
        }
    }

    /// Returns whether the data of a chunk is in a run, or lost.
    pub fn is_sorted(&self, id: ChunkId) -> bool {
        self.chunks.get(&id).is_some_and(|chunk| chunk.state == ChunkState::Sorted)
    }

    /// Starts the seal: every open chunk closes, and small ones are sorted together.
    pub fn begin_seal(&mut self) {
        self.sealing = true;
        self.close_all();
    }

    /// Returns the chunks whose data is lost, in order.
    pub fn lost(&self) -> Vec<ChunkId> {
        self.lost.iter().copied().collect()
    }

    /// Returns whether closed chunks wait for a sorter.
    pub fn has_stable_chunks(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Returns the bytes that open chunks can still take: memory that must stay free, so that appenders never wait for
    /// memory that only they could free.
    pub fn open_room_bytes(&self) -> u64 {
        if self.sealing {
            return 0;
        }
        let open_bytes: u64 = self.open.values().flatten().map(|id| self.chunks[id].memory_bytes).sum();
        (u64::from(self.layout.ifile_count) * self.layout.chunk_bytes).saturating_sub(open_bytes)
    }

    /// Returns the chunk with the most bytes in memory that no sorter has taken. Stable ones count: if every sorter
    /// waits to read a raw chunk back, nothing else would free them.
    pub fn largest_unsorted_chunk(&self) -> Option<ChunkId> {
        let open = self.open.values().flatten();
        open.chain(self.queues.iter().flatten())
            .copied()
            .filter(|id| self.chunks[id].memory_bytes > 0 && !self.chunks[id].spilling)
            .max_by_key(|id| self.chunks[id].memory_bytes)
    }

    /// Returns the chunks with data, and the sum of each source in them.
    pub fn chunk_summaries(&self) -> Vec<ChunkSummary> {
        let is_there = |id: &ChunkId, chunk: &Chunk| chunk.appended_bytes > 0 && !self.lost.contains(id);
        let filled = self.chunks.iter().filter(|(id, chunk)| is_there(id, chunk));
        filled
            .map(|(id, chunk)| ChunkSummary {
                chunk: *id,
                ifile: chunk.ifile,
                generation: 0,
                disk: chunk.disk,
                capacity_bytes: chunk.capacity_bytes,
                appended_bytes: chunk.appended_bytes,
                oversize: chunk.oversize,
                sources: chunk.sources.iter().map(|(source, of_source)| (*source, of_source.sum)).collect(),
            })
            .collect()
    }
}

/// Returns the frame with its last byte changed, as by faulty memory.
fn altered(frame: AppendFrame) -> AppendFrame {
    let mut bytes = frame.payload.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    AppendFrame { header: frame.header, payload: arena::FrameBytes::on_heap(bytes, None) }
}
