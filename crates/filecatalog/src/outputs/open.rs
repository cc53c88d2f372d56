//! The stored outputs of jobs that are not over, in memory.

use api::stored::MakingJob;
use api::{JobSpec, StoredOutput};
use ids::{JobId, PutId};
use std::collections::BTreeMap;
use std::time::Instant;

/// Beginning of the source of a put that belongs to a job. Clients cannot name such a source.
pub(crate) const JOB_SOURCE: &str = "output of a job: ";
/// A stored output of a job that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenOutput {
    /// None while the job is being submitted.
    pub job: Option<JobId>,
    /// Name of the job.
    pub name: String,
    pub output: StoredOutput,
    pub begun: Instant,
}

/// The stored outputs of all jobs that are not over.
#[derive(Debug, Default)]
pub(crate) struct OpenOutputs {
    pub puts: BTreeMap<PutId, OpenOutput>,
}

impl OpenOutputs {
    /// Finds the outputs of jobs of a store that are not over.
    pub fn restored(specs: &[(JobId, JobSpec)]) -> Self {
        let open = |(job, spec): &(JobId, JobSpec)| {
            let output = spec.stored_output?;
            let open = OpenOutput { job: Some(*job), name: spec.name.clone(), output, begun: Instant::now() };
            Some((output.of.put, open))
        };
        Self { puts: specs.iter().filter_map(open).collect() }
    }

    /// Returns whether a put belongs to a job that is not over.
    pub fn has(&self, put: PutId) -> bool {
        self.puts.contains_key(&put)
    }

    /// Returns whether an output began before this time.
    pub fn any_before(&self, time: Instant) -> bool {
        self.puts.values().any(|open| open.begun <= time)
    }

    /// Returns the job whose output a put is.
    pub fn maker(&self, put: PutId) -> Option<MakingJob> {
        let open = self.puts.get(&put)?;
        Some(MakingJob { job: open.job?, name: open.name.clone() })
    }

    pub fn jobs(&self) -> Vec<JobId> {
        self.puts.values().filter_map(|open| open.job).collect()
    }

    pub fn end(&mut self, job: JobId) {
        self.puts.retain(|_, open| open.job != Some(job));
    }
}
