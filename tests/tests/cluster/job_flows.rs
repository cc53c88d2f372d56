//! Steps that are MapReduce jobs and read each other's parts, on a cluster: their parts stay on the nodes, whoever dies.

use blackbox::flow::{attempts_again, cluster_with_input, stage_files, wait_until_gone, write_input};
use blackbox::{Cluster, Question, Questions, Running, Sandbox, Stage, State, wait_until};
use std::fs;
use std::process::Command;

/// Two jobs and a program; MAPPER is that of the second job, KEEP the rule for the parts of the first.
const FLOW: &str = r#"
[[step]]
name = "words"
inputs = ["in/*"]
keep = KEEP
[step.job]
mapper = "builtin:words"
reducer = "builtin:sum"
output = "words"
partitions = 6
memory = "64M"
slots = 2
replication = "none"

[[step]]
name = "lines"
inputs = ["gate.txt", "words/*"]
[step.job]
mapper = "MAPPER"
output = "lines"
partitions = 2
memory = "64M"
slots = 2

[[step]]
name = "all"
command = "sort lines/* > all"
inputs = ["lines/*"]
outputs = ["all"]
"#;

/// Jobs of the steps: job 1 is the workflow.
const WORDS: i64 = 2;
const LINES: i64 = 3;

fn write(sandbox: &Sandbox, mapper: &str, keep: &str) {
    sandbox.write("flow.toml", FLOW.replace("MAPPER", mapper).replace("KEEP", keep));
}

fn start(cluster: &Cluster) -> Running {
    let mut command = cluster.sailfish(&["workflow", "run"]);
    Running::start(command.arg(cluster.sandbox.path("flow.toml")))
}

/// Returns a run whose first job is done and whose second one waits.
fn start_between(cluster: &Cluster) -> Running {
    write(&cluster.sandbox, "./waits.sh", "false");
    let run = start(cluster);
    cluster.attempts().of_job(LINES).is(State::Running).wait_for_some();
    run
}

/// Lets the run end. It must have written the same as jobs with files between them.
#[track_caller]
fn let_finish(cluster: &Cluster, run: Running) {
    cluster.sandbox.open_gate();
    run.wait().expect_success();
    let path = |name: &str| cluster.sandbox.path(name);
    let read = || fs::read_to_string(path("all")).expect("the run succeeded");
    let with_flow = read();
    assert!(!path("words").exists() && !path("lines").exists(), "they were temporary");
    write(&cluster.sandbox, "builtin:identity", "true");
    start(cluster).wait().expect_success();
    assert!(path("words/part-00005").exists());
    assert!(read() == with_flow && with_flow.lines().count() > 500);
}

fn reduces(cluster: &Cluster) -> Question<'_> {
    cluster.attempts().of_job(WORDS).in_stage(Stage::Reduce)
}

#[test]
fn lost_node_reruns_parts_between_steps() {
    let mut cluster = cluster_with_input(3);
    let run = start_between(&cluster);
    assert_eq!(stage_files(&cluster.sandbox, WORDS).len(), 6);
    let parts_lost = reduces(&cluster).winning().on_node(0).count();
    cluster.kill_node();
    wait_until_gone(&cluster);
    let_finish(&cluster, run);
    let again = reduces(&cluster).again().is(State::Succeeded).tasks().len() as i64;
    assert!(again <= parts_lost, "{parts_lost} parts were lost");
    assert!(parts_lost == 0 || again > 0, "{parts_lost} parts were lost and none made again");
}

#[test]
fn flow_of_steps_survives_server_kill() {
    let mut cluster = cluster_with_input(2);
    let run = start_between(&cluster);
    cluster.restart_server();
    let_finish(&cluster, run);
    assert_eq!(attempts_again(&cluster, WORDS), 0);
    wait_until("its parts are gone", || stage_files(&cluster.sandbox, WORDS).is_empty());
}

/// Another server and another node know the runs of all steps of a flow.
#[test]
fn flows_are_skipped_as_a_whole() {
    let mut cluster = cluster_with_input(1);
    write(&cluster.sandbox, "builtin:identity", "false");
    start(&cluster).wait().expect_success();
    cluster.add_node();
    cluster.kill_node();
    cluster.restart_server();
    let again = start(&cluster).wait().expect_success().story();
    assert!(again.contains("3 of them skipped"), "{again}");
    cluster.sandbox.write("gate.txt", "another\tgate\n");
    write(&cluster.sandbox, "builtin:identity", "false");
    let why = cluster.run(&["workflow", "why", &cluster.sandbox.path("flow.toml").display().to_string()]);
    let why = why.expect_success().text();
    assert!(why.contains("\"words\": \"lines\" needs words/part-00000, which was temporary"), "{why}");
    let changed = start(&cluster).wait().expect_success().story();
    assert!(!changed.contains("skipped"), "{changed}");
    let all = fs::read_to_string(cluster.sandbox.path("all")).expect("it was made");
    assert!(all.contains("another\tgate") && !all.contains("through"), "{all}");
}

/// The server dies when the rows of a flow stand and its jobs have not begun.
#[test]
fn half_begun_flows_begin_again() {
    for point in ["submit-after-transaction", "staging-created"] {
        let crashes = |server: &mut Command| {
            server.env("SAILFISH_CRASH_AT", point);
        };
        let mut cluster = Cluster::builder().nodes(1).server_command(crashes).start();
        write_input(&cluster.sandbox);
        write(&cluster.sandbox, "builtin:identity", "false");
        let run = start(&cluster);
        assert!(cluster.wait_for_server().signal().is_some(), "{point} was not passed");
        let next = cluster.another_server();
        next.wait_for_stderr("serving at");
        cluster.led_by(next);
        run.wait().expect_success();
        let list = cluster.run(&["jobs", "--steps-of", "1", "--json"]).expect_success().json();
        let of =
            |state: &str| list.as_array().expect("a list").iter().filter(|job| job["state"] == state).count();
        assert_eq!([of("interrupted"), of("succeeded")], [2, 4], "{list}");
    }
}

#[test]
fn cancelled_flow_of_steps_leaves_nothing() {
    let cluster = cluster_with_input(2);
    let run = start_between(&cluster);
    cluster.run(&["cancel", "1"]).expect_success();
    run.wait().expect_failure(130, &["job 1 was"]);
    for job in [WORDS, LINES] {
        wait_until("its files are gone", || stage_files(&cluster.sandbox, job).is_empty());
    }
    assert!(!cluster.sandbox.path("lines").exists());
}
