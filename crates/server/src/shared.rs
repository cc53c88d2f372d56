//! State that callers read without asking the loop: progress, and the flags that stop attempts.

use api::control::JobProgress;
use ids::JobId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<JobId, (Arc<AtomicBool>, JobProgress)>,
    failure: Option<String>,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is one assignment, so a panic elsewhere leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the flag that stops the attempts of the new job.
    pub fn add_job(&self, job: JobId) -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        self.inner().jobs.insert(job, (Arc::clone(&flag), JobProgress::default()));
        flag
    }

    pub fn forget(&self, job: JobId) {
        self.inner().jobs.remove(&job);
    }

    pub fn set_progress(&self, job: JobId, progress: JobProgress) {
        if let Some((_, kept)) = self.inner().jobs.get_mut(&job) {
            *kept = progress;
        }
    }

    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.inner().jobs.get(&job).map(|(_, progress)| progress.clone())
    }

    pub fn cancelled(&self, job: JobId) -> Arc<AtomicBool> {
        let flag = self.inner().jobs.get(&job).map(|(flag, _)| Arc::clone(flag));
        flag.unwrap_or_else(|| Arc::new(AtomicBool::new(true)))
    }

    /// Sets the flag at once; the loop follows.
    pub fn stop(&self, job: JobId) {
        if let Some((flag, _)) = self.inner().jobs.get(&job) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    pub fn fail(&self, reason: String) {
        self.inner().failure = Some(reason);
    }

    pub fn failure(&self) -> Option<String> {
        self.inner().failure.clone()
    }
}
