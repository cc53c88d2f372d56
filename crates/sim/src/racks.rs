//! Racks of nodes with links and disks of given speed, over which maps append, copies travel and reducers read
//! (sections 7.6 and 7.2 of the paper on the intermediate storage system, ISS, figures 22, 23 and 11). The model shows
//! when the chunks of a job are on two nodes, and the cost for the job.
//!
//! The model moves bytes and knows no records. It uses the real sizes ([`mapreduce::layout`]), hosts of chunks and of
//! replicas and the choice among them (`dataport`), closing of chunks that are not full, speed of copies and order in
//! which nodes are offered one ([`chunkserver::copy_pace`]), records of replicas and plan of reduce tasks
//! (`mapreduce`). It has its own version of the loop of `crates/node/src/shuffle/replicate.rs`, which sleeps and waits
//! for sockets, and of the slots. Its assumptions: a link or disk gives each connection an even share; the program of a
//! slot takes its bytes at a constant speed, and so does a sorter. All nodes are alike, and each maps its own input.

mod copier;
mod model;
mod reducers;

pub use model::copies;

/// Racks with a job on them.
#[derive(Clone, Copy, Debug)]
pub struct Racks {
    pub racks: u32,
    pub nodes_per_rack: u32,
    pub slots_per_node: u32,
    /// Speed of the link of each node, in each direction.
    pub link_bytes_per_second: f64,
    /// Speed of the link of each rack to all others, in each direction.
    pub uplink_bytes_per_second: f64,
    /// Speed of the disk of each node, reading and writing together.
    pub disk_bytes_per_second: f64,
    /// Memory budget of the job on each node.
    pub memory_bytes: u64,
    pub input_bytes_per_node: u64,
    /// Speed of the program of a slot, for the input of a map or the range of a reducer. Both emit as many bytes as
    /// they read.
    pub program_bytes_per_second: f64,
    pub sorter_bytes_per_second: f64,
    pub copying: Copying,
}

/// The executed steps of replication (ISS, figure 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// None, as with `--replication none`.
    None,
    /// Runs are read from their disks, and neither sent nor written.
    Read,
    /// Runs are read and sent, and not written.
    ReadAndSend,
    /// All, as with `--replication rack`.
    Full,
}

impl Racks {
    /// Returns the cluster and the job of ISS, table 1: 80 nodes in four racks, 2 GB of input on each, sorted; links of
    /// nodes with this speed, of racks with 1 Gb/s. `map_seconds` is the duration of the map phase if only the programs
    /// limit it, about 400 in the figures of the paper.
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

/// Times and bytes of a job with replicas. Times are seconds since the job began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Copies {
    /// Time of the last append; the end of the shuffle in other systems.
    pub maps_end_s: f64,
    /// End of sorting, and start of the reducers.
    pub reduce_begins_s: f64,
    pub job_s: f64,
    pub runs: usize,
    /// Times at which runs got their replicas; runs without one are left out.
    pub copied_s: Vec<f64>,
    /// Times during which these runs were on one node only, in ascending order.
    pub single_s: Vec<f64>,
    /// Bytes sent between nodes in all, and as replicas.
    pub sent_bytes: f64,
    pub copied_bytes: f64,
    pub written_bytes: f64,
}

impl Copies {
    /// Returns the share of runs that were on two nodes by this time.
    pub fn share_copied(&self, by_s: f64) -> f64 {
        let copied = self.copied_s.iter().filter(|copied_s| **copied_s <= by_s).count();
        copied as f64 / self.runs.max(1) as f64
    }

    /// Returns the quantile `share` of the times that runs were on one node only; 0 if no run got a replica.
    pub fn single_s(&self, share: f64) -> f64 {
        let last = self.single_s.len().saturating_sub(1);
        self.single_s.get((last as f64 * share) as usize).copied().unwrap_or(0.0)
    }
}
