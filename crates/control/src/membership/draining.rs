//! Draining of nodes: they get no new work, their runs move with the next merges, and when no job and no stored file
//! needs them they are told to leave.

use crate::interface::{ControlError, Outbox, Reply};
use crate::intermediate_files::IntermediateFiles;
use crate::membership::Drain;
use crate::scheduling::feed;
use crate::work::Work;
use api::control::{NodeOrder, NodeStatus};
use api::stored::need::{DrainingNode, NodeNeed};
use ids::NodeId;
use rows::{Change, NodeState};
use scheduler::Event;

/// Begins to drain a node, given by its name or number. Has no effect on a node that is being drained already. For a
/// drained node that is gone, the answer says so.
pub(crate) fn drain(work: &mut Work, outbox: &mut Outbox, name: &str, reply: Reply<NodeStatus>) {
    let answer = match work.fleet.named(name) {
        Err(error @ ControlError::NoSuchNode { .. }) => work.fleet.drained_named(name).ok_or(error),
        Err(error) => Err(error),
        Ok(node) if !work.fleet.drains(node) && work.fleet.takers(node).is_empty() => {
            Err(ControlError::NowhereToMove { node })
        }
        Ok(node) => {
            if !work.fleet.drains(node) {
                outbox.info(format!("{node} is being emptied"));
                let (state, now_ns) = (NodeState::Draining, outbox.now_ns());
                outbox.write(Change::NodeStateChanged { node, state, now_ns });
                begin_drain(work, outbox, node);
            }
            work.fleet.status_of(node, outbox.moment()).ok_or(ControlError::UnknownNode { node })
        }
    };
    outbox.answer(reply, answer);
}

/// Stops new work for a node. After a restart it is also called for nodes that were being drained before.
pub(crate) fn begin_drain(work: &mut Work, outbox: &mut Outbox, node: NodeId) {
    let jobs = work.jobs.keys().copied().collect();
    let Some(known) = work.fleet.get_mut(node) else { return };
    known.drain = Some(Drain { jobs, ..Drain::default() });
    known.order(NodeOrder::Drain);
    work.fleet.nodes_changed();
    feed(work, outbox, Event::NodeDraining { node });
}

/// Tells a node again to leave that was drained under the previous server.
pub(crate) fn drained_before(work: &mut Work, outbox: &mut Outbox, node: NodeId) {
    let Some(known) = work.fleet.get_mut(node) else { return };
    known.drain = Some(Drain { is_done: true, ..Drain::default() });
    known.order(NodeOrder::Leave);
    work.fleet.nodes_changed();
    feed(work, outbox, Event::NodeDraining { node });
}

/// Takes the needs of stored files for nodes, and returns the nodes that are being drained.
pub(crate) fn stored_needs(work: &mut Work, outbox: &mut Outbox, needs: Vec<NodeNeed>) -> Vec<DrainingNode> {
    for NodeNeed { node, need } in needs {
        let known = work.fleet.get_mut(node).and_then(|known| known.drain.as_mut());
        let Some(drain) = known.filter(|drain| !drain.is_done) else { continue };
        let before = drain.stored.as_ref().map_or(0, |before| before.without_place);
        if before == 0 && need.without_place > 0 {
            let count = need.without_place;
            outbox.info(format!("{node} cannot leave: no other node can take {count} of its stored files"));
        }
        drain.stored = Some(need);
    }
    let draining = work.fleet.each().filter(|(_, known)| known.drain.is_some());
    draining.map(|(node, known)| DrainingNode { node, name: known.info().name.clone() }).collect()
}

/// Tells drained nodes to leave if no job, no intermediate file and no stored file needs them.
pub(crate) fn end_drains(work: &mut Work, files: &IntermediateFiles, outbox: &mut Outbox) {
    let hears_stored_needs = work.fleet.hears_stored_needs();
    for node in work.fleet.draining() {
        let Some(known) = work.fleet.get_mut(node) else { continue };
        let Some(drain) = known.drain.as_mut().filter(|drain| !drain.is_done) else { continue };
        let jobs = &work.jobs;
        drain.jobs.retain(|job| jobs.get(job).is_some_and(|job| job.may_need(node)));
        if !drain.jobs.is_empty() || !known.running.is_empty() || files.need(node) {
            continue;
        }
        // A catalogue that has not spoken yet may know files that have no other replica.
        if hears_stored_needs && drain.stored.as_ref().is_none_or(|need| need.files > 0) {
            continue;
        }
        drain.is_done = true;
        drain.stored = None;
        known.order(NodeOrder::Leave);
        outbox.info(format!("{node} has been emptied"));
        outbox.write(Change::NodeStateChanged { node, state: NodeState::Drained, now_ns: outbox.now_ns() });
    }
}
