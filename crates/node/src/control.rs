//! The server of a node: in its own process, or behind a link.

use crate::attempt::{Assignment, Finished, JobRun};
use api::{Blame, Boundaries, KeyBytes, TaskFailure};
use ids::{AttemptKey, JobId, NodeId};
use std::sync::Arc;

/// The fate of a finished job's runs on disk: kept or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOnDisk {
    /// They are kept: later jobs may reduce them again.
    Stay,
    Go,
}

/// Requests of a node to its server.
pub trait Control: Send + Sync {
    /// Returns the number of the node, which is part of the ids of its chunks and runs.
    fn node(&self) -> NodeId;

    /// Reports the result of a slot and waits for its next attempt. None ends the slot.
    fn pull(&self, slot: u32, finished: Option<Finished>) -> Option<Assignment>;

    /// Proposes range boundaries. Returns the boundaries in effect.
    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure>;

    /// Returns the data that attempts of a job share, for a job without any attempt here so far: its data is here, or
    /// comes from a node that presented this token. None if the job is unknown.
    fn job_run(&self, job: JobId, shown: Option<&str>) -> Option<Arc<JobRun>>;

    /// Reports that a reduce attempt ends before this key, which is before the end of its task.
    fn shortened(&self, attempt: AttemptKey, upper_key: KeyBytes);

    /// Reports that the node has removed everything of a job except its runs on disk, if they are kept.
    fn forgotten(&self, job: JobId, runs: RunsOnDisk);
}

/// Returns the failure of an attempt whose range boundaries could not be stored.
pub fn boundaries_failure(error: &dyn std::error::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot store range boundaries: {error}"))
}
