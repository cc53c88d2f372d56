//! Polls of nodes: ends of attempts, reports, free slots; and the wait for orders.

use crate::interface::{Finished, Outbox, Reply};
use crate::membership::reports::reported;
use crate::scheduling::{attempt_finished, attempt_unrun, feed};
use crate::work::Work;
use api::TaskResult;
use api::control::{AttemptEnd, AttemptOutcome, NodeOrders, NodePoll, PLACES_MAX};
use ids::NodeId;
use scheduler::{Event, Slot};

/// Adjusts the times of an ended attempt to the server's clock, since the clock of a node may be wrong. The duration of
/// the attempt is kept if it fits between the start of the attempt here and now.
fn in_our_time(mut finished: Finished, assigned_ns: u64, now_ns: u64) -> Finished {
    let (started_ns, ended_ns) = (finished.started_ns, finished.ended_ns);
    if assigned_ns <= started_ns && started_ns <= ended_ns && ended_ns <= now_ns {
        return finished;
    }
    let took_ns = ended_ns.saturating_sub(started_ns).min(now_ns.saturating_sub(assigned_ns));
    let started_here_ns = now_ns - took_ns;
    if let Ok(TaskResult::Reduce(reduce)) = &mut finished.outcome {
        let moved = |opened_ns: u64| started_here_ns + opened_ns.saturating_sub(started_ns).min(took_ns);
        reduce.opened_ns = reduce.opened_ns.map(moved);
    }
    (finished.started_ns, finished.ended_ns) = (started_here_ns, now_ns);
    finished
}

/// Handles a poll, and lets it wait for orders.
pub(crate) fn poll(
    work: &mut Work,
    outbox: &mut Outbox,
    node: NodeId,
    poll: NodePoll,
    reply: Reply<NodeOrders>,
) {
    let known = match work.fleet.heard(node, &poll.incarnation, outbox.moment()) {
        Ok(known) => known,
        Err(error) => return outbox.answer(reply, Err(error)),
    };
    let unheard = known.met_again(poll.received, &poll.held);
    known.received(poll.received);
    known.park(reply, outbox);
    for (attempt, started_ns) in unheard {
        attempt_unrun(&mut work.jobs, outbox, attempt, started_ns);
        feed(work, outbox, Event::AttemptLost { attempt });
    }
    reported(work, outbox, node, poll.report);
    for end in poll.finished {
        // Not running any more: the end was reported before.
        let known = work.fleet.get_mut(node).and_then(|known| {
            known.heard.remove(&end.attempt);
            known.running.remove(&end.attempt)
        });
        if let Some((_, assigned_ns)) = known {
            attempt_end(work, outbox, end, assigned_ns);
        }
    }
    let slots = work.fleet.get_mut(node).map_or(0, |known| known.info.slots);
    // A slot number that the node did not register would outlive the node.
    for slot in poll.free_slots.into_iter().filter(|slot| *slot < slots) {
        // An order for this slot may be on its way.
        let free = work.fleet.get_mut(node).is_some_and(|known| !known.runs_in(slot));
        if free {
            feed(work, outbox, Event::SlotFree { slot: Slot { node, slot } });
        }
    }
    let Some(known) = work.fleet.get_mut(node) else { return };
    let numbers = known.info.slots..known.info.slots.saturating_add(PLACES_MAX);
    let is_free = |place: &u32| numbers.contains(place) && !known.runs_in(*place);
    let places: Vec<u32> = poll.places.into_iter().filter(is_free).collect();
    feed(work, outbox, Event::PlacesFree { node, places });
}

fn attempt_end(work: &mut Work, outbox: &mut Outbox, end: AttemptEnd, assigned_ns: u64) {
    let AttemptEnd { attempt, outcome, started_ns, ended_ns, usage } = end;
    let outcome = match outcome {
        AttemptOutcome::Succeeded(result) => Ok(result),
        AttemptOutcome::Failed(failure) => Err(failure),
        AttemptOutcome::GivenBack => {
            attempt_unrun(&mut work.jobs, outbox, attempt, assigned_ns);
            return feed(work, outbox, Event::AttemptLost { attempt });
        }
    };
    let finished = Finished { attempt, outcome, started_ns, ended_ns, usage };
    attempt_finished(work, outbox, in_our_time(finished, assigned_ns, outbox.now_ns()));
}

#[cfg(test)]
mod tests {
    use super::{Finished, in_our_time};
    use api::TaskResult;
    use api::task::{AttemptUsage, ReduceResult};
    use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};

    #[test]
    fn server_times_nodes_with_wrong_clocks() {
        let task = TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        // Assigned at 1000, reported at 2000.
        let check = |(started_ns, opened_ns, ended_ns), expected: (u64, u64, u64)| {
            let reduce = ReduceResult { opened_ns: Some(opened_ns), ..ReduceResult::default() };
            let outcome = Ok(TaskResult::Reduce(reduce));
            let usage = AttemptUsage::default();
            let finished = Finished { attempt, outcome, started_ns, ended_ns, usage };
            let finished = in_our_time(finished, 1000, 2000);
            let Ok(TaskResult::Reduce(reduce)) = finished.outcome else { panic!("another result") };
            assert_eq!((finished.started_ns, reduce.opened_ns.unwrap(), finished.ended_ns), expected);
        };
        check((1000, 1200, 2000), (1000, 1200, 2000));
        check((1100, 1150, 1300), (1100, 1150, 1300));
        check((10, 50, 110), (1900, 1940, 2000));
        check((90_000, 90_100, 90_500), (1500, 1600, 2000));
        check((0, u64::MAX, u64::MAX), (1000, 2000, 2000));
        check((70, 60, 50), (2000, 2000, 2000));
    }
}
