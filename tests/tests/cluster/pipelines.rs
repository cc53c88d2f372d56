//! Steps that stream to each other, as pipelines of one attempt.

use blackbox::{Cluster, Finished, Running, Sandbox};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// A step of a pipeline: its name, its command for `sh`, and the names of its standard input and output. A name with a
/// `~` in front is a temporary file.
type Piped<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// Writes a workflow whose files lie in the directory `data` of the sandbox.
fn write_workflow(sandbox: &Sandbox, steps: &[Piped<'_>]) {
    let step = |(name, command, stdin, stdout): &Piped<'_>| {
        let file = |name: &str| {
            let plain = name.trim_start_matches('~');
            let path = sandbox.path("data").join(plain);
            json!({ "name": plain, "path": path, "temporary": plain != name })
        };
        let mut program = json!({
            "words": ["sh", "-c", command], "directory": sandbox.path("data"),
            "outputs": [file(stdout)], "stdout": stdout.trim_start_matches('~'),
        });
        if let Some(stdin) = stdin {
            program["inputs"] = json!([file(stdin.trim_start_matches('~'))]);
            program["stdin"] = json!(stdin.trim_start_matches('~'));
        }
        json!({ "name": name, "program": program })
    };
    fs::create_dir_all(sandbox.path("data")).expect("a directory");
    let spec = json!({ "steps": steps.iter().map(step).collect::<Vec<Value>>() });
    sandbox.write("steps.json", spec.to_string());
}

fn run_here(sandbox: &Sandbox, cores: &str) -> Finished {
    let plain = sandbox.sailfish();
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .current_dir(sandbox.path(""))
        .args(["submit", "--kind", "workflow", "--state"])
        .arg(sandbox.state());
    Running::start(command.arg("--spec").arg(sandbox.path("steps.json"))).wait()
}

/// Returns the names and states of the steps of a job, in order.
fn steps(list: Finished) -> Vec<(String, String)> {
    let list = list.expect_success().json();
    let text = |row: &Value, key: &str| row[key].as_str().expect("a text").to_string();
    let rows = list.as_array().expect("a list").iter();
    let mut steps: Vec<(String, String)> = rows.map(|row| (text(row, "name"), text(row, "state"))).collect();
    steps.sort();
    steps
}

fn start(cluster: &Cluster) -> Running {
    let mut command = cluster.sailfish(&["submit", "--wait"]);
    Running::start(command.args(["--kind", "workflow", "--spec"]).arg(cluster.sandbox.path("steps.json")))
}

fn succeeded(name: &str) -> (String, String) {
    (name.to_string(), "succeeded".to_string())
}

const WORDS: &[Piped<'_>] = &[
    ("words", "tr ' ' '\\n'", Some("text"), "~words"),
    ("sorted", "sort", Some("~words"), "~sorted"),
    ("first", "head -1", Some("~sorted"), "first"),
    ("counts", "uniq -c | sed 's/^ *//'", Some("~sorted"), "counts"),
];

/// The files after a run do not depend on the slots, and temporary streams are no files where all readers run along.
#[test]
fn files_do_not_depend_on_slots() {
    for (cores, names) in [
        ("0", vec!["counts", "first", "remove temporary files", "sorted", "words"]),
        ("0,1", vec!["counts", "first", "remove temporary files", "words | sorted"]),
    ] {
        let sandbox = Sandbox::new();
        write_workflow(&sandbox, WORDS);
        sandbox.write("data/text", "a rose is a rose\n");
        run_here(&sandbox, cores).expect_success();
        let read = |name: &str| fs::read_to_string(sandbox.path("data").join(name));
        assert_eq!(read("first").expect("it was made"), "a\n");
        assert_eq!(read("counts").expect("it was made"), "2 a\n1 is\n2 rose\n");
        let mut command = sandbox.sailfish();
        command.args(["jobs", "--steps-of", "1", "--json", "--state"]).arg(sandbox.state());
        let ran = steps(Running::start(&mut command).wait());
        assert_eq!(ran, names.into_iter().map(succeeded).collect::<Vec<_>>());
        assert!(read("sorted").is_err() && read("words").is_err());
    }
}

#[test]
fn pipeline_of_a_cluster_is_one_job() {
    let mut cluster = Cluster::builder().start();
    cluster.add_node_with("", &["--slots", "4"]);
    write_workflow(&cluster.sandbox, WORDS);
    cluster.sandbox.write("data/text", "a rose is a rose\n".repeat(100_000));
    start(&cluster).wait().expect_success();
    let read = |name: &str| fs::read_to_string(cluster.sandbox.path("data").join(name));
    assert_eq!(read("counts").expect("it was made"), "200000 a\n100000 is\n200000 rose\n");
    assert_eq!(read("first").expect("it was made"), "a\n");
    assert!(read("words").is_err() && read("sorted").is_err());
    let ran = steps(cluster.run(&["jobs", "--steps-of", "1", "--json"]));
    assert_eq!(ran, ["remove temporary files", "words | sorted | first | counts"].map(succeeded));
    let shown = cluster.run(&["jobs", "--steps-of", "1", "--json"]).expect_success().json();
    assert_eq!(shown[0]["step_of"], json!(1), "{shown}");
}

/// A pipeline runs again as a whole when its node is lost, and goes on when the server is.
#[test]
fn pipeline_outlives_server_and_node() {
    let mut cluster = Cluster::builder().start();
    cluster.add_node_with("", &["--slots", "3"]);
    fs::create_dir_all(cluster.sandbox.path("data")).expect("a directory");
    let (mut here, mut go) = (cluster.sandbox.fifo("data/here"), cluster.sandbox.fifo("data/go"));
    let data = cluster.sandbox.path("data").display().to_string();
    let last = format!("cat; echo here > {data}/here; read line < {data}/go; echo \"$line\"");
    let first = format!("echo first >> {data}/trace; seq 3");
    write_workflow(
        &cluster.sandbox,
        &[
            ("first", &first, None, "~a"),
            ("second", "cat", Some("~a"), "~b"),
            ("last", &last, Some("~b"), "c"),
        ],
    );
    let submitted = start(&cluster);
    assert_eq!(here.read_line(), "here");
    cluster.restart_server();
    cluster.add_node_with("", &["--slots", "3"]);
    cluster.kill_node_at(0);
    assert_eq!(here.read_line(), "here");
    go.write_line("done");
    submitted.wait().expect_success();
    let read = |name: &str| fs::read_to_string(cluster.sandbox.path("data").join(name)).expect("it was made");
    assert_eq!((read("c").as_str(), read("trace").as_str()), ("1\n2\n3\ndone\n", "first\nfirst\n"));
    let ran = steps(cluster.run(&["jobs", "--steps-of", "1", "--json"]));
    assert_eq!(ran, ["first | second | last", "remove temporary files"].map(succeeded));
}

#[test]
fn failed_program_of_a_pipeline_is_named() {
    let mut cluster = Cluster::builder().start();
    cluster.add_node_with("", &["--slots", "3"]);
    write_workflow(
        &cluster.sandbox,
        &[
            ("first", "echo x; echo why >&2; exit 7", None, "a"),
            ("second", "cat", Some("a"), "b"),
            ("third", "sleep 600", None, "c"),
        ],
    );
    start(&cluster).wait().expect_failure(7, &["the step \"first | second\" failed", "sailfish show 2"]);
    let shown = cluster.run(&["show", "2"]).expect_success().text();
    assert!(shown.contains("exit code 7"), "{shown}");
    for name in ["a", "b", "c"] {
        assert!(!cluster.sandbox.path("data").join(name).exists(), "{name} was made");
    }
}

#[test]
fn pipeline_runs_in_a_sandbox() {
    let with_sandbox = |command: &mut Command| {
        command.arg("--sandbox");
    };
    let mut cluster = Cluster::builder().server_command(with_sandbox).start();
    cluster.add_node_with("", &["--slots", "4"]);
    write_workflow(&cluster.sandbox, WORDS);
    cluster.sandbox.write("data/text", "a rose is a rose\n");
    start(&cluster).wait().expect_success();
    let read = |name: &str| fs::read_to_string(cluster.sandbox.path("data").join(name)).expect("it was made");
    assert_eq!((read("first").as_str(), read("counts").as_str()), ("a\n", "2 a\n1 is\n2 rose\n"));
}

const PASTED: &str = r#"
[[step]]
name = "one"
command = "test -p one; seq 3 > one"
outputs = ["one"]
streams = ["one"]

[[step]]
name = "two"
command = "seq 4 6"
stdout = "two"

[[step]]
name = "pasted"
command = "test -p one; test -p two; paste -d, two one > pasted"
inputs = ["one", "two"]
outputs = ["pasted"]
streams = ["one", "two"]
"#;

/// Programs open their streams by name, also where each has a sandbox, and a namespace of its own.
#[test]
fn named_streams_run_in_a_sandbox() {
    let with_sandbox = |command: &mut Command| {
        command.arg("--sandbox");
    };
    let mut cluster = Cluster::builder().server_command(with_sandbox).start();
    cluster.add_node_with("", &["--slots", "4"]);
    cluster.sandbox.write("flow.toml", PASTED);
    let mut command = cluster.sailfish(&["workflow", "run", "flow.toml"]);
    Running::start(&mut command).wait().expect_success();
    let pasted = fs::read_to_string(cluster.sandbox.path("pasted")).expect("it was made");
    assert_eq!(pasted, "4,1\n5,2\n6,3\n");
    assert!(!cluster.sandbox.path("one").exists() && !cluster.sandbox.path("two").exists());
}

/// Steps that do not fit side by side run one after the other in one attempt, also where each program has a sandbox.
#[test]
fn file_of_a_cluster_lies_in_memory() {
    let with_sandbox = |command: &mut Command| {
        command.arg("--sandbox");
    };
    let mut cluster = Cluster::builder().server_command(with_sandbox).start();
    cluster.add_node_with("", &["--slots", "1"]);
    let second = "cat; stat -L -f -c %T a";
    write_workflow(
        &cluster.sandbox,
        &[("first", "stat -f -c %T .", None, "~a"), ("second", second, Some("~a"), "b")],
    );
    let spec = fs::read_to_string(cluster.sandbox.path("steps.json")).expect("it was written");
    let mut spec: Value = serde_json::from_str(&spec).expect("it is JSON");
    spec["steps"][0]["program"]["memory_bytes"] = json!(64 << 20);
    cluster.sandbox.write("steps.json", spec.to_string());
    start(&cluster).wait().expect_success();
    let ran = steps(cluster.run(&["jobs", "--steps-of", "1", "--json"]));
    assert_eq!(ran, ["first > second", "remove temporary files"].map(succeeded));
    let memory = Command::new("stat").args(["-f", "-c", "%T", "/dev/shm"]).output().expect("stat runs");
    let memory = String::from_utf8(memory.stdout).expect("a word");
    let read = fs::read_to_string(cluster.sandbox.path("data/b")).expect("it was made");
    match memory == "tmpfs\n" {
        true => assert_eq!(read, "tmpfs\ntmpfs\n"),
        false => assert_eq!(read.lines().count(), 2),
    }
    assert!(!cluster.sandbox.path("data/a").exists(), "it was temporary");
}

/// Jobs of one slot come all the time, and a job of all slots of the only node still gets them.
#[test]
fn job_of_many_cores_does_not_starve() {
    let mut cluster = Cluster::builder().start();
    cluster.add_node_with("", &["--slots", "2"]);
    let submit = |options: &[&str], words: &[&str]| {
        let mut command = cluster.sailfish(&["submit"]);
        Running::start(command.args(options).arg("--").args(words)).wait()
    };
    submit(&["--cores", "3"], &["true"]).expect_failure(2, &["3 slots", "has 2"]);
    submit(&["--count", "2000"], &["sleep", "0.05"]).expect_success();
    let wide = submit(&["--wait", "--cores", "2"], &["echo", "wide"]);
    assert!(wide.expect_success().text().ends_with("\nwide\n"));
    let left = cluster.run(&["jobs", "--json", "--limit", "3000"]).expect_success().json();
    let waits = |row: &&Value| row["state"] == json!("running");
    assert!(left.as_array().expect("a list").iter().filter(waits).count() > 100);
}

/// Returns `sailfish workflow` with these words.
fn workflow(sandbox: &Sandbox, words: &[&str]) -> Finished {
    let mut command = sandbox.sailfish();
    Running::start(command.arg("workflow").args(words)).wait()
}

const TEXT: &str = r#"
[[step]]
name = "words"
command = "tr -cs A-Za-z '\n' | tr A-Z a-z"
stdin = "text"
stdout = "words"

[[step]]
name = "distinct"
words = ["sort", "-u"]
stdin = "words"
stdout = "made/distinct"

[[step]]
name = "last"
command = "tail -1 made/distinct > last; echo said"
inputs = ["made/distinct"]
outputs = ["last"]
"#;

#[test]
fn workflow_files_run_here_and_there() {
    let mut cluster = Cluster::builder().start();
    cluster.add_node_with("", &["--slots", "4"]);
    let sandbox = &cluster.sandbox;
    sandbox.write("flow.toml", TEXT);
    workflow(sandbox, &["check", "flow.toml"])
        .expect_failure(2, &["\"words\" reads", "text, which does not exist"]);
    sandbox.write("text", "A rose is a rose\n");
    workflow(sandbox, &["check", "flow.toml"]).expect_success();
    let plan = workflow(sandbox, &["plan", "flow.toml", "--slots", "4"]).expect_success().text();
    assert!(plan.contains("words | distinct") && plan.contains("last"), "{plan}");
    let made = || -> Vec<String> {
        let read =
            |name: &str| fs::read_to_string(sandbox.path(name)).unwrap_or_else(|_| "missing".to_string());
        ["words", "made/distinct", "last"].map(read).to_vec()
    };
    let clean = || fs::remove_file(sandbox.path("last")).expect("it was made");
    let state = sandbox.state().display().to_string();
    let expected = ["missing", "missing", "rose\n"];
    let said = workflow(sandbox, &["run", "flow.toml", "--state", &state]).expect_success();
    assert_eq!((said.text().as_str(), made()), ("said\n", expected.map(String::from).to_vec()));
    clean();
    let mut command = cluster.sailfish(&["workflow", "run", "flow.toml"]);
    Running::start(&mut command).wait().expect_success();
    assert_eq!(made(), expected);
    clean();
    let script = workflow(sandbox, &["export", "flow.toml"]).expect_success().text();
    let ran = Command::new("sh").args(["-c", &script]).current_dir("/").status().expect("a shell");
    assert!(ran.success());
    assert_eq!(made(), expected);
    // A step that fails ends the run, and says why.
    sandbox.write("flow.toml", TEXT.replace("tail -1", "false; tail -1"));
    clean();
    workflow(sandbox, &["run", "flow.toml", "--state", &state])
        .expect_failure(1, &["the step \"last\"", "exit code 1"]);
    assert_eq!(made()[2], "missing");
}
