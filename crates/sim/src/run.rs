//! The clock of a world: its events, and the reactions of the scheduler.

use crate::World;
use crate::cluster::Cluster;
use crate::future::{Future, until_death_ns};
use crate::jobs::{Job, STAGES};
use fastrand::Rng;
use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskIndex};
use scheduler::{Action, Amount, Amounts, Event, Slot, State, UnixNanos, handle, has_jobs, sanity_check};
use std::collections::{BTreeMap, VecDeque};

/// Silence after which a node counts as dead.
const LEASE_NS: u64 = 10_000_000_000;
const TICK_NS: u64 = 100_000_000;
/// Simulated time after which a world with unfinished jobs counts as failed.
const END_NS: u64 = 100 * 3600 * 1_000_000_000;
/// Probability that an attempt succeeds although its node was found dead: the node was only cut off.
const COMES_BACK: f64 = 0.1;

/// Counts and times seen in a world.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub succeeded: u32,
    pub failed: u32,
    pub events: u64,
    pub attempts: u64,
    pub deaths: u32,
    /// Map results that were lost with their nodes and recomputed.
    pub results_lost: u64,
    /// Attempts that succeeded after their nodes had been found dead.
    pub came_back: u64,
    /// Starts on a node with the task's data, and starts of such tasks on other nodes.
    pub near_starts: u64,
    pub far_starts: u64,
    /// Longest time from the arrival of a job to its first start.
    pub longest_first_wait_ns: u64,
    /// Maximum memory in use on a node.
    pub memory_peak_bytes: u64,
    /// Longest time in which a user had waiting tasks and none was started.
    pub longest_wait_ns: u64,
    /// Slot time of each user while every user had enough waiting tasks for all slots.
    pub contended_ns: Vec<u64>,
    pub ended_ns: u64,
}

enum Happening {
    Arrives(JobId),
    Ends {
        attempt: AttemptKey,
        node: NodeId,
        succeeds: bool,
    },
    Dies,
    /// The lease of a dead node has expired.
    FoundDead(NodeId),
    ComesBack(AttemptKey),
    Tick,
}

struct Simulation {
    world: World,
    random: Rng,
    now_ns: u64,
    future: Future<Happening>,
    state: State,
    outbox: VecDeque<Action>,
    cluster: Cluster,
    jobs: BTreeMap<JobId, Job>,
    /// Placements of the tasks of map stages.
    near: BTreeMap<(JobId, TaskIndex), Vec<NodeId>>,
    /// Number of running attempts of each user; `waiting` has the number of waiting tasks of each user.
    running: Vec<u64>,
    waiting: Vec<u64>,
    /// Time at which each user was last served, or began to wait.
    served_ns: Vec<u64>,
    jobs_left: usize,
    /// Memory held by jobs on all nodes; `ran_bytes` has the memory of attempts on each node.
    held_bytes: u64,
    ran_bytes: BTreeMap<NodeId, u64>,
    /// Units of the generic resource that attempts have on each node.
    ran_units: BTreeMap<NodeId, u32>,
    outcome: Outcome,
}

/// Kind of the generic resource of worlds with memory, and its units on each node.
const UNIT_KIND: u32 = 3;
const UNITS_OF_NODE: u32 = 2;

/// Returns units of the generic resource.
pub(crate) fn units(count: u32) -> Amounts {
    Amounts::of([Amount { kind: UNIT_KIND, count }])
}

/// Runs a world to its end. Panics, naming the world, if a job never ends or ends twice.
pub fn run(world: World) -> Outcome {
    let mut random = Rng::with_seed(world.seed);
    let jobs = Job::all(&world, &mut random);
    let mut simulation = Simulation {
        world,
        random,
        now_ns: 1,
        future: Future::default(),
        state: State::default(),
        outbox: VecDeque::new(),
        cluster: Cluster::default(),
        jobs_left: jobs.len(),
        near: BTreeMap::new(),
        running: vec![0; world.users as usize],
        waiting: vec![0; world.users as usize],
        served_ns: vec![0; world.users as usize],
        held_bytes: 0,
        ran_bytes: BTreeMap::new(),
        ran_units: BTreeMap::new(),
        outcome: Outcome { contended_ns: vec![0; world.users as usize], ..Outcome::default() },
        jobs,
    };
    simulation.run();
    simulation.outcome
}

impl Simulation {
    fn run(&mut self) {
        for _ in 0..self.world.nodes {
            self.join();
        }
        let arrivals: Vec<(JobId, u64)> = self.jobs.iter().map(|(id, job)| (*id, job.arrives_ns)).collect();
        arrivals.into_iter().for_each(|(id, at)| self.foresee(at, Happening::Arrives(id)));
        self.foresee(TICK_NS, Happening::Tick);
        self.foresee_death();
        while self.jobs_left > 0 || has_jobs(&self.state) {
            let Some((at_ns, happening)) = self.future.pop() else {
                panic!("nothing more happens and jobs are left: {:?}", self.world);
            };
            assert!(at_ns < END_NS, "jobs never end: {:?}", self.world);
            self.now_ns = at_ns;
            self.happen(happening);
        }
        self.outcome.ended_ns = self.now_ns;
    }

    fn foresee(&mut self, at_ns: u64, happening: Happening) {
        self.future.foresee(at_ns, happening);
    }

    fn foresee_death(&mut self) {
        if let Some(wait_ns) = until_death_ns(&mut self.random, self.world.deaths_per_minute) {
            self.foresee(self.now_ns + wait_ns, Happening::Dies);
        }
    }

    fn join(&mut self) {
        let node = self.cluster.join();
        if self.world.memory_bytes > 0 {
            let memory_bytes = self.world.memory_bytes;
            let slots = self.world.slots_per_node;
            let resources = units(UNITS_OF_NODE);
            self.feed(Event::NodeCame { node, memory_bytes, architecture: 0, slots, resources });
        }
        for slot in 0..self.world.slots_per_node {
            self.feed(Event::SlotFree { slot: Slot { node, slot } });
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives(job) => {
                let claim = self.jobs[&job].claim;
                self.feed(Event::JobSubmitted {
                    job,
                    claim,
                    stages: STAGES.to_vec(),
                    failures_max: scheduler::FAILURES_MAX,
                });
            }
            Happening::Ends { attempt, node, succeeds } => self.end(attempt, node, succeeds),
            Happening::Dies => {
                if let Some(node) = self.cluster.pick(&mut self.random) {
                    self.outcome.deaths += 1;
                    self.cluster.kill(node);
                    self.foresee(self.now_ns + LEASE_NS, Happening::FoundDead(node));
                }
                self.foresee_death();
            }
            Happening::FoundDead(node) => self.find_dead(node),
            Happening::ComesBack(attempt) => {
                self.outcome.came_back += 1;
                self.feed(Event::AttemptSucceeded { attempt });
            }
            Happening::Tick => {
                self.count_contention();
                self.feed(Event::Tick);
                self.foresee(self.now_ns + TICK_NS, Happening::Tick);
            }
        }
    }

    fn end(&mut self, attempt: AttemptKey, node: NodeId, succeeds: bool) {
        if !self.cluster.is_alive(node) {
            return;
        }
        let Some(slot) = self.cluster.end(node, attempt) else { return };
        self.count_end(attempt);
        self.give_memory_back(attempt, node);
        match succeeds {
            true => {
                // Jobs that need resources of one node leave no data there.
                if attempt.task.stage == StageIndex(0)
                    && let Some(job) = self.jobs.get_mut(&attempt.task.job)
                    && (job.claim.needs.everywhere || job.claim.needs.is_nothing())
                {
                    job.results.insert(attempt.task.task, node);
                }
                self.feed(Event::AttemptSucceeded { attempt });
            }
            false => self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false }),
        }
        self.feed(Event::SlotFree { slot });
    }

    fn find_dead(&mut self, node: NodeId) {
        let vanished = self.cluster.bury(node);
        self.ran_bytes.remove(&node);
        self.ran_units.remove(&node);
        for attempt in vanished.keys() {
            self.count_end(*attempt);
            if self.random.f64() < COMES_BACK {
                let after_ns = self.random.u64(1..self.world.task_ns_max);
                self.foresee(self.now_ns + after_ns, Happening::ComesBack(*attempt));
            }
        }
        self.feed(Event::NodeLost { node });
        let mut lost: Vec<(JobId, Vec<TaskIndex>)> = Vec::new();
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| !job.is_over()) {
            let tasks: Vec<TaskIndex> =
                job.results.iter().filter(|(_, place)| **place == node).map(|(task, _)| *task).collect();
            job.results.retain(|_, place| *place != node);
            if !tasks.is_empty() {
                lost.push((*id, tasks));
            }
        }
        for (job, tasks) in lost {
            self.outcome.results_lost += tasks.len() as u64;
            self.feed(Event::ResultsLost { job, stage: StageIndex(0), tasks, retained: None });
        }
        self.join();
    }

    fn count_end(&mut self, attempt: AttemptKey) {
        self.running[self.jobs[&attempt.task.job].claim.user as usize] -= 1;
    }

    /// Adds the slot time of each user, while every user could fill all slots alone.
    fn count_contention(&mut self) {
        let slots = u64::from(self.world.nodes) * u64::from(self.world.slots_per_node);
        if self.waiting.iter().all(|waiting| *waiting >= slots) {
            let shares = self.outcome.contended_ns.iter_mut().zip(&self.running);
            shares.for_each(|(sum, running)| *sum += running * TICK_NS);
        }
    }

    /// Sets the number of tasks of a job that wait.
    fn set_waiting(&mut self, id: JobId, waiting: u32) {
        let job = self.jobs.get_mut(&id).expect("a job of this world");
        let user = job.claim.user as usize;
        if self.waiting[user] == 0 {
            self.served_ns[user] = self.now_ns;
        }
        self.waiting[user] = self.waiting[user] + u64::from(waiting) - u64::from(job.waiting);
        job.waiting = waiting;
    }

    /// Feeds the scheduler an event and executes its orders.
    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.outcome.events += 1;
            handle(&mut self.state, &mut self.outbox, UnixNanos(self.now_ns), event);
            if self.world.check_always {
                sanity_check(&self.state);
            }
            while let Some(action) = self.outbox.pop_front() {
                events.extend(self.act(action));
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::ExpandStage { job: id, stage } => {
                let (cluster, random) = (&self.cluster, &mut self.random);
                let tasks = self.jobs[&id].placements(stage, || cluster.pick(random));
                self.set_waiting(id, tasks.len() as u32);
                for (index, placement) in tasks.iter().enumerate() {
                    if let ids::Placement::Near(nodes) = placement {
                        self.near.insert((id, TaskIndex(index as u32)), nodes.clone());
                    }
                }
                return Some(Event::StageExpanded { job: id, stage, tasks });
            }
            Action::StartAttempt { attempt, slot } => self.start(attempt, slot),
            Action::TaskRetried { task } => self.set_waiting(task.job, self.jobs[&task.job].waiting + 1),
            Action::JobSucceeded { job } => self.close(job, true),
            Action::JobFailed { job, .. } => self.close(job, false),
            Action::JobCancelled { job } => panic!("nobody cancelled job {job}: {:?}", self.world),
            Action::StopAttempt { .. } | Action::Speculated { .. } | Action::SlowTask { .. } => {}
            Action::SplitTask { attempt, .. } => panic!("nobody allowed it: {attempt}"),
            Action::TaskDone { .. } | Action::Placed { .. } | Action::AttemptDiscarded { .. } => {}
            Action::JobDrained { job } => {
                let job = &self.jobs[&job];
                if job.has_begun && job.claim.needs.everywhere {
                    self.held_bytes -= job.claim.needs.memory_bytes;
                }
            }
        }
        None
    }

    /// Takes memory for an attempt, or for its job with the first attempt. Panics if a node does not have it.
    fn take_memory(&mut self, attempt: AttemptKey, node: NodeId) {
        let job = self.jobs.get_mut(&attempt.task.job).expect("a job of this world");
        let needs = job.claim.needs;
        if !std::mem::replace(&mut job.has_begun, true) {
            let waited_ns = self.now_ns - job.arrives_ns;
            self.outcome.longest_first_wait_ns = self.outcome.longest_first_wait_ns.max(waited_ns);
            self.held_bytes += if needs.everywhere { needs.memory_bytes } else { 0 };
        }
        if !needs.everywhere {
            *self.ran_bytes.entry(node).or_default() += needs.memory_bytes;
            let units = self.ran_units.entry(node).or_default();
            *units += needs.resources.count_of(UNIT_KIND);
            assert!(*units <= UNITS_OF_NODE, "{node} has not that resource: {:?}", self.world);
        }
        let most_bytes = self.held_bytes + self.ran_bytes.values().max().copied().unwrap_or(0);
        assert!(most_bytes <= self.world.memory_bytes, "{node} has not that memory: {:?}", self.world);
        self.outcome.memory_peak_bytes = self.outcome.memory_peak_bytes.max(most_bytes);
    }

    fn give_memory_back(&mut self, attempt: AttemptKey, node: NodeId) {
        let needs = self.jobs[&attempt.task.job].claim.needs;
        if !needs.everywhere
            && let Some(bytes) = self.ran_bytes.get_mut(&node)
        {
            *bytes -= needs.memory_bytes;
            *self.ran_units.entry(node).or_default() -= needs.resources.count_of(UNIT_KIND);
        }
    }

    fn close(&mut self, id: JobId, succeeded: bool) {
        self.set_waiting(id, 0);
        let job = self.jobs.get_mut(&id).expect("a job of this world");
        assert!(!job.is_over(), "job {id} ends twice: {:?}", self.world);
        (job.succeeded, job.failed) = (succeeded, !succeeded);
        self.outcome.succeeded += u32::from(succeeded);
        self.outcome.failed += u32::from(!succeeded);
        self.jobs_left -= 1;
    }

    fn start(&mut self, attempt: AttemptKey, slot: Slot) {
        self.outcome.attempts += 1;
        self.cluster.start(attempt, slot);
        self.take_memory(attempt, slot.node);
        let job = &self.jobs[&attempt.task.job];
        let (user, waiting) = (job.claim.user as usize, job.waiting);
        self.outcome.longest_wait_ns = self.outcome.longest_wait_ns.max(self.now_ns - self.served_ns[user]);
        self.served_ns[user] = self.now_ns;
        self.set_waiting(attempt.task.job, waiting.saturating_sub(1));
        self.running[user] += 1;
        if attempt.task.stage == StageIndex(0)
            && let Some(nodes) = self.near.get(&(attempt.task.job, attempt.task.task))
        {
            match nodes.contains(&slot.node) {
                true => self.outcome.near_starts += 1,
                false => self.outcome.far_starts += 1,
            }
        }
        let longest = self.world.task_ns_max.max(10);
        let takes_ns = self.random.u64(longest / 10..=longest);
        let succeeds = self.random.f64() >= self.world.failure_chance;
        let ends = Happening::Ends { attempt, node: slot.node, succeeds };
        self.foresee(self.now_ns + takes_ns, ends);
    }
}
