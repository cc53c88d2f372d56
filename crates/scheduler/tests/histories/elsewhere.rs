//! Tasks that fail for a reason of their node.

use crate::{JOB, World, attempt, expanded, submitted};
use ids::NodeId;
use scheduler::{Action, Event, FAILURES_MAX, FailureCause, Slot, WhyHere};

fn slot(node: u32) -> Slot {
    Slot { node: NodeId(node), slot: 0 }
}

fn came(world: &mut World, nodes: u32) {
    for node in (0..nodes).map(NodeId) {
        world.feed(Event::NodeCame {
            node,
            memory_bytes: 1 << 30,
            architecture: 0,
            slots: 1,
            resources: Default::default(),
        });
    }
}

fn start(number: u32, node: u32) -> Action {
    Action::StartAttempt { attempt: attempt(0, 0, number), slot: slot(node) }
}

fn retried() -> Action {
    Action::TaskRetried { task: attempt(0, 0, 0).task }
}

/// A job of one task and a commit on so many nodes; the task's first attempt has failed on node 0, which asks again.
fn failed_once(nodes: u32) -> World {
    let mut world = submitted();
    came(&mut world, nodes);
    world.feed(expanded(0, 1));
    world.feed(Event::SlotFree { slot: slot(0) });
    world.expect(&[start(0, 0)]);
    fail(&mut world, 0);
    world.expect(&[retried()]);
    world.feed(Event::SlotFree { slot: slot(0) });
    world
}

fn fail(world: &mut World, number: u32) {
    world.feed(Event::AttemptFailed { attempt: attempt(0, 0, number), retryable: true, of_node: true });
}

#[test]
fn failed_task_goes_to_another_node() {
    let mut world = failed_once(2);
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: slot(1) });
    world.expect(&[start(1, 1)]);
    assert_eq!(world.placed.last().unwrap().1.place, WhyHere::NotWhereItFailed);
}

#[test]
fn task_returns_to_its_node_without_another() {
    let mut world = failed_once(1);
    world.expect(&[start(1, 0)]);
}

#[test]
fn the_others_may_go_or_be_emptied() {
    for event in [Event::NodeLost { node: NodeId(1) }, Event::NodeDraining { node: NodeId(1) }] {
        let mut world = failed_once(2);
        world.expect(&[]);
        world.feed(event);
        world.expect(&[start(1, 0)]);
    }
}

#[test]
fn job_fails_after_failing_on_enough_nodes() {
    let mut world = failed_once(5);
    for number in 1..FAILURES_MAX {
        world.expect(&[]);
        world.feed(Event::SlotFree { slot: slot(number) });
        world.expect(&[start(number, number)]);
        fail(&mut world, number);
        if number + 1 < FAILURES_MAX {
            world.expect(&[retried()]);
        }
    }
    let because = FailureCause::Attempt(attempt(0, 0, FAILURES_MAX - 1));
    world.expect(&[Action::JobFailed { job: JOB, because }, Action::JobDrained { job: JOB }]);
}
