//! Jobs with slow attempts of known causes. The real scheduler gets the progress of attempts, and copies run against
//! their originals. The duration of an attempt depends on its data, its node, and the nodes that it reads from and
//! writes to.

use crate::future::{Future, until_death_ns};
use fastrand::Rng;
use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, StageKind, TaskIndex, TaskKey};
use scheduler::{
    Action, Claim, Event, FAILURES_MAX, Label, Slot, State, UnixNanos, Waits, handle, has_jobs, sanity_check,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / 2;
const REPORT_EVERY_TICKS: u64 = 2;
const JOB: JobId = JobId(1);
/// Shares of the time of a usual attempt: reading, the program, writing.
const PARTS: [f64; 3] = [0.3, 0.5, 0.2];
/// Units of a usual task.
const UNITS: f64 = 64e6;
/// Share of its data after which a stuck attempt stops.
const STUCK_AT: f64 = 0.3;
/// Simulated time after which a world counts as failed.
const END_NS: u64 = 3600 * SECOND_NS;
/// Longest time that an attempt continues after it was told to stop.
const STOPS_WITHIN_NS: u64 = 2 * SECOND_NS;
const DEAD_AFTER_NS: u64 = 5 * SECOND_NS;

/// The trouble in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// One task has five times as much data as others.
    LargeData,
    /// The program is slow with the data of one task, on every node.
    SlowRecords,
    /// The program is slow on one node, as far as its only slot shows.
    SlowProgram,
    /// The program is slow on one node, with any data.
    SlowProcessor,
    /// Everything is slow on one node.
    SlowMachine,
    /// The disk of one node is slow for all readers.
    SlowDisk,
    /// A store that all nodes read is slow with the data of one task.
    SlowStore,
    /// Writing to the chunks of one node is slow.
    SlowChunks,
    /// Writing from one node is slow.
    SlowSender,
    /// One attempt makes no progress any more.
    Stuck,
}

impl Trouble {
    /// Returns the label that the scheduler must give to attempts with this trouble.
    pub fn label(self) -> Label {
        match self {
            Self::LargeData => Label::LargeData,
            Self::SlowRecords | Self::SlowProgram => Label::SlowProgram,
            Self::SlowProcessor | Self::SlowMachine => Label::SlowNode,
            Self::SlowDisk | Self::SlowStore => Label::SlowRead,
            Self::SlowChunks | Self::SlowSender => Label::SlowAppend,
            Self::Stuck => Label::NoProgress,
        }
    }
}

/// A job on some nodes.
#[derive(Clone, Copy, Debug)]
pub struct Stragglers {
    pub seed: u64,
    pub nodes: u32,
    pub slots_per_node: u32,
    pub tasks: u32,
    /// Duration of a usual task.
    pub task_ns: u64,
    /// Spread of attempts without trouble: one standard deviation, of each part.
    pub noise: f64,
    pub trouble: Option<Trouble>,
    /// Factor by which the trouble lengthens its part.
    pub times: f64,
    /// True if the trouble passes when a copy has begun: the original and the copy end at about the same time.
    pub passes: bool,
    /// True if slow attempts may be copied.
    pub copies: bool,
    /// Average number of nodes that die per minute; others replace them.
    pub deaths_per_minute: f64,
    pub failure_chance: f64,
}

impl Default for Stragglers {
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 10,
            slots_per_node: 2,
            tasks: 40,
            task_ns: 20 * SECOND_NS,
            noise: 0.1,
            trouble: None,
            times: 8.0,
            passes: false,
            copies: true,
            deaths_per_minute: 0.0,
            failure_chance: 0.0,
        }
    }
}

/// A label that the scheduler gave to a slow attempt.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub attempt: AttemptKey,
    pub label: Label,
    pub copied: bool,
    /// True if it had the trouble of its world.
    pub has_trouble: bool,
}

/// Labels, races and times seen in a world.
#[derive(Clone, Debug, Default)]
pub struct Raced {
    pub succeeded: bool,
    /// Labels in the order in which they were given.
    pub said: Vec<Said>,
    /// Number of copies beside their originals; of copies that won; and of pairs that both ended.
    pub races: u32,
    pub copies_won: u32,
    pub both_ended: u32,
    /// Slot time of all attempts, and of copies.
    pub all_ns: u64,
    pub copies_ns: u64,
    pub ended_ns: u64,
}

/// A running attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    slot: Slot,
    began_ns: u64,
    units: f64,
    /// Total nanoseconds of each part.
    parts_ns: [f64; 3],
    read_from: Option<NodeId>,
    append_to: Option<NodeId>,
    has_trouble: bool,
    is_stuck: bool,
    is_copy: bool,
}

enum Happening {
    Tick,
    Ends { attempt: AttemptKey, succeeds: bool },
    Stops(AttemptKey),
    Dies,
    FoundDead(NodeId),
}

struct Simulation {
    world: Stragglers,
    random: Rng,
    now_ns: u64,
    future: Future<Happening>,
    ticks: u64,
    state: State,
    outbox: VecDeque<Action>,
    alive: BTreeSet<NodeId>,
    nodes_ever: u32,
    running: BTreeMap<AttemptKey, Attempt>,
    /// Units of each task, and nodes with its data.
    tasks: Vec<(f64, Vec<NodeId>)>,
    /// Node and task with the trouble.
    bad_node: NodeId,
    bad_task: TaskIndex,
    copies: BTreeSet<AttemptKey>,
    told_to_stop: BTreeSet<AttemptKey>,
    winners: BTreeMap<TaskKey, AttemptKey>,
    raced: Raced,
}

/// Runs a world to its end. Panics, naming the world, if a task has two winners, a slot two attempts, or a job does not
/// end.
pub fn race(world: Stragglers) -> Raced {
    let mut random = Rng::with_seed(world.seed);
    let bad_node = NodeId(random.u32(1..=world.nodes));
    // One of the last of the first wave, so that there are others for the comparison.
    let bad_task = TaskIndex(random.u32(..world.tasks.min(world.nodes * world.slots_per_node)));
    let mut simulation = Simulation {
        world,
        random,
        now_ns: 1,
        future: Future::default(),
        ticks: 0,
        state: State::default(),
        outbox: VecDeque::new(),
        alive: BTreeSet::new(),
        nodes_ever: 0,
        running: BTreeMap::new(),
        tasks: Vec::new(),
        bad_node,
        bad_task,
        copies: BTreeSet::new(),
        told_to_stop: BTreeSet::new(),
        winners: BTreeMap::new(),
        raced: Raced::default(),
    };
    simulation.run();
    simulation.raced
}

impl Simulation {
    fn run(&mut self) {
        (0..self.world.nodes).for_each(|_| self.join());
        self.tasks = (0..self.world.tasks).map(|task| self.make_task(TaskIndex(task))).collect();
        self.foresee(TICK_NS, Happening::Tick);
        self.foresee_death();
        let stages = vec![StageKind::Map, StageKind::Commit];
        let claim = Claim::default();
        self.feed(Event::JobSubmitted { job: JOB, claim, stages, failures_max: FAILURES_MAX });
        if self.world.copies {
            self.feed(Event::MayCopy { job: JOB, stages: vec![StageIndex(0)] });
        }
        while has_jobs(&self.state) {
            let Some((at_ns, happening)) = self.future.pop() else {
                panic!("nothing more happens: {:?}", self.world);
            };
            assert!(at_ns < END_NS, "the job never ends: {:?}", self.world);
            self.now_ns = at_ns;
            self.happen(happening);
        }
        self.raced.ended_ns = self.now_ns;
    }

    fn foresee(&mut self, after_ns: u64, happening: Happening) {
        self.future.foresee(self.now_ns + after_ns, happening);
    }

    fn foresee_death(&mut self) {
        if let Some(wait_ns) = until_death_ns(&mut self.random, self.world.deaths_per_minute) {
            self.foresee(wait_ns, Happening::Dies);
        }
    }

    fn join(&mut self) {
        self.nodes_ever += 1;
        let node = NodeId(self.nodes_ever);
        self.alive.insert(node);
        for slot in 0..self.world.slots_per_node {
            self.feed(Event::SlotFree { slot: Slot { node, slot } });
        }
    }

    fn make_task(&mut self, task: TaskIndex) -> (f64, Vec<NodeId>) {
        let is_large = self.world.trouble == Some(Trouble::LargeData) && task == self.bad_task;
        let units = UNITS * self.noise() * if is_large { 5.0 } else { 1.0 };
        let first = self.random.u32(0..self.world.nodes);
        let has_replicas = matches!(self.world.trouble, Some(Trouble::SlowDisk | Trouble::SlowChunks));
        let near = (0..2).map(|next| NodeId((first + next * 3) % self.world.nodes + 1));
        (units, if has_replicas { near.collect() } else { Vec::new() })
    }

    /// Returns a factor of about 1: the sum of uniform numbers is nearly normal.
    fn noise(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.random.f64()).sum();
        (1.0 + (sum - 6.0) * self.world.noise).max(0.2)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick => {
                self.ticks += 1;
                if self.ticks.is_multiple_of(REPORT_EVERY_TICKS) {
                    self.report();
                }
                self.feed(Event::Tick);
                self.foresee(TICK_NS, Happening::Tick);
            }
            Happening::Ends { attempt, succeeds } => self.end(attempt, succeeds),
            Happening::Stops(attempt) => self.end(attempt, false),
            Happening::Dies => {
                let node = self.alive.iter().nth(self.random.usize(..self.alive.len().max(1))).copied();
                if let Some(node) = node {
                    self.alive.remove(&node);
                    self.foresee(DEAD_AFTER_NS, Happening::FoundDead(node));
                }
                self.foresee_death();
            }
            Happening::FoundDead(node) => {
                let gone = self.running.extract_if(.., |_, running| running.slot.node == node);
                let gone: Vec<(AttemptKey, Attempt)> = gone.collect();
                gone.iter().for_each(|(_, running)| self.count_time(running));
                self.feed(Event::NodeLost { node });
                self.join();
            }
        }
    }

    /// Reports the progress of all attempts on live nodes.
    fn report(&mut self) {
        let running: Vec<(AttemptKey, Attempt)> =
            self.running.iter().map(|(key, one)| (*key, *one)).collect();
        for (attempt, one) in running {
            if !self.alive.contains(&one.slot.node) {
                continue;
            }
            let elapsed_ns = (self.now_ns - one.began_ns) as f64;
            let all_ns: f64 = one.parts_ns.iter().sum();
            let share = (elapsed_ns / all_ns).min(if one.is_stuck { STUCK_AT } else { 1.0 });
            let [read_ns, _, append_ns] = one.parts_ns.map(|part_ns| (part_ns * share) as u64);
            let program_ns = (elapsed_ns as u64).saturating_sub(read_ns + append_ns);
            let (read_from, append_to) = (one.read_from, one.append_to);
            let waits = Some(Waits { read_ns, program_ns, append_ns, read_from, append_to });
            let (done, total) = ((one.units * share) as u64, one.units as u64);
            self.feed(Event::Progress { attempt, done, total, waits });
        }
    }

    fn count_time(&mut self, ended: &Attempt) {
        let ran_ns = self.now_ns - ended.began_ns;
        self.raced.all_ns += ran_ns;
        self.raced.copies_ns += if ended.is_copy { ran_ns } else { 0 };
    }

    fn end(&mut self, attempt: AttemptKey, succeeds: bool) {
        let Some(ended) = self.running.get(&attempt).copied() else { return };
        if !self.alive.contains(&ended.slot.node) {
            return;
        }
        self.running.remove(&attempt);
        self.count_time(&ended);
        self.raced.both_ended += u32::from(succeeds && self.told_to_stop.contains(&attempt));
        self.feed(match succeeds {
            true => Event::AttemptSucceeded { attempt },
            // An attempt that was told to stop is not retried.
            false => Event::AttemptFailed {
                attempt,
                retryable: !self.told_to_stop.contains(&attempt),
                of_node: false,
            },
        });
        self.feed(Event::SlotFree { slot: ended.slot });
    }

    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            handle(&mut self.state, &mut self.outbox, UnixNanos(self.now_ns), event);
            sanity_check(&self.state);
            while let Some(action) = self.outbox.pop_front() {
                events.extend(self.act(action));
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::ExpandStage { job, stage } => {
                let place = |(_, near): &(f64, Vec<NodeId>)| match near.is_empty() {
                    true => Placement::Anywhere,
                    false => Placement::Near(near.clone()),
                };
                let tasks = match stage.0 {
                    0 => self.tasks.iter().map(place).collect(),
                    _ => vec![Placement::Anywhere],
                };
                return Some(Event::StageExpanded { job, stage, tasks });
            }
            Action::StartAttempt { attempt, slot } => self.start(attempt, slot),
            Action::TaskDone { attempt } => {
                let before = self.winners.insert(attempt.task, attempt);
                assert!(before.is_none(), "{attempt} commits after {before:?}: {:?}", self.world);
                assert!(
                    !self.told_to_stop.contains(&attempt),
                    "{attempt} was told to stop: {:?}",
                    self.world
                );
                self.raced.copies_won += u32::from(self.copies.contains(&attempt));
            }
            Action::StopAttempt { attempt, .. } => {
                self.told_to_stop.insert(attempt);
                let after_ns = self.random.u64(..STOPS_WITHIN_NS);
                self.foresee(after_ns, Happening::Stops(attempt));
            }
            Action::Speculated { attempt, of, label, .. } => {
                self.copies.insert(attempt);
                self.raced.races += 1;
                if self.world.passes {
                    let after_ns = self.world.task_ns as f64 * self.noise();
                    self.foresee(after_ns as u64, Happening::Ends { attempt: of, succeeds: true });
                }
                self.say(of, label, true);
            }
            Action::SlowTask { attempt, label, .. } => self.say(attempt, label, false),
            Action::SplitTask { attempt, .. } => panic!("nobody allowed it: {attempt}"),
            Action::JobSucceeded { .. } => self.raced.succeeded = true,
            Action::JobFailed { .. }
            | Action::JobCancelled { .. }
            | Action::JobDrained { .. }
            | Action::TaskRetried { .. }
            | Action::AttemptDiscarded { .. }
            | Action::Placed { .. } => {}
        }
        None
    }

    fn say(&mut self, attempt: AttemptKey, label: Label, copied: bool) {
        let has_trouble = self.running[&attempt].has_trouble;
        self.raced.said.push(Said { attempt, label, copied, has_trouble });
    }

    fn start(&mut self, attempt: AttemptKey, slot: Slot) {
        assert!(
            !self.running.values().any(|other| other.slot == slot),
            "{slot:?} runs two: {:?}",
            self.world
        );
        let is_map = attempt.task.stage == StageIndex(0);
        let one = if is_map { self.map_attempt(attempt, slot) } else { self.short_attempt(slot) };
        self.running.insert(attempt, one);
        let takes_ns = one.parts_ns.iter().sum::<f64>() as u64;
        let succeeds = self.random.f64() >= self.world.failure_chance;
        if !one.is_stuck {
            self.foresee(takes_ns, Happening::Ends { attempt, succeeds });
        }
    }

    fn short_attempt(&self, slot: Slot) -> Attempt {
        Attempt {
            slot,
            began_ns: self.now_ns,
            units: 1.0,
            parts_ns: [0.0, SECOND_NS as f64, 0.0],
            read_from: None,
            append_to: None,
            has_trouble: false,
            is_stuck: false,
            is_copy: false,
        }
    }

    fn map_attempt(&mut self, attempt: AttemptKey, slot: Slot) -> Attempt {
        let (units, near) = self.tasks[attempt.task.task.0 as usize].clone();
        let node = slot.node;
        let read_from = near.iter().find(|one| **one == node).or(near.first()).copied();
        let nodes: Vec<NodeId> = self.alive.iter().copied().collect();
        let spreads = self.world.trouble == Some(Trouble::SlowChunks);
        let append_to = spreads.then(|| nodes[self.random.usize(..nodes.len())]).filter(|to| *to != node);
        let is_first = attempt.attempt.0 == 0;
        let is_bad_task = attempt.task.task == self.bad_task;
        let is_bad_node = node == self.bad_node;
        // The parts that have the trouble.
        let troubled = match self.world.trouble {
            Some(Trouble::LargeData) if is_bad_task => Some([false; 3]),
            Some(Trouble::SlowRecords) if is_bad_task => Some([false, true, false]),
            Some(Trouble::SlowProgram | Trouble::SlowProcessor) if is_bad_node => Some([false, true, false]),
            Some(Trouble::SlowMachine) if is_bad_node => Some([true; 3]),
            Some(Trouble::SlowDisk) if read_from == Some(self.bad_node) => Some([true, false, false]),
            Some(Trouble::SlowStore) if is_bad_task => Some([true, false, false]),
            Some(Trouble::SlowChunks) if append_to == Some(self.bad_node) => Some([false, false, true]),
            Some(Trouble::SlowSender) if is_bad_node => Some([false, false, true]),
            Some(Trouble::Stuck) if is_bad_task && is_first => Some([false; 3]),
            _ => None,
        };
        let mut parts_ns = PARTS;
        for (part, share) in parts_ns.iter_mut().enumerate() {
            let times = if troubled.is_some_and(|parts| parts[part]) { self.world.times } else { 1.0 };
            *share *= self.world.task_ns as f64 * units / UNITS * self.noise() * times;
        }
        Attempt {
            slot,
            began_ns: self.now_ns,
            units,
            parts_ns,
            read_from,
            append_to,
            has_trouble: troubled.is_some(),
            is_stuck: self.world.trouble == Some(Trouble::Stuck) && is_bad_task && is_first,
            is_copy: self.copies.contains(&attempt),
        }
    }
}
