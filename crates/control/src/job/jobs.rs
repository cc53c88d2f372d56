//! The jobs that are not cleaned yet, and the flows to which they belong.

use crate::job::Job;
use ids::JobId;
use std::collections::BTreeMap;
use std::collections::btree_map::{Keys, Values};

#[derive(Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    /// The jobs of each flow, as far as they are not cleaned.
    flows: BTreeMap<JobId, Vec<JobId>>,
    /// Parts that later stages want may be gone.
    flows_hurt: bool,
    /// Jobs come back one after the other: those that are not there yet may be.
    is_recovering: bool,
    any_yet: bool,
}

impl Jobs {
    pub fn get(&self, job: &JobId) -> Option<&Job> {
        self.jobs.get(job)
    }

    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut Job> {
        self.jobs.get_mut(job)
    }

    /// The job of which the scheduler speaks: it stays until it is cleaned.
    pub fn expect_mut(&mut self, job: JobId) -> &mut Job {
        self.jobs.get_mut(&job).expect("the scheduler speaks of jobs that are not cleaned yet")
    }

    pub fn contains_key(&self, job: &JobId) -> bool {
        self.jobs.contains_key(job)
    }

    pub fn keys(&self) -> Keys<'_, JobId, Job> {
        self.jobs.keys()
    }

    pub fn values(&self) -> Values<'_, JobId, Job> {
        self.jobs.values()
    }

    /// Takes a job in, with its place in its flow.
    pub fn insert(&mut self, job: Job) {
        if let Some(stage) = &job.spec.stage
            && !self.jobs.contains_key(&job.id)
        {
            self.flows.entry(stage.flow).or_default().push(job.id);
        }
        self.any_yet = true;
        self.jobs.insert(job.id, job);
    }

    pub fn remove(&mut self, job: JobId) -> Option<Job> {
        let job = self.jobs.remove(&job)?;
        if let Some(stage) = &job.spec.stage
            && let Some(jobs) = self.flows.get_mut(&stage.flow)
        {
            jobs.retain(|other| *other != job.id);
            if jobs.is_empty() {
                self.flows.remove(&stage.flow);
            }
        }
        Some(job)
    }

    pub fn of_flow(&self, flow: JobId) -> Vec<JobId> {
        self.flows.get(&flow).cloned().unwrap_or_default()
    }

    pub fn of_all_flows(&self) -> impl Iterator<Item = JobId> {
        self.flows.values().flatten().copied()
    }

    /// Whether there was any job since the server began.
    pub fn any_yet(&self) -> bool {
        self.any_yet
    }

    /// A job came in that waits for its turn.
    pub fn one_came(&mut self) {
        self.any_yet = true;
    }

    pub fn hurt_flows(&mut self) {
        self.flows_hurt = true;
    }

    pub fn take_flows_hurt(&mut self) -> bool {
        std::mem::take(&mut self.flows_hurt)
    }

    pub fn is_recovering(&self) -> bool {
        self.is_recovering
    }

    pub fn set_recovering(&mut self, is_recovering: bool) {
        self.is_recovering = is_recovering;
    }
}
