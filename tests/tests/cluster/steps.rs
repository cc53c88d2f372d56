//! Jobs with steps, here and on a cluster.

use blackbox::{Cluster, Finished, Running, Sandbox};
use private_postgres::PrivatePostgres;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Writes a workflow: the name of each step, its command for `sh`, and the positions of the steps before it.
fn write_workflow(sandbox: &Sandbox, steps: &[(&str, String, &[u32])]) {
    let step = |(name, command, after): &(&str, String, &[u32])| {
        json!({
            "name": name, "after": after,
            "program": { "words": ["sh", "-c", command], "directory": sandbox.path("") },
        })
    };
    let spec = json!({ "steps": steps.iter().map(step).collect::<Vec<Value>>() });
    sandbox.write("steps.json", spec.to_string());
}

fn start(cluster: &Cluster) -> Running {
    let mut command = cluster.sailfish(&["submit", "--wait"]);
    Running::start(command.args(["--kind", "workflow", "--spec"]).arg(cluster.sandbox.path("steps.json")))
}

/// Returns the state of each step of job 1, by name.
fn states(cluster: &Cluster) -> Vec<(String, String)> {
    let list = cluster.run(&["jobs", "--steps-of", "1", "--json", "--limit", "1000"]).expect_success().json();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_string();
    let mut states: Vec<(String, String)> =
        list.as_array().expect("a list").iter().map(|row| (text(row, "name"), text(row, "state"))).collect();
    states.sort();
    states
}

fn state(name: &str, state: &str) -> (String, String) {
    (name.to_string(), state.to_string())
}

fn check_counts(ended: Finished, sandbox: &Sandbox) {
    assert!(ended.expect_success().text().ends_with("3\n"));
    assert_eq!(std::fs::read_to_string(sandbox.path("count")).expect("it was made"), "3\n");
}

#[test]
fn text_is_counted_in_steps() {
    let steps: &[(&str, String, &[u32])] = &[
        ("words", "tr ' ' '\\n' < text > words".to_string(), &[]),
        ("distinct", "sort -u words > distinct".to_string(), &[0]),
        ("count", "wc -l < distinct | tee count".to_string(), &[1]),
    ];
    let write = |sandbox: &Sandbox| {
        sandbox.write("text", "a rose is a rose\n");
        write_workflow(sandbox, steps);
    };
    let here = Sandbox::new();
    write(&here);
    let mut command = here.sailfish();
    command.args(["submit", "--kind", "workflow", "--state"]).arg(here.state());
    check_counts(Running::start(command.arg("--spec").arg(here.path("steps.json"))).wait(), &here);

    let cluster = Cluster::builder().nodes(1).start();
    write(&cluster.sandbox);
    check_counts(start(&cluster).wait(), &cluster.sandbox);
    let done = ["count", "distinct", "words"].map(|name| state(name, "succeeded"));
    assert_eq!(states(&cluster), done);
    let shown = cluster.run(&["show", "1"]).expect_success().text();
    assert!(shown.contains("workflow") && shown.contains("sailfish jobs --steps-of 1"), "{shown}");
    let listed = cluster.run(&["jobs"]).expect_success().text();
    assert!(listed.contains("workflow") && !listed.contains("distinct"), "{listed}");
}

#[test]
fn mistakes_in_specifications_are_named() {
    let cluster = Cluster::builder().nodes(1).start();
    let sandbox = &cluster.sandbox;
    write_workflow(sandbox, &[("a", "true".to_string(), &[1]), ("b", "true".to_string(), &[0])]);
    start(&cluster).wait().expect_failure(2, &["steps wait for each other: \"a\" after \"b\" after \"a\""]);
    sandbox.write("steps.json", "{ \"steps\": ");
    start(&cluster).wait().expect_failure(2, &["steps.json", "JSON"]);
    write_workflow(
        sandbox,
        &[("a", "echo to standard error >&2; exit 7".to_string(), &[]), ("b", "true".to_string(), &[0])],
    );
    let show = format!("`sailfish show 2 --server http://{}`", cluster.address());
    let reason = "the step \"a\" (job 2) failed: program \"sh\" ended with exit code 7";
    start(&cluster).wait().expect_failure(7, &["the step \"a\" failed", &show, reason, "to standard error"]);
    cluster.run(&["submit", "--kind", "workflow", "--", "true"]).expect_failure(2, &["--spec"]);
}

#[test]
fn steps_name_only_paths_below_the_roots() {
    let cluster = Cluster::builder().nodes(1).roots(&["data"]).start();
    write_workflow(&cluster.sandbox, &[("outside", "true".to_string(), &[])]);
    start(&cluster).wait().expect_failure(2, &["the step \"outside\" cannot begin", "--allow-root"]);
    assert_eq!(states(&cluster), []);
}

/// The server dies while a step runs, and the node with the step after it: no finished step runs again.
fn check_kills(mut cluster: Cluster) {
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let traced = |name: &str, wait: &str| format!("{wait} echo {name} >> trace");
    let first_wait = "echo first > here; read line < go;";
    let second_wait = "if [ ! -e again ]; then touch again; echo second > here; read line < never; fi;";
    let steps: &[(&str, String, &[u32])] = &[
        ("quick", traced("quick", ""), &[]),
        ("first", traced("first", first_wait), &[0]),
        ("second", traced("second", second_wait), &[1]),
        ("last", traced("last", ""), &[0, 2]),
    ];
    write_workflow(&cluster.sandbox, steps);
    let _never = cluster.sandbox.fifo("never");
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "first");
    cluster.restart_server();
    go.write_line("go on");
    assert_eq!(here.read_line(), "second");
    cluster.add_node();
    cluster.kill_node();
    submitted.wait().expect_success();
    let trace = std::fs::read_to_string(cluster.sandbox.path("trace")).expect("they ran");
    assert_eq!(trace, "quick\nfirst\nsecond\nlast\n");
    let done = ["first", "last", "quick", "second"].map(|name| state(name, "succeeded"));
    assert_eq!(states(&cluster), done);
}

#[test]
fn finished_steps_outlive_server_and_node() {
    check_kills(Cluster::builder().nodes(1).start());
}

#[test]
fn finished_steps_outlive_server_with_postgres() {
    let Some(postgres) = PrivatePostgres::start_or_say("jobs with steps", &[]) else { return };
    check_kills(Cluster::builder().database(postgres.url("postgres")).nodes(1).start());
}

#[test]
fn cancelled_job_stops_all_steps() {
    let cluster = Cluster::builder().nodes(1).start();
    let mut here = cluster.sandbox.fifo("here");
    let _never = cluster.sandbox.fifo("never");
    let waits = "echo here > here; read line < never".to_string();
    write_workflow(&cluster.sandbox, &[("waits", waits, &[]), ("after", "touch after".to_string(), &[0])]);
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "here");
    cluster.run(&["cancel", "1"]).expect_success();
    submitted.wait().expect_failure(130, &["job 1 was"]);
    assert_eq!(states(&cluster), [state("waits", "cancelled")]);
    assert!(!cluster.sandbox.path("after").exists());
}

/// A command that waits for a job of a server ends alone.
#[test]
fn interrupted_wait_leaves_the_job() {
    let cluster = Cluster::builder().nodes(1).start();
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let waits = "echo here > here; read line < go".to_string();
    write_workflow(&cluster.sandbox, &[("waits", waits, &[])]);
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "here");
    let waiting = Running::start(&mut cluster.sailfish(&["wait", "1"]));
    let [wait, cancel] = ["wait", "cancel"]
        .map(|command| format!("`sailfish {command} 1 --server http://{}`", cluster.address()));
    let said = format!("job 1 goes on on the server; {wait} waits for it, {cancel} stops it");
    submitted.signal(Signal::INT);
    submitted.wait().expect_failure(130, &[&said]);
    go.write_line("go on");
    waiting.wait().expect_success();
    assert_eq!(states(&cluster), [state("waits", "succeeded")]);
}
