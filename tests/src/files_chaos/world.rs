//! The server and the nodes of a run, which are killed and come back.

use crate::{Cluster, Random, Running, exchange_within};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Two racks.
const NODES: u32 = 4;
const RACKS: u32 = 2;
/// Chance that a node writes slowly: puts with files there last long enough to be killed half way.
const SLOW_PERCENT: u64 = 12;
const SLOW_WRITES: (&str, &str) = ("SAILFISH_IO_FAULT", "write:slow:1+");
/// Shorter than some absences: those files are copied, and the copies are too many when the node returns.
const REPAIR_AFTER: [&str; 2] = ["--repair-after", "5s"];
/// A server that runs answers a question in this time.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Rows of an answer.
const ROWS_MAX: usize = 5000;
/// Messages of a process that are kept, the last ones.
const TOLD_BYTES_MAX: usize = 256 << 10;

/// Counts named files whose number of replicas is OP than the wished one: `<` or `>`.
const FILES_WITH_OTHER_REPLICAS: &str = "select count(*) from concrete_files f where f.is_removed = 0 and f.replicas > 0 \
     and exists (select 1 from file_names n where n.tree = 1 and n.is_directory = 0 and n.item = f.content) \
     and (select count(*) from concrete_replicas r where r.concrete = f.concrete) OP f.replicas";

struct Node {
    process: Option<Running>,
    /// It has joined.
    works: bool,
    /// The time at which it is started again.
    comes: Option<Instant>,
}

/// A server and its nodes.
pub(crate) struct World {
    pub cluster: Cluster,
    nodes: Vec<Node>,
    /// The time at which the server is started again; None while it runs.
    server_comes: Option<Instant>,
    /// Kills of the server so far.
    pub server_kills: u64,
    /// Names of processes that are over, with their last messages.
    told: Vec<(String, String)>,
    /// Numbers of node processes that are over, with the times of their ends.
    ended: Vec<(i64, SystemTime)>,
    random: Random,
    slow_percent: u64,
}

fn repair_early(command: &mut Command) {
    command.args(REPAIR_AFTER);
}

impl World {
    /// Starts the cluster, on this database or SQLite, and waits until its disks take files.
    pub fn start(seed: u64, database: Option<String>) -> World {
        let cluster = Cluster::builder().database(database).server_command(repair_early).start();
        let nodes = (0..NODES).map(|_| Node { process: None, works: false, comes: None }).collect();
        let mut world = World {
            cluster,
            nodes,
            server_comes: None,
            server_kills: 0,
            told: Vec::new(),
            ended: Vec::new(),
            random: Random::new(!seed),
            slow_percent: SLOW_PERCENT,
        };
        (0..NODES as usize).for_each(|number| world.start_node(number, &[]));
        for node in &mut world.nodes {
            node.process.as_ref().expect("it was started").wait_for_stderr(" joined ");
            node.works = true;
        }
        crate::StoredQuestions::wait_for_stored_disks(&world.cluster, NODES.into());
        world
    }

    fn start_node(&mut self, number: usize, more: &[&str]) {
        let (name, rack) = (format!("node-{number}"), format!("rack-{}", number as u32 % RACKS));
        let own = ["node", "--slots", "2", "--memory", crate::NODE_MEMORY, "--shuffle-reserve", "0"];
        let mut command = self.cluster.sailfish(&own);
        command.args(["--name", &name, "--rack", &rack]).args(more);
        command.arg("--disk").arg(self.cluster.node_disk(number as u32));
        if self.random.chance(self.slow_percent) {
            println!("{name} writes slowly");
            command.env(SLOW_WRITES.0, SLOW_WRITES.1);
        }
        self.nodes[number] = Node { process: Some(Running::start(&mut command)), works: false, comes: None };
    }

    /// Starts whoever is due, and notices who has joined or ended. Returns problems.
    pub fn tend(&mut self) -> Vec<String> {
        let now = Instant::now();
        let mut problems = Vec::new();
        match self.server_comes {
            Some(at) if at <= now => self.start_server(),
            None if self.cluster.server().has_ended() => {
                let story = self.cluster.server().stderr_so_far();
                problems.push(format!("the server ended by itself:\n{story}"));
                self.kill_server(Duration::ZERO);
            }
            _ => {}
        }
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            if node.comes.is_some_and(|at| at <= now) {
                self.start_node(number, &["--again"]);
            } else if let Some(process) = &node.process {
                node.works = node.works || process.stderr_so_far().contains(" joined ");
                if process.has_ended() {
                    // It cannot know how long a server is away, and gives up: whoever watches it starts it again.
                    let told = self.take_node(number, Duration::from_secs(1));
                    if told.contains("panicked at") || self.server_kills == 0 {
                        problems.push(format!("node-{number} ended by itself:\n{told}"));
                    }
                }
            }
        }
        problems
    }

    fn start_server(&mut self) {
        let server = self.cluster.another_changed_server(repair_early);
        server.wait_for_stderr("serving at");
        self.cluster.led_by(server);
        self.server_comes = None;
    }

    /// Returns whether there is a server.
    pub fn has_server(&self) -> bool {
        self.server_comes.is_none()
    }

    /// Counts the kills of the server that are over: a client may blame later ones, and one that still lasts.
    pub fn server_kills_over(&self) -> u64 {
        self.server_kills - u64::from(!self.has_server())
    }

    /// Kills the server, which returns after a while.
    pub fn kill_server(&mut self, absence: Duration) {
        let told = self.cluster.server().stderr_so_far();
        self.remember("server".to_string(), told);
        self.cluster.kill_server();
        self.server_kills += 1;
        self.server_comes = Some(Instant::now() + absence);
    }

    /// Kills a node, which returns after a while.
    pub fn kill_node(&mut self, number: usize, absence: Duration) {
        self.nodes[number].process.as_ref().expect("it works").signal(Signal::KILL);
        self.take_node(number, absence);
    }

    fn take_node(&mut self, number: usize, absence: Duration) -> String {
        let process = self.nodes[number].process.take().expect("there is a process");
        let told = process.stderr_so_far();
        let comes = Some(Instant::now() + absence);
        self.nodes[number] = Node { process: None, works: false, comes };
        self.ended.extend(number_of_node(&told).map(|number| (number, SystemTime::now())));
        self.remember(format!("node-{number}"), told.clone());
        told
    }

    /// Returns whether all nodes work.
    pub fn is_complete(&self) -> bool {
        self.has_server() && self.nodes.iter().all(|node| node.works)
    }

    /// Returns whether a node may be killed: all work, and every file has its replicas.
    pub fn may_lose_a_node(&self) -> bool {
        self.is_complete() && self.files_with_other_replicas("<") == Some(0)
    }

    /// Counts the named files with fewer replicas than wished (`<`), or more (`>`).
    pub fn files_with_other_replicas(&self, operator: &str) -> Option<i64> {
        let rows = self.ask(&FILES_WITH_OTHER_REPLICAS.replace("OP", operator))?;
        rows.first()?.first()?.as_i64()
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Lets everybody return at once. From now on nobody is slow.
    pub fn bring_all_back(&mut self) {
        self.slow_percent = 0;
        let now = Some(Instant::now());
        self.server_comes = self.server_comes.and(now);
        self.nodes.iter_mut().for_each(|node| node.comes = node.comes.and(now));
    }

    /// Returns the rows that a statement gives; None while there is no server to ask.
    pub fn ask(&self, statement: &str) -> Option<Vec<Vec<Value>>> {
        if !self.has_server() {
            return None;
        }
        let question = json!({ "statement": statement, "rows_max": ROWS_MAX }).to_string();
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

    /// Returns the numbers of the concrete files that a node has by the rows of the store.
    pub fn known_files(&self, number: usize) -> Option<Vec<i64>> {
        let mut known: Vec<i64> = Vec::new();
        loop {
            let after = known.last().copied().unwrap_or(-1);
            let statement = format!(
                "select r.concrete from concrete_replicas r join file_disks d on d.disk = r.disk \
                 where d.node_name = 'node-{number}' and r.concrete > {after} order by r.concrete limit {ROWS_MAX}"
            );
            let page = self.ask(&statement)?;
            let is_last = page.len() < ROWS_MAX;
            known.extend(page.iter().filter_map(|row| row.first()?.as_i64()));
            if is_last {
                return Some(known);
            }
        }
    }

    fn remember(&mut self, who: String, told: String) {
        let from = told.ceil_char_boundary(told.len().saturating_sub(TOLD_BYTES_MAX));
        self.told.push((who, told[from..].to_string()));
    }

    /// Returns the messages of all processes, also of those that are over.
    pub fn all_told(&self) -> Vec<(String, String)> {
        let mut all = self.told.clone();
        if self.has_server() {
            all.push(("server".to_string(), self.cluster.server().stderr_so_far()));
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let told = node.process.as_ref().map(Running::stderr_so_far);
            all.extend(told.map(|told| (format!("node-{number}"), told)));
        }
        all
    }

    /// Returns the numbers that the server gave to node processes which are over, with the times of their ends.
    pub fn ended_nodes(&self) -> BTreeMap<i64, SystemTime> {
        self.ended.iter().copied().collect()
    }

    /// Copies the store and all messages to where they outlive the sandbox.
    pub fn keep_what_is_left(&self, of: &str, seed: u64) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("sailfish-{of}-{seed}"));
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

/// Returns the number that a node tells when it has joined.
fn number_of_node(told: &str) -> Option<i64> {
    let line = told.lines().find(|line| line.contains(" joined "))?;
    line.rsplit_once(" as node-")?.1.trim().parse().ok()
}
