//! Nodes with which something is wrong: their clock, their name, their version, what they take for a server. A job that
//! runs meanwhile does not notice.

use blackbox::{
    Cluster, PROTOCOL, Questions, Running, Stage, State, StubServer, WrongClock, exchange, part_lines,
};
use serde_json::json;
use std::time::Duration;

const YEAR_SECONDS: i64 = 365 * 86_400;
/// Longer than the server waits for a silent node.
const LEASE: Duration = Duration::from_secs(11);

#[test]
fn nodes_with_wrong_clocks_work_as_others_do() {
    let mut cluster = Cluster::builder().start();
    let Some(clock) = WrongClock::build(&cluster.sandbox, "nodes with wrong clocks") else { return };
    for wrong_by in [-2 * YEAR_SECONDS, 3 * YEAR_SECONDS, 0] {
        cluster.add_changed_node(|command| clock.set(command, wrong_by));
    }
    cluster.sandbox.write_text(6 << 20, 6);
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    cluster.run_job(&[&args[..], &["--output", "out"]].concat()).expect_success();
    cluster.assert_as_embedded(&args);
    // All of them worked, and the times of what they did are those of the server.
    assert_eq!(cluster.attempts().in_stage(Stage::Map).count_nodes(), 3);
    assert_eq!(cluster.attempts_at_odd_times().count(), 0);
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert!(report["idle_slot_seconds"].as_f64().is_some_and(|idle| idle < 10_000.0), "{report}");
    // Nobody took them for dead: longer than a lease they are heard of, by the clock of the server.
    cluster.nodes().is(State::Up).heard_of_for(LEASE).wait_for(3);
    for node in 0..3 {
        let said = cluster.node(node).stderr_so_far();
        assert_eq!(said.matches("joined").count(), 1, "{said}");
    }
    cluster.run_job(&[&args[..], &["--output", "again"]].concat()).expect_success();
    cluster.sandbox.assert_same_output("again", "embedded");
}

/// A node under a taken name, or of another protocol version, gets an error and harms nobody.
#[test]
fn nodes_that_are_refused_harm_no_job() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\n");
    let mut program = cluster.sandbox.waiting_program("mapper");
    let args = ["--input", "in.txt", "--mapper", &program.path, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    assert_eq!(program.here.read_line(), "here");
    let namesake = ["node", "--name", "node-0", "--disk", "other-disk", "--slots", "1", "--memory", "64M"];
    let texts = ["the name node-0 belongs to node-1", "--name"];
    cluster.run(&namesake).expect_failure(2, &texts);
    // The same directory, too.
    let disk = cluster.node_disk(0).display().to_string();
    let namesake = [&namesake[..4], &[disk.as_str()], &namesake[5..]].concat();
    cluster.run(&namesake).expect_failure(2, &texts);
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
    program.go.write_line("go on");
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1"]);
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!(report["map"]["attempts"], 1, "what ran was not started again");
    assert_eq!(cluster.node(0).stderr_so_far().matches("joined").count(), 1);
}

/// Nodes and clients report an other end that is no server, or a server of another version.
#[test]
fn foreign_servers_are_reported() {
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
    check(
        StubServer::start("404 Not Found", "text/html", page),
        1,
        &["answered 404", "without a message of Sailfish"],
    );
    let newer = r#"{"code":"out_of_cheese","message":"a word of a later version"}"#;
    check(StubServer::start("418 Teapot", "application/json", newer), 1, &["answered 418"]);
    let later = r#"{"of_a_later_version":1}"#;
    check(
        StubServer::start("200 OK", "application/json", later),
        1,
        &["cannot be read", "of_a_later_version"],
    );
}
