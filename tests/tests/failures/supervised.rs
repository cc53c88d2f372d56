//! Nodes that are watched and started again when they crash.

use blackbox::{Cluster, Running, part_lines, wait_until};
use rustix::process::{Pid, Signal, kill_process};

fn kill(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("the number of a process"), Signal::KILL).expect("it lives");
}

/// Whether a process is there and has not ended.
fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn killed_node_is_started_again_and_job_ends() {
    let mut cluster = Cluster::builder().start();
    cluster.add_supervised_node();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let mut hangs = cluster.sandbox.waiting_before_gate_program("hangs");
    let args = ["--input", "in.txt", "--mapper", "builtin:identity", "--reducer", &hangs.path];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(hangs.here.read_line(), "here");
    cluster.sandbox.open_gate();
    let first = cluster.watched_by(0).expect("a node");
    kill(first);
    cluster.node(0).wait_for_stderr("it restarts in");
    cluster.node(0).wait_for_stderr("as node-2");
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1", b"b\t3"]);
    // With the process that watches goes the node, however that one ends.
    let second = cluster.watched_by(0).expect("a node");
    assert!(second != first && lives(second));
    cluster.kill_node();
    wait_until("the watched node ends", || !lives(second));
}

#[test]
fn node_that_ends_for_good_stays_down() {
    let mut cluster = Cluster::builder().start();
    cluster.add_supervised_node();
    // The name is taken.
    let taken = ["node", "--supervise", "--name", "node-0", "--disk", "other-disk"];
    let taken = cluster.run(&taken).expect_failure(2, &["node-0"]);
    assert!(!taken.stderr.contains("it restarts in"), "{}", taken.stderr);
    let wrong = ["node", "--supervise", "--slots", "0", "--disk", "other-disk"];
    cluster.run(&wrong).expect_failure(2, &["--slots 0"]);
    // Told to end, it passes that on.
    let node = cluster.watched_by(0).expect("a node");
    cluster.stop_node();
    assert!(!lives(node));
    // Drained, it does not come back.
    cluster.add_supervised_node();
    cluster.add_node();
    cluster.run(&["nodes", "drain", "node-1"]).expect_success();
    cluster.wait_for_node(0);
}
