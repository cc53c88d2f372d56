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

mod clock;
mod directories;
mod error;
mod event_loop;
mod gc;
mod history;
mod job;
mod kept_runs;
mod messages;
mod owner;
mod shared;
mod sweep;

use api::{Boundaries, JobSpec, KeyBytes, Split};
use event_loop::{EventLoop, REQUESTS_MAX, Reply, Request};
use ids::JobId;
use metastore::{Change, Metastore};
use owner::OwnerLock;
use shared::Shared;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

pub use error::ServerError;
pub use gc::{Collected, GcOptions, GcOutcome, GcSelection, collect_garbage, kept_bytes};
pub use history::History;
pub use kept_runs::{KeptSource, NotReducible, kept_source};
pub use messages::{
    Assignment, Finished, JobOutcome, JobProgress, JobRun, PullReply, PullRequest, ServerOptions,
    StageProgress, SubmittedJob,
};

/// The embedded server; share it by `Arc`. Every method may be called from any thread and blocks it; none may
/// be called from async code.
pub struct Server {
    owner_uuid: String,
    state_dir: PathBuf,
    sender: mpsc::Sender<Request>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Opens the state, removes what dead owners left behind, starts the loop.
    pub fn open(options: ServerOptions) -> Result<Server, ServerError> {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        let shared = Arc::new(Shared::default());
        let (ready_sender, ready) = oneshot::channel();
        let state_dir = options.state_dir.clone();
        let (loop_sender, loop_shared) = (sender.clone(), Arc::clone(&shared));
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready_sender.send(Err(ServerError::Thread(error)))),
            };
            runtime.block_on(async {
                match start(&state_dir).await {
                    Ok((store, lock)) => {
                        drop(ready_sender.send(Ok(lock.uuid.clone())));
                        EventLoop::new(store, lock, loop_shared, loop_sender).run(receiver).await;
                    }
                    Err(error) => drop(ready_sender.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("server".to_string())
            .spawn(work)
            .map_err(ServerError::Thread)?;
        let owner_uuid = ready.blocking_recv().unwrap_or(Err(ServerError::ShutDown))?;
        let thread = Mutex::new(Some(thread));
        Ok(Server { owner_uuid, state_dir: options.state_dir, sender, shared, thread })
    }

    /// The name of this process among the owners of jobs.
    pub fn owner_uuid(&self) -> &str {
        &self.owner_uuid
    }

    /// Stores a job and creates its staging and disk directories. Refuses an output that exists (unless it may
    /// be overwritten) and directories that cannot be written.
    pub fn submit(&self, spec: JobSpec, splits: Vec<Split>) -> Result<SubmittedJob, ServerError> {
        directories::check_output(&spec, &self.state_dir)?;
        let spec = Arc::new(spec);
        self.ask(|reply| Request::Submit { spec, splits, reply })
    }

    /// Hands in what a slot finished and waits for its next attempt. Before the first submit it waits; once all
    /// submitted jobs are over the answer is to stop.
    pub fn pull(&self, request: PullRequest) -> Result<PullReply, ServerError> {
        self.ask(|reply| Request::Pull { request: Box::new(request), reply })
    }

    /// Proposes range boundaries; the first proposal stored wins and everybody gets it.
    pub fn propose_boundaries(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ServerError> {
        self.ask(|reply| Request::Propose { job, keys, reply })
    }

    /// Tells a job to stop. Nothing happens where it is over already, or where its output gets published all
    /// the same because the commit was too far.
    pub fn cancel(&self, job: JobId, reason: &str) {
        self.shared.stop(job);
        // A server that is gone has stopped the job already.
        let _ = self.sender.blocking_send(Request::Cancel { job, reason: reason.to_string() });
    }

    /// The flag that running attempts of a job poll; always true for a job this server does not know.
    pub fn cancelled(&self, job: JobId) -> Arc<AtomicBool> {
        self.shared.cancelled(job)
    }

    /// Waits until a job is over, its attempts have ended and its directories are removed where they must go.
    pub fn wait(&self, job: JobId) -> Result<JobOutcome, ServerError> {
        self.ask(|reply| Request::Wait { job, reply })
    }

    /// Where a job stands; None for a job this server does not know.
    pub fn progress(&self, job: JobId) -> Option<JobProgress> {
        self.shared.progress(job)
    }

    /// Stops the loop. Jobs that are not over are marked interrupted and their files removed: cancel and wait
    /// first where that matters. Does nothing the second time.
    pub fn shutdown(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let (reply, _answer) = oneshot::channel();
        // It may have stopped by itself; then there is only the thread to wait for.
        let _ = self.sender.blocking_send(Request::Shutdown { reply });
        if thread.join().is_err() {
            tracing::error!("the thread of the server panicked");
        }
    }

    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, ServerError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.sender.blocking_send(request(reply));
        let gone = || match self.shared.failure() {
            Some(reason) => ServerError::Failed { reason },
            None => ServerError::ShutDown,
        };
        sent.map_err(|_| gone())?;
        answer.blocking_recv().map_err(|_| gone())?
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Opens the store under a new owner lock and removes what dead owners left and what is kept no longer.
async fn start(state_dir: &std::path::Path) -> Result<(Metastore, OwnerLock), ServerError> {
    let (store, lock) = take_over(state_dir).await?;
    gc::collect_expired(&store, state_dir, &lock.uuid).await?;
    Ok((store, lock))
}

/// Opens the store under a new owner lock and cleans up after dead owners.
async fn take_over(state_dir: &std::path::Path) -> Result<(Metastore, OwnerLock), ServerError> {
    // First the store: it tells best what is wrong with a state directory.
    let store = Metastore::open(state_dir).await?;
    let lock = OwnerLock::take(state_dir)?;
    let started =
        Change::OwnerStarted { uuid: lock.uuid.clone(), pid: std::process::id(), now_ns: clock::now_ns() };
    store.apply(&[started]).await?;
    sweep::sweep(&store, state_dir, &lock.uuid).await?;
    Ok((store, lock))
}
