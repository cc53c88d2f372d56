//! Runs that lie on a second node: a node that is lost costs no map, and readers go on where they were.

use blackbox::{
    CLUSTER_MEMORY, Cluster, Event, LAST_WORDS, LAST_WORDS_MAPPER, Questions, Running, Stage, State,
    WAITS_AFTER_A_LINE, wait_until,
};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// A job whose reducers have begun to read and wait, and all of whose runs lie on two nodes.
struct Reducing {
    cluster: Cluster,
    job: Running,
    reducer: String,
}

impl Reducing {
    fn start(nodes: u32, text_bytes: usize) -> Reducing {
        Self::start_with(nodes, text_bytes, &[])
    }

    fn start_with(nodes: u32, text_bytes: usize, more: &[&str]) -> Reducing {
        let cluster = Cluster::builder().nodes(nodes).start();
        cluster.sandbox.write_text(text_bytes, 4);
        let reducer = cluster.sandbox.program("reducer.sh", WAITS_AFTER_A_LINE);
        let job = Running::start(
            &mut cluster.job(&arguments(&reducer, &[&["--replication", "rack"], more].concat())),
        );
        cluster.attempts().in_stage(Stage::Reduce).is(State::Running).wait_for_some();
        wait_until("all runs lie on two nodes", || cluster.all_runs_lie_on_two_nodes());
        Reducing { cluster, job, reducer }
    }

    /// Lets all go on, until the job is over. The output is right, whatever happened.
    fn finish(self) -> Cluster {
        self.cluster.sandbox.open_gate();
        self.job.wait().expect_success();
        let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", &self.reducer];
        self.cluster.assert_as_embedded(&args);
        self.cluster
    }
}

fn arguments<'a>(reducer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--input", "in", "--mapper", "builtin:words", "--reducer", reducer, "--output", "out"];
    [&own[..], more].concat()
}

/// Kills the node with most runs.
fn kill_the_busiest(cluster: &mut Cluster) -> usize {
    let doomed = cluster.runs().busiest_node();
    cluster.take_node(doomed).signal(Signal::KILL);
    doomed
}

/// No map task was run twice.
fn assert_no_map_ran_again(cluster: &Cluster) {
    assert_eq!(cluster.attempts().of_job(1).in_stage(Stage::Map).again().count(), 0);
    assert_eq!(cluster.events(Event::DataLost).count(), 0);
}

/// So much is read that it does not fit what lies between a run and the reducer: the rest comes from the replica.
#[test]
fn readers_go_on_with_replicas_of_killed_node() {
    let mut reducing = Reducing::start(3, 48 << 20);
    let doomed = kill_the_busiest(&mut reducing.cluster);
    reducing.cluster.replicas().is(State::Standing).wait_for_some();
    let cluster = reducing.finish();
    assert_no_map_ran_again(&cluster);
    // Those that ran elsewhere read on where they were.
    let elsewhere = cluster.attempts().in_stage(Stage::Reduce).is_not(State::Succeeded).not_on_node(doomed);
    assert_eq!(elsewhere.count(), 0);
    let told = cluster.explain(1);
    assert!(told.contains("runs are read from their replicas"), "{told}");
}

/// The server dies with the node: the next one knows the replicas.
#[test]
fn replicas_outlive_the_server() {
    let mut reducing = Reducing::start(3, 6 << 20);
    kill_the_busiest(&mut reducing.cluster);
    reducing.cluster.restart_server();
    reducing.cluster.replicas().is(State::Standing).wait_for_some();
    reducing.cluster.restart_server();
    assert_no_map_ran_again(&reducing.finish());
}

/// Runs of the first node are copied again before the second dies, which has most of them by then; also with another server.
#[test]
fn two_nodes_killed_in_turn_rerun_no_map() {
    let mut reducing = Reducing::start(4, 6 << 20);
    let first = kill_the_busiest(&mut reducing.cluster);
    reducing.cluster.restart_server();
    wait_until("all runs lie on two nodes again", || reducing.cluster.all_runs_lie_on_two_nodes_again());
    let second = reducing.cluster.replicas().is(State::Standing).busiest_node();
    // Those that live are numbered anew.
    let place = second - usize::from(second > first);
    reducing.cluster.take_node(place).signal(Signal::KILL);
    reducing.cluster.replicas().is(State::Lost).on_node(second).wait_for_some();
    let cluster = reducing.finish();
    assert_no_map_ran_again(&cluster);
    let told = cluster.explain(1);
    assert!(told.contains("that had lost a node was copied again"), "{told}");
}

/// With the replicas as well, what lay on two nodes is made again.
#[test]
fn data_lost_on_both_nodes_is_made_again() {
    let mut reducing = Reducing::start(4, 6 << 20);
    let (_, first, second) = reducing.cluster.nodes_of_a_replicated_run();
    let mut doomed = [first, second];
    doomed.sort_unstable();
    for number in doomed.into_iter().rev() {
        reducing.cluster.take_node(number).signal(Signal::KILL);
    }
    reducing.cluster.events(Event::DataLost).wait_for_some();
    reducing.finish();
}

/// Before the maps are over: what was sorted and sent by then is sealed by the node that has it now.
#[test]
fn node_lost_during_maps_reruns_only_unreplicated_data() {
    let mut cluster = Cluster::builder().nodes(3).start();
    cluster.sandbox.write_text(64 << 20, 4);
    cluster.sandbox.write("in/last.txt", LAST_WORDS);
    let mapper = cluster.sandbox.program("mapper.sh", LAST_WORDS_MAPPER);
    let sizes = ["--memory", "64M", "--slots", "2"];
    let own = ["--input", "in", "--mapper", &mapper, "--reducer", "cat"];
    let mut job = cluster.sailfish(&["run"]);
    job.args(&sizes[..]).args(own).args(["--output", "out", "--replication", "rack"]);
    let job = Running::start(&mut job);
    cluster.replicas().is(State::Complete).wait_until("more than two", |count| count > 2);
    let doomed = cluster.originals().busiest_node();
    cluster.take_node(doomed).signal(Signal::KILL);
    cluster.replicas().is(State::Standing).wait_for_some();
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    // They are read, not made again.
    assert!(cluster.replaced_runs().any());
    cluster.sandbox.run_job(&[&sizes[..], &own, &["--output", "embedded"]].concat()).expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
}

/// A job keeps its I-files even if a node that made some of them is gone: it keeps the replicas.
#[test]
fn replicas_are_kept_in_place_of_lost_runs() {
    let mut reducing = Reducing::start_with(3, 6 << 20, &["--keep-ifiles"]);
    kill_the_busiest(&mut reducing.cluster);
    reducing.cluster.replicas().is(State::Standing).wait_for_some();
    let cluster = reducing.finish();
    let args = ["rerun-reduce", "1", "--output", "again", "--memory", CLUSTER_MEMORY];
    cluster.run(&args).expect_success();
    cluster.sandbox.assert_same_output("out", "again");
}

/// The run files in directories that a node keeps.
fn kept_files(cluster: &Cluster, node: u32) -> Vec<PathBuf> {
    let within =
        |dir: PathBuf| std::fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path());
    let is_kept = |path: &PathBuf| path.to_string_lossy().contains("sailfish-kept-");
    within(cluster.node_disk(node)).filter(is_kept).flat_map(within).collect()
}

/// Also by a node that has none of its own.
#[test]
fn replicas_are_kept_where_they_are() {
    let reducing = Reducing::start_with(3, 6 << 20, &["--keep-ifiles"]);
    assert!(
        reducing.cluster.replicas().on_nodes_without_runs().any(),
        "each node with replicas has runs too"
    );
    let cluster = reducing.finish();
    for node in 0..3 {
        let number = cluster.node_id(node);
        // A run is numbered by the node that made it.
        let files = kept_files(&cluster, node as u32);
        let copies = files.iter().filter(|path| run_of(path) >> 40 != number).count();
        let told = cluster.replicas().is(State::Complete).on_node(node).count();
        assert_eq!(copies as i64, told, "node-{node}");
    }
}

/// A run kept twice is read from the intact copy, if its blocks, its index, the whole file or the node is lost.
#[test]
fn lost_kept_run_is_reduced_from_its_replica() {
    let reducing = Reducing::start_with(2, 6 << 20, &["--keep-ifiles"]);
    let mut cluster = reducing.finish();
    let again = |cluster: &Cluster, output: &str| {
        let args = ["rerun-reduce", "1", "--output", output, "--memory", CLUSTER_MEMORY];
        cluster.run(&args).expect_success();
        cluster.sandbox.assert_same_output("out", output);
    };
    let doomed = cluster.runs().busiest_node();
    let number = cluster.node_id(doomed);
    let mut own = kept_files(&cluster, doomed as u32);
    own.retain(|path| run_of(path) >> 40 == number);
    assert!(!own.is_empty(), "the node has kept nothing of its own");
    for path in &own {
        flip_in_the_middle(path);
    }
    again(&cluster, "damaged");
    own.iter().for_each(|path| std::fs::remove_file(path).expect("our own file"));
    again(&cluster, "removed");
    let told = cluster.explain(3);
    assert!(told.contains("kept runs cannot be read"), "{told}");
    cluster.take_node(doomed).signal(Signal::KILL);
    cluster.nodes().is(State::Up).wait_for(1);
    again(&cluster, "alone");
}

/// The node with the files goes while they are reduced again: the others have replicas.
#[test]
fn node_lost_during_rerun_costs_nothing() {
    let reducing = Reducing::start_with(2, 6 << 20, &["--keep-ifiles"]);
    let mut cluster = reducing.finish();
    let waits = cluster.sandbox.program("waits.sh", WAITS_AFTER_A_LINE);
    cluster.sandbox.close_gate();
    let args = ["rerun-reduce", "1", "--output", "anew", "--memory", CLUSTER_MEMORY, "--reducer", &waits];
    let job = Running::start(&mut cluster.sailfish(&args));
    cluster.attempts().of_job(2).in_stage(Stage::Reduce).is(State::Running).wait_for_some();
    kill_the_busiest(&mut cluster);
    cluster.replicas().of_job(2).is(State::Standing).wait_for_some();
    cluster.sandbox.open_gate();
    job.wait().expect_success();
    cluster.sandbox.assert_same_output("out", "anew");
}

/// The number of the run in the name of its file.
fn run_of(path: &Path) -> i64 {
    let name = path.file_name().and_then(|name| name.to_str()).expect("our own names are text");
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} has no number"))
}

fn flip_in_the_middle(path: &Path) {
    let mut bytes = std::fs::read(path).expect("our own file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("our own file");
}

/// For comparison: the maps wait for it. And where nobody asks for it, a small job is not worth it, which is said.
#[test]
fn each_job_chooses_its_replication_mode() {
    let cluster = Cluster::builder().nodes(2).start();
    cluster.sandbox.write_text(6 << 20, 4);
    let run = |more: &[&str]| {
        let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
        cluster.run_job(&[&args[..], more].concat())
    };
    run(&["--output", "sync", "--replication", "sync"]).expect_success();
    assert!(cluster.replicas().of_job(1).is(State::Complete).any());
    run(&["--output", "auto"]).expect_success();
    run(&["--output", "none", "--replication", "none"]).expect_success();
    assert_eq!(cluster.replicas().of_jobs_after(1).count(), 0);
    let told = |job| cluster.explain(job);
    assert!(told(1).contains("runs lay on two nodes"), "{}", told(1));
    assert!(told(2).contains("auto: runs get no replicas"), "{}", told(2));
    assert!(!told(3).contains("replicas"), "{}", told(3));
    run(&["--output", "other", "--replication", "twice"]).expect_failure(2, &["give one of none, rack"]);
}
