//! Faults of processes, machines, links and disks.

use super::{Happening, MILLISECOND_NS, Simulation, TICK_NS};
use crate::shuffle::data_plane::Host;
use crate::shuffle::plan::REDUCE;
use crate::shuffle::process::Process;
use crate::shuffle::server::locked;
use crate::shuffle::world::Situation;
use api::Task;
use ids::{JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Longest time of a cut-off node; sometimes longer than a lease.
const CUT_OFF_NS_MAX: u64 = 15_000 * MILLISECOND_NS;

impl Simulation<'_> {
    /// Starts a process at an address without a live one.
    pub(super) fn start_node(&mut self, address: u32) {
        if self.processes.values().any(|process| process.address == address) {
            return;
        }
        self.next_process += 1;
        let number = self.next_process;
        self.processes.insert(number, Process::new(number, address, self.world.slots_per_node));
        self.after(1, Happening::Polls { process: number });
        self.after(TICK_NS / 4, Happening::Sorts { process: number });
        self.after(TICK_NS, Happening::Replicates { process: number });
    }

    /// Registers a process that the server has admitted; from now on it hosts chunks under that number.
    pub(super) fn welcome(&mut self, number: u64, node: NodeId) {
        let Some(process) = self.processes.get_mut(&number).filter(|process| process.node.is_none()) else {
            return;
        };
        process.node = Some(node);
        let address = process.address;
        let mut plane = self.plane();
        plane.addresses.insert(node, address);
        plane.hosts.insert(node, Host { address, jobs: BTreeMap::new(), forgotten: BTreeSet::new() });
        drop(plane);
        self.after(1, Happening::Polls { process: number });
    }

    /// Ends a process, with all its data in memory.
    pub(super) fn end_process(&mut self, number: u64) {
        let Some(process) = self.processes.remove(&number) else { return };
        // Appenders release their chunks, so their process must still exist.
        let senders: Vec<_> = process.running.values().filter_map(|running| running.sender).collect();
        drop(process.running);
        senders.into_iter().for_each(|sender| drop(self.plane().senders.remove(&sender)));
        if let Some(node) = process.node {
            let mut plane = self.plane();
            plane.hosts.remove(&node);
            plane.cut_off.remove(&node);
        }
    }

    /// Kills a node; half of the deaths are power failures, which lose unsynced data.
    pub(super) fn node_dies(&mut self) {
        self.foresee_fault(self.faults.node_deaths_per_minute, Happening::NodeDies);
        let number = self.processes.keys().nth(self.random.usize(..self.processes.len().max(1))).copied();
        let Some(number) = number.filter(|_| self.faults.node_deaths_per_minute > 0.0) else { return };
        let Some(address) = self.processes.get(&number).map(|process| process.address) else { return };
        self.end_process(number);
        let with_machine = self.random.bool();
        match with_machine {
            true => locked(&self.connections).ends_with_machine(number),
            false => locked(&self.connections).ends(number),
        }
        if with_machine {
            let lost =
                self.parts.crash(number, &mut self.random) + self.outputs.crash(number, &mut self.random);
            (0..lost).for_each(|_| self.saw(Situation::UnsyncedLost));
        }
        let down_ns = self.random.u64(10 * MILLISECOND_NS..4_000 * MILLISECOND_NS);
        self.after(down_ns, Happening::NodeStarts { address });
    }

    /// Kills the node with the most runs permanently, once all unread data is on two live nodes.
    pub(super) fn dies_in_turn(&mut self) {
        if self.outcome.died_in_turn == self.world.deaths_in_turn {
            return;
        }
        let Some(server) = &self.server else { return };
        let is_reducing = usize::from(REDUCE.0) + 1;
        let reducing = server.rows.jobs.values().find(|job| !job.state.over() && job.expanded == is_reducing);
        let Some(job) = reducing else { return };
        let lives = |node: NodeId| self.processes.values().any(|process| process.node == Some(node));
        let replicas = job.replicas_on(|node| server.rows.lives(node));
        let mut homes: BTreeMap<NodeId, usize> = BTreeMap::new();
        let reduces = job.live_tasks().filter_map(|(_, _, row)| match row.payload.as_ref() {
            Task::Reduce(reduce) => Some(reduce.clone()),
            _ => None,
        });
        for run in reduces.collect::<Vec<_>>().iter().flat_map(|task| &task.runs) {
            *homes.entry(replicas.home(*run)).or_default() += 1;
            if !replicas.is_on_two(*run) || !replicas.held().all(|(of, node)| of != *run || lives(node)) {
                return;
            }
        }
        let Some((node, _)) = homes.iter().max_by_key(|(_, runs)| **runs) else { return };
        let doomed = self.processes.values().find(|process| process.node == Some(*node));
        if let Some(number) =
            doomed.filter(|_| homes.keys().all(|home| lives(*home))).map(|process| process.number)
        {
            self.end_process(number);
            locked(&self.connections).ends(number);
            self.outcome.died_in_turn += 1;
        }
    }

    /// Makes a live node unreachable for a while.
    pub(super) fn cut_off(&mut self) {
        self.foresee_fault(self.faults.partitions_per_minute, Happening::CutOff);
        let nodes: Vec<NodeId> = self.processes.values().filter_map(|process| process.node).collect();
        if nodes.is_empty() || self.faults.partitions_per_minute == 0.0 {
            return;
        }
        let node = nodes[self.random.usize(..nodes.len())];
        self.plane().cut_off.insert(node);
        let process = self.processes.values().find(|process| process.node == Some(node));
        process.into_iter().for_each(|process| locked(&self.connections).cut_off(process.number));
        let heals_ns = self.random.u64(100 * MILLISECOND_NS..CUT_OFF_NS_MAX);
        self.after(heals_ns, Happening::Heals(node));
    }

    /// Makes the disk of a live node lose a run, or an unsorted chunk.
    pub(super) fn disk_loses(&mut self) {
        self.foresee_fault(self.faults.losses_per_minute, Happening::DiskLoses);
        if self.faults.losses_per_minute == 0.0 {
            return;
        }
        let mut plane = self.plane();
        let of_host = |node: &NodeId, jobs: &BTreeMap<JobId, _>| -> Vec<(NodeId, JobId)> {
            jobs.keys().map(|job| (*node, *job)).collect()
        };
        let places: Vec<(NodeId, JobId)> =
            plane.hosts.iter().flat_map(|(node, host)| of_host(node, &host.jobs)).collect();
        if places.is_empty() {
            return;
        }
        let (node, job) = places[self.random.usize(..places.len())];
        let Some(data) = plane.job_data(node, job) else { return };
        let parts: Vec<String> = data.parts.keys().chain(data.part_copies.keys()).cloned().collect();
        if !parts.is_empty() && self.random.bool() {
            let name = &parts[self.random.usize(..parts.len())];
            data.parts.remove(name);
            data.part_copies.remove(name);
            return;
        }
        let runs: Vec<_> = data.runs.keys().chain(data.copies.keys()).copied().collect();
        let in_runs: BTreeSet<_> = data.runs.values().flat_map(|run| run.chunks()).collect();
        let chunks = data.books.chunk_summaries().into_iter().map(|chunk| chunk.chunk);
        let chunks: Vec<_> = chunks.filter(|chunk| !in_runs.contains(chunk)).collect();
        // A chunk whose run was merged is in no run and no memory here.
        let merged_away = |chunk| data.books.is_sorted(chunk);
        let chunks: Vec<_> = chunks.into_iter().filter(|chunk| !merged_away(*chunk)).collect();
        match (runs.is_empty(), chunks.is_empty()) {
            (false, _) if self.random.bool() => {
                data.damaged.insert(runs[self.random.usize(..runs.len())]);
            }
            (_, false) => data.books.lose(chunks[self.random.usize(..chunks.len())]),
            _ => {}
        }
    }
}
