//! Two attempts of a task at the same time, told by hand.

use crate::{JOB, World, anywhere, attempt, expand, failed, succeeded};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use scheduler::{
    Action, Claim, Event, FAILURES_MAX, FailureCause, Label, NO_PROGRESS_NS, NO_PROGRESS_TIMES,
    RecoveredTask, SLOW_NODE_NS, Slot, Waits, WhyLeft,
};

const SECOND_NS: u64 = 1_000_000_000;

fn on(node: u32) -> Slot {
    Slot { node: NodeId(node), slot: 0 }
}

/// Tasks 0 to 3 run on nodes 0 to 3, one slot each. The stage may be copied.
fn four_running(placements: Vec<Placement>) -> World {
    let mut world = World::default();
    let stages = vec![StageKind::Map, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.feed(Event::MayCopy { job: JOB, stages: vec![StageIndex(0)] });
    (0..4).for_each(|node| world.feed(Event::SlotFree { slot: on(node) }));
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks: placements });
    world.outbox.clear();
    world
}

/// All say how far they are after so many seconds; task 3 has done `slow` of 1000, the others have gone steadily.
pub fn report(world: &mut World, seconds: u64, slow: u64, waits: Waits) {
    world.clock = seconds * SECOND_NS;
    for task in 0..4 {
        let (done, waits) = match task {
            3 => (slow, waits),
            _ => (seconds * 100, Waits { program_ns: seconds * SECOND_NS, ..Waits::default() }),
        };
        world.feed(Event::Progress { attempt: attempt(0, task, 0), done, total: 1000, waits: Some(waits) });
    }
}

fn program(seconds: u64) -> Waits {
    Waits { program_ns: seconds * SECOND_NS, ..Waits::default() }
}

fn decided(world: &mut World) -> Vec<(AttemptKey, Label, Result<AttemptKey, WhyLeft>)> {
    let actions = std::mem::take(&mut world.outbox);
    let decision = |action: &Action| match action {
        Action::Speculated { attempt, of, label, .. } => Some((*of, *label, Ok(*attempt))),
        Action::SlowTask { attempt, label, left, .. } => Some((*attempt, *label, Err(*left))),
        _ => None,
    };
    let found = actions.iter().filter_map(decision).collect();
    world.outbox = actions.into_iter().filter(|action| decision(action).is_none()).collect();
    found
}

/// Task 3 runs on nodes 3 and 4; the other tasks run on.
pub fn copied() -> World {
    let mut world = four_running(anywhere(4));
    world.feed(Event::SlotFree { slot: on(4) });
    report(&mut world, 6, 60, program(6));
    world.feed(Event::Tick);
    let copy = attempt(0, 3, 1);
    assert_eq!(decided(&mut world), [(attempt(0, 3, 0), Label::SlowProgram, Ok(copy))]);
    world.expect(&[Action::StartAttempt { attempt: copy, slot: on(4) }]);
    world
}

fn done(world: &mut World, tasks: u32) {
    (0..tasks).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    world.outbox.clear();
}

#[test]
fn a_copy_that_wins_stops_its_original() {
    let mut world = copied();
    done(&mut world, 3);
    world.feed(succeeded(attempt(0, 3, 1)));
    let stop = Action::StopAttempt { attempt: attempt(0, 3, 0), slot: on(3) };
    world.expect(&[Action::TaskDone { attempt: attempt(0, 3, 1) }, stop, expand(1)]);
    // It was told to stop: that is no failure, though nobody would try it again.
    world.feed(failed(attempt(0, 3, 0), false));
    world.expect(&[]);
}

#[test]
fn winning_original_stops_its_copy_for_good() {
    let mut world = copied();
    done(&mut world, 3);
    world.feed(succeeded(attempt(0, 3, 0)));
    let stop = Action::StopAttempt { attempt: attempt(0, 3, 1), slot: on(4) };
    world.expect(&[Action::TaskDone { attempt: attempt(0, 3, 0) }, stop, expand(1)]);
    world.feed(succeeded(attempt(0, 3, 1)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(0, 3, 1) }]);
}

#[test]
fn failed_or_lost_copy_leaves_its_original_alone() {
    for event in [failed(attempt(0, 3, 1), true), Event::NodeLost { node: NodeId(4) }] {
        let mut world = copied();
        world.feed(event);
        world.expect(&[]);
        // It is not copied twice.
        world.feed(Event::SlotFree { slot: on(5) });
        report(&mut world, 7, 70, program(7));
        world.feed(Event::Tick);
        assert_eq!(decided(&mut world), []);
        // Nor does what failed beside it count: three more make the job fail.
        for number in [0, 2, 3] {
            world.feed(failed(attempt(0, 3, number), true));
            world.feed(Event::SlotFree { slot: on(6 + number) });
        }
        let because = FailureCause::Attempt(attempt(0, 3, 3));
        assert_eq!(world.outbox.back(), Some(&Action::JobFailed { job: JOB, because }));
    }
}

#[test]
fn failed_or_lost_original_leaves_its_copy_alone() {
    for event in [failed(attempt(0, 3, 0), true), Event::AttemptLost { attempt: attempt(0, 3, 0) }] {
        let mut world = copied();
        world.feed(event);
        world.feed(Event::SlotFree { slot: on(5) });
        world.expect(&[]);
        done(&mut world, 3);
        world.feed(succeeded(attempt(0, 3, 1)));
        world.expect(&[Action::TaskDone { attempt: attempt(0, 3, 1) }, expand(1)]);
    }
}

#[test]
fn a_task_goes_again_when_both_are_gone() {
    let mut world = copied();
    world.feed(Event::NodeLost { node: NodeId(3) });
    world.expect(&[]);
    world.feed(Event::NodeLost { node: NodeId(4) });
    world.expect(&[Action::TaskRetried { task: attempt(0, 3, 0).task }]);
    world.feed(Event::SlotFree { slot: on(5) });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 3, 2), slot: on(5) }]);
}

#[test]
fn stopped_attempt_cannot_win_after_lost_result() {
    let mut world = copied();
    world.feed(succeeded(attempt(0, 3, 1)));
    let tasks = vec![TaskIndex(3)];
    world.feed(Event::ResultsLost { job: JOB, stage: StageIndex(0), tasks, retained: None });
    world.outbox.clear();
    world.feed(succeeded(attempt(0, 3, 0)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(0, 3, 0) }]);
    world.feed(Event::SlotFree { slot: on(5) });
    world.expect(&[Action::StartAttempt { attempt: attempt(0, 3, 2), slot: on(5) }]);
}

#[test]
fn a_cancelled_job_waits_for_both() {
    let mut world = copied();
    world.feed(Event::JobCancelled { job: JOB });
    for (task, number) in [(0, 0), (1, 0), (2, 0), (3, 1)] {
        world.feed(failed(attempt(0, task, number), false));
    }
    world.expect(&[]);
    world.feed(failed(attempt(0, 3, 0), false));
    world.expect(&[Action::JobCancelled { job: JOB }, Action::JobDrained { job: JOB }]);
}

#[test]
fn next_server_stops_the_losers_again() {
    let mut world = World::default();
    let winner = Some(AttemptNumber(1));
    let done = RecoveredTask { attempts_started: 2, winner, ..RecoveredTask::default() };
    world.feed(Event::JobRecovered {
        job: JOB,
        claim: Claim::default(),
        stages: vec![StageKind::Map],
        failures_max: FAILURES_MAX,
        tasks: vec![vec![done, RecoveredTask { attempts_started: 2, ..RecoveredTask::default() }]],
        running: vec![(attempt(0, 0, 0), on(0)), (attempt(0, 1, 0), on(1)), (attempt(0, 1, 1), on(2))],
        attempts_used: vec![],
        standing: vec![],
    });
    world.expect(&[Action::StopAttempt { attempt: attempt(0, 0, 0), slot: on(0) }]);
    world.feed(succeeded(attempt(0, 1, 1)));
    let stop = Action::StopAttempt { attempt: attempt(0, 1, 0), slot: on(1) };
    let won = Action::TaskDone { attempt: attempt(0, 1, 1) };
    world.expect(&[won, stop, Action::JobSucceeded { job: JOB }]);
    world.feed(failed(attempt(0, 0, 0), false));
    world.feed(failed(attempt(0, 1, 0), false));
    world.expect(&[Action::JobDrained { job: JOB }]);
}

/// The first two were told to stop by the server before this one, and no row says so.
#[test]
fn next_server_stops_attempts_that_are_no_copies() {
    let mut world = World::default();
    let task = RecoveredTask { attempts_started: 4, ..RecoveredTask::default() };
    world.feed(Event::JobRecovered {
        job: JOB,
        claim: Claim::default(),
        stages: vec![StageKind::Map],
        failures_max: FAILURES_MAX,
        tasks: vec![vec![task]],
        running: [(0, 0), (1, 2), (2, 1), (3, 2)]
            .map(|(number, node)| (attempt(0, 0, number), on(node)))
            .to_vec(),
        attempts_used: vec![],
        standing: vec![],
    });
    let stop = |number, node| Action::StopAttempt { attempt: attempt(0, 0, number), slot: on(node) };
    world.expect(&[stop(1, 2), stop(0, 0)]);
    world.feed(succeeded(attempt(0, 0, 3)));
    let won = Action::TaskDone { attempt: attempt(0, 0, 3) };
    world.expect(&[won, stop(2, 1), Action::JobSucceeded { job: JOB }]);
}

#[test]
fn slot_that_other_work_wants_is_not_lent() {
    let mut world = four_running(anywhere(4));
    report(&mut world, 6, 60, program(6));
    world.feed(Event::Tick);
    let slow = attempt(0, 3, 0);
    assert_eq!(decided(&mut world), [(slow, Label::SlowProgram, Err(WhyLeft::NoSlot))]);
    // Said once, and copied all the same when there is a slot.
    report(&mut world, 7, 70, program(7));
    world.feed(Event::Tick);
    assert_eq!(decided(&mut world), []);
    world.feed(Event::NodeDraining { node: NodeId(5) });
    world.feed(Event::SlotFree { slot: on(5) });
    report(&mut world, 8, 80, program(8));
    world.feed(Event::Tick);
    assert_eq!(decided(&mut world), [], "a node that drains takes no copies");
    world.feed(Event::SlotFree { slot: on(6) });
    report(&mut world, 9, 90, program(9));
    world.feed(Event::Tick);
    assert_eq!(decided(&mut world), [(slow, Label::SlowProgram, Ok(attempt(0, 3, 1)))]);
}

/// Returns the decision about task 3, which has two free nodes to go to, 4 and 5.
fn judged(
    placement: Placement,
    seconds: u64,
    slow: u64,
    waits: Waits,
) -> Option<(Label, Result<NodeId, WhyLeft>)> {
    let mut placements = anywhere(4);
    placements[3] = Placement::Near([vec![NodeId(3)], near(&placement)].concat());
    if let Placement::On(_) = placement {
        placements[3] = placement;
    }
    let mut world = four_running(placements);
    (4..6).for_each(|node| world.feed(Event::SlotFree { slot: on(node) }));
    report(&mut world, seconds, slow, waits);
    world.feed(Event::Tick);
    let (_, label, copy) = decided(&mut world).pop()?;
    let started = world.outbox.iter().find_map(|action| match action {
        Action::StartAttempt { slot, .. } => Some(slot.node),
        _ => None,
    });
    Some((label, copy.map(|_| started.expect("a copy starts"))))
}

fn near(placement: &Placement) -> Vec<NodeId> {
    match placement {
        Placement::Near(nodes) => nodes.clone(),
        _ => Vec::new(),
    }
}

#[test]
fn copy_avoids_the_cause_of_slowness() {
    let any = || Placement::Anywhere;
    let node = |number| Ok(NodeId(number));
    let read = |from: Option<u32>| Waits {
        read_ns: 5 * SECOND_NS,
        program_ns: SECOND_NS,
        read_from: from.map(NodeId),
        ..Waits::default()
    };
    let append = Waits { append_ns: 5 * SECOND_NS, append_to: Some(NodeId(4)), ..program(1) };
    // As fast as others, or nearly.
    assert_eq!(judged(any(), 6, 600, program(6)), None);
    assert_eq!(judged(any(), 6, 450, program(6)), None);
    assert_eq!(judged(any(), 6, 60, program(6)), Some((Label::SlowProgram, node(4))));
    // What it reads lies on its own node alone; then on another one too.
    assert_eq!(judged(any(), 6, 60, read(Some(3))), Some((Label::SlowRead, Err(WhyLeft::SameBottleneck))));
    let replica = Placement::Near(vec![NodeId(5)]);
    assert_eq!(judged(replica, 6, 60, read(Some(3))), Some((Label::SlowRead, node(5))));
    assert_eq!(judged(any(), 6, 60, read(None)), Some((Label::SlowRead, node(4))));
    assert_eq!(judged(any(), 6, 60, append), Some((Label::SlowAppend, node(5))));
    // A task that can run nowhere else is nobody's to copy.
    assert_eq!(judged(Placement::On(NodeId(3)), 6, 60, program(6)), None);
}

#[test]
fn attempt_without_progress_is_copied() {
    let mut world = four_running(anywhere(4));
    world.feed(Event::SlotFree { slot: on(4) });
    let seconds = NO_PROGRESS_NS / SECOND_NS;
    for second in 1..=2 + seconds {
        report(&mut world, second, 200.min(second * 100), program(second));
        world.feed(Event::Tick);
        let said = decided(&mut world);
        match second < 2 + seconds {
            true => assert_eq!(said, [], "after {second} seconds"),
            false => assert_eq!(said, [(attempt(0, 3, 0), Label::NoProgress, Ok(attempt(0, 3, 1)))]),
        }
    }
}

/// It is slow from the start, and nothing but its records explains that, so it gets no copy until it has stopped for long.
#[test]
fn slow_attempt_that_stops_is_copied() {
    let mut world = four_running(anywhere(4));
    world.feed(Event::SlotFree { slot: on(4) });
    let stopped = 3;
    let stuck_at = stopped + NO_PROGRESS_TIMES * NO_PROGRESS_NS / SECOND_NS;
    let mut said = Vec::new();
    for second in 1..=stuck_at {
        let reading = Waits { read_ns: second * SECOND_NS, read_from: Some(NodeId(3)), ..Waits::default() };
        report(&mut world, second, stopped.min(second) * 20, reading);
        if second == 10 {
            done(&mut world, 3);
        }
        world.feed(Event::Tick);
        said.extend(decided(&mut world).into_iter().map(|(_, label, result)| (second, label, result)));
    }
    let left = (5, Label::SlowRead, Err(WhyLeft::SameBottleneck));
    assert_eq!(said, [left, (stuck_at, Label::NoProgress, Ok(attempt(0, 3, 1)))]);
}

#[test]
fn much_data_and_late_start_are_not_slowness() {
    let mut world = four_running(anywhere(5));
    // Task 3 has five times as much; task 4 begins just now.
    world.clock = 12 * SECOND_NS;
    world.feed(Event::SlotFree { slot: on(4) });
    world.feed(Event::SlotFree { slot: on(5) });
    for (task, done, total) in [(0, 1190, 1200), (1, 1190, 1200), (2, 1190, 1200), (3, 1200, 6000)] {
        let attempt = attempt(0, task, 0);
        world.feed(Event::Progress { attempt, done, total, waits: Some(program(12)) });
    }
    done(&mut world, 3);
    world.clock = 14 * SECOND_NS;
    let (large, late) = (attempt(0, 3, 0), attempt(0, 4, 0));
    world.feed(Event::Progress { attempt: large, done: 1400, total: 6000, waits: Some(program(14)) });
    world.feed(Event::Progress { attempt: late, done: 100, total: 1200, waits: Some(program(1)) });
    world.feed(Event::Tick);
    assert_eq!(decided(&mut world), [(large, Label::LargeData, Err(WhyLeft::LargeData))]);
}

/// Which node was overtaken is remembered beyond its job, and forgotten in the end.
#[test]
fn slow_node_gets_no_copies_for_a_while() {
    let mut world = copied();
    done(&mut world, 3);
    world.feed(succeeded(attempt(0, 3, 1)));
    let found_slow = world.clock;
    world.feed(failed(attempt(0, 3, 0), false));
    let job = JobId(2);
    let stages = vec![StageKind::Map, StageKind::Commit];
    world.feed(Event::JobSubmitted { job, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.feed(Event::MayCopy { job, stages: vec![StageIndex(0)] });
    [0, 1, 2, 4].into_iter().for_each(|node| world.feed(Event::SlotFree { slot: on(node) }));
    world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks: anywhere(4) });
    // Nothing waits, and this is the only slot.
    world.feed(Event::SlotFree { slot: on(3) });
    world.outbox.clear();
    let of_job = |task: u32, number| {
        let key = attempt(0, task, number);
        AttemptKey { task: TaskKey { job, ..key.task }, ..key }
    };
    let report = |world: &mut World, seconds: u64| {
        let waits = Some(program(seconds));
        for (task, rate) in [(0, 100), (1, 100), (2, 100), (3, 10)] {
            let (done, total) = ((seconds * rate).min(4000), 4000);
            world.feed(Event::Progress { attempt: of_job(task, 0), done, total, waits });
        }
        world.feed(Event::Tick);
    };
    for seconds in [20, 110] {
        world.clock = found_slow + seconds * SECOND_NS;
        report(&mut world, seconds);
        // It is told once.
        let refused = [(of_job(3, 0), Label::SlowProgram, Err(WhyLeft::NoSlot))];
        assert_eq!(decided(&mut world), refused[..usize::from(seconds == 20)]);
        world.expect(&[]);
    }
    world.clock = found_slow + SLOW_NODE_NS;
    report(&mut world, 120);
    assert_eq!(decided(&mut world), [(of_job(3, 0), Label::SlowProgram, Ok(of_job(3, 1)))]);
    world.expect(&[Action::StartAttempt { attempt: of_job(3, 1), slot: on(3) }]);
}

/// Attempts that end within a second report nothing but their end. So only those on the slow node tell of their
/// waits.
#[test]
fn usual_pace_counts_fast_and_slow_attempts() {
    let mut world = World::default();
    let stages = vec![StageKind::Map, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.feed(Event::MayCopy { job: JOB, stages: vec![StageIndex(0)] });
    let slots = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)];
    let slots = slots.map(|(node, slot)| Slot { node: NodeId(node), slot });
    slots.into_iter().for_each(|slot| world.feed(Event::SlotFree { slot }));
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks: anywhere(5) });
    world.outbox.clear();
    world.clock = SECOND_NS / 2;
    for task in 0..3 {
        world.feed(Event::Progress { attempt: attempt(0, task, 0), done: 1000, total: 1000, waits: None });
        world.feed(succeeded(attempt(0, task, 0)));
    }
    // Some of it went into reading, and no other attempt has read for as long.
    world.clock = 3 * SECOND_NS;
    for (task, read_tenths) in [(3, 0), (4, 5)] {
        let read_ns = read_tenths * SECOND_NS / 10;
        let waits = Waits { read_ns, program_ns: 3 * SECOND_NS - read_ns, ..Waits::default() };
        let attempt = attempt(0, task, 0);
        world.feed(Event::Progress { attempt, done: 100, total: 1000, waits: Some(waits) });
    }
    world.feed(Event::Tick);
    let labels: Vec<Label> = decided(&mut world).into_iter().map(|(_, label, _)| label).collect();
    assert_eq!(labels, [Label::SlowNode, Label::SlowNode]);
}
