//! Admission of jobs to the memory of nodes, and the jobs that wait for it, with a recording outbox.

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use scheduler::{
    AGING_NS, Action, Claim, Event, MEMORY_PATIENCE_NS, Needs, Slot, State, UnixNanos, handle, left_out,
    sanity_check, wait_of,
};
use std::collections::VecDeque;

/// Nodes of so much memory with three slots each, and the attempts that were started on them.
#[derive(Default)]
struct World {
    state: State,
    outbox: VecDeque<Action>,
    clock: u64,
}

impl World {
    fn with_nodes(memory: &[u64]) -> Self {
        let mut world = Self::default();
        memory.iter().enumerate().for_each(|(index, bytes)| world.add_node(index as u32 + 1, *bytes, 0));
        world
    }

    fn add_node(&mut self, number: u32, memory_bytes: u64, architecture: u32) {
        let node = NodeId(number);
        self.feed(Event::NodeCame {
            node,
            memory_bytes,
            architecture,
            slots: 3,
            resources: Default::default(),
        });
        (0..3).for_each(|slot| self.feed(Event::SlotFree { slot: Slot { node, slot } }));
    }

    fn feed(&mut self, event: Event) {
        self.clock += 1;
        handle(&mut self.state, &mut self.outbox, UnixNanos(self.clock), event);
        sanity_check(&self.state);
    }

    fn submit(&mut self, number: i64, needs: Needs, tasks: usize) {
        self.submit_of(number, Claim { needs, ..Claim::default() }, tasks);
    }

    fn submit_of(&mut self, number: i64, claim: Claim, tasks: usize) {
        let job = JobId(number);
        self.feed(Event::JobSubmitted { job, claim, stages: vec![StageKind::Map], failures_max: 1 });
        self.feed(Event::StageExpanded {
            job,
            stage: StageIndex(0),
            tasks: vec![Placement::Anywhere; tasks],
        });
    }

    /// Attempts that were started since this was asked last: job and node.
    #[track_caller]
    fn expect_started(&mut self, expected: &[(i64, u32)]) -> Vec<(AttemptKey, Slot)> {
        let starts: Vec<(AttemptKey, Slot)> = std::mem::take(&mut self.outbox)
            .into_iter()
            .filter_map(|action| match action {
                Action::StartAttempt { attempt, slot } => Some((attempt, slot)),
                _ => None,
            })
            .collect();
        let mut told: Vec<(i64, u32)> =
            starts.iter().map(|(attempt, slot)| (attempt.task.job.0, slot.node.0)).collect();
        told.sort_unstable();
        assert_eq!(told, expected);
        starts
    }

    fn end(&mut self, (attempt, slot): (AttemptKey, Slot)) {
        self.feed(Event::AttemptSucceeded { attempt });
        self.feed(Event::SlotFree { slot });
    }

    fn pass(&mut self, nanos: u64) {
        self.clock += nanos;
        self.feed(Event::Tick);
    }

    fn waits(&self, job: i64) -> bool {
        wait_of(&self.state, JobId(job)).is_some()
    }
}

fn everywhere(memory_bytes: u64) -> Needs {
    Needs { memory_bytes, everywhere: true, ..Needs::default() }
}

fn here(memory_bytes: u64) -> Needs {
    Needs { memory_bytes, ..Needs::default() }
}

#[test]
fn jobs_on_all_nodes_begin_while_memory_fits() {
    let mut world = World::with_nodes(&[100, 100]);
    world.submit(1, everywhere(60), 1);
    world.submit(2, everywhere(60), 1);
    world.submit(3, everywhere(30), 1);
    let first = world.expect_started(&[(1, 1)]);
    // The third would fit beside the first, but nobody passes the second.
    assert!(world.waits(2) && world.waits(3) && !world.waits(1));
    let wait = wait_of(&world.state, JobId(3)).unwrap();
    assert_eq!((wait.held_bytes, wait.jobs_with_memory, wait.before), (60, 1, 1));
    world.end(first[0]);
    let started = world.expect_started(&[(2, 1), (3, 1)]);
    started.into_iter().for_each(|start| world.end(start));
    assert!(!world.waits(2));
}

#[test]
fn resting_job_lends_its_memory_and_regains_it() {
    let mut world = World::with_nodes(&[100]);
    let (job, first, last) = (JobId(1), StageIndex(0), StageIndex(1));
    let claim = Claim { needs: everywhere(60), ..Claim::default() };
    world.feed(Event::JobSubmitted {
        job,
        claim,
        stages: vec![StageKind::Map, StageKind::Commit],
        failures_max: 1,
    });
    world.feed(Event::StageExpanded { job, stage: first, tasks: vec![Placement::Anywhere] });
    world.submit(2, everywhere(60), 2);
    let map = world.expect_started(&[(1, 1)]);
    world.end(map[0]);
    // Between two stages it keeps what it has, unless it says that this will take long.
    assert!(world.waits(2));
    world.feed(Event::JobRests { job });
    let readers = world.expect_started(&[(2, 1), (2, 1)]);
    // Who reads waits for what is made again: that must not wait for whoever reads.
    let tasks = vec![TaskIndex(0)];
    world.feed(Event::StageSentBack { job, stage: last, to: first, tasks, retained: None });
    let again = world.expect_started(&[(1, 1)]);
    world.end(again[0]);
    world.feed(Event::JobRests { job });
    readers.into_iter().for_each(|start| world.end(start));
    world.feed(Event::StageExpanded { job, stage: last, tasks: Vec::new() });
    let ended = |action: &Action| *action == Action::JobSucceeded { job };
    assert_eq!(world.outbox.iter().filter(|action| ended(action)).count(), 1);
    world.submit(3, everywhere(100), 1);
    world.expect_started(&[(3, 1)]);
}

#[test]
fn a_job_that_needs_nothing_does_not_wait() {
    let mut world = World::with_nodes(&[100]);
    world.submit(1, everywhere(100), 1);
    world.submit(2, everywhere(100), 1);
    world.submit(3, Needs::default(), 1);
    world.expect_started(&[(1, 1), (3, 1)]);
}

#[test]
fn job_too_large_for_all_nodes_blocks_nobody() {
    let mut world = World::with_nodes(&[100, 50]);
    world.submit(1, everywhere(101), 1);
    world.pass(AGING_NS);
    world.submit(2, here(60), 1);
    world.submit(3, everywhere(40), 1);
    world.expect_started(&[(2, 1), (3, 1)]);
    assert_eq!(wait_of(&world.state, JobId(1)).unwrap().nodes_large_enough, 0);
}

#[test]
fn users_take_turns_and_long_waiters_go_first() {
    let mut world = World::with_nodes(&[100]);
    let of = |user, priority| Claim { user, priority, needs: everywhere(100), step: None };
    world.submit_of(1, of(1, 0), 1);
    world.submit_of(2, of(1, 0), 1);
    world.submit_of(3, of(1, 0), 1);
    let first = world.expect_started(&[(1, 1)]);
    world.submit_of(4, of(2, 1), 1);
    world.end(first[0]);
    // The urgent one.
    let urgent = world.expect_started(&[(4, 1)]);
    world.submit_of(5, of(2, 1), 1);
    world.pass(AGING_NS);
    world.submit_of(6, of(2, 1), 1);
    world.end(urgent[0]);
    let next = world.expect_started(&[(2, 1)]);
    world.end(next[0]);
    world.expect_started(&[(3, 1)]);
}

#[test]
fn attempts_share_the_memory_of_a_node() {
    let mut world = World::with_nodes(&[100, 50]);
    world.submit(1, here(60), 3);
    let first = world.expect_started(&[(1, 1)]);
    world.submit(2, here(40), 3);
    world.expect_started(&[(2, 1), (2, 2)]);
    world.submit(3, here(101), 1);
    let wait = wait_of(&world.state, JobId(3)).unwrap();
    assert_eq!((wait.nodes, wait.nodes_large_enough), (2, 0));
    world.end(first[0]);
    world.expect_started(&[(1, 1)]);
}

/// Small ones would fill the gaps for ever.
#[test]
fn node_is_reserved_for_large_long_waiter() {
    let mut world = World::with_nodes(&[100, 100]);
    world.submit(1, here(50), 4);
    let mut small = world.expect_started(&[(1, 1), (1, 1), (1, 2), (1, 2)]);
    world.submit(2, here(100), 1);
    world.submit(3, here(50), 20);
    world.pass(MEMORY_PATIENCE_NS);
    world.expect_started(&[]);
    let kept = Slot { node: NodeId(2), slot: 0 }.node;
    // What ends elsewhere is replaced by the next small one; on that node, not.
    let (on_kept, elsewhere): (Vec<_>, Vec<_>) = small.drain(..).partition(|(_, slot)| slot.node == kept);
    elsewhere.into_iter().for_each(|start| world.end(start));
    world.expect_started(&[(3, 1), (3, 1)]);
    let mut on_kept = on_kept.into_iter();
    world.end(on_kept.next().unwrap());
    world.expect_started(&[]);
    world.end(on_kept.next().unwrap());
    let large = world.expect_started(&[(2, 2)]);
    world.end(large[0]);
    world.expect_started(&[(3, 2), (3, 2)]);
}

#[test]
fn attempts_cannot_starve_a_job_of_all_nodes() {
    let mut world = World::with_nodes(&[100]);
    world.submit(1, here(50), 1);
    let first = world.expect_started(&[(1, 1)]);
    world.submit(2, everywhere(100), 1);
    world.submit(3, here(10), 1);
    let passed = world.expect_started(&[(3, 1)]);
    world.pass(MEMORY_PATIENCE_NS);
    world.submit(4, here(10), 1);
    world.expect_started(&[]);
    world.end(first[0]);
    world.expect_started(&[]);
    world.end(passed[0]);
    let large = world.expect_started(&[(2, 1)]);
    world.end(large[0]);
    world.expect_started(&[(4, 1)]);
}

#[test]
fn architectures_are_kept_apart() {
    let mut world = World::with_nodes(&[100]);
    world.add_node(2, 100, 7);
    let needs = |memory_bytes, architecture| Needs { memory_bytes, architecture, ..Needs::default() };
    world.submit(1, needs(0, Some(7)), 2);
    world.expect_started(&[(1, 2), (1, 2)]);
    world.submit(2, needs(10, Some(0)), 1);
    world.expect_started(&[(2, 1)]);
    world.submit(3, needs(0, Some(9)), 1);
    world.expect_started(&[]);
    assert!(world.waits(3));
    world.add_node(3, 1, 9);
    world.expect_started(&[(3, 3)]);
}

/// Data of a job lies on all nodes that share: one that cannot take it all stays out.
#[test]
fn small_node_stays_out_while_large_jobs_run() {
    let mut world = World::with_nodes(&[100]);
    world.submit(1, everywhere(80), 1);
    let first = world.expect_started(&[(1, 1)]);
    world.add_node(2, 50, 0);
    assert_eq!(left_out(&world.state), [NodeId(2)].into());
    // It does what needs nothing of the others.
    world.submit(2, here(40), 2);
    world.expect_started(&[(2, 2)]);
    world.submit(3, Needs::default(), 3);
    world.expect_started(&[(3, 1), (3, 1), (3, 2)]);
    world.end(first[0]);
    let started = world.expect_started(&[(2, 1)]);
    world.end(started[0]);
    assert_eq!(left_out(&world.state), [].into());
    world.submit(4, everywhere(80), 1);
    world.expect_started(&[(4, 1)]);
    assert_eq!(left_out(&world.state), [NodeId(2)].into());
}

#[test]
fn lost_nodes_and_jobs_return_their_memory() {
    let mut world = World::with_nodes(&[100, 100]);
    world.submit(1, here(100), 2);
    world.expect_started(&[(1, 1), (1, 2)]);
    world.submit(2, everywhere(100), 1);
    world.feed(Event::NodeLost { node: NodeId(1) });
    world.expect_started(&[]);
    let task = |number| TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(number) };
    // The job of attempts goes, and with it what it had on the other node.
    world.feed(Event::JobCancelled { job: JobId(1) });
    for number in 0..2 {
        let attempt = AttemptKey { task: task(number), attempt: AttemptNumber(0) };
        world.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
    }
    world.expect_started(&[(2, 2)]);
    world.feed(Event::JobCancelled { job: JobId(2) });
    assert!(!world.waits(2));
}

#[test]
fn jobs_wait_for_the_first_node() {
    let mut world = World::default();
    world.submit(1, everywhere(80), 1);
    world.submit(2, everywhere(80), 1);
    world.submit(3, here(10), 1);
    assert!(world.waits(1) && world.waits(2) && world.waits(3));
    world.add_node(1, 100, 0);
    world.expect_started(&[(1, 1), (3, 1)]);
}
