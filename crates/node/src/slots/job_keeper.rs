//! The jobs of a node, as orders of the server change them.

use crate::control::RunsOnDisk;
use crate::shared::Shared;
use crate::shuffle::replicate::replicate;
use api::KeyBytes;
use ids::{AttemptKey, JobId, RunId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for attempts that were told to stop, before their files are removed.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
const STOP_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Executes orders about the jobs of a node: a method for each kind of order.
pub(crate) struct JobKeeper {
    shared: Arc<Shared>,
}

impl JobKeeper {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Ends the programs of attempts whose flags are set.
    pub fn end_stopped_programs(&self) {
        self.shared.options.programs.kill_cancelled();
    }

    /// Makes a reduce attempt end before the first of these keys that it has not reached.
    pub fn end_before(&self, attempt: AttemptKey, keys: Vec<KeyBytes>) {
        self.shared.meters.end_before(attempt, keys);
    }

    /// Starts the replication of the job's runs.
    pub fn replicate(&self, job: JobId) {
        let known = self.shared.jobs().get(&job).map(Arc::clone);
        known.iter().for_each(|job| replicate(&self.shared, job));
    }

    /// Tells the replicator of a job which replicas to copy again. A job with readmitted files only may have no
    /// replicator yet.
    pub fn replicate_again(&self, job: JobId, runs: Vec<RunId>) {
        self.shared.again().insert(job, runs);
        if self.shared.jobs().contains_key(&job) {
            return;
        }
        // The server must be asked about the job, and may be slow.
        let shared = Arc::clone(&self.shared);
        let ask = move || {
            if let Some(run) = shared.control.job_run(job, None) {
                replicate(&shared, &shared.job_data(job, &run));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("replicator".to_string()).spawn(ask) {
            tracing::warn!(%job, %error, "cannot replicate runs again");
        }
    }

    /// Stops accepting new chunks.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Forgets every job.
    pub fn forget_all(&self) {
        let jobs: Vec<JobId> = self.shared.jobs().keys().copied().collect();
        jobs.into_iter().for_each(|job| self.forget(job, RunsOnDisk::Go));
    }

    /// Removes everything that the node has of a job, except its runs on disk if they are kept, after its attempts have
    /// seen that they must stop.
    pub fn forget(&self, job: JobId, runs: RunsOnDisk) {
        self.shared.again().remove(&job);
        if let Some(data) = self.shared.jobs().remove(&job) {
            let started = Instant::now();
            while Arc::strong_count(&data) > 1 && started.elapsed() < STOP_WAIT_MAX {
                std::thread::sleep(STOP_LOOK_EVERY);
            }
        }
        self.shared.options.programs.end_idle_of(job);
        self.shared.control.forgotten(job, runs);
    }
}
