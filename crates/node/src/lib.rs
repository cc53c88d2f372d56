//! # What it does
//! Runs tasks: slot threads pull attempts from the server, run mapper, seal, merge, reducer or commit, and hand
//! in the result with their next pull. Hosts the chunkserver of each job.
//!
//! # Where it sits
//! server or client (assignments) -> node -> mapper, iappender, chunkserver, imerger, reducer.
//!
//! # Invariants
//! A slot runs one attempt at a time. What an attempt leaves behind when it fails (a part file, half a frame, a
//! work directory) is removed before its failure is reported. Nothing of a job is published but by its commit
//! task, with one rename; of objects, by the protocol of `objects`.
//!
//! # Deliberately absent
//! No decision about what runs when, which attempt wins or whether a proof agrees: that is the server's.
//!
//! # How it is tested
//! By the black-box tests in `tests/`, which run the real binary; commit steps in unit tests.

mod commit_task;
mod control;
mod data_access;
mod disk_probes;
mod disks;
mod drill;
mod emit;
mod failure;
mod file_keeper;
mod job_data;
mod kept_checks;
mod kept_dirs;
mod key_tails;
mod left_behind;
mod machine;
mod map_task;
mod merge_gate;
mod meters;
mod part_replicator;
mod pause;
mod progress;
mod record_data;
mod reduce_task;
mod remote;
mod replicator;
mod resend;
mod run_task;
mod said;
mod sampler;
mod shipped_files;
mod shuffle_tasks;
mod slot;
mod spool;
mod stage_files;
mod stage_input;
mod streaming_env;
mod streaming_input;
mod unanswered;
mod user_files;
mod work_dir;

pub use control::{Assignment, Control, Finished, JobRun, Notice, boundaries_failure};
pub use data_access::DataAccess;
pub use disks::Disks;
pub use drill::Drill;
pub use left_behind::LeftOnDisks;
pub use progress::NodeProgress;
pub use record_data::{OtherNodes, RecordData};
pub use remote::{Remote, data_incarnation};
pub use stage_files::{StageFileAt, StageFiles, StageRead};
pub use user_files::UserFiles;

use ids::{JobId, RunId};
use job_data::JobData;
use meters::Meters;
use program::{Programs, Sandbox};
use progress::Counters;
use said::Saying;
use sampler::Sampling;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Attempts that were told to stop are waited for so long before what they use is removed.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
const STOP_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Options of a node, from the caller that starts it.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Attempts that run at once.
    pub slots: u32,
    /// Directory in which the user typed the command: relative program paths start there.
    pub start_dir: PathBuf,
    /// Registry of the user programs that run, for whoever must end them.
    pub programs: Arc<Programs>,
    /// Sandbox with the places that user programs may reach besides those that their job names; None: all that the node may reach.
    pub sandbox: Option<Sandbox>,
    /// In the environment of every user program: how it reaches the server, where there is one.
    pub program_env: Vec<(String, String)>,
}

/// The node could not start its threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a slot thread")]
pub struct NodeError(#[source] std::io::Error);

struct Shared {
    control: Arc<dyn Control>,
    options: NodeOptions,
    counters: Arc<Counters>,
    jobs: Mutex<BTreeMap<JobId, Arc<JobData>>>,
    record_data: OnceLock<Arc<dyn RecordData>>,
    saying: Saying,
    meters: Meters,
    /// Replicas that go to one more node and of which the replicator of the job has not heard. They stand for runs of other nodes.
    again: Mutex<BTreeMap<JobId, Vec<RunId>>>,
    /// Being emptied: no new chunk may lie here.
    draining: AtomicBool,
}

/// A node in this process.
pub struct Node {
    shared: Arc<Shared>,
    slots: Vec<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    sampling: Option<Sampling>,
}

impl Node {
    /// Starts the slot threads; they pull until the server says stop.
    pub fn start(control: Arc<dyn Control>, options: NodeOptions) -> Result<Self, NodeError> {
        let shared = Arc::new(Shared {
            control,
            options,
            counters: Arc::new(Counters::default()),
            jobs: Mutex::new(BTreeMap::new()),
            record_data: OnceLock::new(),
            saying: Saying::default(),
            meters: Meters::default(),
            again: Mutex::default(),
            draining: AtomicBool::new(false),
        });
        let mut node = Self { shared: Arc::clone(&shared), slots: Vec::new(), keeper: None, sampling: None };
        let keeper = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("jobs".to_string());
        node.keeper = Some(thread.spawn(move || keeper.keep_jobs()).map_err(NodeError)?);
        for slot in 0..shared.options.slots {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("slot-{slot}"))
                .spawn(move || slot::slot_loop(&shared, slot))
                .map_err(NodeError)?;
            node.slots.push(thread);
        }
        Ok(node)
    }

    /// Bytes that have passed so far.
    pub fn progress(&self) -> NodeProgress {
        let jobs = self.shared.jobs();
        self.shared.counters.snapshot(jobs.values().filter_map(|job| job.chunk_progress()))
    }

    /// Waits until every slot thread has ended.
    pub fn join(mut self) {
        for slot in self.slots.drain(..) {
            // A slot that panicked outside an attempt has nothing more to hand in.
            let _ = slot.join();
        }
        let jobs: Vec<JobId> = self.shared.jobs().keys().copied().collect();
        jobs.into_iter().for_each(|job| self.shared.forget(job, false));
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<JobData>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data of a job on this node; the first call creates it.
    fn job_data(self: &Arc<Self>, job: JobId, run: &Arc<JobRun>) -> Arc<JobData> {
        let mut jobs = self.jobs();
        if !jobs.contains_key(&job) {
            // Those that rest do not need it.
            jobs.values()
                .filter_map(|other| other.started_chunkserver())
                .for_each(|other| other.give_back_idle());
        }
        let data = jobs.entry(job).or_insert_with(|| {
            let input_bytes = run.spec.input_bytes();
            self.counters.input_bytes_total.fetch_add(input_bytes, Ordering::Relaxed);
            let (node, slots) = (self.control.node(), self.options.slots);
            let elsewhere = self.record_data.get().is_some();
            Arc::new(JobData::new(job, Arc::clone(run), node, slots, elsewhere))
        });
        let data = Arc::clone(data);
        drop(jobs);
        self.replicate(&data);
        data
    }

    /// Lets a thread replicate the runs of a job, where it is to be done and is not.
    fn replicate(self: &Arc<Self>, job: &Arc<JobData>) {
        if job.begins_to_replicate() {
            let (shared, id) = (Arc::clone(self), job.job);
            let thread = std::thread::Builder::new().name("replicator".to_string());
            // Without it runs lie on one node: less safe, and as right.
            if let Err(error) = thread.spawn(move || replicator::replicate_runs(&shared, id)) {
                job.replicates_no_more();
                tracing::warn!(job = %id, %error, "cannot replicate runs");
            }
        }
    }

    /// Tells the replicator of a job which replicas it is to send on. One whose files another process left here may have none yet.
    fn replicate_again(self: &Arc<Self>, job: JobId, runs: Vec<RunId>) {
        self.again().insert(job, runs);
        if self.jobs().contains_key(&job) {
            return;
        }
        // The server is asked what the job is, and may be slow to answer.
        let shared = Arc::clone(self);
        let ask = move || {
            if let Some(run) = shared.control.job_run(job, None) {
                shared.job_data(job, &run);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("replicator".to_string()).spawn(ask) {
            tracing::warn!(%job, %error, "cannot replicate runs again");
        }
    }

    /// Takes the runs of which the replicator of a job has not heard yet.
    fn to_replicate_again(&self, job: JobId) -> Option<Vec<RunId>> {
        self.again().remove(&job)
    }

    fn again(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<RunId>>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on what the server says, until it says no more.
    fn keep_jobs(self: &Arc<Self>) {
        while let Some(notice) = self.control.next_notice() {
            // Their flags are set.
            self.options.programs.kill_cancelled();
            match notice {
                Notice::Stop(_) => {}
                Notice::EndBefore(attempt, keys) => self.meters.end_before(attempt, keys),
                Notice::Replicate(job) => {
                    let known = self.jobs().get(&job).map(Arc::clone);
                    known.iter().for_each(|job| self.replicate(job));
                }
                Notice::ReplicateAgain(job, runs) => self.replicate_again(job, runs),
                Notice::Drain => self.draining.store(true, Ordering::Relaxed),
                Notice::Forget(job) => self.forget(job, false),
                Notice::Keep(job) => self.forget(job, true),
                Notice::ForgetAll => {
                    let jobs: Vec<JobId> = self.jobs().keys().copied().collect();
                    jobs.into_iter().for_each(|job| self.forget(job, false));
                }
            }
        }
    }

    /// Lets go of all that the node has of a job, once its attempts have seen that they must stop; with `keep`, of all
    /// but its runs on disk.
    fn forget(&self, job: JobId, keep: bool) {
        self.again().remove(&job);
        if let Some(data) = self.jobs().remove(&job) {
            let started = Instant::now();
            while Arc::strong_count(&data) > 1 && started.elapsed() < STOP_WAIT_MAX {
                std::thread::sleep(STOP_LOOK_EVERY);
            }
        }
        self.options.programs.end_idle_of(job);
        self.control.forgotten(job, keep);
    }
}
