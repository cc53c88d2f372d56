//! Histories of the scheduler with a recording outbox, told by hand and made at random.

mod any_order;
mod copies;
mod elastic;
mod elsewhere;
mod held;
mod planned;
mod ranks;

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use scheduler::{
    AGING_NS, Action, Claim, Event, FAILURES_MAX, FailureCause, LOCALITY_DELAY_NS, RecoveredTask,
    RetainedStage, Slot, State, UnixNanos, Why, WhyHere, handle, has_jobs, sanity_check,
};
use std::collections::VecDeque;

/// Feeds events and lets the test take the actions one by one.
#[derive(Default)]
struct World {
    state: State,
    outbox: VecDeque<Action>,
    /// Reasons stand apart: what is started must not depend on whether anybody asks why.
    placed: Vec<(AttemptKey, Why)>,
    clock: u64,
}

impl World {
    fn feed(&mut self, event: Event) {
        self.clock += 1;
        handle(&mut self.state, &mut self.outbox, UnixNanos(self.clock), event);
        sanity_check(&self.state);
        let actions = std::mem::take(&mut self.outbox);
        for (index, action) in actions.iter().enumerate() {
            if let Action::Placed { attempt, why } = action {
                let next = actions.get(index + 1);
                assert!(
                    matches!(next, Some(Action::StartAttempt { attempt: started, .. }) if started == attempt)
                );
                self.placed.push((*attempt, *why));
            }
        }
        self.outbox = actions.into_iter().filter(|action| !matches!(action, Action::Placed { .. })).collect();
    }

    fn expect(&mut self, expected: &[Action]) {
        for action in expected {
            assert_eq!(self.outbox.pop_front().as_ref(), Some(action));
        }
        assert_eq!(self.outbox, []);
    }
}

const JOB: JobId = JobId(1);

fn slot(number: u32) -> Slot {
    Slot { node: NodeId(0), slot: number }
}

fn free(number: u32) -> Event {
    Event::SlotFree { slot: slot(number) }
}

fn attempt(stage: u16, task: u32, number: u32) -> AttemptKey {
    let task = TaskKey { job: JOB, stage: StageIndex(stage), task: TaskIndex(task) };
    AttemptKey { task, attempt: AttemptNumber(number) }
}

fn start(attempt: AttemptKey, number: u32) -> Action {
    Action::StartAttempt { attempt, slot: slot(number) }
}

fn expand(stage: u16) -> Action {
    Action::ExpandStage { job: JOB, stage: StageIndex(stage) }
}

fn expanded(stage: u16, task_count: u32) -> Event {
    Event::StageExpanded { job: JOB, stage: StageIndex(stage), tasks: anywhere(task_count) }
}

fn anywhere(task_count: u32) -> Vec<Placement> {
    vec![Placement::Anywhere; task_count as usize]
}

fn failed(attempt: AttemptKey, retryable: bool) -> Event {
    Event::AttemptFailed { attempt, retryable, of_node: false }
}

fn succeeded(attempt: AttemptKey) -> Event {
    Event::AttemptSucceeded { attempt }
}

/// A job whose first stage is asked for.
fn submitted() -> World {
    let mut world = World::default();
    let stages = vec![StageKind::Map, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.expect(&[expand(0)]);
    world
}

/// A job of two stages whose first has `tasks` tasks.
fn begun(tasks: u32) -> World {
    let mut world = submitted();
    world.feed(expanded(0, tasks));
    world
}

#[test]
fn a_job_runs_through_its_stages() {
    let mut world = begun(2);
    world.feed(free(0));
    world.feed(free(1));
    world.feed(free(2));
    world.expect(&[start(attempt(0, 0, 0), 0), start(attempt(0, 1, 0), 1)]);
    world.feed(succeeded(attempt(0, 1, 0)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 1, 0) }]);
    world.feed(succeeded(attempt(0, 0, 0)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 0) }, expand(1)]);
    world.feed(expanded(1, 1));
    world.expect(&[start(attempt(1, 0, 0), 2)]);
    world.feed(succeeded(attempt(1, 0, 0)));
    world.expect(&[
        Action::TaskDone { attempt: attempt(1, 0, 0) },
        Action::JobSucceeded { job: JOB },
        Action::JobDrained { job: JOB },
    ]);
    assert!(!has_jobs(&world.state));
}

#[test]
fn job_sets_its_limit_of_failures() {
    for failures_max in [1, 2] {
        let mut world = World::default();
        let claim = Claim::default();
        world.feed(Event::JobSubmitted { job: JOB, claim, stages: vec![StageKind::Run], failures_max });
        world.expect(&[expand(0)]);
        world.feed(expanded(0, 1));
        for number in 0..failures_max {
            world.feed(free(0));
            world.expect(&[start(attempt(0, 0, 2 * number), 0)]);
            // A lost attempt is none of them.
            world.feed(Event::AttemptLost { attempt: attempt(0, 0, 2 * number) });
            let task = attempt(0, 0, 0).task;
            world.expect(&[Action::TaskRetried { task }]);
            world.feed(free(0));
            world.expect(&[start(attempt(0, 0, 2 * number + 1), 0)]);
            world.feed(failed(attempt(0, 0, 2 * number + 1), true));
            if number + 1 < failures_max {
                world.expect(&[Action::TaskRetried { task }]);
            }
        }
        let because = FailureCause::Attempt(attempt(0, 0, 2 * failures_max - 1));
        world.expect(&[Action::JobFailed { job: JOB, because }, Action::JobDrained { job: JOB }]);
    }
}

#[test]
fn placement_of_each_attempt_has_a_reason() {
    let mut world = World::default();
    let on = |node, number| Slot { node: NodeId(node), slot: number };
    world.feed(Event::JobSubmitted {
        job: JOB,
        claim: Claim::default(),
        stages: vec![StageKind::Map, StageKind::Commit],
        failures_max: FAILURES_MAX,
    });
    for slot in [on(1, 0), on(1, 1), on(2, 0)] {
        world.feed(Event::SlotFree { slot });
    }
    let near = |node| Placement::Near(vec![NodeId(node)]);
    let tasks = vec![near(2), Placement::On(NodeId(1)), Placement::Anywhere, near(3)];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks });
    world.clock += LOCALITY_DELAY_NS;
    world.feed(Event::SlotFree { slot: on(2, 1) });
    let mut placed: Vec<_> =
        world.placed.drain(..).map(|(attempt, why)| (attempt.task.task.0, why)).collect();
    placed.sort_by_key(|(task, _)| *task);
    let places: Vec<(u32, WhyHere)> = placed.iter().map(|(task, why)| (*task, why.place)).collect();
    let (any, only, near, far) = (WhyHere::Any, WhyHere::OnlyHere, WhyHere::NearData, WhyHere::NoNearerSlot);
    assert_eq!(places, [(0, near), (1, only), (2, any), (3, far)]);
    let last = placed[3].1;
    assert!(last.waited_ns >= LOCALITY_DELAY_NS && last.user_running == 3, "{last:?}");
    assert_eq!((last.slots_free, last.levels_risen), (1, 0));
    for task in 0..4 {
        world.feed(succeeded(attempt(0, task, 0)));
    }
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.feed(expanded(1, 1));
    // Of the only task of a stage there is nothing to say.
    assert_eq!(world.placed, []);
}

/// A submitted job of one stage, with its tasks.
fn submit_one_stage(world: &mut World, job: i64, tasks: Vec<Placement>) {
    let (job, claim) = (JobId(job), Claim::default());
    world.feed(Event::JobSubmitted { job, claim, stages: vec![StageKind::Run], failures_max: FAILURES_MAX });
    world.expect(&[Action::ExpandStage { job, stage: StageIndex(0) }]);
    world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks });
}

#[test]
fn single_tasks_wait_where_no_slot_asks() {
    let mut world = World::default();
    let runs = |job, slot| {
        let task = TaskKey { job: JobId(job), stage: StageIndex(0), task: TaskIndex(0) };
        Action::StartAttempt { attempt: AttemptKey { task, attempt: AttemptNumber(0) }, slot }
    };
    let on = |node, number| Slot { node: NodeId(node), slot: number };
    let places = |node, places: &[u32]| Event::PlacesFree { node: NodeId(node), places: places.to_vec() };
    world.feed(places(1, &[4, 5]));
    world.feed(places(2, &[4, 5, 6]));
    // What was said before does not count any more.
    world.feed(places(1, &[5]));
    world.feed(Event::SlotFree { slot: on(2, 0) });
    submit_one_stage(&mut world, 1, anywhere(1));
    world.expect(&[runs(1, on(2, 0))]);
    submit_one_stage(&mut world, 2, anywhere(1));
    world.expect(&[runs(2, on(2, 4))]);
    // A job of several tasks waits for slots, and who comes after it does not overtake it.
    submit_one_stage(&mut world, 3, anywhere(2));
    submit_one_stage(&mut world, 4, anywhere(1));
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.expect(&[runs(3, on(1, 0))]);
    // A node that leaves has no place either.
    world.feed(Event::NodeDraining { node: NodeId(2) });
    world.feed(places(2, &[6]));
    world.feed(Event::SlotFree { slot: on(1, 1) });
    let second = AttemptKey {
        task: TaskKey { job: JobId(3), stage: StageIndex(0), task: TaskIndex(1) },
        attempt: AttemptNumber(0),
    };
    world.expect(&[Action::StartAttempt { attempt: second, slot: on(1, 1) }, runs(4, on(1, 5))]);
    world.feed(places(1, &[6]));
    world.feed(Event::NodeLost { node: NodeId(1) });
    let retried = |action: &Action| matches!(action, Action::TaskRetried { .. });
    assert!(world.outbox.drain(..).all(|action| retried(&action)), "nothing starts at a node that is gone");
    submit_one_stage(&mut world, 5, anywhere(1));
    world.expect(&[]);
}

/// A node that is being emptied gets what can run nowhere else, and nothing besides.
#[test]
fn draining_node_runs_only_tasks_bound_to_it() {
    let mut world = submitted();
    let on = |node, number| Slot { node: NodeId(node), slot: number };
    let runs = |task, slot| Action::StartAttempt { attempt: attempt(0, task, 0), slot };
    world.feed(Event::SlotFree { slot: on(1, 0) });
    world.feed(Event::NodeDraining { node: NodeId(1) });
    let near = Placement::Near(vec![NodeId(1)]);
    let tasks = vec![Placement::Anywhere, near, Placement::On(NodeId(1)), Placement::On(NodeId(1))];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks });
    world.expect(&[runs(2, on(1, 0))]);
    world.feed(Event::SlotFree { slot: on(1, 1) });
    world.expect(&[runs(3, on(1, 1))]);
    world.feed(Event::SlotFree { slot: on(1, 2) });
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: on(2, 0) });
    world.expect(&[runs(0, on(2, 0))]);
    world.clock += LOCALITY_DELAY_NS;
    world.feed(Event::SlotFree { slot: on(2, 1) });
    world.expect(&[runs(1, on(2, 1))]);
}

#[test]
fn resumed_node_runs_tasks_near_it() {
    let mut world = submitted();
    let on = |node, number| Slot { node: NodeId(node), slot: number };
    let runs = |task, slot| Action::StartAttempt { attempt: attempt(0, task, 0), slot };
    world.feed(Event::NodeDraining { node: NodeId(1) });
    world.feed(Event::SlotFree { slot: on(1, 0) });
    let tasks = vec![Placement::Near(vec![NodeId(1)]), Placement::Anywhere];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks });
    world.expect(&[]);
    world.feed(Event::NodeResumes { node: NodeId(1) });
    world.expect(&[runs(0, on(1, 0))]);
    world.feed(Event::SlotFree { slot: on(1, 1) });
    world.expect(&[runs(1, on(1, 1))]);
    world.feed(Event::NodeResumes { node: NodeId(1) });
    world.expect(&[]);
}

#[test]
fn stages_without_tasks_are_passed_through() {
    let mut world = begun(0);
    world.expect(&[expand(1)]);
    world.feed(expanded(1, 0));
    world.expect(&[Action::JobSucceeded { job: JOB }, Action::JobDrained { job: JOB }]);
}

#[test]
fn failed_task_goes_first_and_three_failures_suffice() {
    let mut world = begun(3);
    for number in 0..3 {
        world.feed(free(0));
        world.expect(&[start(attempt(0, 0, number), 0)]);
        world.feed(failed(attempt(0, 0, number), true));
        if number < 2 {
            world.expect(&[Action::TaskRetried { task: attempt(0, 0, 0).task }]);
        }
    }
    world.expect(&[
        Action::JobFailed { job: JOB, because: FailureCause::Attempt(attempt(0, 0, 2)) },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn fatal_failure_ends_job_after_running_attempts_stop() {
    let mut world = begun(2);
    world.feed(free(0));
    world.feed(free(1));
    world.expect(&[start(attempt(0, 0, 0), 0), start(attempt(0, 1, 0), 1)]);
    world.feed(failed(attempt(0, 1, 0), false));
    world.expect(&[Action::JobFailed { job: JOB, because: FailureCause::Attempt(attempt(0, 1, 0)) }]);
    world.feed(free(1));
    world.feed(succeeded(attempt(0, 0, 0)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(0, 0, 0) }, Action::JobDrained { job: JOB }]);
    world.feed(succeeded(attempt(0, 0, 0)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(0, 0, 0) }]);
}

#[test]
fn first_success_wins_over_a_returning_attempt() {
    let mut world = begun(1);
    world.feed(free(0));
    world.feed(Event::AttemptLost { attempt: attempt(0, 0, 0) });
    world.feed(free(1));
    world.expect(&[
        start(attempt(0, 0, 0), 0),
        Action::TaskRetried { task: attempt(0, 0, 0).task },
        start(attempt(0, 0, 1), 1),
    ]);
    world.feed(succeeded(attempt(0, 0, 0)));
    let stop = Action::StopAttempt { attempt: attempt(0, 0, 1), slot: slot(1) };
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 0) }, stop, expand(1)]);
    world.feed(succeeded(attempt(0, 0, 1)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(0, 0, 1) }]);
}

#[test]
fn a_refused_stage_fails_the_job() {
    let mut world = begun(0);
    world.expect(&[expand(1)]);
    world.feed(Event::StageRefused { job: JOB, stage: StageIndex(1) });
    world.expect(&[
        Action::JobFailed { job: JOB, because: FailureCause::Stage(StageIndex(1)) },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn a_cancelled_job_waits_for_its_attempts() {
    let mut world = begun(2);
    world.feed(free(0));
    world.expect(&[start(attempt(0, 0, 0), 0)]);
    world.feed(Event::JobCancelled { job: JOB });
    world.feed(free(1));
    world.expect(&[]);
    world.feed(succeeded(attempt(0, 0, 0)));
    world.expect(&[
        Action::AttemptDiscarded { attempt: attempt(0, 0, 0) },
        Action::JobCancelled { job: JOB },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn published_output_stands_against_a_cancel() {
    let mut world = begun(0);
    world.feed(expanded(1, 1));
    world.feed(free(0));
    world.feed(Event::JobCancelled { job: JOB });
    world.feed(succeeded(attempt(1, 0, 0)));
    world.expect(&[
        expand(1),
        start(attempt(1, 0, 0), 0),
        Action::TaskDone { attempt: attempt(1, 0, 0) },
        Action::JobSucceeded { job: JOB },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn older_job_goes_first_and_younger_fills_gaps() {
    let mut world = begun(1);
    world.feed(Event::JobSubmitted {
        job: JobId(2),
        claim: Claim::default(),
        stages: vec![StageKind::Map],
        failures_max: FAILURES_MAX,
    });
    world.feed(Event::StageExpanded { job: JobId(2), stage: StageIndex(0), tasks: anywhere(1) });
    let young = AttemptKey {
        task: TaskKey { job: JobId(2), stage: StageIndex(0), task: TaskIndex(0) },
        attempt: AttemptNumber(0),
    };
    world.feed(free(0));
    world.feed(free(1));
    world.expect(&[
        Action::ExpandStage { job: JobId(2), stage: StageIndex(0) },
        start(attempt(0, 0, 0), 0),
        start(young, 1),
    ]);
    world.feed(Event::SlotGone { slot: slot(5) });
    world.expect(&[]);
}

/// A slot of another node than that of [`slot`].
fn far_slot(number: u32) -> Slot {
    Slot { node: NodeId(1), slot: number }
}

#[test]
fn pinned_task_waits_for_its_node_alone() {
    let mut world = begun(0);
    world.expect(&[expand(1)]);
    let tasks = vec![Placement::On(NodeId(1)), Placement::Anywhere];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(1), tasks });
    world.feed(free(0));
    world.expect(&[start(attempt(1, 1, 0), 0)]);
    world.feed(free(1));
    world.clock += LOCALITY_DELAY_NS;
    world.feed(Event::Tick);
    world.expect(&[]);
    world.feed(Event::SlotFree { slot: far_slot(0) });
    world.expect(&[Action::StartAttempt { attempt: attempt(1, 0, 0), slot: far_slot(0) }]);
}

#[test]
fn slot_far_from_data_waits_only_a_while() {
    let mut world = begun(0);
    let tasks = vec![Placement::Near(vec![NodeId(1)]); 3];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(1), tasks });
    world.feed(free(0));
    world.expect(&[expand(1)]);
    world.feed(Event::SlotFree { slot: far_slot(0) });
    world.expect(&[Action::StartAttempt { attempt: attempt(1, 0, 0), slot: far_slot(0) }]);
    world.clock += LOCALITY_DELAY_NS;
    world.feed(Event::Tick);
    world.expect(&[start(attempt(1, 1, 0), 0)]);
}

#[test]
fn users_share_and_urgent_jobs_go_first() {
    let mut world = World::default();
    let job = |number: i64, user, priority| {
        let stages = vec![StageKind::Map];
        let claim = Claim { user, priority, ..Claim::default() };
        let job = JobId(number);
        (job, Event::JobSubmitted { job, claim, stages, failures_max: FAILURES_MAX })
    };
    for (id, submitted) in [job(1, 7, 0), job(2, 7, 0), job(3, 8, 0), job(4, 9, 1)] {
        world.feed(submitted);
        let count = if id == JobId(4) { 1 } else { 4 };
        world.feed(Event::StageExpanded { job: id, stage: StageIndex(0), tasks: anywhere(count) });
    }
    world.outbox.clear();
    (0..7).for_each(|number| world.feed(free(number)));
    let jobs: Vec<i64> = world
        .outbox
        .drain(..)
        .map(|action| match action {
            Action::StartAttempt { attempt, .. } => attempt.task.job.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(jobs, [4, 1, 3, 1, 3, 1, 3]);
}

#[test]
fn lost_data_and_its_results_are_made_again() {
    let mut world = begun(2);
    (0..2).for_each(|number| world.feed(free(number)));
    (0..2).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    world.feed(expanded(1, 1));
    world.feed(free(0));
    world.outbox.clear();
    world.feed(Event::NodeLost { node: NodeId(1) });
    world.feed(lost(None));
    world.expect(&[Action::TaskRetried { task: attempt(0, 1, 0).task }]);
    world.feed(free(1));
    world.expect(&[start(attempt(0, 1, 1), 1)]);
    world.feed(succeeded(attempt(0, 1, 1)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 1, 1) }, expand(1)]);
    world.feed(expanded(1, 1));
    world.feed(free(1));
    world.expect(&[start(attempt(1, 0, 1), 1)]);
    // The one that ran on the old data comes back late.
    world.feed(succeeded(attempt(1, 0, 0)));
    world.expect(&[Action::AttemptDiscarded { attempt: attempt(1, 0, 0) }]);
    world.feed(succeeded(attempt(1, 0, 1)));
    world.expect(&[
        Action::TaskDone { attempt: attempt(1, 0, 1) },
        Action::JobSucceeded { job: JOB },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn lost_winner_runs_again_on_resumed_node() {
    let mut world = submitted();
    let node = NodeId(1);
    let ask = |slot| Event::SlotFree { slot: Slot { node, slot } };
    world.feed(Event::NodeDraining { node });
    let tasks = vec![Placement::On(node); 2];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks });
    world.feed(ask(0));
    world.feed(Event::AttemptLost { attempt: attempt(0, 0, 0) });
    world.feed(succeeded(attempt(0, 0, 0)));
    world.feed(Event::NodeResumes { node });
    let tasks = vec![TaskIndex(0)];
    world.feed(Event::ResultsLost { job: JOB, stage: StageIndex(0), tasks, retained: None });
    world.outbox.clear();
    (1..3).for_each(|slot| world.feed(ask(slot)));
    let started: Vec<AttemptKey> = world
        .outbox
        .drain(..)
        .filter_map(|action| match action {
            Action::StartAttempt { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    assert_eq!(started, [attempt(0, 0, 1), attempt(0, 1, 0)]);
}

#[test]
fn repeated_task_goes_where_it_was_moved() {
    let mut world = submitted();
    let slot = |node| Slot { node: NodeId(node), slot: 0 };
    let (first, second) = (attempt(0, 0, 0), attempt(0, 1, 0));
    let tasks = vec![Placement::Anywhere; 2];
    world.feed(Event::StageExpanded { job: JOB, stage: StageIndex(0), tasks });
    world.feed(Event::SlotFree { slot: slot(1) });
    world.feed(Event::SlotFree { slot: slot(2) });
    world.feed(succeeded(first));
    let near = |node| Placement::Near(vec![NodeId(node)]);
    let tasks = vec![(TaskIndex(0), near(3)), (TaskIndex(9), near(3))];
    world.feed(Event::TasksMoved { job: JOB, stage: StageIndex(0), tasks });
    let tasks = vec![TaskIndex(0)];
    world.feed(Event::ResultsLost { job: JOB, stage: StageIndex(0), tasks, retained: None });
    world.outbox.clear();
    let starts = |world: &mut World| {
        world.outbox.drain(..).any(
            |action| matches!(action, Action::StartAttempt { attempt, .. } if attempt.task == first.task),
        )
    };
    world.feed(Event::SlotFree { slot: slot(1) });
    assert!(!starts(&mut world));
    // One that waits already goes where it was to go.
    world.feed(Event::TasksMoved { job: JOB, stage: StageIndex(0), tasks: vec![(TaskIndex(0), near(1))] });
    assert!(!starts(&mut world));
    world.feed(Event::SlotFree { slot: slot(3) });
    assert!(starts(&mut world));
    world.feed(succeeded(second));
}

/// A task of the first stage of two has lost its result; the second stands, or not, but for attempts of tasks that stop.
fn lost(stops: Option<&[u32]>) -> Event {
    let retained = stops.map(|stops| RetainedStage {
        stage: StageIndex(1),
        stops: stops.iter().copied().map(TaskIndex).collect(),
        redo: Vec::new(),
    });
    Event::ResultsLost { job: JOB, stage: StageIndex(0), tasks: vec![TaskIndex(1)], retained }
}

#[test]
fn results_stand_when_lost_data_comes_out_equal() {
    let mut world = begun(2);
    (0..2).for_each(|number| world.feed(free(number)));
    (0..2).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    world.feed(expanded(1, 5));
    (0..5).for_each(|number| world.feed(free(number)));
    world.feed(succeeded(attempt(1, 1, 0)));
    world.outbox.clear();
    world.feed(lost(Some(&[0])));
    world.expect(&[Action::TaskRetried { task: attempt(0, 1, 0).task }]);
    world.feed(free(6));
    world.expect(&[start(attempt(0, 1, 1), 6)]);
    // One that runs on is done, and more is lost in the meantime.
    world.feed(succeeded(attempt(1, 2, 0)));
    world.expect(&[Action::TaskDone { attempt: attempt(1, 2, 0) }]);
    world.feed(lost(Some(&[0, 3])));
    world.expect(&[]);
    world.feed(succeeded(attempt(0, 1, 1)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 1, 1) }, expand(1)]);
    world.feed(expanded(1, 5));
    (7..9).for_each(|number| world.feed(free(number)));
    world.expect(&[start(attempt(1, 0, 1), 7), start(attempt(1, 3, 1), 8)]);
    world.feed(succeeded(attempt(1, 0, 1)));
    world.feed(succeeded(attempt(1, 3, 1)));
    world.feed(succeeded(attempt(1, 4, 0)));
    world.expect(&[
        Action::TaskDone { attempt: attempt(1, 0, 1) },
        Action::TaskDone { attempt: attempt(1, 3, 1) },
        Action::TaskDone { attempt: attempt(1, 4, 0) },
        Action::JobSucceeded { job: JOB },
        Action::JobDrained { job: JOB },
    ]);
}

#[test]
fn a_job_that_another_server_began_goes_on() {
    let task = |attempts_started, winner: Option<u32>| RecoveredTask {
        attempts_started,
        winner: winner.map(AttemptNumber),
        ..RecoveredTask::default()
    };
    let mut world = World::default();
    world.feed(Event::JobRecovered {
        job: JOB,
        claim: Claim::default(),
        stages: vec![StageKind::Map, StageKind::Commit],
        failures_max: FAILURES_MAX,
        tasks: vec![vec![task(2, Some(1)), task(1, None), task(3, None)]],
        running: vec![(attempt(0, 1, 0), slot(0))],
        attempts_used: vec![(StageIndex(1), 4)],
        standing: vec![(StageIndex(1), TaskIndex(0), AttemptNumber(3))],
    });
    world.feed(free(1));
    world.expect(&[start(attempt(0, 2, 3), 1)]);
    world.feed(succeeded(attempt(0, 1, 0)));
    world.feed(succeeded(attempt(0, 2, 3)));
    world.expect(&[
        Action::TaskDone { attempt: attempt(0, 1, 0) },
        Action::TaskDone { attempt: attempt(0, 2, 3) },
        expand(1),
    ]);
    world.feed(expanded(1, 2));
    world.feed(free(0));
    world.expect(&[start(attempt(1, 1, 4), 0)]);
}

/// A job of one urgent user keeps every slot busy; what waits beside it rises until it is served.
#[test]
fn no_priority_starves_another_for_good() {
    let mut world = World::default();
    let (urgent, patient) = (JobId(1), JobId(2));
    let claim = |user, priority| Claim { user, priority, ..Claim::default() };
    let claims = [(urgent, claim(1, 2)), (patient, claim(2, 0))];
    for (job, claim) in claims {
        world.feed(Event::JobSubmitted {
            job,
            claim,
            stages: vec![StageKind::Map],
            failures_max: FAILURES_MAX,
        });
        world.outbox.clear();
        world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks: anywhere(100) });
    }
    world.feed(free(0));
    let mut starts = Vec::new();
    // Attempts take half of the time after which who waits rises.
    for _ in 0..20 {
        let Some(Action::StartAttempt { attempt, .. }) = world.outbox.pop_front() else {
            panic!("a slot idles")
        };
        starts.push(attempt.task.job);
        world.clock += AGING_NS / 2;
        world.feed(succeeded(attempt));
        world.outbox.clear();
        world.feed(free(0));
    }
    let first = starts.iter().position(|job| *job == patient);
    assert_eq!(first, Some(4), "beside the urgent one after two levels: {starts:?}");
    let served = starts.iter().filter(|job| **job == patient).count();
    assert!((2..=5).contains(&served), "once in a while: {starts:?}");
}

#[test]
fn impossible_stage_is_sent_back() {
    let mut world = World::default();
    let stages = vec![StageKind::Map, StageKind::Reduce, StageKind::Commit];
    world.feed(Event::JobSubmitted { job: JOB, claim: Claim::default(), stages, failures_max: FAILURES_MAX });
    world.feed(expanded(0, 2));
    (0..2).for_each(|number| world.feed(free(number)));
    (0..2).for_each(|task| world.feed(succeeded(attempt(0, task, 0))));
    world.feed(expanded(1, 2));
    (0..2).for_each(|number| world.feed(free(number)));
    (0..2).for_each(|task| world.feed(succeeded(attempt(1, task, 0))));
    world.outbox.clear();
    // One of the last stage's tasks is to run again, of what the one before it gives anew.
    let redo = vec![TaskIndex(1)];
    let retained = Some(RetainedStage { stage: StageIndex(1), stops: Vec::new(), redo });
    let (stage, to, tasks) = (StageIndex(2), StageIndex(0), vec![TaskIndex(0)]);
    world.feed(Event::StageSentBack { job: JOB, stage, to, tasks, retained });
    world.expect(&[Action::TaskRetried { task: attempt(0, 0, 0).task }]);
    world.feed(free(0));
    world.expect(&[start(attempt(0, 0, 1), 0)]);
    world.feed(succeeded(attempt(0, 0, 1)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 1) }, expand(1)]);
    world.feed(expanded(1, 2));
    (0..2).for_each(|number| world.feed(free(number)));
    world.expect(&[start(attempt(1, 1, 1), 0)]);
    world.feed(succeeded(attempt(1, 1, 1)));
    world.expect(&[Action::TaskDone { attempt: attempt(1, 1, 1) }, expand(2)]);
}
