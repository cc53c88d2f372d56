//! The embedded engine: a node that works for a server in the same process, by function calls.

use api::{Boundaries, KeyBytes, TaskFailure};
use ids::{AttemptKey, JobId, NodeId};
use node::{Assignment, Control, Finished, JobRun, RunsOnDisk, boundaries_failure};
use server::{LocalJob, PullReply, PullRequest, Server};
use std::sync::Arc;

/// The server of this process, for its node. The process itself cancels jobs by their flags and removes their
/// directories, so the node needs no orders.
pub struct Embedded {
    pub server: Arc<Server>,
    /// Number of slots: requests of higher numbers are of places.
    pub slots: u32,
}

impl Control for Embedded {
    fn node(&self) -> NodeId {
        NodeId(0)
    }

    fn pull(&self, slot: u32, finished: Option<Finished>) -> Option<Assignment> {
        let finished = finished.map(|finished| {
            let Finished { attempt, outcome, started_ns, ended_ns, usage } = finished;
            server::Finished { attempt, outcome, started_ns, ended_ns, usage }
        });
        let is_place = slot >= self.slots;
        match self.server.pull(PullRequest { node: NodeId(0), slot, is_place, finished }) {
            Ok(PullReply::Run(assignment)) => {
                let server::LocalAssignment { attempt, task, job } = *assignment;
                let cancelled = Arc::clone(&job.cancelled);
                Some(Assignment { attempt, task, job: Arc::new(job_run(&job)), cancelled })
            }
            // The caller that waits for the job gets the server's error; a slot cannot report it.
            Ok(PullReply::Stop) | Err(_) => None,
        }
    }

    fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, TaskFailure> {
        self.server.propose_boundaries(job, keys).map_err(|error| boundaries_failure(&error))
    }

    fn job_run(&self, _job: JobId, _shown: Option<&str>) -> Option<Arc<JobRun>> {
        None
    }

    fn shortened(&self, _attempt: AttemptKey, _upper_key: KeyBytes) {
        unreachable!("no server in this process asks for it");
    }

    fn forgotten(&self, _job: JobId, _runs: RunsOnDisk) {}
}

fn job_run(job: &LocalJob) -> JobRun {
    JobRun {
        staging: job.staging.clone(),
        disk_dirs: job.disk_dirs.clone(),
        cancelled: Arc::clone(&job.cancelled),
        ..JobRun::new(Arc::clone(&job.spec))
    }
}
