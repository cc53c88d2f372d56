//! The files that running jobs with steps write: two jobs of a user that write the same file would remove or replace
//! each other's files.

use ids::JobId;
use jobkind::StepPlan;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// Writers by the hashes of users and paths, because a job may write a million files.
#[derive(Default)]
pub(crate) struct Writers {
    hasher: RandomState,
    jobs: HashMap<u64, JobId>,
}

impl Writers {
    fn key(&self, user: &str, path: &Path) -> u64 {
        self.hasher.hash_one((user, path))
    }

    /// Returns a file of the plan that another job of the user writes, with that job.
    pub fn other_writer(&self, user: &str, plan: &dyn StepPlan) -> Option<(PathBuf, JobId)> {
        let writer = |path: PathBuf| {
            let job = *self.jobs.get(&self.key(user, &path))?;
            Some((path, job))
        };
        plan.writes().into_iter().find_map(writer)
    }

    pub fn add(&mut self, user: &str, plan: &dyn StepPlan, job: JobId) {
        for path in plan.writes() {
            let key = self.key(user, &path);
            // A recovered job may share a file with one that is already known.
            self.jobs.entry(key).or_insert(job);
        }
    }

    pub fn remove(&mut self, user: &str, plan: &dyn StepPlan, job: JobId) {
        for path in plan.writes() {
            let key = self.key(user, &path);
            if self.jobs.get(&key) == Some(&job) {
                self.jobs.remove(&key);
            }
        }
    }
}
