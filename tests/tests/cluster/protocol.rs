//! docs/protocol.md, tried with a client and a node that know nothing but that page: plain HTTP and JSON.

use blackbox::{Cluster, PROTOCOL, Running};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// One request on a connection of its own. Gives the status and the body.
fn ask(cluster: &Cluster, method: &str, path: &str, body: &str) -> (u16, Value) {
    ask_by(cluster, &cluster.own_token_header(), method, path, body)
}

/// The same by whoever shows this header.
fn ask_by(cluster: &Cluster, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let address = cluster.url.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).expect("the server listens");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    let head = format!("{head}{token}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(body.as_bytes())).expect("sent");
    let mut answer = BufReader::new(connection);
    let mut line = String::new();
    answer.read_line(&mut line).expect("an answer");
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let mut is_json = false;
    while !line.trim().is_empty() {
        is_json |= line.to_ascii_lowercase().starts_with("content-type: application/json");
        line.clear();
        answer.read_line(&mut line).expect("a header");
    }
    let mut body = Vec::new();
    answer.read_to_end(&mut body).expect("a body");
    match is_json {
        true => (status, serde_json::from_slice(&body).expect("a body of JSON")),
        false => (status, Value::from(String::from_utf8_lossy(&body).into_owned())),
    }
}

fn get(cluster: &Cluster, path: &str) -> (u16, Value) {
    ask(cluster, "GET", path, "")
}

fn post(cluster: &Cluster, path: &str, body: &Value) -> (u16, Value) {
    ask(cluster, "POST", path, &body.to_string())
}

fn node_info(name: &str) -> Value {
    json!({
        "protocol": PROTOCOL, "version": "0", "name": name, "rack": "r", "slots": 1,
        "memory_bytes": 268_435_456_u64, "architecture": "other",
    })
}

#[test]
fn errors_have_one_shape() {
    let cluster = Cluster::builder().start();
    let mut old = node_info("old");
    old["protocol"] = json!(0);
    let with = |name: &str, field: &str, value: Value| {
        let mut info = node_info(name);
        info[field] = value;
        info
    };
    let (file, too_much) = (json!("file:///etc/passwd"), json!(1_u64 << 63));
    let task = json!({ "words": ["true"], "directory": "/" });
    let long = json!({ "name": "x".repeat(1 << 20), "tasks": [task], "user": "", "priority": 0 });
    let words = json!({ "words": ["true", "x".repeat(4 << 20)], "directory": "/" });
    let words = json!({ "name": "x", "tasks": [words], "user": "", "priority": 0 });
    let of_long = json!({ "name": "x", "tasks": [task], "user": "x".repeat(257), "priority": 0 });
    let stranger = json!({ "incarnation": "x", "received": 0, "free_slots": [], "finished": [] });
    let cases = [
        (get(&cluster, "/v1/nothing"), 404, "not_found"),
        (get(&cluster, "/v1/jobs/9"), 404, "not_found"),
        (get(&cluster, "/v1/jobs/9/report"), 404, "not_found"),
        (get(&cluster, "/v1/jobs?limit=many"), 400, "bad_request"),
        (get(&cluster, "/v1/jobs?unknown=1"), 400, "bad_request"),
        (post(&cluster, "/v1/jobs", &json!({ "what": 1 })), 400, "bad_request"),
        (ask(&cluster, "POST", "/v1/nodes", "{"), 400, "bad_request"),
        (post(&cluster, "/v1/nodes", &old), 409, "version_mismatch"),
        (post(&cluster, "/v1/nodes", &with("reads files", "data_url", file)), 422, "refused"),
        (post(&cluster, "/v1/nodes", &with("is huge", "memory_bytes", too_much)), 422, "refused"),
        (post(&cluster, "/v1/jobs/batch", &long), 422, "refused"),
        (post(&cluster, "/v1/jobs/batch", &of_long), 422, "refused"),
        (post(&cluster, "/v1/jobs/batch", &words), 422, "refused"),
        // A node speaks for itself, and the administrator for none.
        (post(&cluster, "/v1/nodes/5/poll", &stranger), 403, "forbidden"),
        (post(&cluster, "/v1/jobs/1/brief", &json!({})), 403, "forbidden"),
        (
            post(&cluster, "/v1/state", &json!({ "statement": "drop table jobs", "rows_max": 1 })),
            422,
            "refused",
        ),
    ];
    for ((status, body), expected, code) in cases {
        assert_eq!((status, &body["code"]), (expected, &json!(code)), "{body}");
        assert!(body["message"].is_string(), "{body}");
    }
    assert_eq!(get(&cluster, "/healthz"), (200, json!("ok\n")));
    assert_eq!(get(&cluster, "/v1/jobs").1, json!({ "jobs": [], "more": 0 }));
    let (status, document) = get(&cluster, "/openapi.json");
    assert_eq!((status, &document["paths"]["/v1/nodes"]["post"]["operationId"]), (200, &json!("register")));
}

/// A node in another language, as the page tells it to behave.
struct Node<'a> {
    cluster: &'a Cluster,
    path: String,
    incarnation: Value,
    /// The header that shows who speaks.
    secret: String,
    received: u64,
}

impl Node<'_> {
    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        ask_by(self.cluster, &self.secret, "POST", path, &body.to_string())
    }

    fn poll(&self, free_slots: &[u32], finished: Value, held: Value) -> Value {
        let poll = json!({
            "incarnation": self.incarnation, "received": self.received, "free_slots": free_slots,
            "finished": finished, "held": held,
        });
        let (status, orders) = self.post(&format!("{}/poll", self.path), &poll);
        assert_eq!(status, 200, "{orders}");
        orders
    }

    /// Polls until the server orders an attempt to start.
    fn next_start(&mut self, mut finished: Value) -> Value {
        loop {
            let orders = self.poll(&[0], std::mem::replace(&mut finished, json!([])), json!([]));
            for numbered in orders["orders"].as_array().expect("a list of orders") {
                let number = numbered["number"].as_u64().expect("a number");
                assert!(number > self.received, "an order that was confirmed came again");
                if let Some(start) = numbered["order"].get("start") {
                    // An order whose arrival was not confirmed is sent again.
                    let again = self.poll(&[0], json!([]), json!([]));
                    let numbers = again["orders"].as_array().expect("a list").iter();
                    assert!(numbers.clone().any(|order| order["number"] == number), "{again}");
                    self.received = number;
                    return start.clone();
                }
                self.received = number;
            }
        }
    }
}

#[test]
fn node_written_from_the_documentation_gets_work() {
    let cluster = Cluster::builder().start();
    let (status, welcome) = post(&cluster, "/v1/nodes", &node_info("stranger"));
    assert_eq!(status, 200, "{welcome}");
    assert!(welcome["lease_ms"].as_u64().is_some_and(|lease_ms| lease_ms >= 1000));
    let path = format!("/v1/nodes/{}", welcome["node"]);
    let secret = format!("authorization: Bearer {}", welcome["secret"].as_str().expect("a secret"));
    let incarnation = welcome["incarnation"].clone();
    let mut node = Node { cluster: &cluster, path, incarnation, secret, received: 0 };
    cluster.sandbox.write("in/a.txt", "one two\n");
    let words = ["--mapper", "builtin:words", "--reducer", "builtin:sum", "--input", "in", "--output", "out"];
    let job = Running::start(&mut cluster.job(&words));
    let mut finished = json!([]);
    for attempt in 0..3 {
        let start = node.next_start(finished);
        assert_eq!((&start["slot"], &start["attempt"]["attempt"]), (&json!(0), &json!(attempt)));
        assert!(start["task"]["map"]["split"]["segments"].is_array(), "{start}");
        let brief = format!("/v1/jobs/{}/brief", start["attempt"]["task"]["job"]);
        let (status, brief) = node.post(&brief, &json!({}));
        assert_eq!((status, brief["spec"]["inputs"].as_array().map(Vec::len)), (200, Some(1)), "{brief}");
        let failure =
            json!({ "blame": "user_program", "message": "words are not known here", "stderr_tail": [] });
        finished = json!([{
            "attempt": start["attempt"], "outcome": { "failed": failure }, "started_ns": 1, "ended_ns": 2,
        }]);
    }
    node.poll(&[0], finished, json!([]));
    job.wait().expect_failure(1, &["words are not known here"]);
    let (_, details) = get(&cluster, "/v1/jobs/1?limit=5");
    assert_eq!(
        (&details["job"]["state"], &details["attempts"][2]["state"]),
        (&json!("failed"), &json!("failed"))
    );
    let good_bye =
        json!({ "incarnation": node.incarnation, "received": 0, "free_slots": [], "finished": [] });
    assert_eq!(node.post(&format!("{}/leave", node.path), &good_bye).0, 200);
    assert_eq!(node.post(&format!("{}/poll", node.path), &good_bye).0, 410);
}
