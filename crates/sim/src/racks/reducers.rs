//! The reduce phase: the real plan over the current runs, its tasks in its order, one task per slot.

use super::model::{Hop, Model};
use crate::links::Flow;
use api::task::{KeyWeight, ReduceTask, RunSummary, SealResult};
use api::{JobSpec, KeyBytes, Task};
use ids::{DiskIndex, NodeId, StageKind};
use std::collections::{BTreeMap, VecDeque};

/// Number of index entries per run; keys are evenly distributed.
const WEIGHTS_PER_RUN: u64 = 32;
const KEYS_PER_WEIGHT: u64 = (1 << 16) / WEIGHTS_PER_RUN;
/// Prime, so that offsets are spread.
const KEY_STEP: u64 = 797;
const RECORD_BYTES: u64 = 100;

/// A running reduce task.
pub(super) struct Reducing {
    node: usize,
    left_bytes: f64,
    /// Its bytes on each node: all, and those on disk.
    from: BTreeMap<usize, (f64, f64)>,
}

#[derive(Default)]
pub(super) struct Reducers {
    waiting: VecDeque<ReduceTask>,
    /// Running reduce tasks, by slot.
    pub running: Vec<Option<Reducing>>,
}

impl Reducers {
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.running.iter().all(Option::is_none)
    }
}

impl Model {
    /// Makes the plan, after everything is sorted.
    pub(super) fn plan_reduces(&mut self) {
        let runs = self.runs.iter().enumerate().map(|(index, run)| {
            let even = run.bytes as u64 / WEIGHTS_PER_RUN;
            // No two runs have the same keys.
            let offset = (index as u64 * KEY_STEP) % KEYS_PER_WEIGHT;
            let key = |block: u64| (block * KEYS_PER_WEIGHT + offset) as u16;
            let weight = |block: u64| KeyWeight {
                first_key: KeyBytes(key(block).to_be_bytes().to_vec()),
                bytes: even,
                records: even / RECORD_BYTES,
            };
            RunSummary {
                run: run.id,
                ifile: run.ifile,
                chunks: vec![run.chunk],
                records: run.bytes as u64 / RECORD_BYTES,
                record_bytes: run.bytes as u64,
                stored_bytes: run.bytes as u64,
                in_memory: run.in_memory,
                disk: DiskIndex(0),
                block_bytes_max: self.layout.block_bytes,
                weights: (0..WEIGHTS_PER_RUN).map(weight).collect(),
            }
        });
        self.results.seal = Some(SealResult { runs: runs.collect(), ..SealResult::default() });
        let spec = JobSpec {
            slots: self.world.slots_per_node,
            layout: self.layout,
            ..JobSpec::named("racks".to_string())
        };
        let tasks = mapreduce::expand(StageKind::Reduce, &spec, &mut self.results).unwrap_or_default();
        let reduces = tasks.into_iter().filter_map(|task| match task {
            Task::Reduce(task) => Some(task),
            _ => None,
        });
        self.reducers.waiting = reduces.collect();
        let slots = self.nodes.len() * self.world.slots_per_node as usize;
        self.reducers.running = (0..slots).map(|_| None).collect();
    }

    /// Starts the next tasks of the plan in free slots.
    pub(super) fn begin_reduces(&mut self) {
        let nodes = self.nodes.len();
        for slot in 0..self.reducers.running.len() {
            if self.reducers.running[slot].is_none()
                && let Some(task) = self.reducers.waiting.pop_front()
            {
                // One slot of each node, after that the next one.
                self.reducers.running[slot] = Some(self.reducing(&task, slot % nodes));
            }
        }
    }

    fn reducing(&self, task: &ReduceTask, node: usize) -> Reducing {
        let mut from: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for run in task.runs.iter().filter_map(|run| self.run_of.get(run)).map(|run| &self.runs[*run]) {
            let (all, on_disk) = from.entry(run.id.node().0 as usize).or_default();
            *all += run.bytes;
            *on_disk += if run.in_memory { 0.0 } else { run.bytes };
        }
        let bytes: f64 = from.values().map(|(all, _)| all).sum();
        from.values_mut().for_each(|(all, on_disk)| (*all, *on_disk) = (*all / bytes, *on_disk / bytes));
        Reducing { node, left_bytes: task.expected_bytes as f64, from }
    }

    pub(super) fn reduce_flow(&self, reducing: &Reducing) -> Flow {
        let mut flow = Flow::new(self.world.program_bytes_per_second);
        flow.takes(self.disk(reducing.node), 1.0, 1.0);
        for (node, (all, on_disk)) in &reducing.from {
            flow.takes(self.disk(*node), *on_disk, 1.0);
            self.path(&mut flow, Hop { from: *node, to: reducing.node }, *all, 1.0);
        }
        flow
    }

    /// Adds read bytes to the task of a slot.
    pub(super) fn reduced(&mut self, slot: usize, bytes: f64) {
        let Some(reducing) = &mut self.reducers.running[slot] else { return };
        reducing.left_bytes -= bytes;
        let here = reducing.from.get(&reducing.node).map_or(0.0, |(all, _)| *all);
        self.outcome.sent_bytes += bytes * (1.0 - here);
        self.outcome.written_bytes += bytes;
        if reducing.left_bytes <= 1.0 {
            self.reducers.running[slot] = None;
        }
    }

    /// Returns the unread bytes of the task of a slot.
    pub(super) fn reduce_left(&self, slot: usize) -> f64 {
        self.reducers.running[slot].as_ref().map_or(f64::INFINITY, |reducing| reducing.left_bytes)
    }

    pub(super) fn node_id(node: usize) -> NodeId {
        NodeId(node as u32)
    }
}
