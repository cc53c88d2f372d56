//! Generic resources of nodes: attempts take some of them where they run, with a recording outbox.

use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, StageKind};
use scheduler::{
    Action, Amount, Amounts, Claim, Event, MEMORY_PATIENCE_NS, Needs, Slot, State, UnixNanos, handle,
    sanity_check, wait_of,
};
use std::collections::VecDeque;

const SLOTS: u32 = 3;
const GPU: u32 = 7;
const FPGA: u32 = 2;

fn amounts(all: &[(u32, u32)]) -> Amounts {
    Amounts::of(all.iter().map(|(kind, count)| Amount { kind: *kind, count: *count }))
}

fn needs(all: &[(u32, u32)]) -> Needs {
    Needs { resources: amounts(all), ..Needs::default() }
}

#[derive(Default)]
struct World {
    state: State,
    outbox: VecDeque<Action>,
    clock: u64,
}

type Start = (AttemptKey, Slot);

impl World {
    fn with_nodes(nodes: &[&[(u32, u32)]]) -> Self {
        let mut world = Self::default();
        nodes.iter().zip(1..).for_each(|(resources, number)| world.add_node(number, resources));
        world
    }

    fn add_node(&mut self, number: u32, resources: &[(u32, u32)]) {
        let (node, resources) = (NodeId(number), amounts(resources));
        self.feed(Event::NodeCame { node, memory_bytes: 100, architecture: 0, slots: SLOTS, resources });
        (0..SLOTS).for_each(|slot| self.feed(Event::SlotFree { slot: Slot { node, slot } }));
    }

    fn feed(&mut self, event: Event) {
        self.clock += 1;
        handle(&mut self.state, &mut self.outbox, UnixNanos(self.clock), event);
        sanity_check(&self.state);
    }

    fn submit(&mut self, number: i64, needs: Needs) {
        let (job, claim) = (JobId(number), Claim { needs, ..Claim::default() });
        self.feed(Event::JobSubmitted { job, claim, stages: vec![StageKind::Run], failures_max: 2 });
        let tasks = vec![Placement::Anywhere];
        self.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks });
    }

    /// Returns the attempts that were started since the last call, after a comparison of their jobs and nodes.
    #[track_caller]
    fn expect_started(&mut self, expected: &[(i64, u32)]) -> Vec<Start> {
        let start = |action| match action {
            Action::StartAttempt { attempt, slot } => Some((attempt, slot)),
            _ => None,
        };
        let starts: Vec<Start> = std::mem::take(&mut self.outbox).into_iter().filter_map(start).collect();
        let told: Vec<(i64, u32)> =
            starts.iter().map(|(attempt, slot)| (attempt.task.job.0, slot.node.0)).collect();
        assert_eq!(told, expected);
        starts
    }

    fn end(&mut self, (attempt, slot): Start) {
        self.feed(Event::AttemptSucceeded { attempt });
        self.feed(Event::SlotFree { slot });
    }

    fn waits(&self, job: i64) -> bool {
        wait_of(&self.state, JobId(job)).is_some()
    }
}

#[test]
fn jobs_run_only_where_amounts_are_free() {
    let mut world = World::with_nodes(&[&[], &[(GPU, 2)]]);
    world.submit(1, needs(&[(GPU, 1)]));
    world.submit(2, needs(&[(GPU, 1)]));
    world.submit(3, needs(&[(GPU, 1)]));
    world.submit(4, Needs::default());
    let started = world.expect_started(&[(1, 2), (2, 2), (4, 1)]);
    assert!(world.waits(3) && !world.waits(1));
    world.end(started[0]);
    world.expect_started(&[(3, 2)]);
}

#[test]
fn all_kinds_must_be_on_one_node() {
    let mut world = World::with_nodes(&[&[(GPU, 1)], &[(FPGA, 1)]]);
    world.submit(1, needs(&[(GPU, 1), (FPGA, 1)]));
    world.expect_started(&[]);
    let wait = wait_of(&world.state, JobId(1)).unwrap();
    assert_eq!((wait.nodes, wait.nodes_large_enough), (2, 0));
    world.add_node(3, &[(FPGA, 1), (GPU, 1)]);
    world.expect_started(&[(1, 3)]);
}

#[test]
fn each_end_gives_amounts_back() {
    let ends: [fn(&mut World, Start); 4] = [
        |world, start| world.end(start),
        |world, (attempt, slot)| {
            let (retryable, of_node) = (false, false);
            world.feed(Event::AttemptFailed { attempt, retryable, of_node });
            world.feed(Event::SlotFree { slot });
        },
        |world, (attempt, slot)| {
            world.feed(Event::JobCancelled { job: attempt.task.job });
            let (retryable, of_node) = (false, false);
            world.feed(Event::AttemptFailed { attempt, retryable, of_node });
            world.feed(Event::SlotFree { slot });
        },
        |world, (attempt, slot)| {
            world.feed(Event::JobCancelled { job: attempt.task.job });
            world.feed(Event::AttemptLost { attempt });
            world.feed(Event::SlotFree { slot });
        },
    ];
    for end in ends {
        let mut world = World::with_nodes(&[&[(GPU, 1)]]);
        world.submit(1, needs(&[(GPU, 1)]));
        world.submit(2, needs(&[(GPU, 1)]));
        let first = world.expect_started(&[(1, 1)]);
        end(&mut world, first[0]);
        world.expect_started(&[(2, 1)]);
    }
}

#[test]
fn a_lost_node_takes_its_amounts_along() {
    let mut world = World::with_nodes(&[&[(GPU, 1)]]);
    world.submit(1, needs(&[(GPU, 1)]));
    world.expect_started(&[(1, 1)]);
    world.feed(Event::NodeLost { node: NodeId(1) });
    world.add_node(2, &[]);
    world.expect_started(&[]);
    world.add_node(3, &[(GPU, 1)]);
    world.expect_started(&[(1, 3)]);
}

#[test]
fn large_amounts_do_not_starve() {
    let mut world = World::with_nodes(&[&[(GPU, 2)]]);
    world.submit(1, needs(&[(GPU, 1)]));
    world.submit(2, needs(&[(GPU, 1)]));
    let small = world.expect_started(&[(1, 1), (2, 1)]);
    world.submit(3, needs(&[(GPU, 2)]));
    world.submit(4, needs(&[(GPU, 1)]));
    world.submit(5, needs(&[(GPU, 1)]));
    world.clock += MEMORY_PATIENCE_NS;
    world.feed(Event::Tick);
    // The younger ones would fill each gap.
    world.end(small[0]);
    world.expect_started(&[]);
    world.end(small[1]);
    let large = world.expect_started(&[(3, 1)]);
    world.end(large[0]);
    world.expect_started(&[(4, 1), (5, 1)]);
}

#[test]
fn amounts_near_data_are_counted_too() {
    let mut world = World::with_nodes(&[&[(GPU, 1)], &[(GPU, 1)]]);
    for number in [1, 2] {
        let (job, claim) = (JobId(number), Claim { needs: needs(&[(GPU, 1)]), ..Claim::default() });
        world.feed(Event::JobSubmitted { job, claim, stages: vec![StageKind::Run], failures_max: 1 });
        let tasks = vec![Placement::Near(vec![NodeId(2)])];
        world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks });
    }
    world.expect_started(&[(1, 2)]);
    // It takes the other node when it has waited for the near one.
    world.clock += scheduler::LOCALITY_DELAY_NS;
    world.feed(Event::Tick);
    world.expect_started(&[(2, 1)]);
}
