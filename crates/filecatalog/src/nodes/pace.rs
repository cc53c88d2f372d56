//! The times of repairs.

use std::time::Duration;

/// The times of repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairPace {
    /// Time after its last report in which a node counts as reachable; it reports each second.
    pub heard_within: Duration,
    /// Silence of a node after which its replicas count as lost.
    pub after: Duration,
    /// Silence of a node that has not said that it leaves, after which files with one replica left are copied.
    pub grace: Duration,
    /// Interval between two scans without a reason.
    pub scan_every: Duration,
}

impl Default for RepairPace {
    fn default() -> Self {
        Self {
            heard_within: Duration::from_secs(5),
            after: Duration::from_secs(600),
            grace: Duration::from_secs(15),
            scan_every: Duration::from_secs(600),
        }
    }
}
