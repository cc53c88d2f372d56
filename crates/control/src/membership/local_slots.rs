//! The slots of the node in this process, and its places: threads whose attempts wait for a turn of a slot, so that the end of
//! one program and the order of the next overlap.

use crate::interface::{Outbox, PullRequest, Reply, SlotOrder};
use crate::scheduling::{attempt_finished, feed};
use crate::work::Work;
use ids::NodeId;
use scheduler::{Event, Slot};

/// The node in this process.
const HERE: NodeId = NodeId(0);

/// Tells the scheduler the slots of the node, whose jobs have their memory already.
pub(crate) fn local_node_has(work: &mut Work, outbox: &mut Outbox, slots: u32) {
    work.fleet.has_local_slots(slots);
    let resources = work.scheduling.resource_kinds().amounts(work.fleet.local_resources());
    feed(
        work,
        outbox,
        Event::NodeCame { node: HERE, memory_bytes: u64::MAX, architecture: 0, slots, resources },
    );
}

/// Handles a request for work.
pub(crate) fn pull(work: &mut Work, outbox: &mut Outbox, request: PullRequest, reply: Reply<SlotOrder>) {
    let PullRequest { node, slot, is_place, finished } = request;
    let slot = Slot { node, slot };
    if let Some(finished) = finished {
        attempt_finished(work, outbox, finished);
    }
    match is_place {
        true => work.fleet.add_pull_of_place(slot, reply),
        false => {
            work.fleet.add_pull(slot, reply);
            feed(work, outbox, Event::SlotFree { slot });
        }
    }
    // The scheduler forgets them while an attempt takes several slots.
    let places = work.fleet.local_places();
    if !places.is_empty() {
        feed(work, outbox, Event::PlacesFree { node, places });
    }
}

/// Stops all that wait.
pub(crate) fn stop(work: &mut Work, outbox: &mut Outbox) {
    feed(work, outbox, Event::SlotsGone { node: HERE });
    for reply in work.fleet.take_pulls() {
        outbox.answer(reply, Ok(SlotOrder::Stop));
    }
}
