//! # What it does
//! Runs tasks: slot threads pull attempts from the server, run mapper, seal, merge, reducer or commit, and hand
//! in the result with their next pull. Hosts the chunkserver of each job.
//!
//! # Where it sits
//! server (assignments) -> node -> mapper, iappender, chunkserver, imerger, reducer.
//!
//! # Invariants
//! A slot runs one attempt at a time. What an attempt leaves behind when it fails (a part file, half a frame, a
//! work directory) is removed before its failure is reported. Nothing of a job is published but by its commit
//! task, with one rename.
//!
//! # Deliberately absent
//! No decision about what runs when, which attempt wins or whether a proof agrees: that is the server's.
//!
//! # How it is tested
//! By the black-box tests in `tests/`, which run the real binary; commit steps in unit tests.

mod commit_task;
mod emit;
mod failure;
mod job_data;
mod map_task;
mod merge_gate;
mod progress;
mod reduce_task;
mod shuffle_tasks;
mod slot;
mod streaming_env;
mod streaming_input;
mod work_dir;

pub use progress::NodeProgress;

use ids::JobId;
use job_data::JobData;
use program::Programs;
use progress::Counters;
use server::Server;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What a node needs from whoever starts it.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Attempts that run at once.
    pub slots: u32,
    /// Directory in which the user typed the command: relative program paths start there.
    pub start_dir: PathBuf,
    /// Registry of the user programs that run, for whoever must end them.
    pub programs: Arc<Programs>,
}

/// The node could not start its threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a slot thread")]
pub struct NodeError(#[source] std::io::Error);

struct Shared {
    server: Arc<Server>,
    options: NodeOptions,
    counters: Arc<Counters>,
    jobs: Mutex<BTreeMap<JobId, Arc<JobData>>>,
}

/// A node in this process.
pub struct Node {
    shared: Arc<Shared>,
    slots: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts the slot threads; they pull until the server says stop.
    pub fn start(server: Arc<Server>, options: NodeOptions) -> Result<Self, NodeError> {
        let shared = Arc::new(Shared {
            server,
            options,
            counters: Arc::new(Counters::default()),
            jobs: Mutex::new(BTreeMap::new()),
        });
        let mut node = Self { shared: Arc::clone(&shared), slots: Vec::new() };
        for slot in 0..shared.options.slots {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("slot-{slot}"))
                .spawn(move || slot::slot_loop(&shared, slot))
                .map_err(NodeError)?;
            node.slots.push(thread);
        }
        Ok(node)
    }

    /// Bytes that have passed so far.
    pub fn progress(&self) -> NodeProgress {
        let jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.counters.snapshot(jobs.values().filter_map(|job| job.chunk_progress()))
    }

    /// Waits until every slot thread has ended.
    pub fn join(mut self) {
        for slot in self.slots.drain(..) {
            // A slot that panicked outside an attempt has nothing more to hand in.
            let _ = slot.join();
        }
        self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
