//! The clock of the model: rates of the flows until one ends, and the effects.

use super::copier::Copier;
use super::reducers::Reducers;
use super::{Copies, Racks};
use crate::links::{Flow, rates};
use api::Layout;
use api::control::NodeAddress;
use dataport::{Candidate, ChunkPlacement, SpreadByIfile, chunk_hosts, replica_hosts};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, NodeId, RunId, Source, TaskIndex};
use mapreduce::JobResults;
use mapreduce::layout::{LayoutRequest, derive};
use std::collections::{BTreeMap, VecDeque};

/// Longest time for which rates are assumed constant; flows that end within the shortest step end together.
const STEP_S_MAX: f64 = 1.0;
const STEP_S_MIN: f64 = 0.1;
/// Simulated time after which a job counts as endless.
const END_S: f64 = 100_000.0;

pub(super) struct Open {
    pub chunk: ChunkId,
    bytes: f64,
}

struct Sorting {
    chunk: ChunkId,
    ifile: u32,
    bytes: f64,
    left_bytes: f64,
}

/// Two nodes, by their positions.
#[derive(Clone, Copy)]
pub(super) struct Hop {
    pub from: usize,
    pub to: usize,
}

/// A node and its chunkserver.
#[derive(Default)]
pub(super) struct NodeState {
    /// By I-file.
    pub open: BTreeMap<u32, Open>,
    closed: VecDeque<Sorting>,
    sorting: Vec<Sorting>,
    /// Runs that are written to free memory, with their remaining bytes.
    to_write: VecDeque<(usize, f64)>,
    /// Chunks and runs in memory.
    memory_bytes: f64,
    pub copier: Copier,
    /// Number of incoming copies.
    pub receives: usize,
    chunks_ever: u64,
    runs_ever: u64,
}

impl NodeState {
    pub fn close(&mut self, ifile: u32) {
        if let Some(Open { chunk, bytes }) = self.open.remove(&ifile) {
            self.closed.push_back(Sorting { chunk, ifile, bytes, left_bytes: bytes });
        }
    }

    /// Removes a run from the queue of writes because another step writes it. Returns the remaining bytes if it was
    /// there.
    pub fn stop_write(&mut self, run: usize) -> Option<f64> {
        let place = self.to_write.iter().position(|(waiting, _)| *waiting == run)?;
        self.to_write.remove(place).map(|(_, left_bytes)| left_bytes)
    }
}

pub(super) struct RunState {
    pub id: RunId,
    pub ifile: IfileIndex,
    pub chunk: ChunkId,
    pub bytes: f64,
    pub in_memory: bool,
    pub sorted_s: f64,
}

/// Owner of a flow.
#[derive(Clone, Copy)]
enum Whose {
    Map(usize),
    Write(usize),
    Copy(usize),
    Reduce(usize),
}

pub(super) struct Model {
    pub world: Racks,
    pub layout: Layout,
    pub now_s: f64,
    /// Links out, links in and disks of nodes, followed by links out and in of racks.
    capacities: Vec<f64>,
    /// By node: the host of each I-file for its maps.
    hosts: Vec<Vec<usize>>,
    pub replica_hosts: Vec<Vec<usize>>,
    input_left: Vec<f64>,
    pub nodes: Vec<NodeState>,
    sorters: usize,
    pub runs: Vec<RunState>,
    pub run_of: BTreeMap<RunId, usize>,
    pub results: JobResults,
    pub reducers: Reducers,
    pub outcome: Copies,
}

/// Runs a job to its end.
pub fn copies(world: Racks) -> Copies {
    let mut model = Model::new(world);
    while model.is_mapping() {
        model.step();
    }
    model.outcome.maps_end_s = model.now_s;
    model.seal();
    while model.is_sorting() {
        model.step();
    }
    model.outcome.reduce_begins_s = model.now_s;
    model.plan_reduces();
    model.begin_reduces();
    while !model.reducers.is_over() {
        model.step();
        model.begin_reduces();
    }
    let mut outcome = model.outcome;
    (outcome.job_s, outcome.runs) = (model.now_s, model.runs.len());
    outcome.single_s.sort_by(f64::total_cmp);
    outcome
}

fn addresses(world: &Racks) -> Vec<NodeAddress> {
    let node = |node: u32| NodeAddress {
        node: NodeId(node),
        rack: format!("rack {}", node / world.nodes_per_rack),
        data_url: String::new(),
        takes_chunks: true,
    };
    (0..world.racks * world.nodes_per_rack).map(node).collect()
}

/// Returns the host of each I-file for the maps of a node, as an appender there chooses it.
fn hosts_for(here: NodeId, nodes: &[NodeAddress], layout: &Layout, input_bytes: u64) -> Vec<usize> {
    let candidate = |node: NodeId| Candidate {
        node,
        is_here: node == here,
        is_avoided: false,
        free_bytes: u64::MAX,
        queued_bytes: 0,
    };
    let candidates: Vec<Candidate> = chunk_hosts(here, nodes).into_iter().map(candidate).collect();
    let placement = SpreadByIfile::for_job(layout, input_bytes);
    // Maps of a node have nearly consecutive numbers; with one node per I-file, the numbers do not matter.
    let source = Source { map_task: TaskIndex(here.0), attempt: AttemptNumber(0) };
    let host = |ifile| candidates[placement.choose(IfileIndex(ifile), source, &candidates)].node.0 as usize;
    (0..layout.ifile_count).map(host).collect()
}

impl Model {
    fn new(world: Racks) -> Self {
        let nodes = addresses(&world);
        let input_bytes = world.input_bytes_per_node * nodes.len() as u64;
        let request = LayoutRequest {
            memory_bytes: world.memory_bytes,
            slots: world.slots_per_node,
            input_bytes,
            combines: false,
        };
        let layout = derive(&request).expect("a world has memory and slots");
        let of_nodes = |capacity: f64| std::iter::repeat_n(capacity, nodes.len());
        let links = of_nodes(world.link_bytes_per_second).chain(of_nodes(world.link_bytes_per_second));
        let racks = std::iter::repeat_n(world.uplink_bytes_per_second, 2 * world.racks as usize);
        let replicas = |node: &NodeAddress| -> Vec<usize> {
            replica_hosts(node.node, &nodes).into_iter().map(|node| node.0 as usize).collect()
        };
        Self {
            world,
            layout,
            now_s: 0.0,
            capacities: links.chain(of_nodes(world.disk_bytes_per_second)).chain(racks).collect(),
            hosts: nodes.iter().map(|node| hosts_for(node.node, &nodes, &layout, input_bytes)).collect(),
            replica_hosts: nodes.iter().map(replicas).collect(),
            input_left: nodes.iter().map(|_| world.input_bytes_per_node as f64).collect(),
            nodes: nodes.iter().map(|_| NodeState::default()).collect(),
            sorters: (layout.sort_share_bytes / layout.chunk_bytes).clamp(1, u64::from(world.slots_per_node))
                as usize,
            runs: Vec::new(),
            run_of: BTreeMap::new(),
            results: JobResults::new(JobId(1), Vec::new()),
            reducers: Reducers::default(),
            outcome: Copies::default(),
        }
    }

    pub fn disk(&self, node: usize) -> usize {
        2 * self.nodes.len() + node
    }

    fn rack(&self, node: usize) -> usize {
        node / self.world.nodes_per_rack as usize
    }

    /// Adds the path of a part of a flow from one node to another.
    pub fn path(&self, flow: &mut Flow, hop: Hop, part: f64, connections: f64) {
        let Hop { from, to } = hop;
        if from == to {
            return;
        }
        let nodes = self.nodes.len();
        flow.takes(from, part, connections);
        flow.takes(nodes + to, part, connections);
        if self.rack(from) != self.rack(to) {
            flow.takes(3 * nodes + self.rack(from), part, connections);
            flow.takes(3 * nodes + self.world.racks as usize + self.rack(to), part, connections);
        }
    }

    fn is_mapping(&self) -> bool {
        self.input_left.iter().any(|left| *left > 0.0)
    }

    /// Returns whether maps append to chunks of a node.
    pub fn is_appended_to(&self, node: usize) -> bool {
        let rack = self.rack(node);
        let appends = |other: &usize| self.rack(*other) == rack && self.input_left[*other] > 0.0;
        self.hosts[node].contains(&node) && (0..self.nodes.len()).any(|other| appends(&other))
    }

    fn seal(&mut self) {
        for node in &mut self.nodes {
            let open: Vec<u32> = node.open.keys().copied().collect();
            open.into_iter().for_each(|ifile| node.close(ifile));
        }
    }

    fn is_sorting(&self) -> bool {
        let busy = |node: &NodeState| !(node.closed.is_empty() && node.sorting.is_empty());
        self.nodes.iter().any(busy)
    }

    fn map_flow(&self, node: usize) -> Flow {
        let slots = f64::from(self.world.slots_per_node);
        let mut flow = Flow::new(slots * self.world.program_bytes_per_second);
        flow.takes(self.disk(node), 1.0, slots);
        let hosts = &self.hosts[node];
        for host in hosts {
            self.path(&mut flow, Hop { from: node, to: *host }, 1.0 / hosts.len() as f64, slots);
        }
        flow
    }

    fn flows(&self) -> (Vec<Whose>, Vec<Flow>) {
        let mut all: Vec<(Whose, Flow)> = Vec::new();
        for (node, state) in self.nodes.iter().enumerate() {
            if self.input_left[node] > 0.0 {
                all.push((Whose::Map(node), self.map_flow(node)));
            }
            if !state.to_write.is_empty() {
                let mut flow = Flow::new(f64::INFINITY);
                flow.takes(self.disk(node), 1.0, 1.0);
                all.push((Whose::Write(node), flow));
            }
            all.extend(self.copy_flow(node).map(|flow| (Whose::Copy(node), flow)));
        }
        for (slot, running) in self.reducers.running.iter().enumerate() {
            all.extend(running.as_ref().map(|running| (Whose::Reduce(slot), self.reduce_flow(running))));
        }
        all.into_iter().unzip()
    }

    /// Returns the remaining bytes of a flow.
    fn left_bytes(&self, whose: Whose) -> f64 {
        match whose {
            Whose::Map(node) => self.input_left[node],
            Whose::Write(node) => self.nodes[node].to_write.front().map_or(f64::INFINITY, |(_, left)| *left),
            Whose::Copy(node) => self.nodes[node].copier.step.left_bytes().unwrap_or(f64::INFINITY),
            Whose::Reduce(slot) => self.reduce_left(slot),
        }
    }

    fn step(&mut self) {
        assert!(self.now_s < END_S, "the job never ends: {:?}", self.world);
        self.copiers_look();
        self.begin_sorting();
        let (whose, flows) = self.flows();
        let rates = rates(&self.capacities, &flows);
        let ends = whose.iter().zip(&rates).map(|(whose, rate)| self.left_bytes(*whose) / rate.max(1e-9));
        let sorters = self.nodes.iter().flat_map(|node| &node.sorting);
        let sorted = sorters.map(|sorting| sorting.left_bytes / self.world.sorter_bytes_per_second);
        let wait_s = ends.chain(sorted).fold(STEP_S_MAX, f64::min).max(STEP_S_MIN);
        self.now_s += wait_s;
        for (whose, rate) in whose.into_iter().zip(rates) {
            let bytes = (rate * wait_s).min(self.left_bytes(whose));
            match whose {
                Whose::Map(node) => self.mapped(node, bytes),
                Whose::Write(node) => self.written(node, bytes),
                Whose::Copy(node) => self.copied(node, bytes),
                Whose::Reduce(slot) => self.reduced(slot, bytes),
            }
        }
        self.sort(wait_s);
    }

    /// Adds output of the maps of a node, evenly over all I-files.
    fn mapped(&mut self, node: usize, bytes: f64) {
        self.input_left[node] -= bytes;
        if self.input_left[node] < 1.0 {
            self.input_left[node] = 0.0;
        }
        let each = bytes / self.hosts[node].len() as f64;
        for (ifile, host) in self.hosts[node].clone().into_iter().enumerate() {
            if host != node {
                self.outcome.sent_bytes += each;
            }
            self.append(host, ifile as u32, each);
        }
    }

    fn append(&mut self, host: usize, ifile: u32, bytes: f64) {
        let chunk_bytes = self.layout.chunk_bytes as f64;
        let state = &mut self.nodes[host];
        state.memory_bytes += bytes;
        let chunks_ever = &mut state.chunks_ever;
        let open = state.open.entry(ifile).or_insert_with(|| {
            *chunks_ever += 1;
            Open { chunk: ChunkId::on(Self::node_id(host), *chunks_ever), bytes: 0.0 }
        });
        open.bytes += bytes;
        if open.bytes >= chunk_bytes {
            state.close(ifile);
        }
    }

    fn begin_sorting(&mut self) {
        for node in &mut self.nodes {
            while node.sorting.len() < self.sorters
                && let Some(next) = node.closed.pop_front()
            {
                node.sorting.push(next);
            }
        }
    }

    fn sort(&mut self, seconds: f64) {
        let bytes = self.world.sorter_bytes_per_second * seconds;
        for node in 0..self.nodes.len() {
            self.nodes[node].sorting.iter_mut().for_each(|sorting| sorting.left_bytes -= bytes);
            let sorting = std::mem::take(&mut self.nodes[node].sorting);
            let (done, left) = sorting.into_iter().partition(|sorting| sorting.left_bytes <= 1.0);
            self.nodes[node].sorting = left;
            let done: Vec<Sorting> = done;
            done.into_iter().for_each(|sorted| self.sorted(node, &sorted));
        }
    }

    /// Adds a sorted run. It is written to disk if memory is short.
    fn sorted(&mut self, node: usize, sorted: &Sorting) {
        let (run, state) = (self.runs.len(), &mut self.nodes[node]);
        state.runs_ever += 1;
        let id = RunId::on(Self::node_id(node), state.runs_ever);
        state.copier.queue.push_back(run);
        if state.memory_bytes > self.layout.chunk_share_bytes as f64 {
            state.to_write.push_back((run, sorted.bytes));
        }
        self.run_of.insert(id, run);
        let (ifile, chunk, bytes) = (IfileIndex(sorted.ifile), sorted.chunk, sorted.bytes);
        self.runs.push(RunState { id, ifile, chunk, bytes, in_memory: true, sorted_s: self.now_s });
    }

    fn written(&mut self, node: usize, bytes: f64) {
        self.outcome.written_bytes += bytes;
        let Some((run, left_bytes)) = self.nodes[node].to_write.front_mut() else { return };
        *left_bytes -= bytes;
        if *left_bytes <= 1.0 {
            let run = *run;
            self.nodes[node].to_write.pop_front();
            self.goes_to_disk(node, run);
        }
    }

    /// Moves a run from memory to disk.
    pub fn goes_to_disk(&mut self, node: usize, run: usize) {
        let run = &mut self.runs[run];
        run.in_memory = false;
        self.nodes[node].memory_bytes -= run.bytes;
    }
}
