//! A node speaks for itself alone: by the secret that it got when it joined, and at data ports by what the server signed.

use blackbox::{
    Cluster, Fifo, PROTOCOL, Questions, Running, State, WaitingProgram, WrongClock, exchange,
    exchange_without_token, sorted_lines, wait_until,
};
use private_postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// Polls of a made-up node before it counts as one that gets no work.
const POLLS_MAX: u32 = 20;
/// Bytes of the input of each task.
const TASK_BYTES: usize = 900 << 10;

/// A program that knows the protocol, and joined as a node.
struct MadeUpNode {
    number: u64,
    incarnation: Value,
    secret: String,
    disk_proof: String,
    received: u64,
}

impl MadeUpNode {
    /// Joins by what a header shows; without one, as whoever the address is known to.
    fn join(cluster: &Cluster, name: &str, header: &str) -> MadeUpNode {
        Self::join_telling(cluster, name, header, &json!([]))
    }

    /// Tells of what dead processes left as well.
    fn join_telling(cluster: &Cluster, name: &str, header: &str, left: &Value) -> MadeUpNode {
        let info = json!({
            "protocol": PROTOCOL, "version": "0", "name": name, "rack": "rack-0", "slots": 1,
            "memory_bytes": 1_u64 << 34, "architecture": "other", "left": left,
        });
        let head = format!("POST /v1/nodes{header}");
        let welcome = exchange(cluster.address(), &head, info.to_string().as_bytes()).expect("an answer");
        let welcome = welcome.json().unwrap_or_else(|| panic!("{name} is not taken in"));
        let secret = welcome["secret"].as_str().unwrap_or_else(|| panic!("no welcome: {welcome}"));
        let disk_proof = welcome["disk_proof"].as_str().expect("a proof").to_string();
        let (number, incarnation) =
            (welcome["node"].as_u64().expect("a number"), welcome["incarnation"].clone());
        MadeUpNode { number, incarnation, secret: secret.to_string(), disk_proof, received: 0 }
    }

    fn header(&self) -> String {
        format!("\nauthorization: Bearer {}", self.secret)
    }

    fn ask(&self, cluster: &Cluster, path: &str, body: &Value) -> (u16, Value) {
        let head = format!("POST {path}{}", self.header());
        let answer = exchange(cluster.address(), &head, body.to_string().as_bytes()).expect("an answer");
        (answer.status, answer.json().unwrap_or_default())
    }

    fn poll(&self, cluster: &Cluster, free_slots: &[u32]) -> (u16, Value) {
        let poll = json!({
            "incarnation": self.incarnation, "received": self.received, "free_slots": free_slots, "finished": [],
        });
        self.ask(cluster, &format!("/v1/nodes/{}/poll", self.number), &poll)
    }

    /// The first attempt that it is given.
    fn first_attempt(&mut self, cluster: &Cluster) -> Value {
        for _ in 0..POLLS_MAX {
            let (status, orders) = self.poll(cluster, &[0]);
            assert_eq!(status, 200, "{orders}");
            for numbered in orders["orders"].as_array().into_iter().flatten() {
                self.received = numbered["number"].as_u64().expect("a number");
                if numbered["order"]["start"].is_object() {
                    return numbered["order"]["start"]["attempt"].clone();
                }
            }
        }
        panic!("a node with a free slot gets no work");
    }
}

fn token(cluster: &Cluster, user: &str) -> String {
    let file = format!("{user}.token");
    let create = ["token", "create", "--user", user, "--role", "node", "--output", &file];
    cluster.run(&create).expect_success();
    let text = std::fs::read_to_string(cluster.sandbox.path(&file)).expect("our own file");
    format!("\nauthorization: Bearer {}", text.trim())
}

fn revoke(cluster: &Cluster, user: &str) {
    let listed = cluster.run(&["token", "ls", "--json"]).expect_success();
    let tokens = listed.json();
    let of_user = tokens.as_array().expect("a list").iter().find(|token| token["user"] == user);
    let name = of_user.expect("a token")["name"].as_str().expect("a name").to_string();
    cluster.run(&["token", "revoke", &name]).expect_success();
}

/// F8: somebody who may join says that the attempt of another node has succeeded, with the incarnation that the console tells.
fn forged_success(cluster: &Cluster, join: &str) {
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let script = format!("echo here > {}; read line < {}; exit 7", here.text(), go.text());
    let job = Running::start(cluster.sailfish(&["submit", "--wait"]).args(["--", "sh", "-c", &script]));
    assert_eq!(here.read_line(), "here");
    let victim = cluster.incarnations()[0].clone();
    let forger = MadeUpNode::join(cluster, "forger", join);
    let task = json!({ "job": 1, "stage": 0, "task": 0 });
    let end = json!({
        "attempt": { "task": task, "attempt": 0 }, "outcome": { "succeeded": { "run": {} } },
        "started_ns": 1, "ended_ns": 2,
    });
    let poll = json!({
        "incarnation": victim["incarnation"], "received": 0, "free_slots": [], "finished": [end], "held": [],
    });
    let (path, body) = (format!("POST /v1/nodes/{}/poll", victim["node"]), poll.to_string());
    let as_who = |more: &str| {
        let answer =
            exchange(cluster.address(), &format!("{path}{more}"), body.as_bytes()).expect("an answer");
        (answer.status, answer.text())
    };
    // By its own secret, by the token it joined by, and by that of the administrator.
    for (more, expected) in [(forger.header(), 403), (join.to_string(), 403), (String::new(), 403)] {
        let (status, text) = as_who(&more);
        assert!(status == expected || status == 401, "{more:?}: {status} {text}");
    }
    let nobody = exchange_without_token(cluster.address(), &path, body.as_bytes()).expect("an answer");
    assert_eq!(nobody.status, 401, "{}", nobody.text());
    // Under its own number it knows nothing of that attempt.
    let own = json!({
        "incarnation": forger.incarnation, "received": 0, "free_slots": [], "finished": poll["finished"],
    });
    assert_eq!(forger.ask(cluster, &format!("/v1/nodes/{}/poll", forger.number), &own).0, 200);
    let (status, _) = forger.ask(cluster, "/v1/jobs/1/brief", &json!({}));
    assert_eq!(status, 403, "it runs nothing of the job");
    go.write_line("go on");
    job.wait().expect_failure(7, &[]);
    assert_eq!(cluster.attempts().is(State::Succeeded).count(), 0);
}

#[test]
fn node_cannot_report_success_of_another_node() {
    let cluster = Cluster::builder().nodes(1).start();
    forged_success(&cluster, &token(&cluster, "rack"));
}

#[test]
fn node_cannot_forge_success_without_tokens() {
    let cluster = Cluster::builder()
        .nodes(1)
        .server_command(|command| {
            command.arg("--no-tokens");
        })
        .start();
    forged_success(&cluster, "");
}

#[test]
fn node_cannot_forge_success_with_postgres() {
    let Some(postgres) = PrivatePostgres::start_or_say("a forged success with PostgreSQL", &[]) else {
        return;
    };
    let cluster = Cluster::builder().nodes(1).database(postgres.url("postgres")).start();
    forged_success(&cluster, &token(&cluster, "rack"));
}

/// A process that may join says of others, which live, that they are dead and that it has their disks.
#[test]
fn node_needs_its_disk_to_declare_death() {
    let mut waiting = waiting_job(Cluster::builder().nodes(2).start(), 4);
    for _ in 0..4 {
        assert_eq!(waiting.here.read_line(), "here");
    }
    let cluster = &waiting.cluster;
    let nodes = cluster.incarnations();
    let join = token(cluster, "rack");
    let claim = |proof: &str| {
        let of_one = |row: &Value| json!({ "incarnation": row["incarnation"], "proof": proof, "job": 1, "runs": [], "parts": [] });
        Value::Array(nodes.iter().map(of_one).collect())
    };
    let liar = MadeUpNode::join(cluster, "liar", &join);
    let made_up = format!("sailfish_{}", "5a".repeat(32));
    for (number, proof) in ["", "x", &made_up, &liar.secret, &liar.disk_proof].into_iter().enumerate() {
        MadeUpNode::join_telling(cluster, &format!("liar-{number}"), &join, &claim(proof));
    }
    assert_eq!(cluster.nodes().is(State::Dead).count(), 0);
    for _ in 0..4 {
        waiting.go.write_line("go on");
    }
    let cluster = waiting.finish();
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!(report["map"]["attempts"], 4, "{report}");
    // With a disk it is believed.
    let entries = std::fs::read_dir(cluster.node_disk(0)).expect("a disk").flatten();
    let lock =
        entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|kind| kind == "lock"));
    let lock = lock.expect("a lock file");
    let mode = std::fs::metadata(&lock).expect("a lock file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mark = std::fs::read_to_string(&lock).expect("a lock file");
    MadeUpNode::join_telling(&cluster, "heir", &join, &claim(mark.lines().nth(1).expect("a proof")));
    assert_eq!(cluster.nodes().is(State::Dead).count(), 1);
}

#[test]
fn a_node_is_known_to_the_next_server() {
    let mut cluster = Cluster::builder().start();
    let node = MadeUpNode::join(&cluster, "stays", &token(&cluster, "rack"));
    cluster.restart_server();
    let (status, answer) = node.poll(&cluster, &[]);
    assert_eq!(status, 200, "{answer}");
    let asked = json!({ "incarnation": node.incarnation, "tokens": [] });
    let (status, answer) = node.ask(&cluster, &format!("/v1/nodes/{}/data-tokens", node.number), &asked);
    assert_eq!((status, answer["keys"]["earlier"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
}

/// A job with tasks that wait, on a cluster whose nodes joined by the token of `rack`.
struct Waiting {
    cluster: Cluster,
    job: Running,
    here: Fifo,
    go: Fifo,
    /// All that it reads.
    text: Vec<u8>,
}

fn waiting_job(cluster: Cluster, files: u32) -> Waiting {
    let mut text = Vec::new();
    for file in 0..files {
        let mut lines = String::with_capacity(TASK_BYTES + 100);
        for number in (0..).take_while(|number| number * 20 < TASK_BYTES) {
            lines.push_str(&format!("{:08}\t{file:010}\n", number * 7919 % 100_003));
        }
        cluster.sandbox.write(&format!("in/{file}.txt"), &lines);
        text.extend(lines.into_bytes());
    }
    let WaitingProgram { here, go, path } = cluster.sandbox.waiting_program("mapper");
    let args = ["--input", "in", "--mapper", &path, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    Waiting { cluster, job, here, go, text }
}

impl Waiting {
    /// The job ends, and has put out all that it read.
    fn finish(self) -> Cluster {
        let Waiting { cluster, job, text, .. } = self;
        job.wait().expect_success();
        let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
        assert!(sorted_lines(&bytes) == sorted_lines(&text), "the output is another");
        cluster
    }
}

/// The statuses of a data port for whoever shows this: of a scan of the job, and of another job.
fn at_data_port(node: &Value, job: u64, shown: &str) -> u16 {
    let address = node["info"]["data_url"].as_str().expect("a URL").trim_start_matches("http://");
    let head = format!("POST /data/v1/jobs/{job}/scan\nsailfish-incarnation: {}", node["node"]);
    let head = format!("{head}\nauthorization: Bearer {shown}");
    exchange(address, &head, b"x").expect("a data port answers").status
}

/// F8b: a node whose token was taken back is refused by the control port at once, and by data ports in a moment; the job goes on.
fn a_revoked_node(mut cluster: Cluster) {
    let (_, thief_token) = (token(&cluster, "rack"), token(&cluster, "thief"));
    let file = cluster.sandbox.path("rack.token");
    for _ in 0..2 {
        cluster.add_changed_node(|command| {
            command.arg("--token-file").arg(&file);
        });
    }
    let mut thief = MadeUpNode::join(&cluster, "thief", &thief_token);
    // One task for each slot: two nodes of two slots, and the thief.
    let mut waiting = waiting_job(cluster, 5);
    let cluster = &waiting.cluster;
    thief.first_attempt(cluster);
    let (status, brief) = thief.ask(cluster, "/v1/jobs/1/brief", &json!({}));
    assert_eq!(status, 200, "{brief}");
    let token = brief["token"].as_str().expect("a token").to_string();
    for _ in 0..4 {
        assert_eq!(waiting.here.read_line(), "here");
    }
    let nodes = cluster.run(&["nodes", "--json"]).expect_success().json();
    let nodes: Vec<Value> = nodes["nodes"].as_array().expect("nodes").clone();
    let others: Vec<&Value> = nodes.iter().filter(|node| node["info"]["name"] != "thief").collect();
    for node in &others {
        assert_eq!(at_data_port(node, 1, &token), 400, "the token is good, and the message is none");
        // It is good for the one job, and nobody makes another of it.
        let digit = if token.ends_with('0') { "1" } else { "0" };
        let changed = format!("{}{digit}", &token[..token.len() - 1]);
        for (job, shown) in [
            (2, token.clone()),
            (2, token.replace("job.1.", "job.2.")),
            (1, changed),
            (1, thief.secret.clone()),
        ] {
            assert_eq!(at_data_port(node, job, &shown), 403, "{shown}");
        }
    }
    revoke(cluster, "thief");
    let began = Instant::now();
    assert_eq!(thief.poll(cluster, &[0]).0, 401);
    assert_eq!(thief.ask(cluster, "/v1/jobs/1/brief", &json!({ "token": token })).0, 401);
    for node in &others {
        wait_until("its data port refuses the thief", || at_data_port(node, 1, &token) == 403);
    }
    println!("data ports shut the thief out after {:?}", began.elapsed());
    for _ in 0..4 {
        waiting.go.write_line("go on");
    }
    // A node does the task that the thief was given.
    assert_eq!(waiting.here.read_line(), "here");
    waiting.go.write_line("go on");
    let cluster = waiting.finish();
    for node in 0..2 {
        assert_eq!(cluster.node(node).stderr_so_far().matches("joined").count(), 1);
    }
}

#[test]
fn revoked_node_is_shut_out_of_running_job() {
    a_revoked_node(Cluster::builder().start());
}

#[test]
fn a_revoked_node_is_shut_out_with_postgres() {
    let Some(postgres) = PrivatePostgres::start_or_say("a revoked node with PostgreSQL", &[]) else { return };
    a_revoked_node(Cluster::builder().database(postgres.url("postgres")).start());
}

/// A quarter of an hour passes, by the clocks of all processes, in which no server answers. Nodes go on with what they have: it costs
/// no attempt.
#[test]
fn long_outage_costs_time_and_no_output() {
    const OUTAGE_SECONDS: u64 = 900;
    let mut cluster = Cluster::builder().start();
    let Some(clock) = WrongClock::build(&cluster.sandbox, "a long outage") else { return };
    for _ in 0..2 {
        cluster.add_changed_node(|command| clock.set(command, 0));
    }
    let mut waiting = waiting_job(cluster, 4);
    for _ in 0..4 {
        assert_eq!(waiting.here.read_line(), "here");
    }
    waiting.cluster.kill_server();
    clock.jump(OUTAGE_SECONDS);
    // Two of the tasks end while nobody answers: what they append goes from node to node.
    for _ in 0..2 {
        waiting.go.write_line("go on");
    }
    let server = waiting.cluster.another_server();
    server.wait_for_stderr("serving at");
    waiting.cluster.led_by(server);
    for _ in 0..2 {
        waiting.go.write_line("go on");
    }
    let cluster = waiting.finish();
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!(report["map"]["attempts"], 4, "{report}");
    for node in 0..2 {
        let said = cluster.node(node).stderr_so_far();
        assert_eq!(said.matches("joined").count(), 1, "{said}");
    }
}
