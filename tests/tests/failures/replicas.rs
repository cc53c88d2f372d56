//! Runs that lie on a second node: a node that is lost costs no map, and readers go on where they were.

use blackbox::{CLUSTER_MEMORY, Cluster, LAST_WORDS, LAST_WORDS_MAPPER, Running, corpus};
use std::path::{Path, PathBuf};

/// Reads the first of what it is given, says so, waits until everybody is let go, and hands all on.
const REDUCER: &str = "#!/bin/sh
IFS= read -r line
until [ -e HERE/go ]; do sleep 0.05; done
printf '%s\\n' \"$line\"
exec cat
";
const ALL_RUNS_LIE_ON_TWO: &str = "select count(*) > 0 and count(*) = \
     (select count(*) from runs where replaced_by is null) as whole from replicas where state = 'complete'";

/// Since a node was lost; by then another one has what it had, and nothing lies on one node only.
const ALL_RUNS_LIE_ON_TWO_AGAIN: &str = "select \
     (select count(*) from replicas where state = 'standing') > 0 and not exists (select 1 from runs r where r.replaced_by is null \
     and not exists (select 1 from replicas p where p.job = r.job and p.run = r.run and p.state = 'complete')) as whole";

fn program(cluster: &Cluster, name: &str, text: &str) -> String {
    let here = cluster.sandbox.path("");
    let text = text.replace("HERE", here.to_str().expect("a sandbox has a plain path"));
    let program = cluster.sandbox.script(name, &text);
    program.to_str().expect("a sandbox has a plain path").to_string()
}

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
        write_text(&cluster, text_bytes);
        let reducer = program(&cluster, "reducer.sh", REDUCER);
        let job = Running::start(
            &mut cluster.job(&arguments(&reducer, &[&["--replication", "rack"], more].concat())),
        );
        cluster.wait_for("select count(*) > 0 as one from attempts where stage = 3 and state = 'running'");
        cluster.wait_for(ALL_RUNS_LIE_ON_TWO);
        Reducing { cluster, job, reducer }
    }

    /// Lets all go on, until the job is over. The output is right, whatever happened.
    fn finish(self) -> Cluster {
        self.cluster.sandbox.write("go", "");
        self.job.wait().expect_success();
        assert_right(&self.cluster, &self.reducer);
        self.cluster
    }
}

fn write_text(cluster: &Cluster, bytes: usize) {
    let text = corpus(bytes);
    for (number, piece) in text.chunks(bytes / 4 + 1).enumerate() {
        cluster.sandbox.write(&format!("in/{number}.txt"), piece);
    }
}

fn arguments<'a>(reducer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--input", "in", "--mapper", "builtin:words", "--reducer", reducer, "--output", "out"];
    [&own[..], more].concat()
}

fn assert_right(cluster: &Cluster, reducer: &str) {
    let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--input", "in", "--mapper", "builtin:words"];
    let rest = ["--reducer", reducer, "--output", "embedded"];
    cluster.sandbox.run_job(&[&own[..], &rest].concat()).expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}

/// No map task was run twice.
fn assert_no_map_ran_again(cluster: &Cluster) {
    let again = "select count(*) as n from attempts where job = 1 and stage = 0 and attempt > 0";
    assert_eq!(cluster.number(again), 0);
    assert_eq!(cluster.number("select count(*) as n from events where kind = 'data lost'"), 0);
}

/// The node with most runs.
fn node_with_runs(cluster: &Cluster) -> usize {
    let node = "select n.name from runs r join nodes n on n.node = r.run / 1099511627776 \
                group by n.name order by count(*) desc limit 1";
    node_of(cluster, node)
}

/// The number of the node whose name a question is for.
fn node_of(cluster: &Cluster, question: &str) -> usize {
    let asked = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let json = asked.json();
    let name = json[0]["name"].as_str().unwrap_or_else(|| panic!("there is no such node: {json}"));
    name.trim_start_matches("node-").parse().expect("nodes of tests are numbered")
}

/// So much is read that it does not fit what lies between a run and the reducer: the rest comes from the replica.
#[test]
fn readers_go_on_with_the_replicas_of_a_node_that_is_killed() {
    let mut reducing = Reducing::start(3, 48 << 20);
    let doomed = node_with_runs(&reducing.cluster);
    reducing.cluster.take_node(doomed).signal(rustix::process::Signal::KILL);
    reducing.cluster.wait_for("select count(*) > 0 as one from replicas where state = 'standing'");
    let cluster = reducing.finish();
    assert_no_map_ran_again(&cluster);
    // Those that ran elsewhere read on where they were.
    let broken_off = format!(
        "select count(*) as n from attempts a join nodes n on n.node = a.node \
         where a.stage = 3 and a.state <> 'succeeded' and n.name <> 'node-{doomed}'"
    );
    assert_eq!(cluster.number(&broken_off), 0);
    let told = Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text();
    assert!(told.contains("runs are read from their replicas"), "{told}");
}

/// The server dies with the node: the next one knows the replicas.
#[test]
fn replicas_outlive_the_server() {
    let mut reducing = Reducing::start(3, 6 << 20);
    let doomed = node_with_runs(&reducing.cluster);
    reducing.cluster.take_node(doomed).signal(rustix::process::Signal::KILL);
    reducing.cluster.restart_server();
    reducing.cluster.wait_for("select count(*) > 0 as one from replicas where state = 'standing'");
    reducing.cluster.restart_server();
    assert_no_map_ran_again(&reducing.finish());
}

/// Runs of the first node are copied again before the second dies, which has most of them by then; also with another server.
#[test]
fn two_nodes_that_are_killed_in_turn_cost_no_map() {
    let mut reducing = Reducing::start(4, 6 << 20);
    let first = node_with_runs(&reducing.cluster);
    reducing.cluster.take_node(first).signal(rustix::process::Signal::KILL);
    reducing.cluster.restart_server();
    reducing.cluster.wait_for(ALL_RUNS_LIE_ON_TWO_AGAIN);
    let stands = "select n.name from replicas r join nodes n on n.node = r.node where r.state = 'standing' \
                  group by n.name order by count(*) desc limit 1";
    let second = node_of(&reducing.cluster, stands);
    // Those that live are numbered anew.
    let place = second - usize::from(second > first);
    let stood = format!(
        "select count(*) > 0 as one from replicas r join nodes n on n.node = r.node \
         where r.state = 'lost' and n.name = 'node-{second}'"
    );
    reducing.cluster.take_node(place).signal(rustix::process::Signal::KILL);
    reducing.cluster.wait_for(&stood);
    let cluster = reducing.finish();
    assert_no_map_ran_again(&cluster);
    let told = Running::start(&mut cluster.sailfish(&["explain", "1"])).wait().expect_success().text();
    assert!(told.contains("that had lost a node was copied again"), "{told}");
}

/// With the replicas as well, what lay on two nodes is made again.
#[test]
fn what_is_lost_twice_is_made_again() {
    let mut reducing = Reducing::start(4, 6 << 20);
    let (first, second) = (
        "select run / 1099511627776 as node from replicas where state = 'complete' order by run limit 1",
        "select node from replicas where state = 'complete' order by run limit 1",
    );
    let named = |question: &str| {
        let name = format!(
            "select cast(replace(name, 'node-', '') as integer) as n from nodes where node = ({question})"
        );
        reducing.cluster.number(&name) as usize
    };
    let mut doomed = [named(first), named(second)];
    doomed.sort_unstable();
    for number in doomed.into_iter().rev() {
        reducing.cluster.take_node(number).signal(rustix::process::Signal::KILL);
    }
    reducing.cluster.wait_for("select count(*) > 0 as one from events where kind = 'data lost'");
    reducing.finish();
}

/// Before the maps are over: what was sorted and sent by then is sealed by the node that has it now.
#[test]
fn a_node_that_dies_before_the_maps_end_costs_only_what_was_not_replicated() {
    let mut cluster = Cluster::builder().nodes(3).start();
    write_text(&cluster, 64 << 20);
    cluster.sandbox.write("in/last.txt", LAST_WORDS);
    let mapper = program(&cluster, "mapper.sh", LAST_WORDS_MAPPER);
    let sizes = ["--memory", "64M", "--slots", "2"];
    let own = ["--input", "in", "--mapper", &mapper, "--reducer", "cat"];
    let mut job = cluster.sailfish(&["run"]);
    job.args(&sizes[..]).args(own).args(["--output", "out", "--replication", "rack"]);
    let job = Running::start(&mut job);
    cluster.wait_for("select count(*) > 2 as one from replicas where state = 'complete'");
    let doomed = cluster.number(
        "select cast(replace(n.name, 'node-', '') as integer) as n from replicas r join nodes n \
         on n.node = r.run / 1099511627776 group by n.name order by count(*) desc limit 1",
    );
    cluster.take_node(doomed as usize).signal(rustix::process::Signal::KILL);
    cluster.wait_for("select count(*) > 0 as one from replicas where state = 'standing'");
    cluster.sandbox.write("go", "");
    job.wait().expect_success();
    // They are read, not made again.
    assert!(
        cluster.number(
            "select count(*) as n from runs r join replicas p on p.run = r.run and p.state = 'standing'"
        ) > 0
    );
    cluster.sandbox.run_job(&[&sizes[..], &own, &["--output", "embedded"]].concat()).expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}

/// A job keeps its I-files even if a node that made some of them is gone: it keeps the replicas.
#[test]
fn replicas_are_kept_in_place_of_runs_that_are_gone() {
    let mut reducing = Reducing::start_with(3, 6 << 20, &["--keep-ifiles"]);
    let doomed = node_with_runs(&reducing.cluster);
    reducing.cluster.take_node(doomed).signal(rustix::process::Signal::KILL);
    reducing.cluster.wait_for("select count(*) > 0 as one from replicas where state = 'standing'");
    let cluster = reducing.finish();
    let args = ["rerun-reduce", "1", "--output", "again", "--memory", CLUSTER_MEMORY];
    Running::start(&mut cluster.sailfish(&args)).wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("again"), "the outputs differ");
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
    let alone = "select count(*) as n from replicas p where not exists \
                 (select 1 from runs r where r.run / 1099511627776 = p.node)";
    assert!(reducing.cluster.number(alone) > 0, "each node with replicas has runs too");
    let cluster = reducing.finish();
    for node in 0..3 {
        let of_node = format!("(select node from nodes where name = 'node-{node}')");
        let told =
            format!("select count(*) as n from replicas where state = 'complete' and node = {of_node}");
        let number = cluster.number(&of_node[1..of_node.len() - 1]);
        // A run is numbered by the node that made it.
        let copies = kept_files(&cluster, node).iter().filter(|path| run_of(path) >> 40 != number).count();
        assert_eq!(copies as i64, cluster.number(&told), "node-{node}");
    }
}

/// A run kept twice is read from the intact copy, if its blocks, its index, the whole file or the node is lost.
#[test]
fn a_kept_run_that_is_lost_is_reduced_again_from_its_replica() {
    let reducing = Reducing::start_with(2, 6 << 20, &["--keep-ifiles"]);
    let mut cluster = reducing.finish();
    let again = |cluster: &Cluster, output: &str| {
        let args = ["rerun-reduce", "1", "--output", output, "--memory", CLUSTER_MEMORY];
        Running::start(&mut cluster.sailfish(&args)).wait().expect_success();
        let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
        assert!(whole("out") == whole(output), "the outputs differ");
    };
    let doomed = node_with_runs(&cluster) as u32;
    let number = cluster.number(&format!("select max(node) as n from nodes where name = 'node-{doomed}'"));
    let mut own = kept_files(&cluster, doomed);
    own.retain(|path| run_of(path) >> 40 == number);
    assert!(!own.is_empty(), "the node has kept nothing of its own");
    for path in &own {
        flip_in_the_middle(path);
    }
    again(&cluster, "damaged");
    own.iter().for_each(|path| std::fs::remove_file(path).expect("our own file"));
    again(&cluster, "removed");
    let told = Running::start(&mut cluster.sailfish(&["explain", "3"])).wait().expect_success().text();
    assert!(told.contains("cannot be read where they lie"), "{told}");
    cluster.take_node(doomed as usize).signal(rustix::process::Signal::KILL);
    cluster.wait_for("select count(*) = 1 as one from nodes where state = 'up'");
    again(&cluster, "alone");
}

/// The node with the files goes while they are reduced again: the others have replicas.
#[test]
fn a_node_that_goes_while_its_kept_runs_are_reduced_costs_nothing() {
    let reducing = Reducing::start_with(2, 6 << 20, &["--keep-ifiles"]);
    let mut cluster = reducing.finish();
    let waits = program(&cluster, "waits.sh", &REDUCER.replace("/go", "/again"));
    let args = ["rerun-reduce", "1", "--output", "anew", "--memory", CLUSTER_MEMORY, "--reducer", &waits];
    let job = Running::start(&mut cluster.sailfish(&args));
    cluster.wait_for(
        "select count(*) > 0 as one from attempts a join stages s on s.job = a.job and s.stage = a.stage \
         where a.job = 2 and s.name = 'reduce' and a.state = 'running'",
    );
    let doomed = node_with_runs(&cluster);
    cluster.take_node(doomed).signal(rustix::process::Signal::KILL);
    cluster.wait_for("select count(*) > 0 as one from replicas where job = 2 and state = 'standing'");
    cluster.sandbox.write("again", "");
    job.wait().expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("anew"), "the outputs differ");
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
fn the_mode_is_the_jobs() {
    let cluster = Cluster::builder().nodes(2).start();
    write_text(&cluster, 6 << 20);
    let run = |more: &[&str]| {
        let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
        Running::start(&mut cluster.job(&[&args[..], more].concat())).wait()
    };
    run(&["--output", "sync", "--replication", "sync"]).expect_success();
    assert!(cluster.number("select count(*) as n from replicas where job = 1 and state = 'complete'") > 0);
    run(&["--output", "auto"]).expect_success();
    run(&["--output", "none", "--replication", "none"]).expect_success();
    assert_eq!(cluster.number("select count(*) as n from replicas where job > 1"), 0);
    let told = |job| Running::start(&mut cluster.sailfish(&["explain", job])).wait().expect_success().text();
    assert!(told("1").contains("runs lay on two nodes"), "{}", told("1"));
    assert!(told("2").contains("auto: runs get no replicas"), "{}", told("2"));
    assert!(!told("3").contains("replicas"), "{}", told("3"));
    run(&["--output", "other", "--replication", "twice"]).expect_failure(2, &["give one of none, rack"]);
}
