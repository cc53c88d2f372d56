//! Data that a node keeps for a job while it runs: its chunkserver, its boundaries, its share for merging.

use crate::attempt::JobRun;
use crate::shuffle::merge_gate::MergeGate;
use crate::shuffle::stage_files::StageFiles;
use api::flow::stage_file_name;
use api::task::Part;
use api::{Boundaries, TaskFailure};
use chunkserver::{ChunkServer, Config};
use dataport::{SpreadByIfile, StageFileName};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, RunId, TaskIndex};
use ifile::KeyShape;
use output::PartPlace;
use stagefile::Payload;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Buffers of one attempt besides the merge: input, pipes, output.
const BUFFERS_PER_SLOT: u64 = 4;
const BUFFER_BYTES_MIN: u64 = 16 << 10;
const BUFFER_BYTES_MAX: u64 = 256 << 10;
/// Largest buffer of an output part: each time it is full is one system call.
const PART_BUFFER_BYTES_MAX: u64 = 1 << 20;

/// Facts of the node that its jobs need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts {
    pub node: NodeId,
    /// Attempts that run at once.
    pub slots: u32,
    /// There are other nodes, which can make data again that the disks here cannot take.
    pub elsewhere: bool,
}

pub(crate) struct JobData {
    pub job: JobId,
    pub run: Arc<JobRun>,
    node: NodeId,
    /// When this node first heard of it.
    pub began: Instant,
    /// Attempts that run at once on this node.
    pub slots: u32,
    /// There are other nodes, which can make data again that the disks here cannot take.
    elsewhere: bool,
    pub gate: MergeGate,
    /// Which beginning of a stored key decides the group.
    pub key_shape: KeyShape,
    /// Placement of the chunks that map tasks open.
    pub placement: SpreadByIfile,
    /// Range boundaries, once they are fixed.
    pub boundaries: OnceLock<Boundaries>,
    /// Files that its tasks leave for tasks of later stages.
    pub stage_files: Arc<StageFiles>,
    chunkserver: Mutex<Option<Arc<ChunkServer>>>,
    /// A thread replicates its runs.
    is_replicating: AtomicBool,
    /// Runs on disks that failed of which the server was told.
    told_lost: Mutex<BTreeSet<RunId>>,
}

/// One attempt of a job: what the job has here, and what is its own.
pub(crate) struct AttemptData {
    job: Arc<JobData>,
    pub attempt: AttemptKey,
    /// The job with its files where this attempt has them.
    pub run: Arc<JobRun>,
    /// Set when this attempt is to stop, with its job or by itself.
    pub cancelled: Arc<AtomicBool>,
}

impl AttemptData {
    pub fn new(job: Arc<JobData>, attempt: AttemptKey, run: Arc<JobRun>, cancelled: Arc<AtomicBool>) -> Self {
        Self { job, attempt, run, cancelled }
    }
}

impl Deref for AttemptData {
    type Target = JobData;

    fn deref(&self) -> &JobData {
        &self.job
    }
}

impl JobData {
    pub fn new(job: JobId, run: Arc<JobRun>, here: NodeFacts) -> Self {
        let NodeFacts { node, slots, elsewhere } = here;
        let gate = MergeGate::new(run.spec.layout.sort_share_bytes);
        let key_shape = match keys::groups_by_prefix(&run.spec.keys) {
            true => KeyShape::Prefix,
            false => KeyShape::Whole,
        };
        let placement = SpreadByIfile::for_job(&run.spec.layout, run.spec.input_bytes());
        let (boundaries, chunkserver) = (OnceLock::new(), Mutex::new(None));
        let stage_files = Arc::new(StageFiles::new(run.disk_dirs.clone()));
        let slots = slots.max(1);
        let (began, is_replicating) = (Instant::now(), AtomicBool::new(false));
        Self {
            job,
            run,
            node,
            began,
            slots,
            elsewhere,
            gate,
            key_shape,
            placement,
            boundaries,
            stage_files,
            chunkserver,
            is_replicating,
            told_lost: Mutex::default(),
        }
    }

    /// The chunkserver of the job, started when it is first needed.
    pub fn chunkserver(&self) -> Result<Arc<ChunkServer>, TaskFailure> {
        let mut started = self.chunkserver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*started {
            return Ok(Arc::clone(server));
        }
        let spec = &self.run.spec;
        let config = Config {
            job: self.job,
            node: self.node,
            layout: spec.layout,
            codec: spec.codec,
            key_shape: self.key_shape,
            disk_dirs: self.run.disk_dirs.clone(),
            slots: self.slots,
            // A stage that later ones read rests for long, and its memory goes to them.
            keep: spec.keep_ifiles || spec.feeds(),
            elsewhere: self.elsewhere,
            cancelled: Arc::clone(&self.run.cancelled),
        };
        let server = Arc::new(ChunkServer::start(config).map_err(|error| error.to_failure())?);
        *started = Some(Arc::clone(&server));
        Ok(server)
    }

    /// True once, when its runs are to be replicated.
    pub fn begins_to_replicate(&self) -> bool {
        self.run.replicates.load(Ordering::Relaxed) && !self.is_replicating.swap(true, Ordering::Relaxed)
    }

    /// There is no such thread.
    pub fn replicates_no_more(&self) {
        self.is_replicating.store(false, Ordering::Relaxed);
    }

    /// Whether a thread replicates its runs.
    pub fn is_replicating(&self) -> bool {
        self.is_replicating.load(Ordering::Relaxed)
    }

    /// Those of some lost runs of which the server was not told yet; from now on it is.
    pub fn to_tell_lost(&self, lost: &BTreeSet<RunId>) -> BTreeSet<RunId> {
        let mut told = self.told_lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.iter().filter(|run| told.insert(**run)).copied().collect()
    }

    /// The chunkserver, where anybody has needed it yet.
    pub fn started_chunkserver(&self) -> Option<Arc<ChunkServer>> {
        self.chunkserver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn chunk_progress(&self) -> Option<Arc<chunkserver::Progress>> {
        self.started_chunkserver().map(|server| server.progress())
    }

    /// The number of partitions, where the user has set it.
    pub fn partition_count(&self) -> Option<u32> {
        self.run.spec.keys.partitions.as_ref().map(|rule| rule.count)
    }

    /// Bytes of one buffer, so that all slots together stay within the share for I/O.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_share_bytes().clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize
    }

    /// Bytes that reading or writing an object may take. An attempt does one of these at a time, or in a map-only job both.
    pub fn object_buffer_bytes(&self) -> usize {
        usize::try_from(self.buffer_share_bytes()).unwrap_or(usize::MAX)
    }

    fn buffer_share_bytes(&self) -> u64 {
        self.run.spec.layout.io_share_bytes / (u64::from(self.slots) * BUFFERS_PER_SLOT)
    }

    /// Registers a part that later stages read, so that they find it. Returns the part as its attempt reports it: with this node, if
    /// they do.
    pub fn register_part(&self, part: Part) -> Part {
        if !self.run.spec.feeds() {
            return part;
        }
        if let Some(name) = StageFileName::new(part.attempt_name.as_str()) {
            let payload = Payload { bytes: part.bytes, crc32c: part.crc32c };
            let path = self.stage_files.disk_of(&part.attempt_name).map(|disk| disk.join(name.as_str()));
            path.into_iter().for_each(|path| self.stage_files.register(name.clone(), path, payload.into()));
        }
        Part { node: Some(self.node), ..part }
    }

    /// Returns the place of an output part that an attempt writes.
    pub fn part_place(&self, part_index: u32, attempt: AttemptNumber) -> PartPlace<'_> {
        let buffer_bytes = self.buffer_share_bytes().clamp(BUFFER_BYTES_MIN, PART_BUFFER_BYTES_MAX);
        // Later stages read it where it was made.
        let is_stage_file = self.run.spec.feeds();
        let disk = self.stage_files.disk_of(&stage_file_name(TaskIndex(part_index), attempt));
        PartPlace {
            staging: disk.filter(|_| is_stage_file).unwrap_or(&self.run.staging),
            is_stage_file,
            part_index,
            attempt,
            buffer_bytes: buffer_bytes as usize,
            object_buffer_bytes: self.object_buffer_bytes(),
            sync: self.run.spec.sync,
        }
    }
}
