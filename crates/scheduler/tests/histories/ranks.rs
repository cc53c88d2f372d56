//! The order of the steps of jobs, and of other jobs between them.

use crate::{World, anywhere, free};
use ids::{AttemptKey, JobId, NodeId, StageIndex, StageKind};
use proptest::prelude::*;
use scheduler::{Action, Claim, Event, FAILURES_MAX, Needs, StepRank};
use std::cmp::Reverse;

fn submit(world: &mut World, job: JobId, claim: Claim) {
    let stages = vec![StageKind::Run];
    world.feed(Event::JobSubmitted { job, claim, stages, failures_max: FAILURES_MAX });
    world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks: anywhere(1) });
}

/// Returns the attempts that have started since the last call.
fn started(world: &mut World) -> Vec<AttemptKey> {
    let start = |action| match action {
        Action::StartAttempt { attempt, .. } => Some(attempt),
        _ => None,
    };
    world.outbox.drain(..).filter_map(start).collect()
}

fn step(of: i64, rank: u64) -> Claim {
    Claim { step: Some(StepRank { of: JobId(of), rank }), ..Claim::default() }
}

/// Ends the running attempts one by one. Returns the jobs in the order of their starts.
fn order(world: &mut World) -> Vec<i64> {
    let mut order = Vec::new();
    world.feed(free(0));
    while let [attempt] = started(world)[..] {
        order.push(attempt.task.job.0);
        world.feed(Event::AttemptSucceeded { attempt });
        world.feed(free(0));
    }
    order
}

#[test]
fn highest_rank_goes_first_within_its_job() {
    let mut world = World::default();
    submit(&mut world, JobId(10), step(1, 5));
    submit(&mut world, JobId(11), step(1, 7));
    // A plain job is as old as its number, between the two jobs with steps.
    submit(&mut world, JobId(12), Claim::default());
    submit(&mut world, JobId(14), step(13, u64::MAX));
    submit(&mut world, JobId(15), step(1, 7));
    submit(&mut world, JobId(16), step(1, 0));
    assert_eq!(order(&mut world), [11, 15, 10, 16, 12, 14]);
}

#[test]
fn step_that_comes_later_passes_lower_ranks() {
    let mut world = World::default();
    (2..5).for_each(|job| submit(&mut world, JobId(job), step(1, 3)));
    world.feed(free(0));
    let [first] = started(&mut world)[..] else { panic!("one slot, one attempt") };
    submit(&mut world, JobId(5), step(1, 4));
    world.feed(Event::AttemptSucceeded { attempt: first });
    assert_eq!(order(&mut world), [5, 3, 4]);
}

/// A rank gives a user no more slots, and a job no higher priority.
#[test]
fn ranks_count_only_within_one_job() {
    let mut world = World::default();
    let of = |user, priority, rank| Claim { user, priority, ..step(user as i64, rank) };
    submit(&mut world, JobId(10), of(1, 0, 9));
    submit(&mut world, JobId(11), of(1, 0, 8));
    submit(&mut world, JobId(12), of(2, 0, 1));
    submit(&mut world, JobId(13), of(2, 1, 0));
    (0..4).for_each(|slot| world.feed(free(slot)));
    let jobs: Vec<i64> = started(&mut world).iter().map(|attempt| attempt.task.job.0).collect();
    assert_eq!(jobs, [13, 10, 12, 11], "the users take turns after the urgent job");
}

proptest! {
    /// With one user and one slot, the order of starts is the order of all keys.
    #[test]
    fn starts_follow_priority_age_and_rank(
        jobs in prop::collection::vec((0..2_i32, 0..4_i64, 0..4_u64, any::<bool>()), 1..40),
    ) {
        let mut world = World::default();
        let memory_bytes = 1 << 20;
        world.feed(Event::NodeCame { node: NodeId(0), memory_bytes, architecture: 0, slots: 1, resources: Default::default() });
        let mut keys = Vec::new();
        for (number, (priority, of, rank, needs_memory)) in (10_i64..).zip(jobs) {
            // Jobs with different needs wait in different queues.
            let needs = Needs { memory_bytes: u64::from(needs_memory), ..Needs::default() };
            let claim = match of {
                0 => Claim { priority, needs, ..Claim::default() },
                of => Claim { priority, needs, ..step(of, rank) },
            };
            let (of, rank) = if of == 0 { (number, 0) } else { (of, rank) };
            submit(&mut world, JobId(number), claim);
            keys.push((Reverse(priority), of, Reverse(rank), number));
        }
        keys.sort_unstable();
        let expected: Vec<i64> = keys.into_iter().map(|(_, _, _, number)| number).collect();
        prop_assert_eq!(order(&mut world), expected);
    }
}
