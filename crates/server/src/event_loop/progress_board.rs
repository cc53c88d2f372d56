//! State that callers read without asking the event loop: progress, and the flags that stop attempts.

use crate::messages::LocalJob;
use api::JobSpec;
use api::control::JobProgress;
use control::JobDirs;
use ids::JobId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct ProgressBoard {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<JobId, JobOfAll>,
    failure: Option<String>,
}

/// A job for callers.
#[derive(Default)]
struct JobOfAll {
    is_stopped: Arc<AtomicBool>,
    progress: JobProgress,
    /// State that the attempts in this process share.
    run: Option<Arc<LocalJob>>,
}

impl ProgressBoard {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is one assignment, so a panic in another thread leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job whose attempts run in this process, with its directories.
    pub fn add_job(&self, job: JobId, spec: &Arc<JobSpec>, dirs: &JobDirs) {
        let mut inner = self.inner();
        let known = inner.jobs.entry(job).or_default();
        known.run = Some(Arc::new(LocalJob {
            spec: Arc::clone(spec),
            staging: dirs.staging.clone(),
            disk_dirs: dirs.disk_dirs.clone(),
            cancelled: Arc::clone(&known.is_stopped),
        }));
    }

    /// Returns the state that attempts of a job in this process share. The specification changes when the inputs of a
    /// stage become known.
    pub fn run_of(&self, job: JobId, spec: &Arc<JobSpec>) -> Arc<LocalJob> {
        let mut inner = self.inner();
        let known = inner.jobs.entry(job).or_default();
        let run = known.run.take().unwrap_or_else(|| {
            let (spec, cancelled) = (Arc::clone(spec), Arc::clone(&known.is_stopped));
            Arc::new(LocalJob { spec, staging: PathBuf::new(), disk_dirs: Vec::new(), cancelled })
        });
        let run = match Arc::ptr_eq(&run.spec, spec) {
            true => run,
            false => Arc::new(LocalJob { spec: Arc::clone(spec), ..run.as_ref().clone() }),
        };
        known.run = Some(Arc::clone(&run));
        run
    }

    pub fn forget(&self, job: JobId) {
        self.inner().jobs.remove(&job);
    }

    pub fn set_progress(&self, job: JobId, progress: JobProgress) {
        self.inner().jobs.entry(job).or_default().progress = progress;
    }

    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.inner().jobs.get(&job).map(|known| known.progress.clone())
    }

    pub fn cancelled(&self, job: JobId) -> Arc<AtomicBool> {
        let flag = self.inner().jobs.get(&job).map(|known| Arc::clone(&known.is_stopped));
        flag.unwrap_or_else(|| Arc::new(AtomicBool::new(true)))
    }

    /// Sets the stop flag at once; the event loop follows.
    pub fn stop(&self, job: JobId) {
        if let Some(known) = self.inner().jobs.get(&job) {
            known.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    pub fn fail(&self, reason: String) {
        self.inner().failure = Some(reason);
    }

    pub fn failure(&self) -> Option<String> {
        self.inner().failure.clone()
    }
}
