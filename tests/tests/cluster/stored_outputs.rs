//! Jobs of a cluster whose outputs are stored files.

use crate::security::Guarded;
use blackbox::{Cluster, Running, Sandbox, StoredQuestions, WaitingProgram, wait_until};

const REFUSED: i32 = 2;
const LINES: u32 = 20_000;
const COUNT: [&str; 4] = ["--mapper", "builtin:words", "--reducer", "builtin:sum"];

fn cluster_of(nodes: u32) -> Cluster {
    let cluster = Cluster::builder().nodes(nodes).start();
    cluster.wait_for_stored_disks(nodes.into());
    cluster
}

fn write_words(sandbox: &Sandbox) {
    let text =
        |from: u32| (from..from + LINES).map(|line| format!("word {}\n", line % 97)).collect::<String>();
    (0..4).for_each(|number| drop(sandbox.write(&format!("in/{number}.txt"), text(number))));
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// The counts of an embedded run of the same job.
fn expected(sandbox: &Sandbox) -> Vec<String> {
    let printed = sandbox.run_job(&[&["--input", "in", "--output", "-"], &COUNT[..]].concat());
    sorted(&printed.expect_success().text())
}

#[track_caller]
fn assert_replicas(cluster: &Cluster, name: &str, count: usize) {
    let replicas = cluster.files().replicas(name);
    assert!(!replicas.is_empty() && replicas.iter().all(|nodes| nodes.len() == count), "{replicas:?}");
}

#[test]
fn output_is_one_stored_file() {
    let cluster = cluster_of(3);
    write_words(&cluster.sandbox);
    let expected = expected(&cluster.sandbox);
    let job = |more: &[&str]| {
        cluster.run_job(&[&["--input", "in"], &COUNT[..], more].concat()).expect_success();
    };
    job(&["--output", "files:out/counts", "--replicas", "2"]);
    assert_eq!(sorted(&cluster.files().done(&["cat", "out/counts"])), expected);
    assert_replicas(&cluster, "out/counts", 2);
    // The next output is the next version, and an input of another job.
    job(&["--output", "files:out/counts"]);
    assert_eq!(cluster.files().names("out"), ["counts"]);
    assert_replicas(&cluster, "out/counts", 3);
    let chained = ["--input", "files:out/counts", "--output", "files:again", "--reducer", "builtin:count"];
    cluster.run_job(&chained).expect_success();
    assert_eq!(sorted(&cluster.files().done(&["cat", "again"])).len(), expected.len());
    // Files that cannot be joined, and an output without a byte.
    job(&["--output", "files:parts", "--part-extension", ".txt", "--partitions", "5"]);
    let names = cluster.files().names("parts");
    assert_eq!((names.len(), names[4].as_str()), (5, "part-00004.txt"));
    let texts: String =
        names.iter().map(|name| cluster.files().done(&["cat", &format!("parts/{name}")])).collect();
    assert_eq!(sorted(&texts), expected);
    cluster.run_job(&["--input", "in", "--mapper", "sed d", "--map-only", "--output", "files:none"]);
    assert_eq!(cluster.files().bytes(&["cat", "none"]), b"");
    cluster.files().assert_sound();
}

#[test]
fn failed_job_stores_no_output() {
    let cluster = cluster_of(2);
    write_words(&cluster.sandbox);
    let job = ["--input", "in", "--output", "files:out"];
    let partly = ["--mapper", "builtin:words", "--reducer", "sh -c 'head -3; exit 3'"];
    let failed = cluster.run_job(&[&job[..], &partly].concat());
    assert!(!failed.status.success(), "{}", failed.story());
    assert!(cluster.files().names("").is_empty());
    wait_until("no part is left", || (0..2).all(|node| cluster.has_nothing_stored_on(node)));
    // A directory is not replaced by a file.
    cluster.files().done(&["put", "in", "out"]);
    let refused = cluster.run_job(&[&job[..], &COUNT].concat());
    refused.expect_failure(REFUSED, &["out", "directory"]);
}

#[test]
fn full_nodes_store_parts_elsewhere() {
    let mut cluster = cluster_of(1);
    // Fewer disks are so empty than the machine has; this one takes no stored files.
    (0..2).for_each(|_| cluster.add_node_with("rack-0", &["--shuffle-reserve", "90"]));
    write_words(&cluster.sandbox);
    let expected = expected(&cluster.sandbox);
    let slow = cluster.sandbox.program("slow.sh", "#!/bin/sh\nsleep 1\nexec cat\n");
    let job = ["--input", "in", "--mapper", &slow, "--file", &slow, "--map-only", "--output", "files:lines"];
    cluster.run_job(&job).expect_success();
    assert_replicas(&cluster, "lines", 1);
    assert!((1..3).all(|node| cluster.has_nothing_stored_on(node)));
    let count = ["--input", "files:lines", "--output", "files:counts"];
    cluster.run_job(&[&count[..], &COUNT].concat()).expect_success();
    assert_eq!(sorted(&cluster.files().done(&["cat", "counts"])), expected);
}

/// Runs a job that waits in its first reduce task while others have stored their parts; `meanwhile` happens before it
/// goes on.
fn with_waiting_reducer(cluster: &mut Cluster, meanwhile: impl FnOnce(&mut Cluster)) {
    write_words(&cluster.sandbox);
    let WaitingProgram { mut here, mut go, path } = cluster.sandbox.waiting_once_program("reducer");
    let job = ["--input", "in", "--mapper", "builtin:words", "--partitions", "6", "--output", "files:out"];
    let running =
        Running::start(cluster.job(&job).args(["--reducer", &path, "--file", &path, "--replicas", "2"]));
    assert_eq!(here.read_line().trim(), "here");
    wait_until("parts are stored", || (0..3).map(|node| cluster.count_stored_on(node)).sum::<usize>() >= 10);
    assert!(cluster.files().names("").is_empty(), "nothing is visible");
    meanwhile(cluster);
    go.write_line("go");
    running.wait().expect_success();
    let text = cluster.files().done(&["cat", "out"]);
    let count = |line: &str| line.rsplit('\t').next().and_then(|count| count.parse::<u32>().ok());
    assert_eq!(text.lines().filter_map(count).sum::<u32>(), 4 * 2 * LINES);
}

#[test]
fn stored_output_outlives_a_node() {
    let mut cluster = cluster_of(3);
    with_waiting_reducer(&mut cluster, |cluster| cluster.kill_node_at(0));
}

#[test]
fn stored_output_outlives_the_server() {
    let mut cluster = cluster_of(3);
    with_waiting_reducer(&mut cluster, |cluster| {
        cluster.restart_server();
        cluster.wait_for_stored_disks(3);
    });
    // A part may have ended while the new server knew no other node.
    wait_until("all parts have two replicas", || {
        cluster.files().replicas("out").iter().all(|nodes| nodes.len() == 2)
    });
    cluster.files().assert_sound();
}

#[test]
fn output_in_directory_of_another_is_refused() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.wait_for_stored_disks(1);
    let input = guarded.sandbox.write("in", "one two\n").display().to_string();
    guarded.by("ann.token", &["files", "mkdir", "of-ann"]).expect_success();
    let job = |output: &str| {
        ["run", "--input", &input, "--mapper", "builtin:words", "--output", output].map(str::to_string)
    };
    let args = |output: &str| job(output).to_vec();
    let by = |token: &str, output: &str| {
        let args = args(output);
        guarded.by(token, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    by("bob.token", "files:of-ann/out").expect_failure(REFUSED, &["of-ann", "ann"]);
    by("ann.token", "files:of-ann/out").expect_success();
    guarded.by("bob.token", &["files", "cat", "of-ann/out"]).expect_failure(REFUSED, &["belong to \"ann\""]);
    by("bob.token", "files:own").expect_success();
}
