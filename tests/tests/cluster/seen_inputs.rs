//! Jobs of a cluster whose inputs only some nodes see.

use blackbox::{Cluster, Running, wait_until};
use std::os::unix::fs::symlink;

const REFUSED: i32 = 2;
const COUNT: [&str; 4] = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];

/// Starts a node without such a directory, and two with one of their own. Returns the names of these directories as
/// inputs.
fn cluster_with_seen() -> (Cluster, [String; 2]) {
    let mut cluster = Cluster::builder().nodes(1).start();
    let sandbox = &cluster.sandbox;
    for (file, word) in [("one/a.txt", "a"), ("one/deep/b.txt", "b"), ("two/c.txt", "c"), ("two/_no", "no")] {
        sandbox.write(file, format!("{word} word\n").repeat(1000));
    }
    let dirs = ["one", "two"].map(|name| sandbox.path(name).canonicalize().expect("it was written"));
    let dirs = dirs.map(|dir| dir.to_str().expect("paths of tests are UTF-8").to_string());
    dirs.iter().for_each(|dir| cluster.add_node_with("rack-0", &["--sees", dir]));
    (cluster, dirs.map(|dir| format!("seen:{dir}")))
}

#[test]
fn maps_run_where_their_inputs_are_seen() {
    let (cluster, [one, two]) = cluster_with_seen();
    let inputs = ["--input", one.as_str(), two.as_str()];
    cluster.run_job(&[&inputs[..], &["--output", "out"], &COUNT].concat()).expect_success();
    let embedded = [&["--input", "one", "two", "--output", "embedded"], &COUNT[..]].concat();
    cluster.sandbox.run_job(&embedded).expect_success();
    let read = |name: &str| {
        let mut lines = cluster.sandbox.output_lines(&cluster.sandbox.path(name));
        lines.sort();
        lines
    };
    assert_eq!(read("out"), read("embedded"));
    let explained = cluster.explain(1);
    let maps: Vec<&str> = explained.lines().filter(|line| line.starts_with("map")).collect();
    assert!(maps.len() == 2 && maps.iter().all(|line| !line.contains("node-1 ")), "{explained}");
    // Links that lead out, and unknown directories, are refused by name.
    symlink("/etc/passwd", cluster.sandbox.path("one/link")).expect("the link is new");
    let refused = |input: &str, output: &str, parts: &[&str]| {
        cluster
            .run_job(&["--input", input, "--mapper", "cat", "--output", output])
            .expect_failure(REFUSED, parts);
    };
    refused(&one, "out-2", &["one/link", "leads out of the directories that this node sees"]);
    refused("seen:/nowhere", "out-3", &["no node sees it", "two on "]);
    refused(&format!("{two}/absent"), "out-4", &["absent"]);
}

#[test]
fn job_waits_for_the_node_that_sees() {
    let (mut cluster, [one, _]) = cluster_with_seen();
    let gate = cluster.sandbox.program("gate.sh", "#!/bin/sh\nmkdir HERE/begun-$$\nGATE\nexec cat\n");
    let has_begun = || {
        std::fs::read_dir(cluster.sandbox.path(""))
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("begun-"))
    };
    let job = ["--input", &one, "--mapper", &gate, "--reducer", "builtin:count", "--output", "out"];
    let running = Running::start(&mut cluster.job(&job));
    wait_until("its map has begun", has_begun);
    cluster.kill_node_at(1);
    // No other node may have its map.
    let dir = one.strip_prefix("seen:").expect("it is a seen input").to_string();
    cluster.ask_until(&["explain", "1"], |told| told.contains(&format!("a node that sees {dir}")));
    cluster.restart_changed_node(1, &["--sees", &dir], |_| ());
    cluster.sandbox.open_gate();
    running.wait().expect_success();
    let lines = cluster.sandbox.output_lines(&cluster.sandbox.path("out"));
    let count = |line: &String| line.rsplit('\t').next().and_then(|count| count.parse::<u32>().ok());
    assert_eq!(lines.iter().filter_map(count).sum::<u32>(), 2000);
}

#[test]
fn changed_seen_file_fails_its_job() {
    let (cluster, [one, _]) = cluster_with_seen();
    // A pipe does not take all of it, so the next file is opened when the gate is open.
    cluster.sandbox.write("one/a.txt", "a word\n".repeat(1_000_000));
    let gate = cluster.sandbox.program("gate.sh", "#!/bin/sh\nmkdir HERE/begun\nGATE\nexec cat\n");
    let running = Running::start(&mut cluster.job(&["--input", &one, "--mapper", &gate, "--output", "out"]));
    wait_until("the map has begun", || cluster.sandbox.path("begun").exists());
    cluster.sandbox.write("one/deep/b.txt", "other\n");
    cluster.sandbox.open_gate();
    running.wait().expect_failure(REFUSED, &["one/deep/b.txt", "changed during the run"]);
    assert!(!cluster.sandbox.path("out").exists());
}
