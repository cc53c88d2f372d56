//! A job of tasks that read inputs with replicas, from the first question of a slot to the end of the last task.

use super::Machines;
use super::asking::{Assigner, Start};
use super::machines::Way;
use crate::links::{Flow, rates};
use ids::NodeId;
use scheduler::{InputPlace, Slot};
use std::collections::BTreeSet;

const SECOND_NS: f64 = 1e9;
/// Time between two looks of the scheduler at tasks that wait for a better node.
const TICK_NS: u64 = 100_000_000;
/// Share of a task below which it has ended: less than the rounding of its time.
const ENDED: f64 = 1e-7;
/// Duration of a task that reads, works and writes nothing.
const TASK_S_MIN: f64 = 1e-3;

/// A task: it reads, works and writes at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskLoad {
    pub read_bytes: f64,
    /// Duration of the work if the bytes come and go at once.
    pub work_s: f64,
    pub written_bytes: f64,
    /// Number of nodes that keep the written bytes: the node of the task, and others in other racks.
    pub output_replicas: u32,
}

/// A job of equal tasks on machines without other work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapWorld {
    pub seed: u64,
    pub machines: Machines,
    pub maps: u32,
    /// Number of replicas of each input, on random nodes.
    pub replicas: u32,
    pub load: TaskLoad,
    /// Time between two questions of a node. Each brings work for one slot; nodes ask in a random order.
    pub heartbeat_s: f64,
    pub assigning: Assigning,
}

/// The rule by which a node gets tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigning {
    /// A node that asks gets a task with a replica there, else any (Hadoop 0.20).
    AtHeartbeats,
    /// The scheduler with all replicas of a task as near nodes, and its locality delay.
    NearReplicas,
    /// The scheduler with the [`scheduler::plan`] of the job's beginning, as a server uses it.
    Greedy,
}

/// Outcome of a [`MapWorld`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapTimes {
    /// Time of the end of the last task.
    pub job_s: f64,
    pub mean_task_s: f64,
    /// Number of tasks that ran on a replica.
    pub on_replica: u32,
    /// Input bytes that left their node.
    pub moved_bytes: f64,
}

struct Running {
    start: Start,
    began_ns: u64,
    flow: Flow,
    left: f64,
}

struct Model<'a> {
    world: &'a MapWorld,
    inputs: &'a [InputPlace],
    capacities: Vec<f64>,
    random: fastrand::Rng,
    running: Vec<Running>,
    /// Rate of each running task, in tasks per second; up to date unless empty.
    rates: Vec<f64>,
    now_ns: u64,
    outcome: MapTimes,
    ended: u32,
}

/// Runs a job to its end.
pub fn run_maps(world: MapWorld) -> MapTimes {
    let mut random = fastrand::Rng::with_seed(world.seed);
    let inputs = world.machines.random_replicas(&mut random, world.maps, world.replicas);
    let mut asks = Asks::new(&world, &mut random);
    let mut assigner = Assigner::new(world.assigning, &world.machines, &inputs, world.load.read_bytes);
    let mut model = Model {
        world: &world,
        inputs: &inputs,
        capacities: world.machines.capacities(),
        random,
        running: Vec::new(),
        rates: Vec::new(),
        now_ns: 0,
        outcome: MapTimes::default(),
        ended: 0,
    };
    let (mut next_tick_ns, mut waiting) = (TICK_NS, world.maps as usize);
    while model.ended < world.maps {
        let next_end_ns = model.next_end_ns();
        let next_ask_ns = if waiting > 0 { asks.next_ns() } else { u64::MAX };
        if waiting == 0 {
            next_tick_ns = u64::MAX;
        }
        let now_ns = next_end_ns.min(next_ask_ns).min(next_tick_ns);
        assert_ne!(now_ns, u64::MAX, "tasks wait, and nothing will happen");
        let mut starts = Vec::new();
        for ended in model.advance(now_ns) {
            starts.extend(assigner.task_ends(ended.task, now_ns));
            asks.ask_again(ended.slot, now_ns);
        }
        while let Some(slot) = asks.pop(now_ns) {
            starts.extend(assigner.slot_asks(slot, now_ns));
        }
        if next_tick_ns <= now_ns {
            starts.extend(assigner.tick(now_ns));
            next_tick_ns = now_ns + TICK_NS;
        }
        waiting -= starts.len();
        starts.into_iter().for_each(|start| model.start(start));
    }
    let mut outcome = model.outcome;
    outcome.job_s = model.now_ns as f64 / SECOND_NS;
    outcome.mean_task_s /= f64::from(world.maps.max(1));
    outcome
}

/// The coming questions of slots: nodes ask one after the other in a random order, each once in a heartbeat and for one
/// slot.
struct Asks {
    coming: BTreeSet<(u64, Slot)>,
    heartbeat_ns: u64,
    /// Time of the first question of each node.
    first_ns: Vec<u64>,
}

impl Asks {
    fn new(world: &MapWorld, random: &mut fastrand::Rng) -> Self {
        let heartbeat_ns = ((world.heartbeat_s * SECOND_NS) as u64).max(1);
        let nodes = world.machines.nodes();
        let mut first_ns: Vec<u64> =
            (0..nodes).map(|turn| heartbeat_ns * u64::from(turn) / u64::from(nodes)).collect();
        random.shuffle(&mut first_ns);
        let mut asks = Self { coming: BTreeSet::new(), heartbeat_ns, first_ns };
        for node in (0..nodes).map(NodeId) {
            (0..world.machines.slots_per_node).for_each(|slot| asks.add(Slot { node, slot }, 0));
        }
        asks
    }

    fn next_ns(&self) -> u64 {
        self.coming.first().map_or(u64::MAX, |ask| ask.0)
    }

    /// Returns a slot that asks by now.
    fn pop(&mut self, now_ns: u64) -> Option<Slot> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.coming.pop_first().map(|ask| ask.1)
    }

    /// Adds a question for a slot that has become free, with the next heartbeat of its node that asks for no other.
    fn ask_again(&mut self, slot: Slot, now_ns: u64) {
        let since_ns = (now_ns + 1).saturating_sub(self.first_ns[slot.node.0 as usize]);
        self.add(slot, since_ns.div_ceil(self.heartbeat_ns));
    }

    fn add(&mut self, slot: Slot, heartbeat: u64) {
        let mut at_ns = self.first_ns[slot.node.0 as usize] + heartbeat * self.heartbeat_ns;
        let is_taken = |at_ns: u64| {
            let all = (at_ns, Slot { slot: 0, ..slot })..=(at_ns, Slot { slot: u32::MAX, ..slot });
            self.coming.range(all).next().is_some()
        };
        while is_taken(at_ns) {
            at_ns += self.heartbeat_ns;
        }
        self.coming.insert((at_ns, slot));
    }
}

impl Model<'_> {
    fn start(&mut self, start: Start) {
        let (machines, load) = (&self.world.machines, self.world.load);
        let here = start.slot.node.0 as usize;
        let from = self.source(start.task, start.slot.node);
        let mut flow = Flow::new(1.0 / load.work_s.max(TASK_S_MIN));
        machines.takes_disk(&mut flow, from, load.read_bytes);
        machines.takes_links(&mut flow, Way { from, to: here, bytes: load.read_bytes });
        if load.output_replicas > 0 {
            machines.takes_disk(&mut flow, here, load.written_bytes);
        }
        for to in self.other_racks(here, load.output_replicas.saturating_sub(1)) {
            machines.takes_links(&mut flow, Way { from: here, to, bytes: load.written_bytes });
            machines.takes_disk(&mut flow, to, load.written_bytes);
        }
        match from == here {
            true => self.outcome.on_replica += 1,
            false => self.outcome.moved_bytes += load.read_bytes,
        }
        self.running.push(Running { start, began_ns: self.now_ns, flow, left: 1.0 });
        self.rates.clear();
    }

    /// Returns the node that a task on this node reads from: itself, else a random one, in its rack if possible.
    fn source(&mut self, task: usize, here: NodeId) -> usize {
        let nodes = &self.inputs[task].nodes;
        if nodes.contains(&here) || nodes.is_empty() {
            return here.0 as usize;
        }
        let rack = self.world.machines.rack(here.0);
        let near: Vec<NodeId> =
            nodes.iter().copied().filter(|node| self.world.machines.rack(node.0) == rack).collect();
        let among = if near.is_empty() { nodes } else { &near };
        among[self.random.usize(..among.len())].0 as usize
    }

    /// Returns random nodes for further replicas of an output, in other racks if there are any.
    fn other_racks(&mut self, here: usize, count: u32) -> Vec<usize> {
        let machines = &self.world.machines;
        let rack = machines.rack(here as u32);
        let others: Vec<usize> = (0..machines.nodes())
            .filter(|node| machines.racks == 1 || machines.rack(*node) != rack)
            .map(|node| node as usize)
            .filter(|node| *node != here)
            .collect();
        (0..count).filter_map(|_| self.random.choice(&others).copied()).collect()
    }

    /// Returns the time of the next end of a task with the current rates.
    fn next_end_ns(&mut self) -> u64 {
        if self.rates.len() != self.running.len() {
            let flows: Vec<Flow> = self.running.iter().map(|running| running.flow.clone()).collect();
            self.rates = rates(&self.capacities, &flows);
        }
        let seconds = self.running.iter().zip(&self.rates).map(|(running, rate)| running.left / rate);
        let next_s = seconds.fold(f64::INFINITY, f64::min);
        if next_s.is_finite() { self.now_ns + (next_s * SECOND_NS).ceil() as u64 } else { u64::MAX }
    }

    /// Moves the clock. Returns the tasks that have ended.
    fn advance(&mut self, now_ns: u64) -> Vec<Start> {
        let seconds = (now_ns - self.now_ns) as f64 / SECOND_NS;
        self.now_ns = now_ns;
        self.running.iter_mut().zip(&self.rates).for_each(|(running, rate)| running.left -= rate * seconds);
        let ended: Vec<Running> = self.running.extract_if(.., |running| running.left <= ENDED).collect();
        if !ended.is_empty() {
            self.rates.clear();
        }
        self.ended += ended.len() as u32;
        let lasted_s = |running: &Running| (now_ns - running.began_ns) as f64 / SECOND_NS;
        self.outcome.mean_task_s += ended.iter().map(lasted_s).sum::<f64>();
        ended.into_iter().map(|running| running.start).collect()
    }
}
