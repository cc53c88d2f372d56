//! Tasks that are planned for nodes with their inputs.

use crate::{JOB, World, attempt, failed, submitted, succeeded};
use ids::{InputNodes, NodeId, Placement, StageIndex, TaskIndex};
use scheduler::{Action, Event, Slot, WhyHere};

const WAIT_NS: u64 = 1_000_000_000;
const MAPS: StageIndex = StageIndex(0);

fn on(node: u32, number: u32) -> Slot {
    Slot { node: NodeId(node), slot: number }
}

fn runs(task: u32, slot: Slot) -> Action {
    Action::StartAttempt { attempt: attempt(0, task, 0), slot }
}

/// A task with replicas on these nodes, planned for the first of them.
fn planned(nodes: &[u32]) -> Placement {
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    let planned = nodes.first().copied();
    Placement::Planned(InputNodes { nodes, planned, wait_ns: WAIT_NS, only_there: false })
}

/// A task whose replicas are on a node with other plans.
fn unplanned(node: u32) -> Placement {
    let nodes = vec![NodeId(node)];
    Placement::Planned(InputNodes { nodes, planned: None, wait_ns: 0, only_there: false })
}

/// A task whose input only these nodes have.
fn bound(nodes: &[u32]) -> Placement {
    let nodes = nodes.iter().copied().map(NodeId).collect();
    Placement::Planned(InputNodes { nodes, planned: None, wait_ns: 0, only_there: true })
}

fn with_tasks(tasks: Vec<Placement>, slots: &[Slot]) -> World {
    let mut world = submitted();
    slots.iter().for_each(|slot| world.feed(Event::SlotFree { slot: *slot }));
    world.feed(Event::StageExpanded { job: JOB, stage: MAPS, tasks });
    world
}

#[test]
fn slots_take_planned_tasks_first() {
    // Node 1 could run every task, and asks first.
    let tasks = vec![planned(&[2, 1]), planned(&[3, 1]), planned(&[1, 2])];
    let mut world = with_tasks(tasks, &[on(1, 0), on(2, 0), on(3, 0)]);
    world.expect(&[runs(2, on(1, 0)), runs(0, on(2, 0)), runs(1, on(3, 0))]);
}

#[test]
fn idle_node_helps_from_the_end() {
    let tasks = vec![planned(&[1, 2]), planned(&[1, 2]), planned(&[1, 2]), planned(&[2])];
    let mut world = with_tasks(tasks, &[on(1, 0), on(2, 0), on(2, 1)]);
    world.expect(&[runs(0, on(1, 0)), runs(3, on(2, 0)), runs(2, on(2, 1))]);
    world.feed(succeeded(attempt(0, 0, 0)));
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 0) }, runs(1, on(1, 0))]);
    assert!(world.placed.iter().all(|(_, why)| why.place == WhyHere::NearData));
}

#[test]
fn tasks_without_a_plan_run_anywhere_at_once() {
    let tasks = vec![planned(&[1]), planned(&[1]), unplanned(1)];
    let mut world = with_tasks(tasks, &[on(2, 0), on(2, 1), on(1, 0)]);
    world.expect(&[runs(2, on(2, 0)), runs(0, on(1, 0))]);
}

#[test]
fn tasks_wait_for_their_nodes_a_while() {
    let tasks = vec![planned(&[1]); 4];
    let mut world = with_tasks(tasks, &[on(1, 0), on(2, 0)]);
    world.expect(&[runs(0, on(1, 0))]);
    world.clock += WAIT_NS / 2;
    // A start near the data does not prolong the wait of the other tasks.
    world.feed(succeeded(attempt(0, 0, 0)));
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 0) }, runs(1, on(1, 0))]);
    world.clock += WAIT_NS / 2;
    world.feed(Event::Tick);
    // The last task would have to wait for the longest time.
    world.expect(&[runs(3, on(2, 0))]);
    world.feed(Event::SlotFree { slot: on(2, 1) });
    world.expect(&[runs(2, on(2, 1))]);
}

#[test]
fn retried_task_waits_again_for_its_nodes() {
    let mut world = with_tasks(vec![planned(&[1]); 2], &[on(1, 0), on(1, 1)]);
    world.expect(&[runs(0, on(1, 0)), runs(1, on(1, 1))]);
    world.clock += 2 * WAIT_NS;
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.feed(failed(attempt(0, 1, 0), true));
    world.expect(&[Action::TaskRetried { task: attempt(0, 1, 0).task }]);
    world.feed(Event::SlotFree { slot: on(1, 1) });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 1, 1), slot: on(1, 1) }]);
}

#[test]
fn new_plan_moves_waiting_tasks() {
    let mut world = with_tasks(vec![planned(&[1]), Placement::Anywhere, planned(&[1])], &[]);
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[runs(0, on(1, 0))]);
    world.clock += WAIT_NS / 2;
    let tasks = (0..3).map(|task| (TaskIndex(task), planned(&[2]))).collect();
    world.feed(Event::TasksPlaced { job: JOB, stage: MAPS, tasks });
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(1, on(2, 0))]);
    world.feed(Event::SlotFree { slot: on(3, 0) });
    world.expect(&[]);
    // The wait began with the first plan.
    world.clock += WAIT_NS / 2;
    world.feed(Event::Tick);
    world.expect(&[runs(2, on(3, 0))]);
}

#[test]
fn lost_planned_node_leaves_tasks_to_others() {
    let mut world = with_tasks(vec![planned(&[1, 2]), planned(&[1])], &[]);
    world.feed(Event::NodeLost { node: NodeId(1) });
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(0, on(2, 0))]);
    world.clock += WAIT_NS;
    world.feed(Event::SlotFree { slot: on(3, 0) });
    world.expect(&[runs(1, on(3, 0))]);
}

#[test]
fn draining_node_leaves_planned_tasks_alone() {
    let mut world = with_tasks(vec![planned(&[1]), planned(&[1, 2])], &[]);
    world.feed(Event::NodeDraining { node: NodeId(1) });
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(1, on(2, 0))]);
    world.feed(Event::NodeResumes { node: NodeId(1) });
    world.expect(&[runs(0, on(1, 0))]);
}

#[test]
fn bound_tasks_wait_for_their_nodes_forever() {
    let mut world = with_tasks(vec![bound(&[1]), bound(&[]), bound(&[1, 2])], &[on(3, 0)]);
    world.expect(&[]);
    world.clock += 1000 * WAIT_NS;
    world.feed(Event::Tick);
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[runs(0, on(1, 0))]);
    // Its only node is gone: no other one runs it, until a new plan names one.
    world.feed(Event::NodeLost { node: NodeId(1) });
    world.expect(&[Action::TaskRetried { task: attempt(0, 0, 0).task }]);
    world.clock += 1000 * WAIT_NS;
    world.feed(Event::Tick);
    world.expect(&[]);
    let tasks = vec![(TaskIndex(0), bound(&[4])), (TaskIndex(1), bound(&[4]))];
    world.feed(Event::TasksPlaced { job: JOB, stage: MAPS, tasks });
    world.feed(Event::SlotFree { slot: on(4, 0) });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 0, 1), slot: on(4, 0) }]);
    world.feed(Event::SlotFree { slot: on(4, 1) });
    world.expect(&[runs(1, on(4, 1))]);
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(2, on(2, 0))]);
}

#[test]
fn bound_task_is_retried_on_its_nodes() {
    let mut world = with_tasks(vec![bound(&[1, 2]), bound(&[2])], &[on(1, 0), on(3, 0), on(2, 0)]);
    world.expect(&[runs(0, on(1, 0)), runs(1, on(2, 0))]);
    world.feed(failed(attempt(0, 0, 0), true));
    world.expect(&[Action::TaskRetried { task: attempt(0, 0, 0).task }]);
    world.feed(Event::SlotFree { slot: on(2, 1) });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 0, 1), slot: on(2, 1) }]);
}

#[test]
fn draining_node_runs_tasks_that_only_it_can() {
    let mut world = with_tasks(vec![bound(&[1]), bound(&[1, 2])], &[]);
    world.feed(Event::NodeDraining { node: NodeId(1) });
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[runs(0, on(1, 0))]);
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(1, on(2, 0))]);
}
