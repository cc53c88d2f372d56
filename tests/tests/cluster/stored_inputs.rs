//! Jobs of a cluster whose inputs are stored files.

use crate::security::Guarded;
use blackbox::{Cluster, Running, Sandbox, StoredQuestions, WaitingProgram};
use std::process::Command;

const REFUSED: i32 = 2;
const LINES: u32 = 30_000;

fn cluster_of(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    cluster.wait_for_stored_disks(nodes.into());
    cluster
}

/// Writes a directory of texts, one of them compressed, and one that is no data.
fn write_logs(sandbox: &Sandbox, word: &str) {
    let text =
        |from: u32| (from..from + LINES).map(|line| format!("{word} {}\n", line % 100)).collect::<String>();
    sandbox.write("logs/a.txt", text(0));
    sandbox.write("logs/deep/b.txt", text(7));
    sandbox.write("logs/deep/c.txt", text(40));
    sandbox.write("logs/_ignored", "no data\n");
    let zipped =
        Command::new("gzip").arg("--force").arg(sandbox.path("logs/deep/c.txt")).status().expect("gzip runs");
    assert!(zipped.success());
}

fn output_of(sandbox: &Sandbox, name: &str) -> String {
    let parts = std::fs::read_dir(sandbox.path(name)).expect("the output is there").flatten();
    let mut paths: Vec<_> = parts.map(|part| part.path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-")));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("a part is text")).collect()
}

const COUNT: [&str; 4] = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];

fn counts(sandbox: &Sandbox, output: &str) -> Vec<String> {
    let text = output_of(sandbox, output);
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn stored_inputs_come_from_any_node() {
    let cluster = cluster_of(3);
    let sandbox = &cluster.sandbox;
    write_logs(sandbox, "word");
    cluster.files().done(&["put", "logs", "logs", "--replicas", "1", "--parts", "3", "--records", "lines"]);
    cluster.run_job(&[&["--input", "files:logs", "--output", "out"], &COUNT[..]].concat()).expect_success();
    sandbox.run_job(&[&["--input", "logs", "--output", "embedded"], &COUNT[..]].concat()).expect_success();
    let expected = counts(sandbox, "embedded");
    assert!(expected.len() == 101 && counts(sandbox, "out") == expected);
    // An older version, and one file.
    write_logs(sandbox, "other");
    cluster.files().done(&["put", "logs/a.txt", "logs/a.txt", "--keep-versions", "2"]);
    for (input, name) in [("files:logs/a.txt", "new"), ("files:logs/a.txt@1", "old")] {
        cluster.run_job(&[&["--input", input, "--output", name], &COUNT[..]].concat()).expect_success();
    }
    let first = |output: &str| counts(sandbox, output).pop().expect("words were counted");
    assert_eq!([first("new"), first("old")], [format!("other\t{LINES}"), format!("word\t{LINES}")]);
    let missing = cluster.run_job(&["--input", "files:nothing", "--mapper", "cat", "--output", "none"]);
    missing.expect_failure(REFUSED, &["there is no file or directory nothing"]);
}

/// Runs a job that waits in its first map task; `meanwhile` happens before it goes on.
fn with_waiting_job(cluster: &mut Cluster, meanwhile: impl FnOnce(&mut Cluster)) {
    let WaitingProgram { mut here, mut go, path } = cluster.sandbox.waiting_once_program("mapper");
    let mut job =
        cluster.job(&["--input", "files:logs", "--mapper", &path, "--file", &path, "--output", "out"]);
    let running = Running::start(job.args(["--reducer", "builtin:count"]));
    assert_eq!(here.read_line().trim(), "here");
    meanwhile(cluster);
    go.write_line("go");
    running.wait().expect_success();
    let text = output_of(&cluster.sandbox, "out");
    let count = |line: &str| line.rsplit('\t').next().and_then(|count| count.parse::<u32>().ok());
    assert_eq!(text.lines().filter_map(count).sum::<u32>(), 3 * LINES);
}

#[test]
fn stored_input_stays_while_a_job_reads_it() {
    let mut cluster = cluster_of(2);
    write_logs(&cluster.sandbox, "word");
    cluster.files().done(&["put", "logs", "logs", "--replicas", "1", "--parts", "4"]);
    with_waiting_job(&mut cluster, |cluster| {
        cluster.files().done(&["rm", "-r", "logs"]);
        // The server does not forget it with its memory.
        cluster.restart_server();
        cluster.wait_for_stored_disks(2);
        assert!((0..2).any(|node| cluster.count_stored_on(node) > 0));
    });
}

#[test]
fn stored_input_outlives_a_node_with_replicas() {
    let mut cluster = cluster_of(3);
    write_logs(&cluster.sandbox, "word");
    cluster.files().done(&["put", "logs", "logs", "--replicas", "2", "--parts", "4"]);
    with_waiting_job(&mut cluster, |cluster| cluster.kill_node_at(0));
}

#[test]
fn stored_inputs_are_for_their_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    guarded.sandbox.write("secret", "secret\n");
    guarded.by("ann.token", &["files", "put", "secret", "of-ann"]).expect_success();
    let output = guarded.sandbox.path("out").display().to_string();
    let job = ["run", "--input", "files:of-ann", "--mapper", "builtin:words", "--output", &output];
    guarded.by("bob.token", &job).expect_failure(REFUSED, &["belong to \"ann\""]);
    assert!(!guarded.sandbox.path("out").exists());
}

#[test]
fn maps_run_where_their_parts_are() {
    const NODES: u32 = 4;
    const SLOTS: usize = 2;
    const PARTS: u32 = 12;
    let cluster = cluster_of(NODES);
    let sandbox = &cluster.sandbox;
    // A part is smaller than a split, but two are larger: each is a map of its own.
    let text = (0..1_000_000_u32).map(|line| format!("word {:05}\n", line % 100_000)).collect::<String>();
    sandbox.write("big", &text);
    cluster.files().done(&["put", "big", "big", "--replicas", "1", "--parts", "12", "--records", "lines"]);
    let stored: Vec<usize> = (0..NODES).map(|node| cluster.count_stored_on(node)).collect();
    assert_eq!(stored.iter().sum::<usize>(), PARTS as usize);
    let run = cluster.run_job(&[&["--input", "files:big", "--output", "out"], &COUNT[..]].concat());
    let run = run.expect_success();
    assert!(run.stderr.contains("near data"), "{}", run.stderr);
    let report = sandbox.report(&sandbox.path("out"));
    let figure = |name: &str| report["map"]["stored"][name].as_u64().expect("the report has the figure");
    assert_eq!(figure("tasks"), u64::from(PARTS));
    // All slots were idle: each node began with parts of its own.
    let first: usize = stored.iter().map(|parts| SLOTS.min(*parts)).sum();
    assert!(figure("near_tasks") >= first as u64 && first > 0, "{stored:?}: {}", report["map"]);
    assert!(figure("here_bytes") > 0);
    assert!(figure("here_bytes") + figure("elsewhere_bytes") >= text.len() as u64);
}

#[test]
fn ranges_that_are_read_twice_are_kept() {
    let mut cluster = cluster_of(1);
    let text: String = (0..2_000_000_u32).map(|line| format!("word {:05}\n", line % 100)).collect();
    cluster.sandbox.write("big", &text);
    cluster.sandbox.write("in", "a\n");
    cluster.files().done(&["put", "big", "big"]);
    // The slots of the node that has the file are taken: the maps below run on another one, and nothing else of their jobs
    // needs the first.
    let held = ["first", "second"].map(|name| {
        let WaitingProgram { mut here, go, path } = cluster.sandbox.waiting_program(name);
        let job = ["--input", "in", "--mapper", &path, "--file", &path, "--map-only", "--output", name];
        let running = Running::start(&mut cluster.job(&job));
        assert_eq!(here.read_line().trim(), "here");
        (go, running)
    });
    cluster.add_node_with("rack-0", &["--cache", "64M"]);
    let read = |output: &str| {
        let job =
            ["--input", "files:big", "--output", output, "--mapper", "builtin:grep:00099", "--map-only"];
        cluster.run_job(&job).expect_success();
        let report = cluster.sandbox.report(&cluster.sandbox.path(output));
        ["here_bytes", "elsewhere_bytes"]
            .map(|name| report["map"]["stored"][name].as_u64().expect("a figure"))
    };
    let [first, second, third] = ["one", "two", "three"].map(read);
    assert!(first[0] == 0 && first[1] >= text.len() as u64, "{first:?}");
    // Maps meet in a few segments, which the earlier one may have kept, or which none reads as a whole.
    assert!(second[1] > 4 * second[0], "{second:?}");
    assert!(third[0] > third[1], "{first:?} {second:?} {third:?}");
    let lines = |output: &str| cluster.sandbox.output_lines(&cluster.sandbox.path(output));
    assert_eq!((lines("one").len(), lines("one") == lines("three")), (20_000, true));
    for (mut go, running) in held {
        go.write_line("go");
        running.wait().expect_success();
    }
}

/// Prints its input file, and changes it if a variable says so.
const STRETCH_READER: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    stretch = json.loads(line)
    with open(stretch["path"], "rb") as file:
        file.seek(stretch["offset"])
        sys.stdout.write(f"{file.read(stretch['length']).count(b'word')}\n")
    if "SPOIL" in os.environ:
        os.chmod(stretch["path"], 0o600)
        open(stretch["path"], "wb").write(b"spoiled")
"#;

#[test]
fn programs_open_copies_of_stored_files() {
    let cluster = cluster_of(2);
    let sandbox = &cluster.sandbox;
    write_logs(sandbox, "word");
    cluster.files().done(&[
        "put",
        "logs/a.txt",
        "logs/a.txt",
        "--replicas",
        "1",
        "--parts",
        "2",
        "--records",
        "lines",
    ]);
    let mapper = sandbox.script("read.py", STRETCH_READER).display().to_string();
    let job = |more: &[&str]| {
        let job = ["--input", "files:logs/a.txt", "--input-format", "stretches", "--mapper", &mapper];
        cluster.run_job(&[&job[..], &["--map-only", "--overwrite", "--output", "out"], more].concat())
    };
    job(&["--env", "SPOIL=1"]).expect_failure(1, &["changed its copy of files:logs/a.txt@1"]);
    job(&[]).expect_success();
    let counts = output_of(sandbox, "out");
    let counts = counts.lines().map(|line| line.trim().parse::<u32>().expect("a number"));
    assert_eq!(counts.sum::<u32>(), LINES);
}

/// Says that it is there, and waits, before it reads.
const WAITING_READER: &str = "#!/bin/sh\necho here > HERE/here\nGATE\nexec HERE/read.py\n";

#[test]
fn copies_spread_from_node_to_node() {
    const NODES: u32 = 4;
    const SLOTS: usize = 2;
    let cluster = cluster_of(NODES);
    let sandbox = &cluster.sandbox;
    let text = "one word and more\n".repeat(600_000);
    sandbox.write("big", &text);
    cluster.files().done(&["put", "big", "big", "--replicas", "1", "--parts", "1"]);
    let mut here = sandbox.fifo("here");
    sandbox.script("read.py", STRETCH_READER);
    let mapper = sandbox.program("mapper.sh", WAITING_READER);
    let input = ["--input", "files:big", "--input-format", "stretches", "--mapper", &mapper];
    let running =
        Running::start(&mut cluster.job(&[&input[..], &["--map-only", "--output", "out"]].concat()));
    // All slots have a task, so each node has made a copy.
    (0..NODES as usize * SLOTS).for_each(|_| assert_eq!(here.read_line(), "here"));
    sandbox.open_gate();
    running.wait().expect_success();
    let counts = output_of(sandbox, "out");
    let counts = counts.lines().map(|line| line.trim().parse::<usize>().expect("a number"));
    assert_eq!(counts.sum::<usize>(), text.matches("word").count());
    let report = sandbox.report(&sandbox.path("out"));
    let figure = |name: &str| report["map"]["stored"][name].as_u64().expect("the report has the figure");
    let (fetched, passed_on) = (figure("elsewhere_bytes"), figure("passed_on_bytes"));
    let file_bytes = text.len() as u64;
    assert_eq!(fetched, u64::from(NODES - 1) * file_bytes);
    // The node with the replica has served two others, and one of these the third.
    assert!(fetched - passed_on <= 2 * file_bytes, "{}", report["map"]);
}
