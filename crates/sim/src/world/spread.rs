//! A file that tasks on many nodes read: how it comes to all of them.
//!
//! Every fetch is a flow over links and disks. A fetch from a node that is still fetching stays at least one block
//! behind it: it runs freely until it has caught up, and goes as fast as the other fetch from then on.

use super::Machines;
use super::machines::Way;
use crate::links::{Flow, rates};
use scheduler::{Fetch, NodeOfRack, fetch_trees};
use std::collections::BTreeSet;

/// Bytes that are verified, and passed on, together.
const BLOCK_BYTES: f64 = 65_536.0;
/// Bytes that count as nothing, for the rounding of times.
const NOTHING: f64 = 1.0;
/// Maximum number of rounds in which the rates of fetches and of those behind them settle.
const ROUNDS_MAX: usize = 64;

/// A file of which tasks on some nodes read every byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedInput {
    pub seed: u64,
    pub machines: Machines,
    pub bytes: f64,
    /// Number of random nodes that read it and do not have it.
    pub readers: u32,
    pub copies: FirstCopies,
    pub spreading: Spreading,
}

/// The nodes that have the file at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstCopies {
    /// This number of random nodes.
    Random(u32),
    /// A random node of each rack.
    OnePerRack,
}

/// The node from which a reader fetches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spreading {
    /// A node that had it at the beginning: in the reader's rack if possible, else the one with the fewest readers.
    FirstCopiesOnly,
    /// The node that [`scheduler::fetch_trees`] names, in one tree.
    Tree,
    /// The nodes that it names in two trees, half of the bytes from each.
    TwoTrees,
}

/// A fetch under way.
struct Fetching {
    from: usize,
    to: usize,
    /// The fetch that brings the file to `from`; it comes before this one in the list.
    feeder: Option<usize>,
    bytes: f64,
    got: f64,
}

impl Fetching {
    fn is_over(&self) -> bool {
        self.got >= self.bytes - NOTHING
    }
}

/// Returns the time until all readers have the file, in seconds.
pub fn spread(input: SharedInput) -> f64 {
    arrivals(input).into_iter().fold(0.0, f64::max)
}

/// Returns the time at which each node has the file, in seconds, by the number of the node. Nodes that have it at the
/// beginning, and those that do not read it, get 0.
pub fn arrivals(input: SharedInput) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(input.seed);
    let (holders, readers) = choose_nodes(&input, &mut random);
    let trees = match input.spreading {
        Spreading::Tree => fetch_trees(&holders, &readers, 1),
        Spreading::TwoTrees => fetch_trees(&holders, &readers, 2),
        Spreading::FirstCopiesOnly => vec![from_first_copies(&holders, &readers)],
    };
    let bytes = input.bytes / trees.len() as f64;
    let mut fetching: Vec<Fetching> = Vec::new();
    for tree in trees {
        assert_eq!(tree.len(), readers.len(), "each reader fetches the file");
        let begin = fetching.len();
        for Fetch { from, to } in tree {
            let feeder = fetching.iter().skip(begin).position(|other| other.to == from.0 as usize);
            let feeder = feeder.map(|place| begin + place);
            fetching.push(Fetching { from: from.0 as usize, to: to.0 as usize, feeder, bytes, got: 0.0 });
        }
    }
    let (capacities, mut now_s) = (input.machines.capacities(), 0.0);
    let mut arrived = vec![0.0; input.machines.nodes() as usize];
    while fetching.iter().any(|fetch| !fetch.is_over()) {
        let rates = settled_rates(&input, &capacities, &fetching);
        let step_s = next_change_s(&fetching, &rates);
        assert!(step_s.is_finite(), "a fetch waits, and nothing will happen");
        now_s += step_s;
        for (fetch, rate) in fetching.iter_mut().zip(&rates).filter(|(fetch, _)| !fetch.is_over()) {
            fetch.got += rate * step_s;
            // With two trees, the later half counts.
            arrived[fetch.to] = now_s;
        }
    }
    arrived
}

/// Returns the time of one fetch between two nodes of a rack without other work.
pub fn seconds_of_one_copy(machines: Machines, bytes: f64) -> f64 {
    bytes / machines.disk_bytes_per_second.min(machines.link_bytes_per_second)
}

fn choose_nodes(input: &SharedInput, random: &mut fastrand::Rng) -> (Vec<NodeOfRack>, Vec<NodeOfRack>) {
    let machines = &input.machines;
    let mut nodes: Vec<NodeOfRack> = (0..machines.nodes()).map(|node| machines.at(node)).collect();
    random.shuffle(&mut nodes);
    let mut racks = BTreeSet::new();
    let (holders, mut others): (Vec<NodeOfRack>, Vec<NodeOfRack>) = match input.copies {
        FirstCopies::Random(count) => {
            let others = nodes.split_off(count as usize);
            (nodes, others)
        }
        FirstCopies::OnePerRack => nodes.into_iter().partition(|node| racks.insert(node.rack)),
    };
    assert!(others.len() >= input.readers as usize, "the machines have fewer nodes than readers");
    others.truncate(input.readers as usize);
    (holders, others)
}

fn from_first_copies(holders: &[NodeOfRack], readers: &[NodeOfRack]) -> Vec<Fetch> {
    let mut serves = vec![0_u32; holders.len()];
    let mut fetches = Vec::with_capacity(readers.len());
    for reader in readers {
        let best =
            (0..holders.len()).min_by_key(|index| (holders[*index].rack != reader.rack, serves[*index]));
        let Some(best) = best else { break };
        serves[best] += 1;
        fetches.push(Fetch { from: holders[best].node, to: reader.node });
    }
    fetches
}

/// The relation of a fetch to the bytes that its source has.
#[derive(Clone, Copy, PartialEq)]
enum Supply {
    /// The source has more than the next block.
    Ample,
    /// The source gets the next block at this moment.
    AtPaceOf(usize),
    /// The source does not have the next block, or the fetch is over.
    None,
}

fn supply(fetching: &[Fetching], fetch: &Fetching) -> Supply {
    if fetch.is_over() {
        return Supply::None;
    }
    let Some(feeder) = fetch.feeder.filter(|feeder| !fetching[*feeder].is_over()) else {
        return Supply::Ample;
    };
    let lead = fetching[feeder].got - fetch.got - BLOCK_BYTES;
    if lead > NOTHING {
        Supply::Ample
    } else if lead >= -NOTHING {
        Supply::AtPaceOf(feeder)
    } else {
        Supply::None
    }
}

/// Returns the rate of each fetch. Fetches at the pace of another are as fast as that one.
fn settled_rates(input: &SharedInput, capacities: &[f64], fetching: &[Fetching]) -> Vec<f64> {
    let supplies: Vec<Supply> = fetching.iter().map(|fetch| supply(fetching, fetch)).collect();
    let active: Vec<usize> = (0..fetching.len()).filter(|index| supplies[*index] != Supply::None).collect();
    let mut paces = vec![f64::INFINITY; fetching.len()];
    for _ in 0..ROUNDS_MAX {
        let flow = |index: &usize| flow_of(input, fetching, *index, paces[*index]);
        let flows: Vec<Flow> = active.iter().map(flow).collect();
        let mut settled = vec![0.0; fetching.len()];
        active.iter().zip(rates(capacities, &flows)).for_each(|(index, rate)| settled[*index] = rate);
        let mut is_settled = true;
        for index in active.iter().copied() {
            if let Supply::AtPaceOf(feeder) = supplies[index] {
                is_settled &= settled[index] <= settled[feeder] * 1.001;
                paces[index] = settled[feeder];
            }
        }
        if is_settled {
            return at_most_the_pace(settled, &supplies);
        }
    }
    panic!("seed {}: the rates do not settle", input.seed);
}

/// Returns the rates without the rounding by which a fetch would overtake its feeder.
fn at_most_the_pace(mut rates: Vec<f64>, supplies: &[Supply]) -> Vec<f64> {
    for index in 0..rates.len() {
        if let Supply::AtPaceOf(feeder) = supplies[index] {
            rates[index] = rates[index].min(rates[feeder]);
        }
    }
    rates
}

/// Returns the flow of a fetch. Blocks that are passed on come from memory, all others from the disk of their source.
fn flow_of(input: &SharedInput, fetching: &[Fetching], index: usize, pace: f64) -> Flow {
    let (machines, fetch) = (&input.machines, &fetching[index]);
    let mut flow = Flow::new(pace);
    machines.takes_links(&mut flow, Way { from: fetch.from, to: fetch.to, bytes: 1.0 });
    machines.takes_disk(&mut flow, fetch.to, 1.0);
    if fetch.feeder.is_none() {
        machines.takes_disk(&mut flow, fetch.from, 1.0);
    }
    flow
}

/// Returns the time until a fetch ends, catches up with its feeder, or gets its first block.
fn next_change_s(fetching: &[Fetching], rates: &[f64]) -> f64 {
    let mut next_s = f64::INFINITY;
    for (index, fetch) in fetching.iter().enumerate() {
        if fetch.is_over() {
            continue;
        }
        let rate = rates[index];
        if rate > 0.0 {
            next_s = next_s.min((fetch.bytes - fetch.got) / rate);
        }
        let Some(feeder) = fetch.feeder.filter(|feeder| !fetching[*feeder].is_over()) else { continue };
        let lead = fetching[feeder].got - fetch.got - BLOCK_BYTES;
        let closing = rate - rates[feeder];
        // Ahead of it by less than a block, or about to catch up.
        if lead.abs() > NOTHING && closing != 0.0 && lead / closing > 0.0 {
            next_s = next_s.min(lead / closing);
        }
    }
    next_s
}
