//! State of a node: its jobs, and the counters of its threads.

use crate::attempt::JobRun;
use crate::contents::Contents;
use crate::control::Control;
use crate::job_data::{JobData, NodeFacts};
use crate::shuffle::remote::{OtherNodes, RecordData};
use crate::slots::meters::Meters;
use crate::slots::progress::Counters;
use crate::slots::run_gate::RunGate;
use crate::stored::local_files::LocalFiles;
use crate::stored::step_files::StepFiles;
use crate::stored::views::FileViews;
use crate::tasks::memory_dirs::MemoryDirs;
use crate::tasks::program_output::RunningOutputs;
use api::AttemptLimits;
use ids::{JobId, RunId};
use program::{Programs, Sandbox, TemporaryDir};
use programport::ProgramPort;
use roots::JobPaths;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Options of a node, from the caller that starts it.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Number of attempts that run at once.
    pub slots: u32,
    /// Number of further attempts that may wait for a turn of a slot, while programs are short.
    pub places: u32,
    /// The user's current directory: relative program paths start there.
    pub start_dir: PathBuf,
    /// Registry of running user programs, for callers that must end them.
    pub programs: Arc<Programs>,
    /// Sandbox with the paths that user programs may access besides those of their job; None permits all that the node
    /// can access.
    pub sandbox: Option<Sandbox>,
    /// Limits of the programs of each attempt.
    pub limits: AttemptLimits,
    /// Opens sockets by which programs reach the server; None if there is none.
    pub program_port: Option<ProgramPort>,
    /// Environment of every user program: access to the server, if there is one.
    pub program_env: Vec<(String, String)>,
    /// Directory of the concrete files of stored files; None if this node has none.
    pub stored_files: Option<PathBuf>,
    /// The stored files that programs of jobs write; None if there are none.
    pub step_files: Option<Arc<dyn StepFiles>>,
    /// Shows stored files to programs without copies; None: programs get copies.
    pub views: Option<Arc<dyn FileViews>>,
    /// Access to the directories that this node sees and not every other; None if there are none.
    pub seen: Option<JobPaths>,
    /// Memory for files that programs of pipelines pass to each other.
    pub file_memory_bytes: u64,
}

/// The state of a node that its threads share.
pub(crate) struct Shared {
    pub control: Arc<dyn Control>,
    pub options: NodeOptions,
    pub counters: Arc<Counters>,
    jobs: Mutex<BTreeMap<JobId, Arc<JobData>>>,
    pub record_data: OnceLock<Arc<dyn RecordData>>,
    pub outputs: RunningOutputs,
    pub meters: Meters,
    pub run_gate: RunGate,
    /// Hashes of files that jobs read and wrote.
    pub contents: Contents,
    pub memory_dirs: Arc<MemoryDirs>,
    /// On one machine: local copies for jobs of one task, which have no directories.
    copies: Mutex<Option<(TemporaryDir, Arc<LocalFiles>)>>,
    /// Promoted replicas that must be copied to one more node and that the replicator of the job has not taken yet.
    again: Mutex<BTreeMap<JobId, Vec<RunId>>>,
    /// True during a drain: no new chunk is accepted.
    pub draining: AtomicBool,
}

impl Shared {
    pub fn new(control: Arc<dyn Control>, options: NodeOptions) -> Self {
        let memory_dirs = Arc::new(MemoryDirs::new(options.file_memory_bytes));
        Self {
            control,
            run_gate: RunGate::new(options.slots),
            options,
            memory_dirs,
            counters: Arc::new(Counters::default()),
            jobs: Mutex::new(BTreeMap::new()),
            record_data: OnceLock::new(),
            outputs: RunningOutputs::default(),
            meters: Meters::default(),
            contents: Contents::default(),
            copies: Mutex::default(),
            again: Mutex::default(),
            draining: AtomicBool::new(false),
        }
    }

    pub fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<JobData>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data of a job on this node; the first call creates it.
    pub fn job_data(&self, job: JobId, run: &Arc<JobRun>) -> Arc<JobData> {
        let mut jobs = self.jobs();
        if !jobs.contains_key(&job) {
            // Resting stages do not need memory.
            jobs.values()
                .filter_map(|other| other.started_chunkserver())
                .for_each(|other| other.give_back_idle());
        }
        let data = jobs.entry(job).or_insert_with(|| {
            let input_bytes = run.spec.input_bytes();
            self.counters.input_bytes_total.fetch_add(input_bytes, Ordering::Relaxed);
            let (node, slots) = (self.control.node(), self.options.slots);
            let here = NodeFacts { node, slots, elsewhere: self.record_data.get().is_some() };
            let elsewhere = self.record_data.get();
            let stored = run.spec.stored_output.and_then(|output| elsewhere?.stored_output(job, output.of));
            Arc::new(JobData::new(job, Arc::clone(run), here, stored))
        });
        Arc::clone(data)
    }

    /// Returns the local copies for jobs of one task on one machine; they go with this process.
    pub fn copies_for_single_jobs(&self) -> std::io::Result<Arc<LocalFiles>> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, files)) = &*copies {
            return Ok(Arc::clone(files));
        }
        let dir = self.options.programs.private_directory()?;
        let files = Arc::new(LocalFiles::of_one_machine(vec![dir.path().to_path_buf()]));
        *copies = Some((dir, Arc::clone(&files)));
        Ok(files)
    }

    /// Takes the runs that the replicator of a job has not got yet.
    pub fn to_replicate_again(&self, job: JobId) -> Option<Vec<RunId>> {
        self.again().remove(&job)
    }

    pub fn again(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<RunId>>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the other nodes with data of a job; None if all of it is here.
    pub fn other_nodes(&self, job: JobId) -> Option<OtherNodes> {
        self.record_data.get()?.other_nodes(job).filter(|others| !others.peers.is_empty())
    }
}
