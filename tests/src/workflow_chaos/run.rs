//! Workflows one after the other, and kills.

use super::flow::Flow;
use super::judge::{Judge, all_kept, log};
use super::watcher::Watcher;
use crate::files_chaos::settings::Settings;
use crate::files_chaos::tally::Tally;
use crate::files_chaos::world::World;
use crate::{Random, Running, WAIT_MAX};
use rustix::process::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Error that the next server gives a job of which it has no more than a row; the client of the job had no answer.
const NEVER_TAKEN_IN: &str = "the server died before the job was submitted completely";
/// The last request of a client that was killed is over after that.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(2);
/// How long is waited for the end of a client before the world is looked at again.
const LOOK_AFTER: Duration = Duration::from_millis(30);
/// Milliseconds between two kills.
const PAUSE_MS: u64 = 50;
const PAUSE_MS_MORE: u64 = 600;
/// A victim that may not be killed for so long is passed over.
const VICTIM_MAX: Duration = Duration::from_secs(3);
/// Milliseconds for which a process is away.
const SERVER_ABSENCE_MS_MAX: u64 = 1500;
const NODE_ABSENCE_MS_MAX: u64 = 2500;
/// Share of kills of nodes and of the server; the others are of clients.
const NODE_PERCENT: u64 = 45;
const SERVER_PERCENT: u64 = 27;

/// Process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Node,
    Server,
}

/// Command that submitted the workflow or waits for its job.
struct Client {
    process: Running,
    is_killed: bool,
    /// Kills of the server that were over when it started.
    server_kills_over: u64,
}

/// State of the job of a workflow after its client has ended.
enum Fate {
    /// The store does not know it yet, or cannot be asked.
    Unknown,
    Runs(i64),
    Succeeded(i64),
    /// The server died before it had taken the job in.
    Lost,
    Failed(String),
}

/// A run of the harness.
pub(super) struct Run {
    pub world: World,
    pub tally: Tally,
    /// For kills: timing decides how many numbers are drawn, and the workflows must not follow from it.
    random: Random,
    flow_random: Random,
    plan: Vec<Victim>,
    begun: Instant,
    next_kill: Instant,
}

impl Run {
    /// Starts a cluster on this database, or SQLite.
    pub fn start(settings: Settings, database: Option<String>) -> Run {
        let mut random = Random::new(settings.seed);
        let plan = plan(settings.kills, &mut random);
        let world = World::start(settings.seed, database);
        let flow_random = Random::new(settings.seed.reverse_bits());
        Run {
            world,
            tally: Tally::default(),
            random,
            flow_random,
            plan,
            begun: Instant::now(),
            next_kill: Instant::now(),
        }
    }

    /// Runs workflows until all kills have been.
    pub fn work(&mut self) {
        let mut number = 0;
        while number == 0 || !self.plan.is_empty() && !self.tally.is_hopeless() {
            number += 1;
            let flow = Arc::new(Flow::random(&mut self.flow_random, &self.world.cluster.sandbox, number));
            self.run_one(&flow);
        }
        for (who, told) in self.world.all_told() {
            if let Some(at) = told.find("panicked at") {
                let text: String = told[at..].chars().take(1000).collect();
                self.tally.problem(format!("{who} panicked: {text}"));
            }
        }
    }

    /// Runs a workflow under kills, judges it, and runs it once more without kills.
    fn run_one(&mut self, flow: &Arc<Flow>) {
        let (watcher, mut judge) = (Watcher::start(flow), Judge::default());
        println!("{}: {} steps", flow.name, flow.steps.len());
        self.tally.count("over", "workflow");
        self.plan_next_kill();
        let Some(job) = self.run_under_kills(flow, &mut judge) else { return };
        self.wait_for_server();
        self.run_again(flow);
        let seen = watcher.finish();
        self.tally.bytes += seen.bytes;
        println!("{}: its outputs were looked at {} times", flow.name, seen.rounds);
        judge.judge(flow, job, &self.world, &seen, &mut self.tally);
        seen.problems.into_iter().for_each(|problem| self.tally.problem(problem));
    }

    /// Returns the number of the job that has succeeded; None if there was a problem.
    fn run_under_kills(&mut self, flow: &Flow, judge: &mut Judge) -> Option<i64> {
        let begun = Instant::now();
        let mut client = Some(self.submit(flow));
        let mut job = None;
        let mut ended = Instant::now();
        loop {
            self.tend();
            if let Some(job) = job {
                judge.look(flow, job, &self.world);
            } else if let Fate::Runs(number) = self.fate(flow) {
                job = Some(number);
            }
            self.strike_if_it_is_time(&mut client);
            if begun.elapsed() > WAIT_MAX || self.tally.is_hopeless() {
                let said = client.as_ref().map(|client| client.process.stderr_so_far());
                self.tally.problem(format!("{} does not end: {said:?}", flow.name));
                return None;
            }
            if let Some(running) = &client {
                if !Running::wait_for_any(&[&running.process], LOOK_AFTER) {
                    continue;
                }
                client.take().into_iter().for_each(|over| self.client_ended(flow, over));
                ended = Instant::now();
            }
            match self.fate(flow) {
                Fate::Succeeded(job) => return Some(job),
                Fate::Runs(job) => client = Some(self.attach(job)),
                Fate::Unknown if !self.world.has_server() || ended.elapsed() < IN_FLIGHT_MAX => {
                    std::thread::sleep(LOOK_AFTER);
                }
                Fate::Unknown | Fate::Lost => {
                    self.tally.count("followed by", "a second submit");
                    client = Some(self.submit(flow));
                }
                Fate::Failed(error) => {
                    self.tally.problem(format!("{} failed: {error}", flow.name));
                    return None;
                }
            }
        }
    }

    /// Judges a client that has ended, which may have been over when it was killed. Others end with success, or lost the answer to
    /// their submit when the server was killed.
    fn client_ended(&mut self, flow: &Flow, client: Client) {
        let finished = client.process.wait();
        let was_killed = client.is_killed && finished.code().is_none();
        let may_blame_server = self.world.server_kills > client.server_kills_over;
        if finished.stderr.contains("panicked at") {
            self.tally.problem(format!("a client panicked: {}", finished.story()));
        } else if was_killed || finished.status.success() {
            self.tally.count("over", if was_killed { "client, killed" } else { "client, succeeded" });
        } else if may_blame_server && finished.text().is_empty() {
            println!("{}: {}", flow.name, finished.stderr);
            self.tally.count("over", "client, its server was killed");
        } else {
            self.tally.problem(format!("{}: its client failed: {}", flow.name, finished.story()));
        }
    }

    /// Runs the same workflow once more: all its steps are skipped, and no file changes.
    fn run_again(&mut self, flow: &Flow) {
        let before = (all_kept(flow), log(flow));
        let client = self.submit(flow);
        while !Running::wait_for_any(&[&client.process], LOOK_AFTER) {
            self.tend();
            if self.tally.is_hopeless() {
                return;
            }
        }
        let finished = client.process.wait();
        let count = flow.steps.len();
        let says = format!("{count} steps succeeded, {count} of them skipped");
        if !finished.status.success() || !finished.stderr.contains(&says) {
            self.tally.problem(format!("{}, again: {}", flow.name, finished.story()));
        }
        let after = (all_kept(flow), log(flow));
        if before.1 != after.1 {
            let more = after.1.strip_prefix(before.1.as_str()).unwrap_or(&after.1).to_string();
            self.tally.problem(format!("{}, again: finished steps ran again: {more:?}", flow.name));
        }
        if before.0 != after.0 {
            self.tally.problem(format!("{}, again: outputs of finished steps were replaced", flow.name));
        }
        self.tally.count("over", "workflow, again");
    }

    fn client(&self, command: &mut std::process::Command) -> Client {
        let process = Running::start(command);
        Client { process, is_killed: false, server_kills_over: self.world.server_kills_over() }
    }

    fn submit(&self, flow: &Flow) -> Client {
        let file = format!("{}/flow.toml", flow.name);
        self.client(&mut self.world.cluster.sailfish(&["workflow", "run", &file]))
    }

    /// Starts a client that waits for a job.
    fn attach(&mut self, job: i64) -> Client {
        self.tally.count("followed by", "a wait");
        self.client(&mut self.world.cluster.sailfish(&["wait", &job.to_string()]))
    }

    /// Returns the fate of the latest job of a workflow.
    fn fate(&self, flow: &Flow) -> Fate {
        let question = format!(
            "select job, state, coalesce(error, '') from jobs where step_of is null and name = '{}' order by job desc limit 1",
            flow.name
        );
        let Some(row) = self.world.ask(&question).and_then(|rows| rows.into_iter().next()) else {
            return Fate::Unknown;
        };
        let text = |column: usize| row.get(column).and_then(|cell| cell.as_str()).unwrap_or_default();
        let job = row.first().and_then(|cell| cell.as_i64()).expect("a job has a number");
        match text(1) {
            "running" | "committing" => Fate::Runs(job),
            "succeeded" => Fate::Succeeded(job),
            _ if text(2).contains(NEVER_TAKEN_IN) => Fate::Lost,
            state => Fate::Failed(format!("job {job} is {state}: {}", text(2))),
        }
    }

    fn tend(&mut self) {
        let problems = self.world.tend();
        problems.into_iter().for_each(|problem| self.tally.problem(problem));
    }

    fn wait_for_server(&mut self) {
        let deadline = Instant::now() + WAIT_MAX;
        while !self.world.has_server() && Instant::now() < deadline {
            self.tend();
            std::thread::sleep(LOOK_AFTER);
        }
    }

    fn plan_next_kill(&mut self) {
        let pause = PAUSE_MS + self.random.below(PAUSE_MS_MORE);
        self.next_kill = Instant::now() + Duration::from_millis(pause);
    }

    /// Kills the next victim of the plan. If it may not be killed for some time, any other one is killed before it.
    fn strike_if_it_is_time(&mut self, client: &mut Option<Client>) {
        let Some(late) = Instant::now().checked_duration_since(self.next_kill) else { return };
        let last = if late > VICTIM_MAX { self.plan.len() } else { self.plan.len().min(1) };
        let struck = (0..last).find(|place| self.strike(self.plan[*place], client));
        if let Some(place) = struck {
            self.plan.remove(place);
            self.plan_next_kill();
        }
    }

    /// Returns whether there was such a process.
    fn strike(&mut self, victim: Victim, client: &mut Option<Client>) -> bool {
        match victim {
            Victim::Client => {
                let living =
                    client.as_mut().filter(|client| !client.is_killed && !client.process.has_ended());
                let Some(living) = living else { return false };
                println!("{:.1?}, kill: the client", self.begun.elapsed());
                living.process.signal(Signal::KILL);
                living.is_killed = true;
                self.tally.count("killed", "client");
            }
            Victim::Server if self.world.has_server() => {
                let absence = Duration::from_millis(self.random.below(SERVER_ABSENCE_MS_MAX));
                println!("{:.1?}, kill: the server, for {absence:?}", self.begun.elapsed());
                self.world.kill_server(absence);
                self.tally.count("killed", "server");
            }
            Victim::Node if self.world.is_complete() => {
                let number = self.random.below(self.world.nodes() as u64) as usize;
                let absence = self.random.below(NODE_ABSENCE_MS_MAX);
                println!("{:.1?}, kill: node-{number}, for {absence} ms", self.begun.elapsed());
                self.world.kill_node(number, Duration::from_millis(absence));
                self.tally.count("killed", "node");
            }
            Victim::Server | Victim::Node => return false,
        }
        true
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
