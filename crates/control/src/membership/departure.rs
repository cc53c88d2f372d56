//! Departure of nodes: a graceful shutdown, a timeout, or a removal.

use crate::flows::{mend_flows, parts_gone};
use crate::interface::{ControlError, Fact, Outbox, Reply};
use crate::loss::data_gone;
use crate::membership::let_nodes_rest;
use crate::retention::keeper_lost;
use crate::scheduling::{attempt_lost, feed};
use crate::work::Work;
use api::history::{AttemptState, EventKind};
use ids::{JobId, NodeId};
use mapreduce::LostData;
use rows::{Change, NodeState};
use scheduler::Event;

pub(crate) fn leave(work: &mut Work, outbox: &mut Outbox, node: NodeId, incarnation: &str, reply: Reply<()>) {
    match work.fleet.heard(node, incarnation, outbox.moment()) {
        Ok(_) => {
            lose_node(work, outbox, node, NodeState::Left, "it shut down gracefully");
            outbox.answer(reply, Ok(()));
        }
        Err(error) => outbox.answer(reply, Err(error)),
    }
}

/// Removes a node, with its running attempts and its data.
pub(crate) fn lose_node(work: &mut Work, outbox: &mut Outbox, node: NodeId, state: NodeState, why: &str) {
    let Some(mut gone) = work.fleet.remove(node, outbox.now()) else { return };
    work.fleet.nodes_changed();
    outbox.info(format!("the node {} ({node}) is gone: {why}", gone.info.name));
    // A drained node stays drained in the tables.
    if gone.drain.as_ref().is_none_or(|drain| !drain.is_done) {
        outbox.write(Change::NodeStateChanged { node, state, now_ns: outbox.now_ns() });
    }
    outbox.note_of_cluster(EventKind::NodeGone, format!("{node} ({}): {why}", gone.info.name));
    if let Some(reply) = gone.take_parked() {
        outbox.answer(reply, Err(ControlError::UnknownNode { node }));
    }
    for (attempt, (_, started_ns)) in &gone.running {
        attempt_lost(&mut work.jobs, outbox, *attempt, *started_ns, AttemptState::Interrupted);
    }
    // The order matters: first the slots, so that no task is started there; second the data, so that no task of a
    // reopened stage starts; last the attempts.
    feed(work, outbox, Event::SlotsGone { node });
    let with = format!("the node {} ({why})", gone.info.name);
    let jobs: Vec<JobId> = work.jobs.keys().copied().collect();
    for id in jobs {
        data_gone(work, outbox, id, &LostData::node(node), &with);
    }
    feed(work, outbox, Event::NodeLost { node });
    parts_gone(&mut work.jobs, node);
    mend_flows(work, outbox, &with);
    let_nodes_rest(work, outbox);
    keeper_lost(work, outbox, node, &gone.info.name);
    outbox.tell(Fact::NodeLost { node, name: gone.info.name.clone() });
}
