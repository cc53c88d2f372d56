//! Every route of the checked-in OpenAPI document with messages that are made up by it: some right, most spoiled, to paths
//! and with headers that nobody should send. The server answers each with an error of ours, and then works as before.
//!
//! All follows from a seed: `SAILFISH_SEED=17 cargo test -p blackbox --test malformed_requests` repeats a run that failed.
//! `SAILFISH_SEEDS=4096` makes so many requests for each route.

use blackbox::{
    Answer, Cluster, Document, PROTOCOL, Questions, Random, Route, break_off, exchange, exchange_within,
    part_lines, spoiled, wait_until,
};
use private_postgres::PrivatePostgres;
use serde_json::{Value, json};
use std::time::Duration;

const POLLS_MAX: u32 = 20;
/// Requests for each route where nothing else is said.
const REQUESTS: u64 = 40;
/// Polls and waits are held back; these are not waited for.
const HELD: Duration = Duration::from_millis(100);
/// One byte more than the size limit of a body.
const TOO_LARGE_BYTES: usize = (256 << 20) + 1;

/// In place of a number or a name in a path.
const PLACES: &[&str] = &[
    "0",
    "-1",
    "1",
    "999",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "1e3",
    "0x1",
    "+1",
    "1.5",
    "%31",
    "1%2f2",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fadmin.token",
    "..%2f..%2f..%2fetc%2fpasswd",
    "..%5c..%5cx",
    "%252e%252e",
    "%00",
    "1%00",
    "%ff",
    "%F0%9F%A6%86",
    "1%20",
    "%zz",
    "..",
    "a",
    "null",
    "';--",
];
const QUERIES: &[&str] =
    &["", "-1", "4294967296", "9e9", "%00", "%ff", "a", "1&limit=2", "1&unknown=1", "&&&==="];
const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/octet-stream",
    "\"",
];
const MORE_HEADERS: &[&str] = &[
    "content-encoding: gzip",
    "authorization: Bearer sailfish_00",
    "authorization: ",
    "accept: text/html",
    "range: bytes=5-2",
    "x-http-method-override: DELETE",
];

/// The status that belongs to each word of an error; `failed` is not among them, for nothing here fails.
const ERRORS: &[(&str, u16)] = &[
    ("bad_request", 400),
    ("unauthenticated", 401),
    ("forbidden", 403),
    ("not_found", 404),
    ("version_mismatch", 409),
    ("unknown_node", 410),
    ("too_large", 413),
    ("bad_request", 415),
    ("refused", 422),
    ("too_many", 429),
];

/// A node that joined.
#[derive(Clone)]
struct MadeUpNode {
    number: u64,
    incarnation: Value,
    /// The header by which it speaks.
    header: String,
}

impl MadeUpNode {
    /// None where the answer welcomes no node.
    fn welcomed(said: &Value) -> Option<Self> {
        let (number, secret) = (said["node"].as_u64()?, said["secret"].as_str()?);
        let header = format!("authorization: Bearer {secret}");
        Some(Self { number, incarnation: said["incarnation"].clone(), header })
    }
}

struct World {
    cluster: Cluster,
    random: Random,
    document: Document,
    /// Jobs that requests have made, and likewise `nodes` and `starts`.
    jobs: Vec<i64>,
    nodes: Vec<MadeUpNode>,
    starts: Vec<Value>,
    requests: u64,
    admitted: u64,
}

impl World {
    fn start(database: Option<String>) -> World {
        let seed = number_from("SAILFISH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("SAILFISH_SEED={seed} cargo test -p blackbox --test malformed_requests");
        World {
            cluster: Cluster::builder().database(database).start(),
            random: Random::new(seed),
            document: Document::read(),
            jobs: Vec::new(),
            nodes: Vec::new(),
            starts: Vec::new(),
            requests: 0,
            admitted: 0,
        }
    }

    /// One request to a route, whatever it may be.
    fn try_route(&mut self, route: &Route) {
        let node = match self.nodes.is_empty() || self.random.chance(20) {
            true => None,
            false => Some(self.random.one_of(&self.nodes).clone()),
        };
        let mut head = format!("{} {}", route.method, self.place(route, node.as_ref()));
        let body = match &route.body {
            Some((kind, schema)) if kind == "application/json" => {
                let message = self.message(route, schema, node.as_ref());
                match self.random.chance(40) {
                    true => message.to_string().into_bytes(),
                    false => spoiled(&message, &mut self.random),
                }
            }
            Some(_) => self.random.bytes(300),
            None if self.random.chance(20) => self.random.bytes(30),
            None => Vec::new(),
        };
        head.push_str(&format!("\ncontent-type: {}", self.random.one_of(CONTENT_TYPES)));
        // Without it most media types are those of a web page, and no route sees the request.
        if !self.random.chance(10) {
            head.push_str("\nsailfish-request: 1");
        }
        if self.random.chance(20) {
            head.push_str(&format!("\n{}", self.random.one_of(MORE_HEADERS)));
        }
        let is_of_nodes =
            ["{node}", "/brief", "/places", "/boundaries"].iter().any(|part| route.path.contains(part));
        if let Some(node) = node.filter(|_| is_of_nodes && self.random.chance(80)) {
            head.push_str(&format!("\n{}", node.header));
        }
        self.requests += 1;
        let is_held = route.path.ends_with("/poll") || route.path.ends_with("/wait");
        let answer = match is_held {
            true => exchange_within(self.cluster.address(), &head, &body, HELD),
            false => exchange(self.cluster.address(), &head, &body),
        };
        match answer {
            Ok(answer) => {
                self.admitted += u64::from(answer.status == 200);
                check(&answer, &head, &body);
                self.learn(route, &head, &answer);
            }
            Err(_) if is_held => {}
            Err(error) => panic!("{error}\n{}", shown(&head, &body)),
        }
    }

    /// The path of a route with something in its places.
    fn place(&mut self, route: &Route, node: Option<&MadeUpNode>) -> String {
        let is_cancel = route.path.ends_with("/cancel");
        let mut path = String::new();
        for part in route.path.split('/').skip(1) {
            let place = match part {
                // Jobs that are cancelled at once go nowhere.
                "{job}" if !self.jobs.is_empty() && self.random.chance(if is_cancel { 10 } else { 60 }) => {
                    self.random.one_of(&self.jobs).to_string()
                }
                "{node}" if node.is_some() => node.map(|node| node.number.to_string()).unwrap_or_default(),
                "{sha256}" if self.random.chance(50) => "ab".repeat(32),
                place if place.starts_with('{') => match self.random.chance(3) {
                    true => "9".repeat(5_000),
                    false => self.random.one_of(PLACES).to_string(),
                },
                word => word.to_string(),
            };
            path.push('/');
            path.push_str(&place);
        }
        if self.random.chance(if route.in_query.is_empty() { 5 } else { 60 }) {
            let name = route.in_query.first().map_or("limit", String::as_str);
            path.push_str(&format!("?{name}={}", self.random.one_of(QUERIES)));
        }
        path
    }

    /// A message that the route's schema admits, with more in it that fits to what there is.
    fn message(&mut self, route: &Route, schema: &Value, node: Option<&MadeUpNode>) -> Value {
        let mut message = self.document.message(schema, &mut self.random);
        match route.path.as_str() {
            "/v1/jobs" => self.mend_submission(&mut message),
            "/v1/jobs/batch" if self.random.chance(70) => {
                message["tasks"] = json!([{ "words": ["a"] }, {}]);
            }
            "/v1/nodes" if self.random.chance(70) => {
                message["protocol"] = json!(PROTOCOL);
                message["slots"] = json!(1 + self.random.below(4));
                // One with too little for the jobs gets none.
                if self.random.chance(70) {
                    message["memory_bytes"] = json!(1_u64 << 34);
                }
                message["name"] = json!(format!("made-up-{}", self.random.below(20)));
            }
            "/v1/nodes/{node}/poll" | "/v1/nodes/{node}/leave" => {
                if let Some(node) = node {
                    message["incarnation"] = node.incarnation.clone();
                }
                message["free_slots"] = (0..self.random.below(4)).map(Value::from).collect();
                if self.random.chance(70) {
                    message["received"] = json!(0);
                    message["report"] = json!({});
                }
                if route.path.ends_with("/leave") && self.random.chance(70) {
                    message["incarnation"] = json!("another");
                }
                let ends = message["finished"].as_array_mut().into_iter().flatten();
                for end in ends {
                    if !self.starts.is_empty() {
                        let start = self.random.one_of(&self.starts).clone();
                        end["attempt"] = start["attempt"].clone();
                        if self.random.chance(70) {
                            end["outcome"] = json!({ "succeeded": self.result_of(&start) });
                        }
                    }
                }
            }
            _ => {}
        }
        message
    }

    /// A result of the kind that the task should have, by a node that says what it likes of it.
    fn result_of(&mut self, start: &Value) -> Value {
        let kind = start["task"].as_object().and_then(|task| task.keys().next()).expect("a kind of task");
        let mut result = self.document.message_of_kind("TaskResult", kind, &mut self.random);
        let node = start["node"].as_u64().expect("a node");
        // Where it lies must be right, or nothing else is looked at.
        let id = |number: usize| json!((node << 40) + number as u64);
        for (list, name) in [("commits", "chunk"), ("chunks", "chunk"), ("runs", "run")] {
            let items = result[kind].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for (number, item) in items.enumerate() {
                item[name] = id(number);
                item["ifile"] = json!(0);
            }
        }
        if kind == "map" {
            result[kind]["part"] = Value::Null;
        }
        if kind == "reduce" {
            result[kind]["part"]["name"] = json!("part-00000");
            result[kind]["part"]["attempt_name"] = json!(".part-00000.attempt-0");
        }
        result
    }

    /// A job that could run, of which a few things are as they were made up; its output is in the sandbox whatever else.
    fn mend_submission(&mut self, message: &mut Value) {
        let output = self.cluster.sandbox.path(&format!("out-{}", self.requests));
        let mut job = good_job(&self.cluster.sandbox.path("in.txt").display().to_string());
        let fields: Vec<String> =
            message["spec"].as_object().expect("a specification").keys().cloned().collect();
        for _ in 0..self.random.below(4) {
            let field = self.random.one_of(&fields).clone();
            match field.as_str() {
                // One number of many is enough to be refused.
                "layout" => {
                    let sizes = message["spec"]["layout"].as_object().expect("sizes");
                    let names: Vec<String> = sizes.keys().cloned().collect();
                    let name = self.random.one_of(&names);
                    job["spec"]["layout"][name] = message["spec"]["layout"][name].clone();
                }
                _ => job["spec"][&field] = message["spec"][&field].clone(),
            }
        }
        if self.random.chance(30) {
            job["splits"] = message["splits"].clone();
        }
        if self.random.chance(50) {
            job["priority"] = message.get("priority").cloned().unwrap_or(json!(0));
            job["user"] = message.get("user").cloned().unwrap_or(json!(""));
        }
        job["spec"]["output"] = json!(output);
        *message = job;
    }

    /// Notes the jobs, nodes and starts in an answer.
    fn learn(&mut self, route: &Route, head: &str, answer: &Answer) {
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let Some(said) = answer.json().filter(|_| answer.status == 200) else { return };
        match (route.method.as_str(), route.path.as_str()) {
            ("POST", "/v1/jobs") => self.jobs.extend(said["job"].as_i64()),
            ("POST", "/v1/jobs/batch") => self.jobs.extend(said["first"].as_i64()),
            ("POST", "/v1/nodes") => self.nodes.extend(MadeUpNode::welcomed(&said)),
            ("POST", "/v1/nodes/{node}/poll") => {
                if let Some(node) = path.split('/').nth(3).and_then(|node| node.parse().ok()) {
                    self.learn_starts(node, &said);
                }
            }
            _ => {}
        }
    }

    /// A request that must be granted.
    fn ask(&self, head: &str, body: &Value) -> Value {
        let answer = exchange(self.cluster.address(), head, body.to_string().as_bytes());
        let answer = answer.unwrap_or_else(|error| panic!("{head}: {error}"));
        assert_eq!(answer.status, 200, "{head} {body}: {}", answer.text());
        answer.json().unwrap_or_else(|| panic!("{head}: {}", answer.text()))
    }

    /// A node with enough of everything comes first, and is given a task of the good job.
    fn start_good_job(&mut self) {
        let info = json!({
            "protocol": PROTOCOL, "version": "0", "name": "good", "rack": "r", "slots": 2,
            "memory_bytes": 1_u64 << 34, "architecture": "other", "data_url": "",
        });
        let welcome = self.ask("POST /v1/nodes", &info);
        let node = MadeUpNode::welcomed(&welcome).expect("a node");
        self.nodes.push(node.clone());
        let mut poll = json!({
            "incarnation": welcome["incarnation"], "received": 0, "free_slots": [0, 1], "finished": [],
        });
        // The first may be answered at once, with what the node does not know of the others.
        for _ in 0..POLLS_MAX {
            let said = self.ask(&format!("POST /v1/nodes/{}/poll\n{}", node.number, node.header), &poll);
            self.learn_starts(node.number, &said);
            if !self.starts.is_empty() {
                return;
            }
            poll["free_slots"] = json!([]);
        }
        panic!("a node with a free slot gets no task");
    }

    fn learn_starts(&mut self, node: u64, said: &Value) {
        let orders = said["orders"].as_array().into_iter().flatten();
        for order in orders.filter(|order| order["order"]["start"].is_object()) {
            let mut start = order["order"]["start"].clone();
            start["node"] = json!(node);
            self.starts.push(start);
        }
    }

    /// Polls and waits that nobody breaks off are answered, too.
    fn check_held(&self) {
        let info = json!({
            "protocol": PROTOCOL, "version": "0", "name": "held", "rack": "r", "slots": 1,
            "memory_bytes": 268_435_456_u64, "architecture": "other",
        });
        let MadeUpNode { number, incarnation, header } =
            MadeUpNode::welcomed(&self.ask("POST /v1/nodes", &info)).expect("a node");
        let poll = json!({ "incarnation": incarnation, "received": 0, "free_slots": [], "finished": [] });
        // The first is answered at once with what the node does not know, the next is held.
        for _ in 0..2 {
            self.ask(&format!("POST /v1/nodes/{number}/poll\n{header}"), &poll);
        }
        self.ask(&format!("POST /v1/nodes/{number}/leave\n{header}"), &poll);
    }

    /// More than a body may have, and bodies that end before their end.
    fn check_sizes(&self, routes: &[Route]) {
        let (head, body) = ("POST /v1/jobs/batch", vec![b' '; TOO_LARGE_BYTES]);
        let answer = exchange(self.cluster.address(), head, &body).expect("it answers");
        assert_eq!(
            (answer.status, answer.json().map(|said| said["code"].clone())),
            (413, Some(json!("too_large")))
        );
        drop(body);
        for route in routes {
            let path = route.path.replace(['{', '}'], "");
            let head = format!("{} {path} HTTP/1.1\r\nhost: localhost\r\n", route.method);
            let head = format!("{head}sailfish-request: 1\r\ncontent-length: 900\r\n");
            break_off(self.cluster.address(), head.as_bytes());
            break_off(self.cluster.address(), format!("{head}\r\n{{\"a\":").as_bytes());
        }
    }

    /// Takes back all that was made up, and runs a job.
    fn check_works(mut self) {
        for job in self.cluster.jobs().not_ended().jobs() {
            self.ask(&format!("POST /v1/jobs/{job}/cancel"), &json!({ "reason": "made up" }));
        }
        // What made-up nodes run ends with their leases.
        let unfinished = || self.cluster.jobs().not_ended().count();
        let nodes = || {
            let nodes = self.ask("GET /v1/nodes", &Value::Null);
            let living = nodes["nodes"].as_array().expect("nodes").iter();
            living.filter(|node| node["state"] != "drained").count()
        };
        wait_until("all jobs and nodes are gone", || unfinished() == 0 && nodes() == 0);
        self.cluster.add_node();
        self.cluster.sandbox.write("words.txt", "b a\nb\n");
        let args = ["--input", "words.txt", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
        self.cluster.run_job(&[&args[..], &["--output", "words"]].concat()).expect_success();
        let bytes = self.cluster.sandbox.concatenated(&self.cluster.sandbox.path("words"));
        assert_eq!(part_lines(&bytes), [b"a\t1", b"b\t2"]);
        let log = self.cluster.server().stderr_so_far();
        let loud = |line: &&str| line.contains("panicked") || line.contains(" ERROR ");
        assert_eq!(log.lines().find(loud), None, "{log}");
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn shown(head: &str, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let start: String = body.chars().take(3_000).collect();
    format!("{head}\n\n{start}{}", if start.len() < body.len() { " ..." } else { "" })
}

/// An answer is what was asked for, or an error with the word that belongs to its status and a sentence.
#[track_caller]
fn check(answer: &Answer, head: &str, body: &[u8]) {
    let story = || format!("{} {}\nto\n{}", answer.status, answer.text(), shown(head, body));
    if answer.status == 200 {
        let is_json = answer.headers.contains("content-type: application/json");
        assert!(!is_json || answer.json().is_some(), "{}", story());
        return;
    }
    let said = answer.json().unwrap_or_else(|| panic!("no error of ours: {}", story()));
    let code = said["code"].as_str().unwrap_or_else(|| panic!("an error without a code: {}", story()));
    // A token that is no good is the only one that is shown then.
    let is_stranger = head.contains("authorization:") && (code, answer.status) == ("unauthenticated", 401);
    assert!(is_stranger || ERRORS.contains(&(code, answer.status)), "no proper error: {}", story());
    assert!(said["message"].as_str().is_some_and(|text| !text.is_empty()), "no sentence: {}", story());
}

/// Returns the body that `sailfish run` hands in with `--memory 64M --slots 2`.
fn good_job(input: &str) -> Value {
    json!({
        "spec": {
            "name": "made up", "kind": { "map_reduce": { "shuffled": {} } }, "overwrite": false, "output": "",
            "inputs": [{ "path": input, "size_bytes": 10, "mtime_ns": 1 }],
            "mapper": { "builtin": { "name": "words", "argument": null } }, "combiner": null,
            "reducer": { "builtin": { "name": "sum", "argument": null } },
            "partitioning": "hash", "codec": "lz4", "memory_bytes": 67_108_864, "slots": 2,
            "disks": [], "files": [], "env": [], "keep_ifiles": false, "sync": true,
            "layout": {
                "ifile_count": 1, "chunk_bytes": 16_777_216, "frame_bytes": 65_536, "block_bytes": 65_536,
                "record_bytes_max": 16_777_216, "combine_window_bytes": 1_048_576, "split_bytes": 1_048_576,
                "chunk_share_bytes": 41_943_040, "sort_share_bytes": 16_777_216, "io_share_bytes": 8_388_608,
            },
        },
        "splits": [{ "segments": [{ "file_index": 0, "offset_bytes": 0, "length_bytes": 10 }] }],
    })
}

fn survive(database: Option<String>) {
    let mut world = World::start(database);
    // What is spoiled would be refused whatever it was, were this refused too.
    let (output, input) = (world.cluster.sandbox.path("good"), world.cluster.sandbox.path("in.txt"));
    let mut good = good_job(&input.display().to_string());
    good["spec"]["output"] = json!(output);
    world.jobs.extend(world.ask("POST /v1/jobs", &good)["job"].as_i64());
    world.start_good_job();
    let routes = world.document.routes();
    assert!(routes.len() > 20, "{} routes", routes.len());
    let requests = number_from("SAILFISH_SEEDS").unwrap_or(REQUESTS).max(REQUESTS);
    for _ in 0..requests {
        for route in &routes {
            world.try_route(route);
        }
    }
    let (requests, admitted) = (world.requests, world.admitted);
    println!(
        "{requests} requests, {admitted} granted, {} jobs, {} nodes",
        world.jobs.len(),
        world.nodes.len()
    );
    assert!(!world.starts.is_empty() && admitted * 20 > requests, "{admitted} of {requests} were granted");
    world.check_held();
    world.check_sizes(&routes);
    world.check_works();
}

#[test]
fn a_server_survives_whatever_is_asked() {
    survive(None);
}

#[test]
fn a_server_with_postgres_survives_whatever_is_asked() {
    let what = "malformed requests to a server with PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    survive(Some(postgres.url("postgres")));
}
