//! # What it does
//! Decides and remembers: a loop that drains events, asks the scheduler, writes one transaction and then
//! replies. Slots pull work from it by function call.
//!
//! # Where it sits
//! scheduler + metastore + mapreduce -> server -> node, cli.
//!
//! # Invariants
//! No reply leaves before the rows it promises are committed. The server's memory is a cache: when the store
//! fails, the server stops, and the next one cleans up from the rows. A process schedules and cleans only its
//! own jobs and those whose owner lock is free. Directories of a job exist only while its row says so.
//!
//! # Deliberately absent
//! No record data, no user programs, no renames of the output: a task run by the node publishes it.
//!
//! # How it is tested
//! `tests/` drives it with a made-up node over the real SQLite store.

mod error;
mod messages;

use api::{Boundaries, JobSpec, KeyBytes, Split};
use ids::JobId;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use error::ServerError;
pub use messages::{
    Assignment, Finished, JobOutcome, JobProgress, JobRun, PullReply, PullRequest, ServerOptions,
    StageProgress, SubmittedJob,
};

/// The embedded server; share it by `Arc`. Every method may be called from any thread and blocks it.
pub struct Server {
    owner_uuid: String,
}

impl Server {
    /// Opens the state, removes what dead owners left behind, starts the loop.
    pub fn open(options: ServerOptions) -> Result<Server, ServerError> {
        let _ = options;
        Err(ServerError::ShutDown)
    }

    /// The name of this process among the owners of jobs.
    pub fn owner_uuid(&self) -> &str {
        &self.owner_uuid
    }

    /// Stores a job and creates its staging and disk directories.
    pub fn submit(&self, spec: JobSpec, splits: Vec<Split>) -> Result<SubmittedJob, ServerError> {
        let _ = (spec, splits);
        Err(ServerError::ShutDown)
    }

    /// Hands in what a slot finished and waits for its next attempt. Before the first submit it waits.
    pub fn pull(&self, request: PullRequest) -> Result<PullReply, ServerError> {
        let _ = request;
        Err(ServerError::ShutDown)
    }

    /// Proposes range boundaries; the first proposal stored wins and everybody gets it.
    pub fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ServerError> {
        let _ = keys;
        Err(ServerError::UnknownJob { job })
    }

    /// Tells a job to stop. Nothing happens where it is over already, or where its output is just published.
    pub fn cancel(&self, job: JobId, reason: &str) {
        let _ = (job, reason);
    }

    /// The flag that running attempts of a job poll; always true for a job this server does not know.
    pub fn cancelled(&self, job: JobId) -> Arc<AtomicBool> {
        let _ = job;
        Arc::new(AtomicBool::new(true))
    }

    /// Waits until a job is over, its attempts have ended and its directories are removed where they must go.
    pub fn wait(&self, job: JobId) -> Result<JobOutcome, ServerError> {
        Err(ServerError::UnknownJob { job })
    }

    /// Where a job stands; None for a job this server does not know.
    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        let _ = job;
        None
    }

    /// Stops the loop. Jobs that are not over are marked interrupted and their files removed: cancel and wait
    /// first where that matters.
    pub fn shutdown(&self) {}
}
