//! Whom a node works for: the server in its own process, or one behind a link.

use crate::attempt::{Assignment, Finished, JobRun};
use api::{Blame, Boundaries, KeyBytes, TaskFailure};
use ids::{AttemptKey, JobId, NodeId};
use std::sync::Arc;

/// The fate of the runs on disk of a job that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOnDisk {
    /// Later jobs may reduce them again.
    Stay,
    Go,
}

/// Requests of a node to its server.
pub trait Control: Send + Sync {
    /// The number of the node, which the ids of its chunks and runs hold.
    fn node(&self) -> NodeId;

    /// Hands in what a slot finished and waits for its next attempt. None: the slot goes home.
    fn pull(&self, slot: u32, finished: Option<Finished>) -> Option<Assignment>;

    /// Proposes range boundaries; the answer is what stands.
    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure>;

    /// The data that attempts of a job share, for a job of which no attempt has run here: its data lies here, or comes from a node that
    /// showed this token. None: the job is not known.
    fn job_run(&self, job: JobId, shown: Option<&str>) -> Option<Arc<JobRun>>;

    /// A reduce attempt ends before this key, which lies before the end of its task.
    fn shortened(&self, attempt: AttemptKey, upper_key: KeyBytes);

    /// The node has nothing of a job any more but what is on disk.
    fn forgotten(&self, job: JobId, runs: RunsOnDisk);
}

/// Returns the failure of an attempt whose range boundaries could not be stored.
pub fn boundaries_failure(error: &dyn std::error::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot store range boundaries: {error}"))
}
