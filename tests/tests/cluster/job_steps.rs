//! Steps of workflows that are MapReduce jobs, on a cluster.

use blackbox::{Cluster, Running, Sandbox, StoredQuestions};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Writes a workflow in the directory `data`: a command, a job with this mapper, and a command that reads its parts.
fn write_workflow(sandbox: &Sandbox, mapper: &str) {
    sandbox.write("data/text", "a rose is\na rose is a rose\n");
    sandbox.write(
        "data/flow.toml",
        format!(
            r#"
[[step]]
name = "words"
command = "echo words >> {trace}; tr ' ' '\\n' < text > words"
inputs = ["text"]
outputs = ["words"]

[[step]]
name = "count"
inputs = ["words"]
[step.job]
mapper = '''{mapper}'''
reducer = "builtin:count"
output = "counts"
partitions = 2
memory = "64M"
slots = 2

[[step]]
name = "all"
command = "sort counts/part-* > all"
inputs = ["counts/part-*"]
outputs = ["all"]
"#,
            trace = sandbox.path("data/trace").display()
        ),
    );
}

fn start(cluster: &Cluster) -> Running {
    let mut command = cluster.sailfish(&["workflow", "run"]);
    Running::start(command.arg(cluster.sandbox.path("data/flow.toml")))
}

/// Returns the state of each step of job 1, by name.
fn states(cluster: &Cluster) -> Vec<(String, String)> {
    let list = cluster.run(&["jobs", "--steps-of", "1", "--json"]).expect_success().json();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_string();
    let mut states: Vec<(String, String)> =
        list.as_array().expect("a list").iter().map(|row| (text(row, "name"), text(row, "state"))).collect();
    states.sort();
    states
}

fn state(name: &str, state: &str) -> (String, String) {
    (name.to_string(), state.to_string())
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("it was made")
}

fn check_counts(cluster: &Cluster) {
    assert_eq!(read(&cluster.sandbox, "data/all"), "a\t3\nis\t2\nrose\t3\n");
    assert_eq!(read(&cluster.sandbox, "data/trace"), "words\n", "no finished step runs twice");
    let states = states(cluster);
    assert!(
        ["all", "count", "words"].iter().all(|name| states.contains(&state(name, "succeeded"))),
        "{states:?}"
    );
}

#[test]
fn jobs_are_steps_on_a_cluster() {
    let cluster = Cluster::builder().nodes(2).roots(&["data"]).start();
    write_workflow(&cluster.sandbox, "./mapper.sh");
    // The program travels with the job.
    cluster.sandbox.program("data/mapper.sh", "#!/bin/sh\ncat\n");
    start(&cluster).wait().expect_success();
    check_counts(&cluster);
    let shown = cluster.run(&["show", "3"]).expect_success().text();
    assert!(shown.contains("mapper.sh"), "{shown}");
}

#[test]
fn unchanged_jobs_are_skipped_on_a_cluster() {
    let mut cluster = Cluster::builder().nodes(1).roots(&["data"]).start();
    let file = cluster.sandbox.path("data/flow.toml").display().to_string();
    write_workflow(&cluster.sandbox, "./mapper.sh");
    cluster.sandbox.program("data/mapper.sh", "#!/bin/sh\ncat\n");
    start(&cluster).wait().expect_success();
    // Another node compares, and another server knows the run.
    cluster.add_node();
    cluster.kill_node();
    cluster.restart_server();
    let why = |cluster: &Cluster| cluster.run(&["workflow", "why", &file]).expect_success().text();
    assert!(why(&cluster).contains("all steps are skipped"), "{}", why(&cluster));
    let again = start(&cluster).wait().expect_success().story();
    assert!(again.contains("3 of them skipped"), "{again}");
    // The program has travelled with the job.
    cluster.sandbox.program("data/mapper.sh", "#!/bin/sh\ntr a b\n");
    assert!(why(&cluster).contains("\"count\": its command"), "{}", why(&cluster));
    let changed = start(&cluster).wait().expect_success().story();
    assert!(!changed.contains("skipped"), "{changed}");
    assert_eq!(read(&cluster.sandbox, "data/all"), "b\t3\nis\t2\nrose\t3\n");
}

#[test]
fn job_steps_outlive_server_and_node() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let _never = cluster.sandbox.fifo("never");
    let root = cluster.sandbox.path("").display().to_string();
    let mapper = format!(
        "sh -c 'cd {root}; if [ ! -e once ]; then touch once; echo first > here; read line < never; fi; if [ ! -e \
         twice ]; then touch twice; echo second > here; read line < go; fi; exec cat'"
    );
    write_workflow(&cluster.sandbox, &mapper);
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "first");
    cluster.add_node();
    cluster.kill_node();
    assert_eq!(here.read_line(), "second");
    cluster.restart_server();
    go.write_line("go on");
    submitted.wait().expect_success();
    check_counts(&cluster);
}

/// The server dies when the row of a step stands and the job has not begun: its step gets another job.
#[test]
fn half_begun_job_steps_begin_again() {
    for point in ["submit-after-transaction", "staging-created"] {
        let crashes = |server: &mut Command| {
            server.env("SAILFISH_CRASH_AT", point);
        };
        let mut cluster = Cluster::builder().nodes(1).server_command(crashes).start();
        write_workflow(&cluster.sandbox, "builtin:identity");
        let submitted = start(&cluster);
        assert!(cluster.wait_for_server().signal().is_some(), "{point} was not passed");
        let next = cluster.another_server();
        next.wait_for_stderr("serving at");
        cluster.led_by(next);
        submitted.wait().expect_success();
        check_counts(&cluster);
        assert!(states(&cluster).contains(&state("count", "interrupted")), "{:?}", states(&cluster));
        let left = fs::read_dir(cluster.sandbox.path("data")).expect("a directory").flatten();
        let hidden = left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count();
        assert_eq!(hidden, 0, "{point} leaves no staging directory");
    }
}

#[test]
fn cancelled_workflow_stops_its_job() {
    let cluster = Cluster::builder().nodes(1).start();
    let mut here = cluster.sandbox.fifo("here");
    let _never = cluster.sandbox.fifo("never");
    let root = cluster.sandbox.path("").display().to_string();
    write_workflow(&cluster.sandbox, &format!("sh -c 'cd {root}; echo here > here; read line < never'"));
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "here");
    let running = cluster.run(&["jobs", "--steps-of", "1"]).expect_success().text();
    assert!(running.contains("count"), "{running}");
    cluster.run(&["cancel", "1"]).expect_success();
    submitted.wait().expect_failure(130, &["job 1 was"]);
    assert!(states(&cluster).contains(&state("count", "cancelled")), "{:?}", states(&cluster));
    assert!(!cluster.sandbox.path("data/counts").exists() && !cluster.sandbox.path("data/all").exists());
}

#[test]
fn failed_jobs_name_their_step() {
    let cluster = Cluster::builder().nodes(1).start();
    write_workflow(&cluster.sandbox, "sh -c 'echo bad line >&2; exit 7'");
    start(&cluster).wait().expect_failure(7, &["the step \"count\"", "exit code 7", "bad line"]);
}

/// A job of the same user could name none of these paths.
#[test]
fn job_steps_stay_below_the_roots() {
    let cluster = Cluster::builder().nodes(1).roots(&["data"]).start();
    let sandbox = &cluster.sandbox;
    sandbox.write("secret", "a secret\n");
    write_workflow(sandbox, "builtin:identity");
    symlink(sandbox.path("secret"), sandbox.path("data/link")).expect("a link");
    let flow = read(sandbox, "data/flow.toml");
    let outside = |name: &str| sandbox.path(name).display().to_string();
    for (from, to) in [
        ("inputs = [\"words\"]", "inputs = [\"link\"]".to_string()),
        ("inputs = [\"words\"]", format!("inputs = [\"{}\"]", outside("secret"))),
        ("output = \"counts\"", format!("output = \"{}\"", outside("counts"))),
    ] {
        let changed = flow.replacen(from, &to, 1).replace("counts/part-*", "text");
        sandbox.write("data/flow.toml", changed);
        start(&cluster).wait().expect_failure(2, &["the step \"count\" cannot begin", "--allow-root"]);
    }
    assert!(!sandbox.path("counts").exists());
}

/// Neither the nodes nor the server see the file; an output of a step is read the same way.
#[test]
fn jobs_read_stored_files_of_the_cluster() {
    let cluster = Cluster::builder().nodes(2).start();
    cluster.wait_for_stored_disks(2);
    let sandbox = &cluster.sandbox;
    sandbox
        .write("words", (0..4000).map(|line| format!("w{} w{}\n", line % 7, line % 3)).collect::<String>());
    let put = |parts: &str| {
        let put = ["put", "words", "in/words", "--replicas", "1", "--parts", parts, "--records", "lines"];
        cluster.files().done(&put);
    };
    put("4");
    sandbox.write(
        "data/flow.toml",
        r#"
[[step]]
name = "more"
command = "echo more w1 | gzip -c > more"
outputs = ["files:in/more"]
keep = true

[[step]]
name = "count"
inputs = ["files:in/words", "files:in/more"]
[step.job]
mapper = "builtin:words"
reducer = "builtin:sum"
output = "counts"
memory = "64M"
slots = 2
"#,
    );
    let run = || start(&cluster).wait().expect_success().story();
    let counts = || read(sandbox, "data/counts/part-00000");
    assert!(!run().contains("skipped"));
    assert!(counts().starts_with("more\t1\nw0\t1906\nw1\t1906\n"), "{}", counts());
    assert!(run().contains("2 of them skipped"));
    fs::remove_dir_all(sandbox.path("data/counts")).expect("an output");
    assert!(run().contains("1 of them skipped"));
    assert!(counts().starts_with("more\t1\nw0\t1906\nw1\t1906\n"), "{}", counts());
    put("2");
    let why = cluster.run(&["workflow", "why", &sandbox.path("data/flow.toml").display().to_string()]);
    assert!(why.expect_success().text().contains("\"count\": files:in/words changed"));
}
