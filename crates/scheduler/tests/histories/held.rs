//! Jobs that start only when their owner says so.

use crate::{JOB, World, anywhere, attempt, begun, failed, free, slot, start, succeeded};
use ids::{JobId, NodeId, StageIndex, StageKind};
use scheduler::{Action, Claim, Event, Needs, has_idle_room, live_attempt, wants_slots};

/// One task on the only slot, held since its start.
fn held() -> World {
    let mut world = begun(1);
    world.feed(free(0));
    world.expect(&[start(attempt(0, 0, 0), 0)]);
    world.feed(Event::JobHeld { job: JOB });
    world
}

#[test]
fn held_job_starts_nothing_until_released() {
    let mut world = held();
    world.feed(Event::AttemptLost { attempt: attempt(0, 0, 0) });
    world.expect(&[Action::TaskRetried { task: attempt(0, 0, 0).task }]);
    world.feed(free(1));
    world.expect(&[]);
    assert_eq!(live_attempt(&world.state, JOB), None);
    assert!(!wants_slots(&mut world.state) && has_idle_room(&mut world.state, Needs::default()));
    world.feed(Event::JobReleased { job: JOB });
    world.expect(&[start(attempt(0, 0, 1), 1)]);
    assert_eq!(live_attempt(&world.state, JOB), Some((attempt(0, 0, 1), NodeId(0))));
    assert!(!has_idle_room(&mut world.state, Needs::default()), "no slot asks");
}

#[test]
fn stopped_attempt_is_no_failure() {
    let mut world = held();
    let stopped = || Event::AttemptsStopped { job: JOB };
    for number in 0..5 {
        let running = attempt(0, 0, number);
        world.feed(stopped());
        let stop = Action::StopAttempt { attempt: running, slot: slot(0) };
        world.expect(&[stop, Action::TaskRetried { task: running.task }]);
        world.feed(stopped());
        world.expect(&[]);
        // Whatever it reports, nothing of it counts.
        let (end, discarded) = match number % 2 {
            0 => (failed(running, true), Vec::new()),
            _ => (succeeded(running), vec![Action::AttemptDiscarded { attempt: running }]),
        };
        world.feed(end);
        world.expect(&discarded);
        world.feed(free(0));
        world.expect(&[]);
        world.feed(Event::JobReleased { job: JOB });
        world.expect(&[start(attempt(0, 0, number + 1), 0)]);
        world.feed(Event::JobHeld { job: JOB });
    }
    world.feed(succeeded(attempt(0, 0, 5)));
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 5) }, crate::expand(1)]);
}

#[test]
fn waiting_task_wants_a_held_slot() {
    let mut world = held();
    let other = JobId(2);
    let submitted = Event::JobSubmitted {
        job: other,
        claim: Claim::default(),
        stages: vec![StageKind::Run],
        failures_max: 1,
    };
    world.feed(submitted);
    world.expect(&[Action::ExpandStage { job: other, stage: StageIndex(0) }]);
    world.feed(Event::StageExpanded { job: other, stage: StageIndex(0), tasks: anywhere(1) });
    assert!(wants_slots(&mut world.state) && !has_idle_room(&mut world.state, Needs::default()));
    world.feed(Event::AttemptsStopped { job: JOB });
    world.outbox.clear();
    world.feed(failed(attempt(0, 0, 0), true));
    world.feed(free(0));
    assert!(
        matches!(world.outbox.pop_front(), Some(Action::StartAttempt { attempt, .. }) if attempt.task.job == other)
    );
    assert!(!wants_slots(&mut world.state));
}

#[test]
fn held_job_can_be_cancelled() {
    let mut world = held();
    world.feed(Event::AttemptLost { attempt: attempt(0, 0, 0) });
    world.outbox.clear();
    world.feed(Event::JobCancelled { job: JOB });
    world.expect(&[Action::JobCancelled { job: JOB }, Action::JobDrained { job: JOB }]);
}
