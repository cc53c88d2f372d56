//! Attempts that take several slots of one node at once, with a recording outbox.

use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use scheduler::{
    Action, Claim, Event, MEMORY_PATIENCE_NS, Needs, RecoveredTask, Slot, State, UnixNanos, handle, has_jobs,
    sanity_check, wait_of,
};
use std::collections::{BTreeMap, VecDeque};

const SLOTS: u32 = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// Nodes of four slots each, and the attempts that run there.
#[derive(Default)]
struct World {
    state: State,
    outbox: VecDeque<Action>,
    clock: u64,
    /// Running attempts, with their start.
    running: BTreeMap<AttemptKey, (Slot, u64)>,
    started: Vec<(i64, u32)>,
    beside: BTreeMap<JobId, u32>,
}

impl World {
    fn with_nodes(nodes: u32) -> Self {
        let mut world = Self::default();
        (1..=nodes).for_each(|node| world.add_node(node));
        world
    }

    fn add_node(&mut self, number: u32) {
        let node = NodeId(number);
        self.feed(Event::NodeCame {
            node,
            memory_bytes: 100,
            architecture: 0,
            slots: SLOTS,
            resources: Default::default(),
        });
        self.poll(number);
    }

    /// Lets all slots of a node ask, except those with an own attempt: nobody tells the others that they are taken.
    fn poll(&mut self, number: u32) {
        for slot in (0..SLOTS).map(|slot| Slot { node: NodeId(number), slot }) {
            if !self.running.values().any(|(busy, _)| *busy == slot) {
                self.feed(Event::SlotFree { slot });
            }
        }
    }

    fn feed(&mut self, event: Event) {
        self.clock += 1;
        handle(&mut self.state, &mut self.outbox, UnixNanos(self.clock), event);
        sanity_check(&self.state);
        self.note_started();
    }

    fn submit(&mut self, number: i64, slots_beside: u32, tasks: usize) {
        self.submit_of(number, Claim { needs: beside(slots_beside), ..Claim::default() }, tasks);
    }

    fn submit_of(&mut self, number: i64, claim: Claim, tasks: usize) {
        self.submit_placed(number, claim, vec![Placement::Anywhere; tasks]);
    }

    fn submit_placed(&mut self, number: i64, claim: Claim, tasks: Vec<Placement>) {
        let job = JobId(number);
        self.beside.insert(job, claim.needs.slots_beside);
        self.feed(Event::JobSubmitted { job, claim, stages: vec![StageKind::Run], failures_max: 1 });
        self.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks });
    }

    fn note_started(&mut self) {
        for action in std::mem::take(&mut self.outbox) {
            if let Action::StartAttempt { attempt, slot } = action {
                self.running.insert(attempt, (slot, self.clock));
                self.started.push((attempt.task.job.0, slot.node.0));
                let in_slot = |busy: &Slot| busy.node == slot.node && busy.slot < SLOTS;
                let on_it = self.running.iter().filter(|(_, (busy, _))| in_slot(busy));
                let used: u32 = on_it.map(|(attempt, _)| 1 + self.beside[&attempt.task.job]).sum();
                assert!(used <= SLOTS, "{used} slots of {} are in use", slot.node);
            }
        }
    }

    /// Returns the starts since the last call: job and node.
    fn take_started(&mut self) -> Vec<(i64, u32)> {
        self.started.sort_unstable();
        std::mem::take(&mut self.started)
    }

    #[track_caller]
    fn expect_started(&mut self, expected: &[(i64, u32)]) {
        assert_eq!(self.take_started(), expected);
    }

    /// Ends the first running attempt of a job; its slot does not ask yet.
    fn end(&mut self, job: i64) {
        let of_job = |attempt: &&AttemptKey| attempt.task.job == JobId(job);
        let attempt = self.running.keys().find(of_job).copied().unwrap();
        self.running.remove(&attempt);
        self.feed(Event::AttemptSucceeded { attempt });
    }

    /// Ends the attempts that have run for a second, then lets their slots ask.
    fn end_old_ones(&mut self) {
        let is_old = |since: u64| self.clock - since >= SECOND_NS;
        let old = self.running.iter().filter(|(_, (_, since))| is_old(*since));
        let old: Vec<(AttemptKey, Slot)> = old.map(|(attempt, (slot, _))| (*attempt, *slot)).collect();
        for (attempt, slot) in old {
            self.running.remove(&attempt);
            self.feed(Event::AttemptSucceeded { attempt });
            self.feed(Event::SlotFree { slot });
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.clock += nanos;
        self.feed(Event::Tick);
    }

    fn waits(&self, job: i64) -> bool {
        wait_of(&self.state, JobId(job)).is_some()
    }
}

fn beside(slots_beside: u32) -> Needs {
    Needs { slots_beside, ..Needs::default() }
}

fn on(node: u32) -> NodeId {
    NodeId(node)
}

#[test]
fn wide_attempt_takes_and_returns_slots() {
    let mut world = World::with_nodes(1);
    world.submit(1, 2, 2);
    world.expect_started(&[(1, 1)]);
    // One slot is left.
    world.submit(2, 0, 3);
    world.expect_started(&[(2, 1)]);
    assert!(!world.waits(1) && !world.waits(2));
    world.poll(1);
    world.expect_started(&[]);
    world.end(1);
    // The taken slots had asked all the time; the slot of the attempt itself has not asked yet.
    world.expect_started(&[(2, 1), (2, 1)]);
    world.poll(1);
    world.expect_started(&[]);
    (0..2).for_each(|_| world.end(2));
    world.poll(1);
    world.expect_started(&[(1, 1)]);
}

#[test]
fn wide_attempt_needs_slots_of_one_node() {
    let mut world = World::with_nodes(2);
    world.submit(1, 0, 4);
    world.expect_started(&[(1, 1), (1, 1), (1, 1), (1, 1)]);
    world.submit(2, 0, 1);
    world.expect_started(&[(2, 2)]);
    world.end(1);
    world.end(1);
    world.poll(1);
    world.submit(3, 3, 1);
    world.expect_started(&[]);
    let wait = wait_of(&world.state, JobId(3)).unwrap();
    assert_eq!((wait.needs.slots_beside, wait.nodes, wait.nodes_large_enough), (3, 2, 2));
    world.end(2);
    world.poll(2);
    world.expect_started(&[(3, 2)]);
}

#[test]
fn places_never_get_wide_attempts() {
    let mut world = World::with_nodes(1);
    world.submit(1, 0, 4);
    assert_eq!(world.take_started().len(), 4);
    world.feed(Event::PlacesFree { node: on(1), places: vec![SLOTS, SLOTS + 1, SLOTS + 2] });
    world.submit(2, 1, 1);
    world.expect_started(&[]);
}

#[test]
fn node_of_wide_attempt_gets_nothing_in_places() {
    let mut world = World::with_nodes(1);
    let places = || Event::PlacesFree { node: on(1), places: (SLOTS..SLOTS + 200).collect() };
    world.feed(places());
    world.submit(1, 3, 1);
    world.expect_started(&[(1, 1)]);
    (2..=101).for_each(|number| world.submit(number, 0, 1));
    world.poll(1);
    world.feed(places());
    world.pass(SECOND_NS);
    world.expect_started(&[]);
    world.end(1);
    world.poll(1);
    assert_eq!(world.take_started().len(), SLOTS as usize);
    world.feed(places());
    assert_eq!(world.take_started().len(), 100 - SLOTS as usize);
}

#[test]
fn owed_slots_keep_places_away_too() {
    let mut world = World::default();
    recover(&mut world, 1, 2);
    world.feed(Event::PlacesFree { node: on(1), places: vec![SLOTS] });
    world.submit(2, 0, 1);
    world.expect_started(&[]);
    world.end(1);
    world.feed(Event::PlacesFree { node: on(1), places: vec![SLOTS] });
    world.expect_started(&[(2, 1)]);
}

#[test]
fn slots_that_stopped_asking_are_forgotten() {
    let mut world = World::with_nodes(1);
    world.submit(1, 3, 1);
    world.expect_started(&[(1, 1)]);
    let taken = |slot| Slot { node: on(1), slot };
    world.feed(Event::SlotGone { slot: taken(1) });
    world.feed(Event::SlotGone { slot: taken(2) });
    world.feed(Event::SlotFree { slot: taken(2) });
    world.submit(2, 0, 4);
    world.end(1);
    // The second asked again, the third asked all the time.
    world.expect_started(&[(2, 1), (2, 1)]);
    world.submit(3, 0, 1);
    world.poll(1);
    world.expect_started(&[(2, 1), (2, 1)]);
}

#[test]
fn failed_and_lost_attempts_return_slots() {
    for is_lost in [false, true] {
        let mut world = World::with_nodes(1);
        world.submit(1, 3, 1);
        world.expect_started(&[(1, 1)]);
        let attempt = world.running.pop_first().unwrap().0;
        world.feed(match is_lost {
            true => Event::AttemptLost { attempt },
            false => Event::AttemptFailed { attempt, retryable: false, of_node: true },
        });
        world.submit(2, 2, 1);
        world.expect_started(&[(2, 1)]);
    }
}

#[test]
fn lost_node_forgets_its_taken_slots() {
    let mut world = World::with_nodes(2);
    world.submit(1, 3, 1);
    world.submit(2, 3, 1);
    world.expect_started(&[(1, 1), (2, 2)]);
    world.running.clear();
    world.feed(Event::NodeLost { node: on(1) });
    world.expect_started(&[]);
    // The slots of the other node stay taken.
    world.feed(Event::SlotFree { slot: Slot { node: on(2), slot: 1 } });
    world.expect_started(&[]);
    world.add_node(3);
    world.expect_started(&[(1, 3)]);
}

#[test]
fn taken_slots_follow_their_node_into_drain() {
    let mut world = World::with_nodes(1);
    world.submit(1, 2, 1);
    world.expect_started(&[(1, 1)]);
    world.feed(Event::NodeDraining { node: on(1) });
    world.end(1);
    world.submit(2, 0, 1);
    world.poll(1);
    world.expect_started(&[]);
    let bound = Claim { needs: beside(3), ..Claim::default() };
    world.submit_placed(3, bound, vec![Placement::On(on(1))]);
    world.expect_started(&[(3, 1)]);
    world.feed(Event::NodeResumes { node: on(1) });
    world.expect_started(&[]);
    world.end(3);
    world.expect_started(&[(2, 1)]);
}

#[test]
fn placed_wide_tasks_wait_for_slots_too() {
    let mut world = World::with_nodes(2);
    world.submit(1, 0, 6);
    assert_eq!(world.take_started().len(), 6);
    let claim = Claim { needs: beside(2), ..Claim::default() };
    world.submit_placed(2, claim, vec![Placement::Near(vec![on(2)]), Placement::On(on(2))]);
    world.pass(SECOND_NS);
    world.expect_started(&[]);
    (0..4).for_each(|_| world.end(1));
    world.poll(1);
    world.expect_started(&[(2, 1)]);
    (0..2).for_each(|_| world.end(1));
    world.poll(2);
    world.expect_started(&[(2, 2)]);
}

/// A job of the previous server whose first task runs on a node with three slots.
fn recover(world: &mut World, number: i64, slot: u32) {
    let job = JobId(number);
    let claim = Claim { needs: beside(2), ..Claim::default() };
    let task = TaskKey { job, stage: StageIndex(0), task: TaskIndex(0) };
    let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
    let slot = Slot { node: on(1), slot };
    world.beside.insert(job, 2);
    world.running.insert(attempt, (slot, world.clock));
    let begun = RecoveredTask { attempts_started: 1, ..RecoveredTask::default() };
    world.feed(Event::JobRecovered {
        job,
        claim,
        stages: vec![StageKind::Run],
        failures_max: 1,
        tasks: vec![vec![begun]],
        running: vec![(attempt, slot)],
        attempts_used: Vec::new(),
        standing: Vec::new(),
    });
}

#[test]
fn recovered_attempt_is_owed_its_slots() {
    let mut world = World::default();
    recover(&mut world, 1, 2);
    world.submit(2, 0, 4);
    world.add_node(1);
    world.expect_started(&[(2, 1)]);
    world.poll(1);
    world.expect_started(&[]);
    world.end(1);
    world.expect_started(&[(2, 1), (2, 1)]);
}

#[test]
fn attempt_that_ends_early_is_owed_nothing() {
    let mut world = World::default();
    recover(&mut world, 1, 2);
    world.feed(Event::SlotFree { slot: Slot { node: on(1), slot: 0 } });
    world.submit(2, 0, 4);
    world.end(1);
    world.expect_started(&[(2, 1)]);
    world.add_node(1);
    world.expect_started(&[(2, 1), (2, 1), (2, 1)]);
}

#[test]
fn users_share_slots_and_not_attempts() {
    let mut world = World::with_nodes(2);
    let of = |user, slots_beside| Claim { user, needs: beside(slots_beside), ..Claim::default() };
    world.submit_of(1, of(1, 3), 1);
    world.expect_started(&[(1, 1)]);
    world.submit_of(2, of(2, 0), 1);
    world.submit_of(3, of(3, 0), 3);
    world.expect_started(&[(2, 2), (3, 2), (3, 2), (3, 2)]);
    // The first user has one attempt with four slots, the third has three with one each.
    world.submit_of(4, of(1, 0), 1);
    world.submit_of(5, of(3, 0), 1);
    world.end(2);
    world.poll(2);
    world.expect_started(&[(5, 2)]);
}

/// Narrow jobs of a user come for ever, more than the slots can run. Returns the time until the wide job starts.
fn time_until_wide_starts(narrow_user: u64) -> u64 {
    let (wide_job, tick_ns) = (JobId(1000), SECOND_NS / 10);
    let mut world = World::with_nodes(2);
    let narrow = Claim { user: narrow_user, ..Claim::default() };
    let mut since = None;
    let mut narrow_since_patience = Vec::new();
    for round in 0..100 {
        // The number of a job is its age: older narrow jobs wait in front of the wide one, and younger ones behind it.
        let number = if since.is_none() { 2 + round } else { 2000 + round };
        // The first ones come one by one, so that they do not end together.
        world.submit_of(number, narrow, if round < 8 { 1 } else { 3 });
        if round == 17 {
            world.submit_of(wide_job.0, Claim { user: 1, needs: beside(3), ..Claim::default() }, 1);
            since = Some(world.clock);
        }
        world.pass(tick_ns);
        world.end_old_ones();
        let started = world.take_started();
        let Some(since) = since else { continue };
        if started.iter().any(|(job, _)| JobId(*job) == wide_job) {
            let nodes = |node: u32| narrow_since_patience.iter().filter(|each| **each == node).count();
            assert!(nodes(1).min(nodes(2)) == 0 && nodes(1).max(nodes(2)) >= 3, "{narrow_since_patience:?}");
            return world.clock - since;
        }
        if world.clock - since > MEMORY_PATIENCE_NS + tick_ns {
            narrow_since_patience.extend(started.iter().map(|(_, node)| *node));
        }
    }
    panic!("the wide job starved");
}

#[test]
fn narrow_jobs_do_not_starve_a_wide_one() {
    for narrow_user in [1, 2] {
        let waited_ns = time_until_wide_starts(narrow_user);
        let most_ns = MEMORY_PATIENCE_NS + SECOND_NS + 2 * SECOND_NS / 10;
        assert!(waited_ns >= MEMORY_PATIENCE_NS && waited_ns <= most_ns, "{waited_ns} ns");
    }
}

#[test]
fn reserved_node_runs_only_more_urgent_jobs() {
    let mut world = World::with_nodes(1);
    world.submit(1, 0, 4);
    assert_eq!(world.take_started().len(), 4);
    world.submit(2, 3, 1);
    world.pass(MEMORY_PATIENCE_NS);
    world.end(1);
    world.poll(1);
    world.submit(3, 0, 1);
    let bound = Claim::default();
    world.submit_placed(4, bound, vec![Placement::On(on(1)), Placement::Near(vec![on(1)])]);
    world.feed(Event::PlacesFree { node: on(1), places: vec![SLOTS] });
    world.pass(SECOND_NS);
    world.expect_started(&[]);
    world.submit_of(5, Claim { priority: 1, ..Claim::default() }, 1);
    world.expect_started(&[(5, 1)]);
    world.end(5);
    (0..3).for_each(|_| world.end(1));
    world.poll(1);
    // The reservation is over, but the slots of the wide attempt would run an order in the place.
    world.expect_started(&[(2, 1)]);
    world.end(2);
    world.poll(1);
    world.expect_started(&[(3, 1), (4, 1), (4, 1)]);
}

#[test]
fn idle_slots_of_reserved_node_block_nobody() {
    let mut world = World::with_nodes(2);
    world.submit(1, 0, 8);
    assert_eq!(world.take_started().len(), 8);
    world.submit(2, 3, 1);
    world.pass(MEMORY_PATIENCE_NS);
    // The second node is reserved; its idle slots asked before all others.
    let second = |world: &World| {
        let on_it = world.running.iter().filter(|(_, (slot, _))| slot.node == on(2));
        on_it.map(|(attempt, _)| *attempt).collect::<Vec<_>>()
    };
    for attempt in second(&world).into_iter().take(3) {
        world.running.remove(&attempt);
        world.feed(Event::AttemptSucceeded { attempt });
    }
    world.poll(2);
    world.feed(Event::PlacesFree { node: on(2), places: vec![SLOTS] });
    world.expect_started(&[]);
    // A place of the other node, as if no slot were idle.
    world.feed(Event::PlacesFree { node: on(1), places: vec![SLOTS] });
    world.submit(3, 0, 1);
    world.expect_started(&[(3, 1)]);
    world.submit(4, 0, 2);
    world.end(1);
    world.end(1);
    world.poll(1);
    world.expect_started(&[(4, 1), (4, 1)]);
    // The reservation ends with its job, and the idle slots get work.
    world.submit(5, 0, 2);
    world.expect_started(&[]);
    world.feed(Event::JobCancelled { job: JobId(2) });
    world.expect_started(&[(5, 2), (5, 2)]);
}

#[test]
fn reservation_ends_when_its_node_drains() {
    let mut world = World::with_nodes(2);
    world.submit(1, 0, 8);
    assert_eq!(world.take_started().len(), 8);
    world.submit(2, 3, 1);
    world.pass(MEMORY_PATIENCE_NS);
    world.feed(Event::NodeDraining { node: on(2) });
    world.feed(Event::Tick);
    (0..4).for_each(|_| world.end(1));
    world.submit(3, 0, 4);
    world.poll(1);
    world.expect_started(&[(2, 1)]);
}

#[test]
fn reservation_prefers_nodes_with_memory() {
    let mut world = World::with_nodes(2);
    let with_memory = |memory_bytes, slots_beside| Claim {
        needs: Needs { memory_bytes, slots_beside, ..Needs::default() },
        ..Claim::default()
    };
    world.submit_of(1, with_memory(60, 0), 1);
    world.submit(2, 0, 7);
    assert_eq!(world.take_started().len(), 8);
    world.end(1);
    world.submit_of(3, with_memory(60, 0), 1);
    world.poll(1);
    world.expect_started(&[(3, 1)]);
    // The first node has the most waiting slots, and not the memory.
    (0..2).for_each(|_| world.end(2));
    world.poll(1);
    world.submit_of(4, with_memory(50, 3), 1);
    world.pass(MEMORY_PATIENCE_NS);
    world.submit(5, 0, 2);
    world.expect_started(&[(5, 1), (5, 1)]);
    while world.running.keys().any(|attempt| attempt.task.job == JobId(2)) {
        world.end(2);
    }
    world.poll(2);
    world.expect_started(&[(4, 2)]);
}

#[test]
fn reservation_ends_when_lost_attempt_succeeds() {
    let mut world = World::with_nodes(1);
    let (job, claim) = (JobId(1), Claim { needs: beside(2), ..Claim::default() });
    world.beside.insert(job, 2);
    let stages = vec![StageKind::Run, StageKind::Commit];
    world.feed(Event::JobSubmitted { job, claim, stages, failures_max: 1 });
    world.feed(Event::StageExpanded { job, stage: StageIndex(0), tasks: vec![Placement::Anywhere] });
    world.submit_of(2, Claim { priority: 1, ..Claim::default() }, 4);
    world.expect_started(&[(1, 1), (2, 1)]);
    let lost = world.running.pop_first().unwrap().0;
    world.feed(Event::AttemptLost { attempt: lost });
    world.poll(1);
    world.expect_started(&[(2, 1), (2, 1), (2, 1)]);
    world.pass(MEMORY_PATIENCE_NS);
    world.submit(3, 0, 1);
    world.end(2);
    world.poll(1);
    world.expect_started(&[]);
    // The job has no task for the node any more, and does not leave.
    world.feed(Event::AttemptSucceeded { attempt: lost });
    world.feed(Event::Tick);
    world.expect_started(&[(3, 1)]);
}

#[test]
fn wide_jobs_take_turns_and_oversized_one_waits() {
    let mut world = World::with_nodes(2);
    world.submit(1, SLOTS, 1);
    let wait = wait_of(&world.state, JobId(1)).unwrap();
    assert_eq!((wait.nodes, wait.nodes_large_enough), (2, 0));
    world.submit(2, 0, 8);
    assert_eq!(world.take_started().len(), 8);
    world.submit(3, 3, 1);
    world.submit(4, 2, 1);
    world.submit(5, 0, 40);
    let mut started = Vec::new();
    for _ in 0..100 {
        world.pass(SECOND_NS / 10);
        world.end_old_ones();
        started.extend(world.take_started().into_iter().map(|(job, _)| job));
    }
    let position = |job: i64| started.iter().position(|each| *each == job).unwrap();
    assert!(position(3) < position(4) && position(4) < started.len() - 8, "{started:?}");
    assert_eq!(started.iter().filter(|job| **job == 5).count(), 40);
    assert!(world.waits(1) && has_jobs(&world.state));
}

fn holding(memory_bytes: u64) -> Claim {
    Claim { needs: Needs { memory_bytes, everywhere: true, ..Needs::default() }, ..Claim::default() }
}

fn wide_with_memory(memory_bytes: u64) -> Claim {
    Claim { needs: Needs { memory_bytes, slots_beside: 3, ..Needs::default() }, ..Claim::default() }
}

/// Tasks bound to each of two nodes.
fn bound_to_both(each: usize) -> Vec<Placement> {
    (0..2 * each).map(|task| Placement::On(on(task as u32 % 2 + 1))).collect()
}

/// Lets attempts of a second run until this number of rounds is over; `submit` adds jobs in each round. Returns all
/// started jobs, in their order.
fn run_rounds(world: &mut World, rounds: i64, mut submit: impl FnMut(&mut World, i64)) -> Vec<i64> {
    let mut started = Vec::new();
    for round in 0..rounds {
        submit(world, round);
        world.pass(SECOND_NS / 10);
        world.end_old_ones();
        started.extend(world.take_started().into_iter().map(|(job, _)| job));
    }
    started
}

#[test]
fn held_memory_does_not_reserve_whole_nodes() {
    let mut world = World::with_nodes(2);
    world.submit_placed(1, holding(60), bound_to_both(24));
    world.submit_of(2, wide_with_memory(50), 1);
    let narrow = |world: &mut World, round| world.submit(100 + round, 0, 1);
    let started = run_rounds(&mut world, 150, narrow);
    assert_eq!(started.iter().filter(|job| **job == 1).count(), 48);
    assert_eq!(started.iter().filter(|job| **job == 2).count(), 1);
}

#[test]
fn older_job_in_line_goes_before_wide() {
    let mut world = World::with_nodes(2);
    world.submit_placed(1, holding(60), bound_to_both(24));
    world.submit_placed(2, holding(60), bound_to_both(24));
    world.submit_of(3, wide_with_memory(10), 1);
    let narrow = |world: &mut World, round| world.submit(100 + round, 0, 1);
    let started = run_rounds(&mut world, 200, narrow);
    let count = |job: i64| started.iter().filter(|each| **each == job).count();
    assert_eq!((count(1), count(2), count(3)), (48, 48, 1));
    let first = |job: i64| started.iter().position(|each| *each == job).unwrap();
    assert!(first(2) < first(3));
}

#[test]
fn younger_holders_do_not_starve_wide_job() {
    // In the long run of the first job, the waiting ones rise, and their waits begin anew.
    for (memory_bytes, tasks_each) in [(0, 12), (10, 12), (50, 12), (50, 300)] {
        let mut world = World::with_nodes(2);
        world.submit_placed(1, holding(60), bound_to_both(tasks_each));
        world.submit_of(2, wide_with_memory(memory_bytes), 1);
        let holders =
            |world: &mut World, round| world.submit_placed(100 + round, holding(20), bound_to_both(4));
        let started = run_rounds(&mut world, 100 + 4 * tasks_each as i64, holders);
        let position = started.iter().position(|job| *job == 2);
        let most = 60 + 2 * tasks_each;
        assert!(position.is_some_and(|position| position < most), "{memory_bytes}: {position:?}");
    }
}

#[test]
fn reserved_node_runs_stranded_tasks_of_holders() {
    let mut world = World::with_nodes(2);
    world.submit(1, 0, 8);
    assert_eq!(world.take_started().len(), 8);
    world.submit_placed(2, holding(60), vec![Placement::Near(vec![on(2)]), Placement::On(on(2))]);
    world.submit_of(3, wide_with_memory(40), 1);
    world.pass(MEMORY_PATIENCE_NS);
    // The second node is reserved; jobs that come later start nothing there.
    world.submit_placed(4, holding(0), vec![Placement::On(on(2))]);
    world.submit_placed(5, Claim::default(), vec![Placement::On(on(2))]);
    let on_second = |world: &World| {
        let there = world.running.iter().find(|(_, (slot, _))| slot.node == on(2));
        there.map(|(attempt, _)| *attempt)
    };
    let attempt = on_second(&world).unwrap();
    world.running.remove(&attempt);
    world.feed(Event::AttemptSucceeded { attempt });
    world.poll(2);
    world.expect_started(&[(2, 2)]);
    // The wide job goes first as soon as it fits.
    while let Some(attempt) = on_second(&world) {
        world.running.remove(&attempt);
        world.feed(Event::AttemptSucceeded { attempt });
    }
    world.poll(2);
    world.expect_started(&[(3, 2)]);
}
