//! Histories of the scheduler with a recording outbox, told by hand and made at random.

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, TaskIndex, TaskKey};
use proptest::prelude::*;
use scheduler::{Action, Event, FailureCause, Slot, State, UnixNanos, handle, has_jobs, sanity_check};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Feeds events and lets the test take the actions one by one.
#[derive(Default)]
struct World {
    state: State,
    outbox: VecDeque<Action>,
    clock: u64,
}

impl World {
    fn feed(&mut self, event: Event) {
        self.clock += 1;
        handle(&mut self.state, &mut self.outbox, UnixNanos(self.clock), event);
        sanity_check(&self.state);
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
    Event::StageExpanded { job: JOB, stage: StageIndex(stage), task_count }
}

fn failed(attempt: AttemptKey, retryable: bool) -> Event {
    Event::AttemptFailed { attempt, retryable }
}

fn succeeded(attempt: AttemptKey) -> Event {
    Event::AttemptSucceeded { attempt }
}

/// A job of two stages whose first has `tasks` tasks.
fn begun(tasks: u32) -> World {
    let mut world = World::default();
    world.feed(Event::JobSubmitted { job: JOB, stages: vec!["map", "commit"] });
    world.expect(&[expand(0)]);
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
fn stages_without_tasks_are_passed_through() {
    let mut world = begun(0);
    world.expect(&[expand(1)]);
    world.feed(expanded(1, 0));
    world.expect(&[Action::JobSucceeded { job: JOB }, Action::JobDrained { job: JOB }]);
}

#[test]
fn a_failed_task_goes_again_before_the_others_and_three_failures_are_too_many() {
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
fn a_failure_that_is_not_retryable_ends_the_job_when_the_others_have_stopped() {
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
fn the_first_success_wins_when_a_lost_attempt_comes_back() {
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
    world.expect(&[Action::TaskDone { attempt: attempt(0, 0, 0) }, expand(1)]);
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
fn what_the_last_stage_published_stands_against_a_cancel() {
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
fn an_older_job_goes_first_and_a_younger_one_fills_the_gaps() {
    let mut world = begun(1);
    world.feed(Event::JobSubmitted { job: JobId(2), stages: vec!["map"] });
    world.feed(Event::StageExpanded { job: JobId(2), stage: StageIndex(0), task_count: 1 });
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

/// A random world: what a server, its slots and impatient users may do, in any order.
#[derive(Default)]
struct Random {
    world: World,
    to_expand: Vec<(JobId, StageIndex)>,
    running: BTreeMap<AttemptKey, Slot>,
    lost: BTreeSet<AttemptKey>,
    winners: BTreeMap<TaskKey, AttemptKey>,
    submitted: i64,
    ended: BTreeSet<JobId>,
    drained: BTreeSet<JobId>,
}

const SLOTS: u32 = 4;
const JOBS_MAX: i64 = 3;

impl Random {
    fn take_actions(&mut self) {
        while let Some(action) = self.world.outbox.pop_front() {
            match action {
                Action::ExpandStage { job, stage } => self.to_expand.push((job, stage)),
                Action::StartAttempt { attempt, slot } => {
                    assert!(!self.ended.contains(&attempt.task.job), "{attempt} started after the end");
                    assert!(!self.winners.contains_key(&attempt.task), "{attempt} started after a winner");
                    assert!(!self.running.values().any(|busy| *busy == slot), "{slot:?} runs two");
                    assert!(self.running.insert(attempt, slot).is_none(), "{attempt} started twice");
                }
                Action::TaskDone { attempt } => {
                    assert!(self.winners.insert(attempt.task, attempt).is_none(), "two winners");
                }
                Action::AttemptDiscarded { .. } | Action::TaskRetried { .. } => {}
                Action::JobFailed { job, .. }
                | Action::JobSucceeded { job }
                | Action::JobCancelled { job } => {
                    assert!(self.ended.insert(job), "job {job} ended twice");
                }
                Action::JobDrained { job } => {
                    assert!(self.ended.contains(&job) && self.drained.insert(job));
                    assert!(!self.running.keys().any(|attempt| attempt.task.job == job));
                }
            }
        }
    }

    fn feed(&mut self, event: Event) {
        self.world.feed(event);
        self.take_actions();
    }

    fn step(&mut self, what: u8, pick: usize) {
        let busy = |random: &Self, slot: Slot| random.running.values().any(|each| *each == slot);
        let attempt = self.running.keys().nth(pick % self.running.len().max(1)).copied();
        match (what, attempt) {
            (0, _) if self.submitted < JOBS_MAX => {
                self.submitted += 1;
                let stages = vec!["map", "merge", "commit"][pick % 3..].to_vec();
                self.feed(Event::JobSubmitted { job: JobId(self.submitted), stages });
            }
            (1..=2, _) if !self.to_expand.is_empty() => {
                let (job, stage) = self.to_expand.remove(pick % self.to_expand.len());
                let refused = pick.is_multiple_of(17);
                self.feed(match refused {
                    true => Event::StageRefused { job, stage },
                    false => Event::StageExpanded { job, stage, task_count: (pick % 4) as u32 },
                });
            }
            (3..=5, _) => {
                let slot = slot(pick as u32 % SLOTS);
                if !busy(self, slot) {
                    self.feed(Event::SlotFree { slot });
                }
            }
            (6..=8, Some(attempt)) => {
                self.running.remove(&attempt);
                self.feed(Event::AttemptSucceeded { attempt });
            }
            (9..=10, Some(attempt)) => {
                self.running.remove(&attempt);
                self.feed(Event::AttemptFailed { attempt, retryable: !pick.is_multiple_of(7) });
            }
            (11, Some(attempt)) => {
                self.running.remove(&attempt);
                self.lost.insert(attempt);
                self.feed(Event::AttemptLost { attempt });
            }
            (12, _) => {
                if let Some(attempt) = self.lost.pop_first() {
                    self.feed(Event::AttemptSucceeded { attempt });
                }
            }
            (13, _) if pick.is_multiple_of(5) => {
                self.feed(Event::JobCancelled { job: JobId(pick as i64 % JOBS_MAX + 1) });
            }
            (14, _) => self.feed(Event::SlotGone { slot: slot(pick as u32 % SLOTS) }),
            _ => {}
        }
    }

    /// From here on everything goes well: all jobs must come to an end.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if let Some((job, stage)) = self.to_expand.pop() {
                self.feed(Event::StageExpanded { job, stage, task_count: 1 });
            } else if let Some(attempt) = self.running.keys().next().copied() {
                self.running.remove(&attempt);
                self.feed(Event::AttemptSucceeded { attempt });
            } else if has_jobs(&self.world.state) {
                (0..SLOTS).for_each(|number| self.feed(free(number)));
            } else {
                break;
            }
        }
    }
}

proptest! {
    #[test]
    fn any_order_of_events_ends_every_job_once(
        steps in proptest::collection::vec((0u8..15, 0usize..1000), 0..300),
    ) {
        let mut random = Random::default();
        for (what, pick) in steps {
            random.step(what, pick);
        }
        random.finish();
        prop_assert!(!has_jobs(&random.world.state));
        prop_assert_eq!(random.drained.len() as i64, random.submitted);
        prop_assert!(random.world.outbox.is_empty());
    }
}
