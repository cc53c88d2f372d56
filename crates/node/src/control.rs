//! Whom a node works for: the server in its own process, or one behind a link.

use crate::slot::now_ns;
use api::{Blame, Boundaries, KeyBytes, TaskFailure};
use ids::{AttemptKey, JobId, NodeId, RunId};
use server::{Assignment, Finished, JobRun, PullReply, PullRequest, Server};
use std::sync::Arc;

/// A message of the server besides attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Attempts of the job stop as soon as they can.
    Stop(JobId),
    /// A reduce attempt ends before the first of these keys that it has not come to.
    EndBefore(AttemptKey, Vec<KeyBytes>),
    /// The job is over: everything of it goes.
    Forget(JobId),
    /// The job is over, and its runs on disk stay.
    Keep(JobId),
    /// Runs of the job get replicas on other nodes.
    Replicate(JobId),
    /// These runs go to one more node, and no others. They are replicas here that stand for runs of other nodes.
    ReplicateAgain(JobId, Vec<RunId>),
    /// No new chunk may lie here.
    Drain,
    /// Every job goes: the server does not know this node any more.
    ForgetAll,
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

    /// Waits for the next notice. None: there will be none.
    fn next_notice(&self) -> Option<Notice>;

    /// A reduce attempt ends before this key, which lies before the end of its task.
    fn shortened(&self, attempt: AttemptKey, upper_key: KeyBytes);

    /// The node has nothing of a job any more but what is on disk, of which `keep` says whether its runs stay.
    fn forgotten(&self, job: JobId, keep: bool);
}

/// On one machine: function calls. Whoever started the server cancels its jobs by their flags and removes their
/// directories, so there is nothing to be told.
impl Control for Server {
    fn node(&self) -> NodeId {
        NodeId(0)
    }

    fn pull(&self, slot: u32, finished: Option<Finished>) -> Option<Assignment> {
        match Server::pull(self, PullRequest { node: NodeId(0), slot, finished }) {
            Ok(PullReply::Run(assignment)) => Some(*assignment),
            // Whoever waits for the job learns the server's error; a slot has nobody to tell.
            Ok(PullReply::Stop) | Err(_) => None,
        }
    }

    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure> {
        Server::propose_boundaries(self, job, keys).map_err(|error| boundaries_failure(&error))
    }

    fn job_run(&self, _job: JobId, _shown: Option<&str>) -> Option<Arc<JobRun>> {
        None
    }

    fn next_notice(&self) -> Option<Notice> {
        None
    }

    fn shortened(&self, _attempt: AttemptKey, _upper_key: KeyBytes) {
        unreachable!("no server in this process asks for it");
    }

    fn forgotten(&self, _job: JobId, _keep: bool) {}
}

pub(crate) fn boundaries_failure(error: &dyn std::error::Error) -> TaskFailure {
    TaskFailure::new(Blame::Environment, format!("cannot store range boundaries: {error}"))
}

/// An attempt that ended before it began.
pub(crate) fn never_began(attempt: ids::AttemptKey, failure: TaskFailure) -> Finished {
    let now = now_ns();
    Finished { attempt, outcome: Err(failure), started_ns: now, ended_ns: now }
}
