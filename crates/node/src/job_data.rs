//! Data that a node keeps for a running job: its chunkserver, its boundaries, its share for merging.

use crate::attempt::JobRun;
use crate::shuffle::merge_gate::MergeGate;
use crate::shuffle::stage_files::StageFiles;
use crate::stored::job_output::JobOutput;
use crate::stored::local_files::LocalFiles;
use crate::tasks::attempt_files::AttemptFiles;
use crate::tasks::finished_runs::JobPrograms;
use crate::tasks::pinned_copies::PinnedCopies;
use api::flow::stage_file_name;
use api::task::Part;
use api::{Boundaries, JobSpec, TaskFailure};
use chunkserver::{ChunkServer, Config};
use dataport::{SpreadByIfile, StageFileName};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, RunId, TaskIndex};
use ifile::KeyShape;
use output::{PartPlace, StoredParts};
use stagefile::Payload;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Number of buffers of an attempt besides the merge: input, pipes, output.
const BUFFERS_PER_SLOT: u64 = 4;
const BUFFER_BYTES_MIN: u64 = 16 << 10;
const BUFFER_BYTES_MAX: u64 = 256 << 10;
/// Largest buffer of an output part: each full buffer is one system call.
const PART_BUFFER_BYTES_MAX: u64 = 1 << 20;

/// Directory of local copies of stored files within those of a job on one machine.
const LOCAL_FILES_DIR: &str = "stored-files";

/// Facts of the node that its jobs need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts {
    pub node: NodeId,
    /// Number of attempts that run at once.
    pub slots: u32,
    /// True if there are other nodes, which can recompute data that the disks here cannot hold.
    pub elsewhere: bool,
}

pub(crate) struct JobData {
    pub job: JobId,
    pub run: Arc<JobRun>,
    node: NodeId,
    /// Time at which this node first heard of it.
    pub began: Instant,
    /// Number of attempts that run at once on this node.
    pub slots: u32,
    /// True if there are other nodes, which can recompute data that the disks here cannot hold.
    elsewhere: bool,
    pub gate: MergeGate,
    /// The prefix of a stored key that decides the group.
    pub key_shape: KeyShape,
    /// Placement of the chunks that map tasks open.
    pub placement: SpreadByIfile,
    /// The programs when the first of them started here, if its run is to be recorded; None in it: they cannot be read.
    pub programs: OnceLock<Option<JobPrograms>>,
    /// Range boundaries, once they are fixed.
    pub boundaries: OnceLock<Boundaries>,
    /// Files of its tasks for tasks of later stages.
    pub stage_files: Arc<StageFiles>,
    /// The output, if it is a stored file of the cluster; and as the destination of parts.
    pub stored_output: Option<Arc<dyn JobOutput>>,
    stored_parts: Option<Arc<dyn StoredParts>>,
    /// Copies of stored files for its programs, on one machine.
    local_files: OnceLock<Arc<LocalFiles>>,
    /// The specification with the copies of the last attempt: the next one mostly has the same.
    last_copies: Mutex<Option<SpecWithCopies>>,
    chunkserver: Mutex<Option<Arc<ChunkServer>>>,
    /// True if a thread replicates its runs.
    is_replicating: AtomicBool,
    /// Runs on failed disks that have been reported to the server.
    told_lost: Mutex<BTreeSet<RunId>>,
}

/// An attempt of a job: the job's data here, and its own.
pub(crate) struct AttemptData {
    job: Arc<JobData>,
    pub attempt: AttemptKey,
    /// The job with the paths of its files for this attempt.
    pub run: Arc<JobRun>,
    /// Set when this attempt must stop, alone or with its job.
    pub cancelled: Arc<AtomicBool>,
    /// Copies of stored files that its programs open.
    pub files: AttemptFiles,
}

impl AttemptData {
    pub fn new(job: Arc<JobData>, attempt: AttemptKey, run: Arc<JobRun>, cancelled: Arc<AtomicBool>) -> Self {
        Self { job, attempt, run, cancelled, files: AttemptFiles::default() }
    }

    /// Gives it the copies of stored files, which its programs may open: the job names them in place of the files.
    pub fn with_files(self, files: AttemptFiles) -> Self {
        let own: Vec<PathBuf> = files.paths().map(Path::to_path_buf).collect();
        if own.is_empty() {
            return self;
        }
        let paths = self.run.paths.with_more_own(own);
        let spec = self.job.spec_with_copies(&self.run.spec, files.pinned());
        Self { run: Arc::new(JobRun { paths, spec, ..self.run.as_ref().clone() }), files, ..self }
    }
}

/// The specification of a job in which copies have taken the places of pinned files.
struct SpecWithCopies {
    /// The one with their names.
    named: Arc<JobSpec>,
    copies: PinnedCopies,
    spec: Arc<JobSpec>,
}

impl Deref for AttemptData {
    type Target = JobData;

    fn deref(&self) -> &JobData {
        &self.job
    }
}

impl JobData {
    pub fn new(
        job: JobId,
        run: Arc<JobRun>,
        here: NodeFacts,
        stored_output: Option<Arc<dyn JobOutput>>,
    ) -> Self {
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
        let stored_parts = stored_output.clone().map(|output| output as Arc<dyn StoredParts>);
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
            programs: OnceLock::new(),
            boundaries,
            stage_files,
            stored_output,
            stored_parts,
            local_files: OnceLock::new(),
            last_copies: Mutex::default(),
            chunkserver,
            is_replicating,
            told_lost: Mutex::default(),
        }
    }

    /// Returns the chunkserver of the job, and starts it on first use.
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
            // A stage that feeds others stays for long, and they need its memory.
            keep: spec.keep_ifiles || spec.feeds(),
            elsewhere: self.elsewhere,
            cancelled: Arc::clone(&self.run.cancelled),
        };
        let server = Arc::new(ChunkServer::start(config).map_err(|error| error.to_failure())?);
        *started = Some(Arc::clone(&server));
        Ok(server)
    }

    /// Returns the local copies of stored files of a job on one machine, which are in its directories.
    pub fn local_files(&self, disk_dirs: &[PathBuf]) -> Arc<LocalFiles> {
        let dirs = disk_dirs.iter().map(|dir| dir.join(LOCAL_FILES_DIR)).collect();
        Arc::clone(self.local_files.get_or_init(|| Arc::new(LocalFiles::of_one_machine(dirs))))
    }

    /// Returns a specification of the job with these copies in place of pinned files.
    fn spec_with_copies(&self, named: &Arc<JobSpec>, copies: &PinnedCopies) -> Arc<JobSpec> {
        if copies.is_empty() {
            return Arc::clone(named);
        }
        let mut last = self.last_copies.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |last: &SpecWithCopies| Arc::ptr_eq(&last.named, named) && last.copies == *copies;
        if let Some(last) = last.as_ref().filter(|last| is_same(last)) {
            return Arc::clone(&last.spec);
        }
        let mut spec = named.as_ref().clone();
        copies.put_into_spec(&mut spec);
        let spec = Arc::new(spec);
        let with_copies =
            SpecWithCopies { named: Arc::clone(named), copies: copies.clone(), spec: Arc::clone(&spec) };
        *last = Some(with_copies);
        spec
    }

    /// Returns true once, when its runs must be replicated.
    pub fn begins_to_replicate(&self) -> bool {
        self.run.replicates.load(Ordering::Relaxed) && !self.is_replicating.swap(true, Ordering::Relaxed)
    }

    /// Records that no thread replicates its runs.
    pub fn replicates_no_more(&self) {
        self.is_replicating.store(false, Ordering::Relaxed);
    }

    /// Returns whether a thread replicates its runs.
    pub fn is_replicating(&self) -> bool {
        self.is_replicating.load(Ordering::Relaxed)
    }

    /// Returns the lost runs that were not reported to the server yet, and records them as reported.
    pub fn to_tell_lost(&self, lost: &BTreeSet<RunId>) -> BTreeSet<RunId> {
        let mut told = self.told_lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.iter().filter(|run| told.insert(**run)).copied().collect()
    }

    /// Returns the chunkserver if it has been started.
    pub fn started_chunkserver(&self) -> Option<Arc<ChunkServer>> {
        self.chunkserver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn chunk_progress(&self) -> Option<Arc<chunkserver::Progress>> {
        self.started_chunkserver().map(|server| server.progress())
    }

    /// Returns the number of partitions if the user has set it.
    pub fn partition_count(&self) -> Option<u32> {
        self.run.spec.keys.partitions.as_ref().map(|rule| rule.count)
    }

    /// Returns the bytes of one buffer, so that all slots together stay within the share for I/O.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_share_bytes().clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX) as usize
    }

    /// Returns the bytes for reading or writing an object. An attempt does one of these at a time, or both in a
    /// map-only job.
    pub fn object_buffer_bytes(&self) -> usize {
        usize::try_from(self.buffer_share_bytes()).unwrap_or(usize::MAX)
    }

    fn buffer_share_bytes(&self) -> u64 {
        self.run.spec.layout.io_share_bytes / (u64::from(self.slots) * BUFFERS_PER_SLOT)
    }

    /// Registers a part that later stages read, so that they find it. Returns the part for the attempt's result: with
    /// this node if later stages read it.
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

    /// Returns the location of an output part for an attempt.
    pub fn part_place(&self, part_index: u32, attempt: AttemptNumber) -> PartPlace<'_> {
        let buffer_bytes = self.buffer_share_bytes().clamp(BUFFER_BYTES_MIN, PART_BUFFER_BYTES_MAX);
        // Later stages read it on this node.
        let is_stage_file = self.run.spec.feeds();
        let disk = self.stage_files.disk_of(&stage_file_name(TaskIndex(part_index), attempt));
        PartPlace {
            // The name of a stored output is for messages.
            staging: match &self.stored_parts {
                Some(_) => &self.run.spec.output,
                None => disk.filter(|_| is_stage_file).unwrap_or(&self.run.staging),
            },
            is_stage_file,
            is_hashed: self.run.spec.recording.is_some() && !is_stage_file,
            part_index,
            attempt,
            buffer_bytes: buffer_bytes as usize,
            object_buffer_bytes: self.object_buffer_bytes(),
            sync: self.run.spec.sync,
            stored: self.stored_parts.as_ref(),
        }
    }
}
