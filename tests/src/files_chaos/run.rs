//! A run: commands and kills side by side.

use super::content::Content;
use super::names::{ABOVE, Names, Place};
use super::operations::{Operation, Verb};
use super::settings::Settings;
use super::tally::Tally;
use super::world::World;
use crate::{Random, Running, WAIT_MAX};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Commands at once.
const CLIENTS: usize = 5;
/// Commands for each kill at least, and of a run without any.
const OPERATIONS_PER_KILL: u64 = 2;
const OPERATIONS_MIN: u64 = 15;
/// Puts before the first kill.
const FIRST_PUTS: usize = 3;
/// How long is waited for the end of a client before the world is looked at again.
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// Milliseconds between two kills.
const PAUSE_MS: u64 = 150;
const PAUSE_MS_MORE: u64 = 800;
/// A victim that may not be killed for so long is passed over.
const VICTIM_MAX: Duration = Duration::from_secs(4);
/// Milliseconds for which a process is away. Some nodes are away until their files are copied.
const SERVER_ABSENCE_MS_MAX: u64 = 2000;
const NODE_ABSENCE_MS_MAX: u64 = 3000;
const NODE_ABSENCE_LONG_MS: u64 = 7000;
const LONG_PERCENT: u64 = 20;
/// Share of kills of nodes and of the server; the others are of clients.
const NODE_PERCENT: u64 = 27;
const SERVER_PERCENT: u64 = 18;

/// Process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Node,
    Server,
}

/// A run of the harness.
pub(super) struct Run {
    pub settings: Settings,
    pub random: Random,
    pub world: World,
    pub names: Names,
    pub operations: Vec<Operation>,
    pub tally: Tally,
    pub last_number: u32,
    pub known_sizes: BTreeMap<Content, BTreeMap<String, u64>>,
    /// Names and sources of puts whose clients were killed, and were not started again.
    pub given_up: BTreeSet<(&'static str, String)>,
    /// Failures of clients that handed in a job, by its output, until the store is asked; empty if the client was killed.
    pub job_failures: BTreeMap<Place, String>,
    plan: Vec<Victim>,
    next_kill: Instant,
}

impl Run {
    /// Starts a cluster on this database, or SQLite, and puts the first files.
    pub fn start(settings: Settings, database: Option<String>) -> Run {
        let mut random = Random::new(settings.seed);
        let plan = plan(settings.kills, &mut random);
        let mut run = Run {
            settings,
            random,
            world: World::start(settings.seed, database),
            names: Names::new(),
            operations: Vec::new(),
            tally: Tally::default(),
            last_number: 0,
            known_sizes: BTreeMap::new(),
            given_up: BTreeSet::new(),
            job_failures: BTreeMap::new(),
            plan,
            next_kill: Instant::now(),
        };
        run.world.cluster.files().done(&[&["mkdir"][..], &ABOVE].concat());
        std::fs::create_dir(run.world.cluster.sandbox.path("got")).expect("our own directory takes another");
        for place in 0..FIRST_PUTS {
            let verb = run.put_at(place);
            run.begin(verb);
        }
        run.plan_next_kill();
        run
    }

    /// Runs commands until all kills have been and all commands are over.
    pub fn work(&mut self) {
        while !self.is_over() {
            self.tend();
            if self.wants_more() && self.operations.len() < CLIENTS {
                self.begin_one();
            }
            self.follow();
            self.strike_if_it_is_time();
            self.look_for_stuck_ones();
            let clients: Vec<&Running> =
                self.operations.iter().filter_map(|operation| operation.client.as_ref()).collect();
            let is_full = clients.len() >= CLIENTS || !self.wants_more();
            Running::wait_for_any(&clients, if is_full { LOOK_AFTER } else { Duration::from_millis(1) });
        }
    }

    /// Starts processes that are due, and notes who ended by itself.
    pub fn tend(&mut self) {
        let problems = self.world.tend();
        problems.into_iter().for_each(|problem| self.tally.problem(problem));
    }

    fn wants_more(&self) -> bool {
        let wanted = OPERATIONS_MIN.max(OPERATIONS_PER_KILL * self.settings.kills);
        !self.tally.is_hopeless() && (!self.plan.is_empty() || self.tally.sum("over") < wanted)
    }

    fn is_over(&self) -> bool {
        self.tally.is_hopeless() || !self.wants_more() && self.operations.is_empty()
    }

    fn plan_next_kill(&mut self) {
        let pause = PAUSE_MS + self.random.below(PAUSE_MS_MORE);
        self.next_kill = Instant::now() + Duration::from_millis(pause);
    }

    /// Kills the next victim of the plan. If it may not be killed for some time, the first other one is killed before it.
    fn strike_if_it_is_time(&mut self) {
        let Some(late) = Instant::now().checked_duration_since(self.next_kill) else { return };
        let mut looked_at = Vec::new();
        let last = if late > VICTIM_MAX { self.plan.len() } else { self.plan.len().min(1) };
        for place in 0..last {
            let victim = self.plan[place];
            if looked_at.contains(&victim) {
                continue;
            }
            looked_at.push(victim);
            if self.strike(victim) {
                self.plan.remove(place);
                self.plan_next_kill();
                return;
            }
        }
    }

    /// Returns whether there was such a process.
    fn strike(&mut self, victim: Victim) -> bool {
        match victim {
            Victim::Client => return self.strike_client(),
            Victim::Server if self.world.has_server() => {
                let absence = Duration::from_millis(self.random.below(SERVER_ABSENCE_MS_MAX));
                println!("kill: the server, for {absence:?}");
                self.world.kill_server(absence);
                self.tally.count("killed", "server");
            }
            Victim::Node if self.world.may_lose_a_node() => {
                let number = self.random.below(self.world.nodes() as u64) as usize;
                let absence = match self.random.chance(LONG_PERCENT) {
                    true => NODE_ABSENCE_LONG_MS,
                    false => self.random.below(NODE_ABSENCE_MS_MAX),
                };
                println!("kill: node-{number}, for {absence} ms");
                self.world.kill_node(number, Duration::from_millis(absence));
                self.tally.count("killed", "node");
            }
            Victim::Server | Victim::Node => return false,
        }
        true
    }

    fn strike_client(&mut self) -> bool {
        let lives = |operation: &Operation| {
            let client = operation.client.as_ref().filter(|_| !operation.is_killed);
            client.is_some_and(|client| !client.has_ended())
        };
        let living: Vec<usize> =
            (0..self.operations.len()).filter(|place| lives(&self.operations[*place])).collect();
        if living.is_empty() {
            return false;
        }
        let operation = &mut self.operations[*self.random.one_of(&living)];
        println!("kill: the client of {:?}", operation.verb);
        operation.client.as_ref().expect("it lives").signal(Signal::KILL);
        operation.is_killed = true;
        self.tally.count("killed", format!("client of {}", operation.verb.row()));
        true
    }

    fn look_for_stuck_ones(&mut self) {
        let is_stuck = |operation: &mut Operation| operation.begun.elapsed() > WAIT_MAX;
        let stuck: Vec<Operation> = self.operations.extract_if(.., is_stuck).collect();
        for operation in stuck {
            let said = operation.client.as_ref().map(Running::stderr_so_far);
            self.tally.problem(format!("{:?} does not end: {said:?}", operation.verb));
            if let Verb::Job { output, .. } = &operation.verb {
                self.names.end(*output, None);
            }
            for (place, state) in operation.verb.changes() {
                self.names.end(place, state);
            }
        }
    }
}

/// Shares the kills out, in an order by chance.
fn plan(kills: u64, random: &mut Random) -> Vec<Victim> {
    let victim = |percent: u64| match percent {
        0..NODE_PERCENT => Victim::Node,
        percent if percent < NODE_PERCENT + SERVER_PERCENT => Victim::Server,
        _ => Victim::Client,
    };
    // Evenly, so that a short run has all of them; a single kill is one of any.
    let first = random.below(100);
    let mut plan: Vec<Victim> = (0..kills).map(|kill| victim((first + kill * 100 / kills) % 100)).collect();
    for place in (1..plan.len()).rev() {
        plan.swap(place, random.below(place as u64 + 1) as usize);
    }
    plan
}
