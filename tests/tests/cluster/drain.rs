//! A node that is emptied while a job runs takes nothing with it, and nothing is made again.

use blackbox::{Cluster, Fifo, Running, corpus};
use rustix::process::Signal;
use std::path::Path;

/// Text of some megabytes in four files: several map tasks for each node.
fn write_text(cluster: &Cluster) {
    let text = corpus(6 << 20);
    for (number, piece) in text.chunks(text.len() / 4 + 1).enumerate() {
        cluster.sandbox.write(&format!("in/{number}.txt"), piece);
    }
}

/// A program that hands on what it reads. The first of its kind says on a pipe that it runs, and hangs.
fn hangs_once(cluster: &Cluster, name: &str) -> (Fifo, Fifo, String) {
    let (here, go) =
        (cluster.sandbox.fifo(&format!("{name}-here")), cluster.sandbox.fifo(&format!("{name}-go")));
    let first = cluster.sandbox.path(&format!("{name}-first"));
    let hang = format!("echo here > '{}'; read line < '{}'", here.text(), go.text());
    let text = format!("#!/bin/sh\nif mkdir '{}' 2>/dev/null; then {hang}; fi\nexec cat\n", first.display());
    let program = cluster.sandbox.script(&format!("{name}.sh"), &text);
    (here, go, program.to_str().expect("a sandbox has a plain path").to_string())
}

/// Every map task was run once, whatever happened to the node.
fn assert_no_map_ran_again(cluster: &Cluster) {
    let attempts = cluster.number("select count(*) as n from attempts where job = 1 and stage = 0");
    let tasks = cluster.number("select count(*) as n from tasks where job = 1 and stage = 0");
    assert_eq!(attempts, tasks);
    let lost = "select count(*) as n from events where kind in ('task retried', 'stage reopened')";
    assert_eq!(cluster.number(lost), 0);
}

/// The job gives what it gives on one machine.
fn assert_right(cluster: &Cluster, args: &[&str]) {
    let own = ["--memory", blackbox::CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
    cluster.sandbox.run_job(&[args, &own].concat()).expect_success();
    let whole = |output| cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    assert!(whole("out") == whole("embedded"), "the outputs differ");
}

/// Counts the files on a disk, except the cache of shipped files, which is for the next node there.
fn left_on(disk: &Path) -> usize {
    let entries = std::fs::read_dir(disk).expect("a node has made its disk");
    let names = entries.map(|entry| entry.expect("a disk can be listed").file_name());
    names.filter(|name| name != ".sailfish-shipped").count()
}

/// A draining node moves the output of its maps when they are over; then the node goes, while the job reduces.
#[test]
fn a_node_is_emptied_while_maps_run() {
    let mut cluster = Cluster::builder().nodes(3).start();
    write_text(&cluster);
    let (mut here, mut go, program) = hangs_once(&cluster, "mapper");
    let (mut reducing, mut end, reducer) = hangs_once(&cluster, "reducer");
    let args = ["--input", "in", "--mapper", &program, "--reducer", &reducer];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(here.read_line(), "here");
    let done = "select count(*) >= 3 as enough from attempts where stage = 0 and state = 'succeeded'";
    cluster.ask_until(&["state", "--json", done], |answer| answer.contains(":1") || answer.contains(": 1"));
    let told = Running::start(&mut cluster.sailfish(&["nodes", "drain", "node-0"])).wait().expect_success();
    assert!(told.text().contains("draining"), "{}", told.text());
    go.write_line("go on");
    assert_eq!(reducing.read_line(), "here");
    // The reducers run and the node is not needed.
    let told = Running::start(&mut cluster.sailfish(&["nodes", "drain", "node-0", "--wait"])).wait();
    assert!(told.expect_success().text().contains("drained"));
    cluster.wait_for_node(0);
    assert_eq!(left_on(&cluster.node_disk(0)), 0);
    end.write_line("go on");
    job.wait().expect_success();
    assert_no_map_ran_again(&cluster);
    assert!(
        cluster.number("select count(*) as n from tasks where job = 1 and stage = 2") > 0,
        "nothing moved"
    );
    let nodes = Running::start(&mut cluster.sailfish(&["nodes"])).wait().expect_success().text();
    assert!(nodes.contains("drained"), "{nodes}");
    assert_right(&cluster, &args);
}

/// The plan of the reducers stands: the node serves its runs until they have read them.
#[test]
fn a_node_serves_reducers_before_it_goes() {
    let mut cluster = Cluster::builder().nodes(2).start();
    write_text(&cluster);
    let (mut here, mut go, reducer) = hangs_once(&cluster, "reducer");
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", &reducer];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(here.read_line(), "here");
    // So little text is one run, for one reducer.
    let runs = "select count(*) as n from runs";
    assert_eq!(cluster.number(runs), 1);
    let on_first =
        format!("{runs} where run / 1099511627776 = (select node from nodes where name = 'node-0')");
    let (serving, other) = if cluster.number(&on_first) == 1 { (0, 1) } else { (1, 0) };
    let name = |number: u32| format!("node-{number}");
    let drain = Running::start(&mut cluster.sailfish(&["nodes", "drain", &name(serving), "--wait"]));
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("\"draining\""));
    go.write_line("go on");
    job.wait().expect_success();
    assert!(drain.wait().expect_success().text().contains("drained"));
    cluster.wait_for_node(serving as usize);
    assert_no_map_ran_again(&cluster);
    assert_right(&cluster, &args);
    // The last one cannot go, and one that does not exist neither.
    let drain = |name: &str| Running::start(&mut cluster.sailfish(&["nodes", "drain", name])).wait();
    drain(&name(other)).expect_failure(2, &["no other node"]);
    drain("node-7").expect_failure(2, &["no node of the name node-7"]);
}

/// The server is killed while a node is being emptied: the next one goes on with it, and nothing is made again.
#[test]
fn a_drain_goes_on_under_the_next_server() {
    let mut cluster = Cluster::builder().nodes(3).start();
    write_text(&cluster);
    let (mut here, mut go, program) = hangs_once(&cluster, "mapper");
    let (mut reducing, mut end, reducer) = hangs_once(&cluster, "reducer");
    let args = ["--input", "in", "--mapper", &program, "--reducer", &reducer];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(here.read_line(), "here");
    let done = "select count(*) >= 3 as enough from attempts where stage = 0 and state = 'succeeded'";
    cluster.ask_until(&["state", "--json", done], |answer| answer.contains(":1") || answer.contains(": 1"));
    Running::start(&mut cluster.sailfish(&["nodes", "drain", "node-0"])).wait().expect_success();
    cluster.restart_server();
    let states = ["state", "select state from nodes where name = 'node-0'"];
    cluster.ask_until(&states, |answer| answer.contains("draining"));
    go.write_line("go on");
    assert_eq!(reducing.read_line(), "here");
    cluster.ask_until(&states, |answer| answer.contains("drained"));
    // Once more, when it has gone or is about to.
    cluster.restart_server();
    cluster.wait_for_node(0);
    assert_eq!(left_on(&cluster.node_disk(0)), 0);
    end.write_line("go on");
    job.wait().expect_success();
    assert_no_map_ran_again(&cluster);
    let moved = "select count(*) as n from tasks where job = 1 and stage = 2";
    assert!(cluster.number(moved) > 0, "nothing moved");
    assert_right(&cluster, &args);
    let came = "select count(*) as n from nodes where name = 'node-0'";
    assert_eq!(cluster.number(came), 1, "the node that was drained came back");
}

/// The node does not hear that it may leave before the server dies. The next one tells it again, in place of taking it for
/// a new one.
#[test]
fn a_node_that_was_drained_does_not_come_back_with_the_next_server() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.node(0).signal(Signal::STOP);
    // The poll that waits carries that it is being emptied; that it may leave waits for the next poll, which does not come.
    Running::start(&mut cluster.sailfish(&["nodes", "drain", "node-0"])).wait().expect_success();
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("\"drained\""));
    cluster.restart_server();
    cluster.node(0).signal(Signal::CONT);
    cluster.wait_for_node(0);
    assert_eq!(cluster.number("select count(*) as n from nodes where name = 'node-0'"), 1);
    let told = Running::start(&mut cluster.sailfish(&["nodes", "drain", "node-0", "--wait"])).wait();
    assert!(told.expect_success().text().contains("drained"));
}

/// Map tasks open chunks on the nodes of their own rack.
#[test]
fn chunks_stay_in_their_rack() {
    let mut cluster = Cluster::builder().start();
    for rack in ["left", "right", "left", "right"] {
        cluster.add_node_in(rack);
    }
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("node-3"));
    write_text(&cluster);
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat())).wait().expect_success();
    assert_right(&cluster, &args);
    let pairs = "from sources s join attempts a on a.job = s.job and a.stage = 0 and a.task = s.map_task \
                 and a.attempt = s.attempt join nodes m on m.node = a.node \
                 join nodes c on c.node = s.chunk / 1099511627776 where s.job = 1";
    let crossing = format!("select count(*) as n {pairs} and m.rack <> c.rack");
    assert_eq!(cluster.number(&crossing), 0);
    assert!(cluster.number(&format!("select count(*) as n {pairs}")) > 0);
}
