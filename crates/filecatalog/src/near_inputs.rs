//! The nodes that have the stored inputs of jobs, for the plans of their maps. They are a hint: they are told at submit,
//! and again when disks have come or gone.

use crate::{Catalog, CatalogError, JobInputs};
use ids::{ConcreteId, DiskId, JobId, NodeId};
use std::collections::BTreeMap;
use std::time::Instant;

/// Parts of a submit, or of a job, whose nodes are told; the maps of the others run anywhere.
pub const PLACED_PARTS_MAX: usize = 200_000;
/// Parts that are looked up at once.
const PARTS_AT_ONCE: usize = 10_000;

/// Nodes with a replica, by concrete file.
pub type ReplicaNodes = BTreeMap<ConcreteId, Vec<NodeId>>;

impl Catalog {
    /// Returns the nodes in reach that have the inputs.
    pub async fn nodes_of_inputs(&self, inputs: &JobInputs) -> Result<ReplicaNodes, CatalogError> {
        // Steps read files that are pinned for programs.
        let parts = inputs.parts.iter().chain(&inputs.of_programs).copied();
        let parts: Vec<ConcreteId> = parts.take(PLACED_PARTS_MAX).collect();
        let mut places = ReplicaNodes::new();
        for parts in parts.chunks(PARTS_AT_ONCE) {
            let files = self.store.replicated_files_of(parts).await?;
            let (state, now) = (self.state(), Instant::now());
            for file in files {
                let disks = file.disks.iter().filter_map(|disk| state.disks.get(*disk)?.reach(now));
                let mut nodes: Vec<NodeId> = disks.map(|reach| reach.node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                places.insert(file.row.concrete, nodes);
            }
        }
        Ok(places)
    }

    /// Returns the nodes with the inputs of all running jobs if a disk has come or gone since the last time.
    pub async fn moved_inputs(&self) -> Result<Vec<(JobId, ReplicaNodes)>, CatalogError> {
        let jobs: Vec<(JobId, JobInputs)> = {
            let mut state = self.state();
            let reached: Vec<(DiskId, NodeId)> = state.disks.reached(Instant::now());
            if state.jobs.told == reached {
                return Ok(Vec::new());
            }
            state.jobs.told = reached;
            let jobs = &state.jobs;
            let reads =
                jobs.jobs.iter().filter(|(job, inputs)| inputs.reads_any() && !jobs.have_read.contains(*job));
            reads.map(|(job, inputs)| (*job, inputs.clone())).collect()
        };
        let mut moved = Vec::with_capacity(jobs.len());
        for (job, inputs) in jobs {
            moved.push((job, self.nodes_of_inputs(&inputs).await?));
        }
        Ok(moved)
    }

    /// Notes that a job has no maps left that could begin.
    pub fn has_read(&self, job: JobId) {
        self.state().jobs.have_read.insert(job);
    }
}
