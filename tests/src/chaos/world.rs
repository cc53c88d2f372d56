//! A server, nodes in two racks with two disks each, and the faults that are still to be undone.

use super::strike::programs_left;
use super::tally::Tally;
use crate::{Cluster, Running, WAIT_MAX, exchange_within, leftovers, questions};
use rustix::process::Signal;
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(super) const NODES: usize = 4;
/// So many nodes work at any time.
pub(super) const NODES_ALIVE_MIN: usize = 2;
const RACKS: usize = 2;
const DISKS: usize = 2;
const NODE_MEMORY: &str = "1G";
/// A server that runs answers a question in this time.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// Messages of a process that are kept, the last ones.
const TOLD_BYTES_MAX: usize = 64 << 10;

/// Step that undoes a fault after a while.
pub(super) enum Undo {
    ServerComes,
    ServerGoesOn,
    NodeComes(usize),
    NodeGoesOn(usize),
    ProgramGoesOn(OwnedFd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Runs,
    Stopped,
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// Started, and has not joined yet.
    Comes,
    Works,
    Stopped,
    Away,
}

pub(super) struct Node {
    pub process: Option<Running>,
    pub state: NodeState,
}

pub(super) struct World {
    pub cluster: Cluster,
    pub nodes: Vec<Node>,
    pub server: ServerState,
    undo: Vec<(Instant, Undo)>,
    /// Server faults so far: a client that broke off may blame one.
    pub server_faults: u64,
    /// Names of processes that are over, with their last messages.
    told: Vec<(String, String)>,
}

impl World {
    pub fn start() -> World {
        let cluster = Cluster::builder().start();
        let nodes = (0..NODES).map(|_| Node { process: None, state: NodeState::Away }).collect();
        let mut world = World {
            cluster,
            nodes,
            server: ServerState::Runs,
            undo: Vec::new(),
            server_faults: 0,
            told: Vec::new(),
        };
        (0..NODES).for_each(|number| world.start_node(number, &[]));
        for node in &mut world.nodes {
            node.process.as_ref().expect("it was started").wait_for_stderr("joined");
            node.state = NodeState::Works;
        }
        world
    }

    fn start_node(&mut self, number: usize, more: &[&str]) {
        let (name, rack) = (format!("node-{number}"), format!("rack-{}", number % RACKS));
        let own = ["node", "--slots", "2", "--memory", NODE_MEMORY, "--name", &name, "--rack", &rack];
        let mut command = self.cluster.sailfish(&[&own[..], more].concat());
        for disk in self.disks(number) {
            command.arg("--disk").arg(disk);
        }
        self.nodes[number] = Node { process: Some(Running::start(&mut command)), state: NodeState::Comes };
    }

    /// The disks of a node.
    pub fn disks(&self, number: usize) -> Vec<PathBuf> {
        (0..DISKS).map(|disk| self.cluster.sandbox.path(&format!("node-{number}-disk-{disk}"))).collect()
    }

    /// The nodes that work, by number.
    pub fn working(&self) -> Vec<usize> {
        (0..NODES).filter(|number| self.nodes[*number].state == NodeState::Works).collect()
    }

    pub fn later(&mut self, after: Duration, undo: Undo) {
        self.undo.push((Instant::now() + after, undo));
    }

    /// Undoes what is due, and notices who has come or gone.
    pub fn tend(&mut self, tally: &mut Tally) {
        self.undo_until(Instant::now());
        if self.server == ServerState::Runs && self.cluster.server().has_ended() {
            let story = self.cluster.server().stderr_so_far();
            tally.problem(format!("the server ended by itself:\n{story}"));
            self.kill_server();
            self.later(Duration::ZERO, Undo::ServerComes);
        }
        for number in 0..NODES {
            self.tend_node(number, tally);
        }
    }

    fn tend_node(&mut self, number: usize, tally: &mut Tally) {
        let node = &mut self.nodes[number];
        let Some(process) = &node.process else { return };
        if node.state == NodeState::Comes && process.stderr_so_far().contains(" joined ") {
            node.state = NodeState::Works;
        }
        if process.has_ended() {
            // It cannot know how long a server is away, and gives up: whoever watches it starts it again.
            tally.node_gave_up();
            let told = self.take_node(number);
            if !told.contains("panicked at") && self.server_faults == 0 {
                tally.problem(format!("node-{number} ended by itself:\n{told}"));
            }
            self.later(Duration::from_secs(1), Undo::NodeComes(number));
        }
    }

    fn undo_until(&mut self, until: Instant) {
        let due = |(at, _): &mut (Instant, Undo)| *at <= until;
        let due: Vec<(Instant, Undo)> = self.undo.extract_if(.., due).collect();
        for (_, undo) in due {
            match undo {
                Undo::ServerComes => {
                    let server = self.cluster.another_server();
                    server.wait_for_stderr("serving at");
                    self.cluster.led_by(server);
                    self.server = ServerState::Runs;
                }
                Undo::ServerGoesOn => {
                    self.cluster.server().signal(Signal::CONT);
                    self.server = ServerState::Runs;
                }
                Undo::NodeComes(number) => self.start_node(number, &["--again"]),
                Undo::NodeGoesOn(number) => {
                    let node = &mut self.nodes[number];
                    node.process.as_ref().expect("a stopped node is not gone").signal(Signal::CONT);
                    node.state = NodeState::Works;
                }
                Undo::ProgramGoesOn(program) => {
                    // It may be over: its node was killed meanwhile.
                    let _ = rustix::process::pidfd_send_signal(&program, Signal::CONT);
                }
            }
        }
    }

    /// Kills the server at once.
    pub fn kill_server(&mut self) {
        let told = self.cluster.server().stderr_so_far();
        self.remember("server".to_string(), told);
        self.cluster.kill_server();
        self.server = ServerState::Away;
    }

    /// Lets a node stand still.
    pub fn stop_node(&mut self, number: usize) {
        self.nodes[number].process.as_ref().expect("it works").signal(Signal::STOP);
        self.nodes[number].state = NodeState::Stopped;
    }

    /// Kills a node at once.
    pub fn kill_node(&mut self, number: usize) {
        self.nodes[number].process.as_ref().expect("it works").signal(Signal::KILL);
        self.take_node(number);
    }

    /// Takes the process of a node that is over, or soon is; returns its messages.
    fn take_node(&mut self, number: usize) -> String {
        let process = self.nodes[number].process.take().expect("there is a process");
        let told = process.stderr_so_far();
        self.nodes[number].state = NodeState::Away;
        self.remember(format!("node-{number}"), told.clone());
        told
    }

    fn remember(&mut self, who: String, told: String) {
        let from = told.ceil_char_boundary(told.len().saturating_sub(TOLD_BYTES_MAX));
        self.told.push((who, told[from..].to_string()));
    }

    /// The rows that a statement gives; None while there is no server to ask.
    pub fn ask(&self, statement: &str) -> Option<Vec<Vec<Value>>> {
        if self.server != ServerState::Runs {
            return None;
        }
        let question = serde_json::json!({ "statement": statement, "rows_max": 10_000 }).to_string();
        let head = "POST /v1/state\ncontent-type: application/json";
        let answer = exchange_within(self.cluster.address(), head, question.as_bytes(), ANSWER_MAX).ok()?;
        let rows = answer.json()?["rows"].as_array()?.clone();
        // A cell is an object with one field that names its type.
        let cell = |cell: &Value| cell.as_object().and_then(|cell| cell.values().next().cloned());
        let row = |row: &Value| {
            let cells = row.as_array().into_iter().flatten();
            cells.map(|each| cell(each).unwrap_or(Value::Null)).collect()
        };
        Some(rows.iter().map(row).collect())
    }

    /// How many attempts have ended, of all jobs.
    pub fn ended_attempts(&self) -> Option<u64> {
        let rows = self.ask(questions::ENDED_ATTEMPTS)?;
        rows.first()?.first()?.as_u64()
    }

    /// Undoes everything at once and waits until all nodes work and nothing of a job is left on any disk.
    pub fn come_to_rest(&mut self, tally: &mut Tally) {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            self.bring_all_back();
            self.tend(tally);
            let left = self.left_behind();
            let programs = programs_left(&self.cluster.url);
            let all_work = self.working().len() == NODES;
            if all_work && left.is_empty() && programs.is_empty() {
                break;
            }
            if Instant::now() >= deadline {
                tally.problem(format!(
                    "no rest: all nodes work: {all_work}; left behind: {left:?}, {programs:?}"
                ));
                break;
            }
            Running::wait_for_any(&self.processes(), LOOK_AFTER);
        }
        self.look_for_panics(tally);
    }

    /// Undoes everything at once.
    pub fn bring_all_back(&mut self) {
        self.undo_until(Instant::now() + WAIT_MAX);
    }

    fn processes(&self) -> Vec<&Running> {
        self.nodes.iter().filter_map(|node| node.process.as_ref()).collect()
    }

    fn left_behind(&self) -> Vec<PathBuf> {
        let disks: Vec<PathBuf> = (0..NODES).flat_map(|number| self.disks(number)).collect();
        let disks: Vec<_> = disks.iter().map(PathBuf::as_path).collect();
        let sandbox = &self.cluster.sandbox;
        leftovers::leftovers(&[&sandbox.path("")], &disks, &sandbox.path("server-state"))
    }

    fn look_for_panics(&self, tally: &mut Tally) {
        for (who, told) in self.all_told() {
            if let Some(at) = told.find("panicked at") {
                let text: String = told[at..].chars().take(1000).collect();
                tally.problem(format!("{who} panicked: {text}"));
            }
        }
    }

    fn all_told(&self) -> Vec<(String, String)> {
        let mut all = self.told.clone();
        if self.server != ServerState::Away {
            all.push(("server".to_string(), self.cluster.server().stderr_so_far()));
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let told = node.process.as_ref().map(Running::stderr_so_far);
            all.extend(told.map(|told| (format!("node-{number}"), told)));
        }
        all
    }

    /// Returns the last messages of the server and the nodes, for an error message.
    pub fn last_words(&self) -> String {
        let lines = |(who, told): (String, String)| {
            let last: Vec<&str> = told.lines().rev().take(6).collect();
            format!("  {who}: {}\n", last.into_iter().rev().collect::<Vec<_>>().join("\n    "))
        };
        self.all_told().into_iter().rev().take(8).map(lines).collect()
    }

    /// Copies the store and all messages to where they outlive the sandbox.
    pub fn keep_what_is_left(&self, seed: u64) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("sailfish-chaos-{seed}"));
        let state = self.cluster.sandbox.path("server-state");
        // Whatever fails here is less bad than what is to be told.
        let _ = std::fs::create_dir_all(&kept);
        for name in ["sailfish.db", "sailfish.db-wal", "sailfish.db-shm"] {
            let _ = std::fs::copy(state.join(name), kept.join(name));
        }
        for (number, (who, told)) in self.all_told().into_iter().enumerate() {
            let _ = std::fs::write(kept.join(format!("{number:03}-{who}.txt")), told);
        }
        kept
    }
}
