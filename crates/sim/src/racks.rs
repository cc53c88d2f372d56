//! When the chunks of a job are on two nodes, and what that costs the job: racks of nodes with links and disks of some speed, over
//! which maps append, copies travel and reducers read (ISS section 7.6, Figures 22 and 23, and section 7.2, Figure 11).
//!
//! Bytes and no records. What is real: sizes ([`mapreduce::layout`]), the hosts of chunks and of replicas and the choice among them
//! (`dataport`), when a chunk is closed that is not full, how fast copies go and in which order nodes are offered one
//! ([`chunkserver::copy_pace`]), the books of replicas and the plan of reduce tasks (`mapreduce`). Written again here: the loop
//! of `crates/node/src/replicator.rs`, which sleeps and waits for sockets, and the slots. What is modelled: a link or disk gives each
//! connection an even share; a slot's program takes its bytes at one speed; sorters theirs. All nodes are alike and each maps what
//! lies on it.

mod copier;
mod links;
mod model;
mod reducers;

pub use model::copies;

/// Racks with a job on them.
#[derive(Clone, Copy, Debug)]
pub struct Racks {
    pub racks: u32,
    pub nodes_per_rack: u32,
    pub slots_per_node: u32,
    /// Of each node, each way.
    pub link_bytes_per_second: f64,
    /// Of each rack to all others, each way.
    pub uplink_bytes_per_second: f64,
    /// Of each node, reading and writing together.
    pub disk_bytes_per_second: f64,
    /// Budget of the job on each node.
    pub memory_bytes: u64,
    pub input_bytes_per_node: u64,
    /// What the program of a slot takes: of its input as a map, of its range as a reducer. Both put out as much.
    pub program_bytes_per_second: f64,
    pub sorter_bytes_per_second: f64,
    pub copying: Copying,
}

/// What is done of a replica (ISS, Figure 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// As with `--replication none`.
    None,
    /// Runs are read from their disks, and that is all.
    Read,
    /// They are sent as well, and not written.
    ReadAndSend,
    /// As with `--replication rack`.
    Full,
}

impl Racks {
    /// The cluster and the job of ISS, Table 1: 80 nodes in four racks, 2 GB of input on each, sorted; links of nodes with this speed, of
    /// racks with 1 Gb/s. `map_seconds`: what programs make of the map phase where nothing else is in their way, about 400 in the
    /// figures of the paper.
    pub fn of_the_paper(link_bits_per_second: f64, map_seconds: f64) -> Self {
        let (input_bytes_per_node, slots_per_node) = (2_000_000_000, 2);
        Self {
            racks: 4,
            nodes_per_rack: 20,
            slots_per_node,
            link_bytes_per_second: link_bits_per_second / 8.0,
            uplink_bytes_per_second: 125e6,
            disk_bytes_per_second: 60e6,
            memory_bytes: 4 << 30,
            input_bytes_per_node,
            program_bytes_per_second: input_bytes_per_node as f64 / f64::from(slots_per_node) / map_seconds,
            sorter_bytes_per_second: 100e6,
            copying: Copying::Full,
        }
    }
}

/// What came of it. Seconds since the job began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copies {
    /// The last record was appended: what is the end of the shuffle elsewhere.
    pub maps_end_s: f64,
    /// All is sorted, and reducers begin.
    pub reduce_begins_s: f64,
    pub job_s: f64,
    pub runs: usize,
    /// Of each run that got a replica: when it had it.
    pub copied_s: Vec<f64>,
    /// How long each of them was on one node only, in order of length.
    pub single_s: Vec<f64>,
    /// Between nodes, all together, and as replicas.
    pub sent_bytes: f64,
    pub copied_bytes: f64,
    pub written_bytes: f64,
}

impl Copies {
    /// The share of runs that were on two nodes by then.
    pub fn share_copied(&self, by_s: f64) -> f64 {
        let copied = self.copied_s.iter().filter(|copied_s| **copied_s <= by_s).count();
        copied as f64 / self.runs.max(1) as f64
    }

    /// How long a run was on one node only that so large a share was quicker than; 0 where none got a replica.
    pub fn single_s(&self, share: f64) -> f64 {
        let last = self.single_s.len().saturating_sub(1);
        self.single_s.get((last as f64 * share) as usize).copied().unwrap_or(0.0)
    }
}
