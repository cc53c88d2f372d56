//! Jobs on a server and nodes, each a process of its own: the same outputs as on one machine, whatever dies.

use blackbox::{CLUSTER_MEMORY, Cluster, Questions, Running, STORED_DIR, State, part_lines, wait_until};
use rustix::process::Signal;
use std::path::Path;

const WORDS: &[&str] = &["--mapper", "builtin:words", "--reducer", "builtin:sum"];

/// Several map tasks.
const TEXT_BYTES: usize = 6 << 20;

/// The parts of the same job in one process.
fn embedded_parts(cluster: &Cluster, args: &[&str]) -> Vec<(String, Vec<u8>)> {
    let sandbox = &cluster.sandbox;
    let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
    sandbox.run_job(&[args, &own].concat()).expect_success();
    parts(cluster, "embedded")
}

fn parts(cluster: &Cluster, output: &str) -> Vec<(String, Vec<u8>)> {
    let output = cluster.sandbox.path(output);
    let read = |name: String| {
        let bytes = std::fs::read(output.join(&name)).expect("a part can be read");
        (name, bytes)
    };
    cluster.sandbox.part_names(&output).into_iter().map(read).collect()
}

/// Lists the files that nodes and jobs leave on a disk of a node, except lock files of nodes, the cache of shipped files and
/// stored files.
fn left_on(disk: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(disk).expect("a node has made its disk");
    let names = entries.map(|entry| entry.expect("a disk can be listed").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".lock") && name != ".sailfish-shipped" && name != STORED_DIR)
        .collect()
}

#[test]
fn one_node_gives_the_output_of_one_machine() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write_text(TEXT_BYTES, 2);
    let args = [&["--input", "in"], WORDS].concat();
    let expected = embedded_parts(&cluster, &args);
    cluster.run_job(&[&args[..], &["--output", "out"]].concat()).expect_success();
    assert!(parts(&cluster, "out") == expected, "the parts differ");
    cluster.run(&["wait", "1"]).expect_success();
    let report = cluster.run(&["report", "1", "--json"]).expect_success();
    assert_eq!(report.json()["proof"]["agrees"], true);
    cluster.run(&["cancel", "7"]).expect_failure(2, &["no job 7"]);
    look_from_afar(&cluster);
    cluster.stop_node();
    assert_eq!(left_on(&cluster.node_disk(0)), [""; 0]);
}

/// Checks that a server tells of job 1 the same as its state directory, printed the same way.
fn look_from_afar(cluster: &Cluster) {
    let state = cluster.sandbox.path("server-state");
    let question = "select job, name, state, length(output) as long, null as none, 0.5 as half, x'00ff' as key from jobs";
    for words in [
        &["jobs"][..],
        &["jobs", "--json"],
        &["show", "1"],
        &["report", "1"],
        &["timeline", "1", "--json"],
        &["timeline", "1", "--width", "80"],
        &["state", question],
        &["state", "--json", "--limit", "1", question],
    ] {
        let far = cluster.run(words).expect_success();
        let mut near = cluster.sandbox.sailfish();
        near.args(words).arg("--state").arg(&state);
        assert_eq!(far.text(), Running::start(&mut near).wait().expect_success().text());
    }
    for (words, complaint) in [
        (&["show", "7"][..], "no job 7"),
        (&["timeline", "7"], "no job 7"),
        (&["state", "delete from jobs"], "not delete"),
        (&["state", "select 1; select 2"], "one statement"),
        (&["state", "select * from nothing"], "nothing"),
    ] {
        cluster.run(words).expect_failure(2, &[complaint]);
    }
    let nodes = cluster.run(&["nodes"]).expect_success();
    assert!(nodes.text().contains("node-0"), "{}", nodes.text());
}

/// A node tells how its machine and its disks are, and the tables keep it.
#[test]
fn nodes_report_their_machine_and_disks() {
    let cluster = Cluster::builder().nodes(1).start();
    let samples = "select count(*) as n, max(memory_used_bytes) > 0 as used from machine_samples";
    cluster.ask_until(&["state", "--json", samples], |answer| {
        !answer.contains("\"n\": 0") && !answer.contains("null")
    });
    let disks = "select path, state from disks where free_bytes <= total_bytes and total_bytes > 0";
    let told = cluster.ask_until(&["state", disks], |answer| answer.contains("node-disk-0"));
    assert!(!told.contains("read-only"), "{told}");
    let seen = "select name from nodes where last_seen_ns > registered_ns";
    cluster.ask_until(&["state", seen], |answer| answer.contains("node-0"));
    cluster.ask_until(&["nodes", "--json"], |answer| answer.contains("cpu_permille"));
    let nodes = cluster.run(&["nodes"]).expect_success();
    assert!(nodes.text().contains(" free"), "{}", nodes.text());
}

#[test]
fn rows_are_sorted_as_on_one_machine() {
    let cluster = Cluster::builder().nodes(1).start();
    let rows =
        ["tera", "gen", "--layout", "modern", "--rows", "50000", "--memory", CLUSTER_MEMORY, "--output"];
    let generate = [&rows[..], &["rows"]].concat();
    cluster.run(&generate).expect_success();
    let sort = ["tera", "sort", "--input", "rows", "--memory", CLUSTER_MEMORY, "--slots", "2", "--output"];
    cluster.run(&[&sort[..], &["out"]].concat()).expect_success();
    let mut embedded = cluster.sandbox.sailfish();
    embedded.args(sort).arg("embedded").arg("--state").arg(cluster.sandbox.state());
    Running::start(&mut embedded).wait().expect_success();
    assert!(parts(&cluster, "out") == parts(&cluster, "embedded"), "the parts differ");
}

#[test]
fn three_nodes_give_the_output_of_one_machine() {
    let cluster = Cluster::builder().nodes(3).start();
    cluster.sandbox.write_text(TEXT_BYTES, 2);
    let args = [&["--input", "in"], WORDS].concat();
    embedded_parts(&cluster, &args);
    cluster.run_job(&[&args[..], &["--output", "out"]].concat()).expect_success();
    cluster.sandbox.assert_same_output("out", "embedded");
    // Chunks are sealed where they are.
    let seals = cluster.run(&["explain", "1", "seal"]).expect_success();
    assert!(seals.text().contains("only this node has its data"), "{}", seals.text());
    let asked = |task| cluster.run(&["explain", "1", task]);
    assert!(asked("map/0").expect_success().text().contains("any node can run it"));
    assert!(asked("commit/0").expect_success().text().contains("the only task"));
    assert!(asked("commit/7").expect_success().text().contains("no attempt"));
    asked("nothing/0").expect_failure(2, &["no stage"]);
    let mut near = cluster.sandbox.sailfish();
    near.args(["explain", "1", "map/0", "--state"]).arg(cluster.sandbox.path("server-state"));
    let near = Running::start(&mut near).wait().expect_success();
    assert_eq!(near.text(), asked("map/0").expect_success().text());
}

/// Two of three nodes are killed, one after the other, while reducers hang; what they held is made again.
#[test]
fn nodes_that_die_take_no_output_with_them() {
    let mut cluster = Cluster::builder().nodes(3).start();
    cluster.sandbox.write_text(TEXT_BYTES, 2);
    let mut hangs = cluster.sandbox.waiting_before_gate_program("hangs");
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", &hangs.path, "--total-order"];
    let job = Running::start(&mut cluster.job(&[&args[..], &["--output", "out"]].concat()));
    assert_eq!(hangs.here.read_line(), "here");
    cluster.kill_node();
    cluster.sandbox.open_gate();
    cluster.kill_node();
    job.wait().expect_success();
    embedded_parts(&cluster, &args);
    cluster.sandbox.assert_same_output("out", "embedded");
}

/// Kills the only node while a program of the job hangs there; another one comes and does it all.
fn check_killed_node(option: &str) {
    println!("{option}");
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let mut hangs = cluster.sandbox.waiting_before_gate_program("hangs");
    let job =
        Running::start(&mut cluster.job(&["--input", "in.txt", option, &hangs.path, "--output", "out"]));
    assert_eq!(hangs.here.read_line(), "here");
    cluster.kill_node();
    cluster.sandbox.open_gate();
    cluster.add_node();
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1", b"b\t3"]);
}

#[test]
fn killed_node_is_replaced_while_maps_run() {
    check_killed_node("--mapper");
}

#[test]
fn data_of_killed_node_is_made_again() {
    check_killed_node("--reducer");
}

/// Kills the server while a program of the job hangs; the next one goes on where it was.
fn check_killed_server(option: &str) {
    println!("{option}");
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let mut hangs = cluster.sandbox.waiting_program("hangs");
    let job =
        Running::start(&mut cluster.job(&["--input", "in.txt", option, &hangs.path, "--output", "out"]));
    assert_eq!(hangs.here.read_line(), "here");
    cluster.restart_server();
    hangs.go.write_line("go on");
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1", b"b\t3"]);
    // One attempt for each task: what ran was not started again.
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!((&report["map"]["attempts"], &report["reduce"]["attempts"]), (&1.into(), &1.into()));
}

#[test]
fn server_killed_during_maps_goes_on() {
    check_killed_server("--mapper");
}

#[test]
fn server_killed_during_reduces_goes_on() {
    check_killed_server("--reducer");
}

#[test]
fn remote_cancel_ends_job_and_leaves_nothing() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "a\t1\n");
    let mut hangs = cluster.sandbox.waiting_program("hangs");
    let args = ["--input", "in.txt", "--mapper", &hangs.path, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    hangs.here.read_line();
    job.signal(Signal::INT);
    job.wait().expect_failure(130, &["it left no output and no intermediate data"]);
    assert!(!cluster.sandbox.path("out").exists());
    cluster.stop_node();
    assert_eq!(left_on(&cluster.node_disk(0)), [""; 0]);
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let cluster = Cluster::builder().start();
    cluster.sandbox.write("in.txt", "a\t1\n");
    let check = |command: &mut std::process::Command, texts: &[&str]| {
        Running::start(command).wait().expect_failure(2, texts);
    };
    let run = ["run", "--input", "in.txt", "--output", "out"];
    check(&mut cluster.sailfish(&run), &["has no nodes yet"]);
    let sized = |url| [&run[..], &["--memory", "64M", "--slots", "1", "--server", url]].concat();
    check(cluster.sandbox.sailfish().args(sized("http://127.0.0.1:1")), &["cannot reach the server"]);
    check(cluster.sandbox.sailfish().args(sized("nowhere")), &["no address of a server"]);
    check(cluster.sandbox.sailfish().args(["server", "--listen", "0.0.0.0:0"]), &["not a loopback address"]);
}

/// Both run at once, and both were taken, for neither output was there.
#[test]
fn one_of_two_clients_wins_the_output() {
    let cluster = Cluster::builder().nodes(2).start();
    let mut program = cluster.sandbox.waiting_program("mapper");
    for round in 0..3 {
        let output = format!("out-{round}");
        let start = |word: &str| {
            let input = format!("{word}.txt");
            cluster.sandbox.write(&input, format!("{word}\t1\n"));
            let args = ["--input", &input, "--mapper", &program.path, "--output", &output];
            Running::start(&mut cluster.job(&args))
        };
        let running = [start("first"), start("second")];
        (0..2).for_each(|_| assert_eq!(program.here.read_line(), "here"));
        (0..2).for_each(|_| program.go.write_line("go on"));
        let [first, second] = running.map(Running::wait);
        let (winner, loser, expected) = match first.status.success() {
            true => (first, second, "first\t1\n"),
            false => (second, first, "second\t1\n"),
        };
        winner.expect_success();
        loser.expect_failure(2, &["appeared while the job ran", &output]);
        let whole = cluster.sandbox.concatenated(&cluster.sandbox.path(&output));
        assert_eq!(String::from_utf8_lossy(&whole), expected);
        cluster.sandbox.sailfish_with(&["verify", &output]).expect_success();
    }
    // Who comes later is told at once.
    let late = cluster.job(&["--input", "first.txt", "--output", "out-0"]).output().expect("the binary runs");
    assert_eq!(late.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&late.stderr).contains("exists already"), "{late:?}");
    cluster.jobs().not_ended().wait_for(0);
    assert_eq!(cluster.jobs().is(State::Succeeded).count(), 3);
    assert_eq!(cluster.jobs().is(State::Failed).exit_codes(), [2; 3]);
    let entries = std::fs::read_dir(cluster.sandbox.path("")).expect("a sandbox can be listed");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let hidden: Vec<String> = names.filter(|name| name.starts_with(".out")).collect();
    assert_eq!(hidden, [""; 0], "left of those that lost");
}

/// A node that cannot answer does not hear that a job is over, and the server that would tell it is killed.
#[test]
fn node_drops_job_data_after_its_server_died() {
    let mut cluster = Cluster::builder().nodes(2).start();
    let mut here = cluster.sandbox.fifo("here");
    let nodes = ["node-0", "node-1"];
    let mut go = nodes.map(|name| cluster.sandbox.fifo(&format!("go-{name}")));
    let dir = cluster.sandbox.path("").display().to_string();
    let text = format!(
        "#!/bin/sh\necho $SAILFISH_NODE > '{dir}/here'\nread line < '{dir}/go-'$SAILFISH_NODE\nexec cat\n"
    );
    let program = cluster.sandbox.script("waits.sh", &text);
    let program = program.to_str().expect("a sandbox has a plain path");
    // Two of them are too much for one map task.
    let lines = "a\t1\n".repeat(200_000);
    (0..4).for_each(|number| drop(cluster.sandbox.write(&format!("in/{number}.txt"), &lines)));
    let args = ["--input", "in", "--map-only", "--mapper", program, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    // Two on each.
    (0..4).for_each(|_| drop(here.read_line()));
    (0..2).for_each(|_| go[0].write_line("go on"));
    // These take all places that are free now, so that the first job ends without the node that is stopped.
    let mut submit = cluster.sailfish(&["submit", "--wait", "--count", "12"]);
    let others = Running::start(submit.args(["--", program]));
    (0..2).for_each(|_| assert_eq!(here.read_line(), nodes[0]));
    cluster.node(0).signal(Signal::STOP);
    // More than there are programs: what a slow machine gives up runs again, and waits for a line of its own.
    (0..60).for_each(|_| go[1].write_line("go on"));
    job.wait().expect_success();
    let held = |cluster: &Cluster, number| {
        let entries = std::fs::read_dir(cluster.node_disk(number)).expect("a disk can be listed");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with("-job1")).count()
    };
    assert_eq!(held(&cluster, 0), 1, "the stopped node holds nothing of the job: the test tests nothing");
    cluster.restart_server();
    cluster.node(0).signal(Signal::CONT);
    (0..60).for_each(|_| go[0].write_line("go on"));
    others.wait().expect_success();
    wait_until("no node holds anything of the job", || held(&cluster, 0) + held(&cluster, 1) == 0);
}
