//! The decision whether to replicate the runs of a job.

use api::{JobSpec, Replication};

/// Least time to recompute data for which replication pays, in seconds.
const REMAKE_MIN_SECONDS: f64 = 10.0;

/// Least ratio of the time to recompute data to the time to send it: data is lost seldom, and sent always.
const REMAKE_PER_SEND_MIN: f64 = 2.0;

/// Assumed sending rate of a node in bytes per second: a link of 1 Gb/s, as in section 6 of the ISS paper.
const SEND_BYTES_PER_SECOND: f64 = 125e6;

const NANOS_PER_SECOND: f64 = 1e9;

/// The decision about the replication of a job's runs, with its measurements.
#[derive(Debug, Default)]
pub(crate) struct Replicating {
    /// Nodes have been told to replicate.
    pub is_on: bool,
    /// Total seconds of the maps that have ended.
    map_seconds: f64,
    /// The seconds of each map times the number of nodes that hold data of it: the work that runs again if every node
    /// is lost in turn.
    lost_seconds: f64,
    map_bytes: u64,
    pub maps: u32,
    /// The reason against replication has been noted.
    pub is_settled: bool,
    /// Number of times that a run which had lost one of its two nodes was copied again.
    pub again: u64,
}

impl Replicating {
    /// Returns the state of a new job. All modes but `auto` leave no choice. With `selective` runs need no copies, but
    /// parts for later stages do.
    pub fn from_the_start(spec: &JobSpec) -> Self {
        let is_on = match spec.replication {
            Replication::Rack | Replication::Sync => true,
            Replication::Selective => spec.feeds(),
            Replication::None | Replication::Auto => false,
        };
        Self { is_on, is_settled: is_on, ..Self::default() }
    }

    /// Adds a task that has ended: its time, its output bytes, and the number of nodes that hold them.
    pub fn add(&mut self, took_ns: u64, bytes: u64, homes: usize) {
        let seconds = took_ns as f64 / NANOS_PER_SECOND;
        self.map_seconds += seconds;
        self.lost_seconds += seconds * homes as f64;
        self.map_bytes += bytes;
        self.maps += 1;
    }

    /// Returns whether recomputing the data of one of `nodes` nodes in all `slots` would take much longer than sending
    /// it, according to the maps so far; and the explanation.
    pub fn weigh(&self, nodes: usize, slots: u64) -> (bool, String) {
        if nodes < 2 {
            return (false, "there is no second node".to_string());
        }
        let average_seconds = self.map_seconds / f64::from(self.maps.max(1));
        // This is an average. A map runs again as a whole, however little of its data was on the node.
        let share_seconds = self.lost_seconds / nodes as f64 / slots.max(1) as f64;
        // The recomputation takes at least as long as one map.
        let remake_seconds = share_seconds.max(average_seconds);
        let send_seconds = self.map_bytes as f64 / nodes as f64 / SEND_BYTES_PER_SECOND;
        let pays =
            remake_seconds >= REMAKE_MIN_SECONDS && remake_seconds >= REMAKE_PER_SEND_MIN * send_seconds;
        let why = format!(
            "{} tasks so far wrote {} bytes to {nodes} nodes; the share of one node would take {remake_seconds:.1} s to recompute \
             and {send_seconds:.1} s to send",
            self.maps, self.map_bytes
        );
        (pays, why)
    }
}

#[cfg(test)]
mod tests {
    use super::Replicating;

    #[test]
    fn costly_data_that_sends_cheaply_is_replicated() {
        let check_on = |homes, maps: u32, seconds: u64, bytes: u64, nodes, slots, expected: bool| {
            let mut replicating = Replicating::default();
            (0..maps).for_each(|_| replicating.add(seconds * 1_000_000_000, bytes, homes));
            let (pays, why) = replicating.weigh(nodes, slots);
            assert_eq!(pays, expected, "{why}");
        };
        let check = |maps, seconds, bytes, nodes, slots, expected| {
            check_on(1, maps, seconds, bytes, nodes, slots, expected);
        };
        let (mb, gb) = (1_000_000, 1_000_000_000);
        check(8, 20, 100 * mb, 4, 8, true);
        // Recomputation is fast.
        check(8, 2, 100 * mb, 4, 8, false);
        check(800, 2, mb, 4, 8, true);
        // Sending takes longer than recomputation.
        check(8, 20, 5 * gb, 4, 8, false);
        check(8, 20, 100 * mb, 1, 2, false);
        check(0, 0, 0, 4, 8, false);
        // Few I-files over a rack of five: half of all maps have data on each of ten nodes.
        check_on(1, 144, 4, mb, 10, 20, false);
        check_on(5, 144, 4, mb, 10, 20, true);
        check_on(5, 10, 4, mb, 10, 20, false);
    }
}
