//! Nodes with which something is wrong: their clock, their name, their version, what they take for a server. A job that
//! runs meanwhile does not notice.

use blackbox::{Cluster, Fifo, PROTOCOL, Running, StubServer, WrongClock, corpus, exchange, part_lines};
use serde_json::json;

const YEAR_SECONDS: i64 = 365 * 86_400;

/// A mapper that says on a pipe that it runs, and waits on another.
fn waiting_mapper(cluster: &Cluster) -> (Fifo, Fifo, String) {
    let (here, go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let text = format!("#!/bin/sh\necho here > '{}'\nread line < '{}'\nexec cat\n", here.text(), go.text());
    let program = cluster.sandbox.script("waits.sh", &text);
    (here, go, program.to_str().expect("a sandbox has a plain path").to_string())
}

/// The number that a question gives.
fn number(cluster: &Cluster, question: &str) -> i64 {
    let asked = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let rows = asked.json();
    rows[0]["n"].as_i64().unwrap_or_else(|| panic!("{question} gives {rows}"))
}

#[test]
fn nodes_with_wrong_clocks_work_as_others_do() {
    let mut cluster = Cluster::builder().start();
    let Some(clock) = WrongClock::build(&cluster.sandbox, "nodes with wrong clocks") else { return };
    for wrong_by in [-2 * YEAR_SECONDS, 3 * YEAR_SECONDS, 0] {
        cluster.add_changed_node(|command| clock.set(command, wrong_by));
    }
    let text = corpus(6 << 20);
    for (number, piece) in text.chunks(text.len() / 6 + 1).enumerate() {
        cluster.sandbox.write(&format!("in/{number}.txt"), piece);
    }
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat())).wait().expect_success();
    let own = ["--memory", blackbox::CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
    cluster.sandbox.run_job(&[&args[..], &own].concat()).expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
    // All of them worked, and the times of what they did are those of the server.
    assert_eq!(number(&cluster, "select count(distinct node) as n from attempts where stage = 0"), 3);
    let odd = "select count(*) as n from attempts a join jobs j on a.job = j.job where a.started_ns < a.assigned_ns \
               or a.ended_ns < a.started_ns or a.opened_ns not between a.started_ns and a.ended_ns \
               or a.ended_ns > j.ended_ns";
    assert_eq!(number(&cluster, odd), 0);
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert!(report["idle_slot_seconds"].as_f64().is_some_and(|idle| idle < 10_000.0), "{report}");
    // Nobody took them for dead: longer than a lease they are heard of, by the clock of the server.
    let told =
        "select count(*) as n from nodes where state = 'up' and last_seen_ns - registered_ns > 11000000000";
    cluster.ask_until(&["state", "--json", told], |answer| answer.contains(": 3") || answer.contains(":3"));
    for node in 0..3 {
        let said = cluster.node(node).stderr_so_far();
        assert_eq!(said.matches("joined").count(), 1, "{said}");
    }
    Running::start(&mut cluster.job(&[&args[..], &["--output", "again"]].concat())).wait().expect_success();
    assert!(whole("again") == whole("embedded"), "the outputs differ");
}

/// A node under a taken name, or of another protocol version, gets an error and harms nobody.
#[test]
fn nodes_that_are_refused_harm_no_job() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\n");
    let (mut here, mut go, program) = waiting_mapper(&cluster);
    let args = ["--input", "in.txt", "--mapper", &program, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    assert_eq!(here.read_line(), "here");
    let namesake = ["node", "--name", "node-0", "--disk", "other-disk", "--slots", "1", "--memory", "64M"];
    let texts = ["the name node-0 belongs to node-1", "--name"];
    Running::start(&mut cluster.sailfish(&namesake)).wait().expect_failure(2, &texts);
    // The same directory, too.
    let disk = cluster.node_disk(0).display().to_string();
    let namesake = [&namesake[..4], &[disk.as_str()], &namesake[5..]].concat();
    Running::start(&mut cluster.sailfish(&namesake)).wait().expect_failure(2, &texts);
    let register = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut info = json!({
            "protocol": PROTOCOL, "version": "0", "name": "other", "rack": "r", "slots": 1,
            "memory_bytes": 268_435_456_u64, "architecture": "other",
        });
        change(&mut info);
        let answer = exchange(cluster.address(), "POST /v1/nodes", info.to_string().as_bytes());
        let answer = answer.expect("an answer");
        (answer.status, answer.json().map(|said| said["message"].as_str().unwrap_or_default().to_string()))
    };
    let check = |change: &dyn Fn(&mut serde_json::Value), status: u16, text: &str| {
        let (given, message) = register(change);
        assert!(
            given == status && message.as_deref().is_some_and(|message| message.contains(text)),
            "{message:?}"
        );
    };
    for protocol in [0_u64, 1, 4_294_967_295] {
        check(&|info| info["protocol"] = json!(protocol), 409, &format!("the caller version {protocol}"));
    }
    check(&|info| info["protocol"] = json!(-1), 400, "cannot be read");
    check(&|info| info["slots"] = json!(0), 422, "0 slots");
    check(&|info| info["slots"] = json!(u32::MAX), 422, "4294967295 slots");
    check(&|info| info["name"] = json!(""), 422, "its name has 0 bytes");
    check(&|info| info["rack"] = json!("r".repeat(2000)), 422, "its rack has 2000 bytes");
    check(&|info| info["of_a_later_version"] = json!(1), 400, "of_a_later_version");
    go.write_line("go on");
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1"]);
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!(report["map"]["attempts"], 1, "what ran was not started again");
    assert_eq!(cluster.node(0).stderr_so_far().matches("joined").count(), 1);
}

/// Nodes and clients report an other end that is no server, or a server of another version.
#[test]
fn what_is_no_server_of_ours_is_told() {
    let sandbox = blackbox::Sandbox::new();
    let check = |stub: StubServer, node_code: i32, texts: &[&str]| {
        let url = stub.url();
        let node = ["node", "--server", &url, "--disk", "d", "--slots", "1", "--memory", "64M"];
        Running::start(sandbox.sailfish().args(node)).wait().expect_failure(node_code, texts);
        let client = Running::start(sandbox.sailfish().args(["nodes", "--server", &url])).wait();
        client.expect_failure(node_code, texts);
        // With someone who starts it again, too, it ends.
        let supervised = [&node[..], &["--supervise"]].concat();
        if node_code == 2 {
            Running::start(sandbox.sailfish().args(supervised)).wait().expect_failure(node_code, texts);
        }
    };
    let differs = r#"{"code":"version_mismatch","message":"this server speaks version 9 of its protocol"}"#;
    check(StubServer::start("409 Conflict", "application/json", differs), 2, &["speaks version 9"]);
    let page = "<html><body>It works!</body></html>";
    check(StubServer::start("200 OK", "text/html", page), 1, &["cannot be read"]);
    check(StubServer::start("404 Not Found", "text/html", page), 1, &["answered 404", "no message of ours"]);
    let newer = r#"{"code":"out_of_cheese","message":"a word of a later version"}"#;
    check(StubServer::start("418 Teapot", "application/json", newer), 1, &["answered 418"]);
    let later = r#"{"of_a_later_version":1}"#;
    check(
        StubServer::start("200 OK", "application/json", later),
        1,
        &["cannot be read", "of_a_later_version"],
    );
}
