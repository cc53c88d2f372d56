//! The jobs of a node, as orders of the server change them.

use crate::control::RunsOnDisk;
use crate::shared::Shared;
use crate::shuffle::replicate::replicate;
use api::KeyBytes;
use ids::{AttemptKey, JobId, RunId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Attempts that were told to stop are waited for so long before what they use is removed.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
const STOP_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Acts on the jobs of a node. One method for each kind of order.
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

    /// A reduce attempt ends before the first of these keys that it has not come to.
    pub fn end_before(&self, attempt: AttemptKey, keys: Vec<KeyBytes>) {
        self.shared.meters.end_before(attempt, keys);
    }

    /// Runs of the job get replicas on other nodes.
    pub fn replicate(&self, job: JobId) {
        let known = self.shared.jobs().get(&job).map(Arc::clone);
        known.iter().for_each(|job| replicate(&self.shared, job));
    }

    /// Tells the replicator of a job which replicas it is to send on. One whose files another process left here may have none yet.
    pub fn replicate_again(&self, job: JobId, runs: Vec<RunId>) {
        self.shared.again().insert(job, runs);
        if self.shared.jobs().contains_key(&job) {
            return;
        }
        // The server is asked what the job is, and may be slow to answer.
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

    /// No new chunk may lie here.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Every job goes.
    pub fn forget_all(&self) {
        let jobs: Vec<JobId> = self.shared.jobs().keys().copied().collect();
        jobs.into_iter().for_each(|job| self.forget(job, RunsOnDisk::Go));
    }

    /// Lets go of all that the node has of a job, but of its runs on disk where they stay, once its attempts have seen that they must
    /// stop.
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
