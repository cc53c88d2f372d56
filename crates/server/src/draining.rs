//! Nodes that are emptied: they get no new work, the runs on them move with the next merges, and when no job needs
//! them they are told to leave.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use api::control::{NodeOrder, NodeStatus};
use ids::{JobId, NodeId};
use metastore::{Change, NodeState};
use scheduler::Event;
use std::collections::BTreeSet;

/// A node that is being emptied.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Jobs that came before it began; those that come later put nothing there.
    pub jobs: BTreeSet<JobId>,
    /// Nobody needs the node any more, and it has been told to leave.
    pub is_done: bool,
}

impl EventLoop {
    /// Begins to empty a node, given by its name or number. One that is being emptied goes on; of one that has been, and
    /// is gone, the answer says so.
    pub fn drain(&mut self, name: &str, reply: Reply<NodeStatus>) {
        let answer = match self.fleet.named(name) {
            Err(error @ ServerError::NoSuchNode { .. }) => self.fleet.drained_named(name).ok_or(error),
            Err(error) => Err(error),
            Ok(node) if !self.fleet.drains(node) && self.fleet.takers(node).is_empty() => {
                Err(ServerError::NowhereToMove { node })
            }
            Ok(node) => {
                if !self.fleet.drains(node) {
                    tracing::info!(%node, "a node is being emptied");
                    let (state, now_ns) = (NodeState::Draining, now_ns());
                    self.changes.push(Change::NodeStateChanged { node, state, now_ns });
                    self.begin_drain(node);
                }
                self.fleet.status_of(node).ok_or(ServerError::UnknownNode { node })
            }
        };
        self.replies.push(Box::new(move || drop(reply.send(answer))));
    }

    /// From now on a node gets nothing new. Also after a restart, for a node that was being emptied before.
    pub fn begin_drain(&mut self, node: NodeId) {
        let jobs = self.jobs.keys().copied().collect();
        let Some(known) = self.fleet.get_mut(node) else { return };
        known.drain = Some(Drain { jobs, is_done: false });
        known.order(NodeOrder::Drain);
        self.fleet.nodes_changed();
        self.feed(Event::NodeDraining { node });
    }

    /// A node that was emptied under the server before this one is told once more that it may leave.
    pub fn drained_before(&mut self, node: NodeId) {
        let Some(known) = self.fleet.get_mut(node) else { return };
        known.drain = Some(Drain { jobs: BTreeSet::new(), is_done: true });
        known.order(NodeOrder::Leave);
        self.fleet.nodes_changed();
        self.feed(Event::NodeDraining { node });
    }

    /// Tells nodes to leave that nobody needs any more.
    pub fn end_drains(&mut self) {
        for node in self.fleet.draining() {
            let Some(known) = self.fleet.get_mut(node) else { continue };
            let Some(drain) = known.drain.as_mut().filter(|drain| !drain.is_done) else { continue };
            let jobs = &self.jobs;
            drain.jobs.retain(|job| jobs.get(job).is_some_and(|job| job.may_need(node)));
            if !drain.jobs.is_empty() || !known.running.is_empty() || self.intermediates.need(node) {
                continue;
            }
            drain.is_done = true;
            known.order(NodeOrder::Leave);
            tracing::info!(%node, "a node has been emptied");
            self.changes.push(Change::NodeStateChanged { node, state: NodeState::Drained, now_ns: now_ns() });
        }
    }
}
