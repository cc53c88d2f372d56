//! Ranges that are cut for idle slots, told by hand.

use crate::{JOB, World, attempt, copies, expanded, failed, succeeded};
use ids::{NodeId, Placement, StageIndex, StageKind};
use scheduler::{ASKED_AGAIN_AFTER_NS, Action, Claim, Event, FAILURES_MAX, Slot, Waits};

const SECOND_NS: u64 = 1_000_000_000;

fn on(node: u32) -> Slot {
    Slot { node: NodeId(node), slot: 0 }
}

/// Two tasks run on nodes 0 and 1. The stage may be split.
fn two_running() -> World {
    let mut world = World::default();
    let stages = vec![StageKind::Reduce, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.feed(Event::MaySplit { job: JOB, stage: StageIndex(0) });
    (0..2).for_each(|node| world.feed(Event::SlotFree { slot: on(node) }));
    world.feed(expanded(0, 2));
    world.outbox.clear();
    world
}

/// After so many seconds the two have done so much of 1000.
fn report(world: &mut World, seconds: u64, done: [u64; 2]) {
    world.clock = seconds * SECOND_NS;
    for (task, done) in (0..).zip(done) {
        world.feed(Event::Progress { attempt: attempt(0, task, 0), done, total: 1000, waits: None });
    }
    world.feed(Event::Tick);
}

fn asked(task: u32, done: u64) -> Action {
    Action::SplitTask { attempt: attempt(0, task, 0), slot: on(task), done }
}

#[test]
fn idle_slot_takes_part_of_longest_range() {
    let mut world = two_running();
    report(&mut world, 4, [400, 200]);
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: on(2) });
    report(&mut world, 5, [500, 250]);
    world.expect(&[asked(1, 250)]);
    let placement = Placement::Anywhere;
    world.feed(Event::TaskAdded { of: attempt(0, 1, 0), placement });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 2, 0), slot: on(2) }]);
    // The stage has three tasks now.
    (0..2).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    let done = |task| Action::TaskDone { attempt: attempt(0, task, 0) };
    world.expect(&[done(0), done(1)]);
    world.feed(succeeded(attempt(0, 2, 0)));
    world.expect(&[done(2), Action::ExpandStage { job: JOB, stage: StageIndex(1) }]);
}

#[test]
fn ranges_are_split_only_when_needed() {
    // What ends soon.
    let mut world = two_running();
    world.feed(Event::SlotFree { slot: on(2) });
    report(&mut world, 5, [900, 800]);
    world.expect(&[]);
    // Nor where work waits for the slot.
    let mut world = two_running();
    world.feed(failed(attempt(0, 0, 0), true));
    world.outbox.clear();
    report(&mut world, 5, [500, 250]);
    world.expect(&[]);
    // Nor of a job that does not allow it.
    let mut world = World::default();
    let stages = vec![StageKind::Reduce, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    (0..3).for_each(|node| world.feed(Event::SlotFree { slot: on(node) }));
    world.feed(expanded(0, 2));
    world.outbox.clear();
    report(&mut world, 5, [500, 250]);
    world.expect(&[]);
}

#[test]
fn attempt_that_refused_is_asked_again_later() {
    let mut world = two_running();
    world.feed(Event::SlotFree { slot: on(2) });
    report(&mut world, 5, [500, 250]);
    world.expect(&[asked(1, 250)]);
    // The one slot may be filled by what was asked for.
    report(&mut world, 6, [510, 260]);
    world.expect(&[]);
    report(&mut world, 5 + ASKED_AGAIN_AFTER_NS / SECOND_NS + 1, [520, 270]);
    world.expect(&[asked(1, 270)]);
}

/// A copy runs beside the slow task 3, on node 4, and a slot is idle. The two say what they have done of 1000 after eight seconds, which
/// are two for the copy.
fn beside_a_copy(of_original: u64, of_copy: Option<u64>) -> World {
    let mut world = copies::copied();
    world.feed(Event::MaySplit { job: JOB, stage: StageIndex(0) });
    (0..3).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    world.feed(Event::SlotFree { slot: on(5) });
    world.outbox.clear();
    copies::report(&mut world, 8, of_original, Waits::default());
    if let Some(done) = of_copy {
        world.feed(Event::Progress { attempt: attempt(0, 3, 1), done, total: 1000, waits: None });
    }
    world.feed(Event::Tick);
    world
}

#[test]
fn attempt_that_ends_first_gives_up_its_range() {
    let (original, copy) = (attempt(0, 3, 0), attempt(0, 3, 1));
    for (of_original, of_copy, [first, other], done) in [
        (80, 100, [(copy, on(4)), (original, on(3))], 100),
        (400, 50, [(original, on(3)), (copy, on(4))], 400),
    ] {
        let mut world = beside_a_copy(of_original, Some(of_copy));
        world.expect(&[Action::SplitTask { attempt: first.0, slot: first.1, done }]);
        world.feed(Event::TaskAdded { of: first.0, placement: Placement::Anywhere });
        let stop = Action::StopAttempt { attempt: other.0, slot: other.1 };
        world.expect(&[stop, Action::StartAttempt { attempt: attempt(0, 4, 0), slot: on(5) }]);
        // That it stops is no failure, and nobody runs in its place.
        world.feed(failed(other.0, false));
        world.expect(&[]);
        world.feed(succeeded(first.0));
        world.expect(&[Action::TaskDone { attempt: first.0 }]);
    }
}

#[test]
fn nobody_is_asked_before_both_attempts_have_reported() {
    beside_a_copy(400, None).expect(&[]);
}
