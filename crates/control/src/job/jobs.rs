//! The jobs that are not cleaned yet, and their flows.

use crate::job::Job;
use ids::JobId;
use mapreduce::flow::Recovery;
use std::collections::BTreeMap;
use std::collections::btree_map::{Keys, Values};

#[derive(Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    /// The uncleaned jobs of each flow.
    flows: BTreeMap<JobId, Vec<JobId>>,
    /// True if parts that later stages need may be lost.
    flows_hurt: bool,
    recovery: Recovery,
    any_yet: bool,
}

impl Jobs {
    pub fn get(&self, job: &JobId) -> Option<&Job> {
        self.jobs.get(job)
    }

    pub fn get_mut(&mut self, job: &JobId) -> Option<&mut Job> {
        self.jobs.get_mut(job)
    }

    /// Returns a job that the scheduler names. Panics if it is cleaned: the scheduler names only uncleaned jobs.
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

    /// Adds a job, and its stage to its flow.
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

    /// Returns whether the server has had any job since it began.
    pub fn any_yet(&self) -> bool {
        self.any_yet
    }

    /// Records that a job has been submitted and waits for its turn.
    pub fn one_came(&mut self) {
        self.any_yet = true;
    }

    pub fn hurt_flows(&mut self) {
        self.flows_hurt = true;
    }

    pub fn take_flows_hurt(&mut self) -> bool {
        std::mem::take(&mut self.flows_hurt)
    }

    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    pub fn begin_recovery(&mut self) {
        self.recovery = Recovery::Running;
    }

    pub fn end_recovery(&mut self) {
        self.recovery = Recovery::Over;
    }
}
