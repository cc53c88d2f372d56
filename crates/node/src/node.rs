//! A node in this process: its threads, and its services for other nodes.

use crate::control::Control;
use crate::link::data_access::DataAccess;
use crate::link::remote::Remote;
use crate::link::sampler::{self, Sampling};
use crate::shared::{NodeOptions, Shared};
use crate::shuffle::remote::RecordData;
use crate::shuffle::serve::Served;
use crate::slots::job_keeper::JobKeeper;
use crate::slots::progress::NodeProgress;
use crate::slots::slot;
use dataport::Chunkservers;
use std::sync::Arc;
use std::thread::JoinHandle;

/// An error: the node could not start its threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a slot thread")]
pub struct NodeError(#[source] std::io::Error);

/// A node in this process.
pub struct Node {
    shared: Arc<Shared>,
    slots: Vec<JoinHandle<()>>,
    sampling: Option<Sampling>,
}

impl Node {
    /// Starts the slot threads; they pull until the server stops them.
    pub fn start(control: Arc<dyn Control>, options: NodeOptions) -> Result<Self, NodeError> {
        let shared = Arc::new(Shared::new(control, options));
        let mut node = Self { shared: Arc::clone(&shared), slots: Vec::new(), sampling: None };
        let NodeOptions { slots, places, .. } = shared.options;
        for number in 0..slots + places {
            let shared = Arc::clone(&shared);
            let (name, run): (_, fn(&Arc<Shared>, u32)) = match number < slots {
                true => (format!("slot-{number}"), slot::slot_loop),
                false => (format!("place-{number}"), slot::place_loop),
            };
            let thread = std::thread::Builder::new().name(name).spawn(move || run(&shared, number));
            node.slots.push(thread.map_err(NodeError)?);
        }
        Ok(node)
    }

    /// Returns the bytes processed so far.
    pub fn progress(&self) -> NodeProgress {
        let jobs = self.shared.jobs();
        self.shared.counters.snapshot(jobs.values().filter_map(|job| job.chunk_progress()))
    }

    /// Returns the chunkservers of this node's jobs, for callers with a right that the server signed.
    pub fn chunkservers(&self, incarnation: u64, access: Arc<DataAccess>) -> Arc<dyn Chunkservers> {
        Arc::new(Served { shared: Arc::clone(&self.shared), incarnation, access })
    }

    /// Sets the source of the other nodes; without it all data is here. Call it once, before the first attempt.
    pub fn share_record_data(&self, record_data: Arc<dyn RecordData>) {
        assert!(self.shared.record_data.set(record_data).is_ok(), "a node shares its data with one cluster");
    }

    /// Executes orders of a server other than attempts, until the link ends.
    pub fn follow_orders(&self, remote: Arc<Remote>) -> Result<(), NodeError> {
        let jobs = JobKeeper::new(Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("jobs".to_string());
        thread.spawn(move || remote.follow_orders(&jobs)).map_err(NodeError)?;
        Ok(())
    }

    /// Reports the state of this machine, its disks and its programs to a server each second.
    pub fn report_to(&mut self, remote: Arc<Remote>) -> Result<(), NodeError> {
        self.sampling = Some(sampler::start(&self.shared, remote).map_err(NodeError)?);
        Ok(())
    }

    /// Waits until every slot thread has ended.
    pub fn join(mut self) {
        for slot in self.slots.drain(..) {
            // A slot that panicked outside an attempt has nothing more to report.
            let _ = slot.join();
        }
        JobKeeper::new(Arc::clone(&self.shared)).forget_all();
    }
}
