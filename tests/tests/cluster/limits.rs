//! Limits of the programs of an attempt: on processes, open files, file size, disk, memory and time.

use blackbox::{Cluster, Finished, Running, could_not_run};
use std::process::Command;
use std::time::Instant;

/// Programs that pass a limit, each with its limit.
const PASSING: [(&str, &str, &str); 10] = [
    ("time", "time=1s", "sleep 60"),
    ("a child's time", "time=1s", "setsid sleep 60 & wait"),
    (
        "memory",
        "memory=100M",
        "python3 -c 'import time; b = bytearray(b\"x\") * (300 << 20); time.sleep(60)'",
    ),
    (
        "memory of two processes",
        "memory=200M",
        "hold='import time; b = bytearray(b\"x\") * (130 << 20); time.sleep(60)'
        python3 -c \"$hold\" & python3 -c \"$hold\"; wait; exit 1",
    ),
    (
        "memory of a child whose end is ignored",
        "memory=90M",
        "python3 -c 'import time; b = bytearray(b\"x\") * (300 << 20); time.sleep(1)' || true",
    ),
    ("processes", "processes=40", "for i in $(seq 100); do sleep 60 & done; sleep 60"),
    ("open files", "open-files=64", "python3 -c 'files = [open(\"/dev/null\") for _ in range(100)]'"),
    ("file size", "file-size=1M", "head -c 2000000 /dev/zero > ${TMPDIR:-/tmp}/large"),
    ("disk", "disk=16M", "head -c 40000000 /dev/zero > $TMPDIR/large; sleep 60"),
    (
        "an unlinked file",
        "disk=16M",
        "exec 3> $TMPDIR/large; rm $TMPDIR/large; fallocate -l 1G /proc/self/fd/3 && sleep 60",
    ),
];

fn submit(cluster: &Cluster, more: &[&str], script: &str) -> Finished {
    let mut command = cluster.sailfish(&[&["submit", "--wait", "--retries", "3"], more].concat());
    command.args(["--", "sh", "-c", script]);
    Running::start(&mut command).wait()
}

/// Each fails once, with the limit, its value, its owner and the option.
#[track_caller]
fn assert_limited(cluster: &Cluster, place: &str) {
    for (name, limit, script) in PASSING {
        let began = Instant::now();
        let told = submit(cluster, &["--limit", limit], script);
        let expected = format!("--limit {limit} of the job");
        assert!(told.code().is_some_and(|code| code != 0), "{place}, {name}: {}", told.story());
        assert!(told.stderr.contains(&expected), "{place}, {name}: {}", told.story());
        let waits_out = began.elapsed().as_secs() >= 55;
        assert!(!waits_out, "{place}, {name} ended by itself: {}", told.story());
    }
}

#[test]
fn attempts_over_limits_fail_once_by_name() {
    let cluster = Cluster::builder().nodes(1).start();
    assert_limited(&cluster, "contained");
    let attempts = "select count(*) from attempts";
    let counted = cluster.run(&["state", attempts, "--json"]).expect_success().text();
    assert!(counted.contains(&format!(": {}}}", PASSING.len())), "{counted}");
    // The next program of the slot has neither the limits nor the processes.
    submit(&cluster, &[], "python3 -c 'b = bytearray(b\"x\") * (150 << 20)'; ulimit -f").expect_success();
}

#[test]
fn limits_hold_without_namespaces_and_root() {
    let mut cluster = Cluster::builder().nodes(0).start();
    cluster.add_changed_node(|command| {
        command.arg("--no-contain");
    });
    assert_limited(&cluster, "without namespaces");
    let mut cluster = Cluster::builder().nodes(0).start();
    match cluster.add_plain_node(&[]) {
        true => assert_limited(&cluster, "of another user"),
        false => could_not_run("limits of an ordinary user's node", "there is no such user here"),
    }
}

#[test]
fn limits_of_a_node_hold_for_all_jobs() {
    let mut cluster = Cluster::builder().nodes(0).start();
    let limits = ["--limit", "time=30m", "--limit", "open-files=100", "--limit", "memory=100M"];
    cluster.add_changed_node(|command| {
        command.args(limits);
    });
    let told = submit(&cluster, &["--limit", "memory=1G"], PASSING[2].2);
    told.expect_failure(2, &["--limit memory=100M of this node"]);
    let said = submit(&cluster, &["--limit", "open-files=50"], "ulimit -n").expect_success().text();
    assert!(said.contains("50"), "{said}");
    cluster.sandbox.write("in", "a\nb\n");
    let script = cluster.sandbox.script("map.sh", "#!/bin/sh\ncat; sleep 60\n").display().to_string();
    let run = |more: &[&str], out: &str| {
        let args = ["--input", "in", "--map-only", "--mapper", &script, "--output", out];
        Running::start(&mut cluster.job(&[&args, more].concat())).wait()
    };
    run(&["--limit", "time=1s"], "late").expect_failure(2, &["--limit time=1s of the job", "attempt 0"]);
    run(&["--limit", "time=soon"], "bad").expect_failure(2, &["--limit time=soon"]);
    let mut node = cluster.sailfish(&["node"]);
    Running::start(node.args(["--limit", "cpu=3"])).wait().expect_failure(2, &["\"cpu\" is not a limit"]);
}

#[test]
fn limits_hold_on_one_machine() {
    let cluster = Cluster::builder().nodes(0).start();
    let sandbox = &cluster.sandbox;
    sandbox.write("in", "a\nb\n");
    let script = sandbox.script("map.sh", "#!/bin/sh\ncat; sleep 60\n").display().to_string();
    let args = ["--input", "in", "--map-only", "--mapper", &script, "--limit", "time=1s"];
    sandbox.run_job(&args).expect_failure(2, &["--limit time=1s of the job"]);
    sandbox.run_job(&[&args[..], &["--contain"]].concat()).expect_failure(2, &["--limit time=1s of the job"]);
    let mut local: Command = sandbox.sailfish();
    local.args(["submit", "--limit", "time=1s", "--", "sleep", "60"]);
    Running::start(&mut local).wait().expect_failure(2, &["--limit time=1s of the job"]);
}
