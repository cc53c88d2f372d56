//! The three parts that nearly every decision about a running job needs.

use crate::interface::Service;
use crate::job::Jobs;
use crate::membership::Fleet;
use crate::scheduling::Scheduling;
use ids::NodeId;

/// Jobs, nodes, and the attempts that bring them together.
pub(crate) struct Work {
    pub service: Service,
    pub jobs: Jobs,
    pub fleet: Fleet,
    pub scheduling: Scheduling,
}

impl Work {
    /// Returns whether a node has left the cluster. The embedded engine has one node, which never leaves.
    pub fn has_left(&self, node: NodeId) -> bool {
        self.service == Service::Cluster && !self.fleet.has(node)
    }
}
