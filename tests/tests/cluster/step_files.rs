//! Files of programs: inputs stand in a directory of their own, and only declared outputs are taken.

use blackbox::{Cluster, Finished, Running, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A step: its name, its command for `sh`, the names of its inputs and its outputs.
type StepOf<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str]);

/// Writes a workflow whose files lie in the sandbox under the names that the steps give them.
fn write_workflow(sandbox: &Sandbox, steps: &[StepOf<'_>]) {
    let files = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name, "path": sandbox.path(name) })).collect()
    };
    let step = |(name, command, inputs, outputs): &StepOf<'_>| {
        json!({
            "name": name,
            "program": {
                "words": ["sh", "-c", command], "directory": sandbox.path(""),
                "inputs": files(inputs), "outputs": files(outputs),
            },
        })
    };
    let spec = json!({ "steps": steps.iter().map(step).collect::<Vec<Value>>() });
    sandbox.write("steps.json", spec.to_string());
}

fn run_here(sandbox: &Sandbox) -> Finished {
    let mut command = sandbox.sailfish();
    command.args(["submit", "--kind", "workflow", "--state"]).arg(sandbox.state());
    Running::start(command.arg("--spec").arg(sandbox.path("steps.json"))).wait()
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("it was made")
}

/// Returns the error of the only step of the latest job.
fn error_of_step(sandbox: &Sandbox) -> String {
    let list = |more: &[&str]| {
        let mut command = sandbox.sailfish();
        command.args(["jobs", "--json", "--limit", "1", "--state"]).arg(sandbox.state()).args(more);
        Running::start(&mut command).wait().expect_success().json()[0].clone()
    };
    let job = list(&[])["job"].to_string();
    list(&["--steps-of", &job])["error"].as_str().unwrap_or_default().to_string()
}

/// Names of the files of the sandbox that the test has not made.
fn made(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).expect("a directory");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.retain(|name| !["state", "steps.json", "text", "home"].contains(&name.as_str()));
    names.sort();
    names
}

#[test]
fn steps_follow_the_names_of_their_files() {
    let sandbox = Sandbox::new();
    sandbox.write("text", "a rose is a rose\n");
    let before = made(&sandbox);
    write_workflow(
        &sandbox,
        &[
            ("count", "wc -l < sorted/distinct > count", &["sorted/distinct"], &["count"]),
            ("words", "tr ' ' '\n' < text > words; touch extra; ls", &["text"], &["words"]),
            ("distinct", "sort -u words > sorted/distinct", &["words"], &["sorted/distinct"]),
        ],
    );
    let said = run_here(&sandbox).expect_success();
    // The program sees its inputs alone, and what it leaves beside its outputs is gone.
    assert_eq!(said.text(), "extra\ntext\nwords\n");
    assert_eq!(read(&sandbox, "sorted/distinct"), "a\nis\nrose\n");
    assert_eq!(read(&sandbox, "count").trim(), "3");
    let new: Vec<String> = made(&sandbox).into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new, ["count", "sorted", "words"]);
}

#[test]
fn wrong_outputs_are_not_taken() {
    let sandbox = Sandbox::new();
    sandbox.write("text", "x\n");
    sandbox.write("kept", "old\n");
    let check = |command: &str, inputs: &[&str], code: i32, text: &str| {
        write_workflow(&sandbox, &[("step", command, inputs, &["kept", "other"])]);
        run_here(&sandbox).expect_failure(code, &["the step \"step\" failed"]);
        let error = error_of_step(&sandbox);
        assert!(error.contains(text), "{text:?} in {error}");
        assert_eq!((read(&sandbox, "kept").as_str(), sandbox.path("other").exists()), ("old\n", false));
    };
    check("echo new > kept", &[], 1, "other is missing");
    check("echo new > kept; echo new > othr", &["text"], 1, "other is missing: it wrote othr");
    check("echo new > kept; mkdir other", &[], 1, "other is no plain file");
    check("echo new > kept; ln -s /etc/passwd other", &[], 1, "other is no plain file");
    check("echo new > kept; mkfifo other", &[], 1, "other is no plain file");
    check("echo new > kept; echo new > other; exit 3", &[], 3, "exit code 3");
    check("echo new > kept; echo new > other; echo y >> text", &["text"], 2, "text changed");
    check("true", &["missing"], 2, "missing does not exist");
    assert!(
        fs::read_dir(sandbox.path(""))
            .expect("a directory")
            .flatten()
            .all(|entry| { !entry.file_name().to_string_lossy().contains("sailfish-") })
    );
}

/// A directory of the operator's list is exchanged for a link to another place while a program runs.
#[test]
fn outputs_stay_below_the_roots() {
    let cluster = Cluster::builder().nodes(1).roots(&["data"]).start();
    let sandbox = &cluster.sandbox;
    let (mut here, mut go) = (sandbox.fifo("data/here"), sandbox.fifo("data/go"));
    fs::create_dir_all(sandbox.path("other")).expect("a directory");
    fs::create_dir_all(sandbox.path("data/out")).expect("a directory");
    let root = sandbox.path("data").display().to_string();
    let command = format!("echo new > data/out/x; echo here > {root}/here; read line < {root}/go");
    let run = |command: &str, output: &str| {
        write_workflow(sandbox, &[("step", command, &[], &[output])]);
        let mut submit = cluster.sailfish(&["submit", "--wait"]);
        submit.args(["--kind", "workflow", "--spec"]).arg(sandbox.path("steps.json"));
        Running::start(&mut submit)
    };
    run("true", "other/x").wait().expect_failure(2, &["cannot begin", "output", "--allow-root"]);
    let submitted = run(&command, "data/out/x");
    assert_eq!(here.read_line(), "here");
    fs::rename(sandbox.path("data/out"), sandbox.path("data/old")).expect("a rename");
    symlink(sandbox.path("other"), sandbox.path("data/out")).expect("a link");
    go.write_line("go on");
    submitted.wait().expect_failure(2, &["the step \"step\" failed"]);
    assert_eq!(fs::read_dir(sandbox.path("other")).expect("a directory").count(), 0);
}

/// Two jobs that write the same file at once would remove each other's temporary files.
#[test]
fn second_writer_of_an_output_is_refused() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let root = cluster.sandbox.path("").display().to_string();
    let command = format!("echo done > out; echo here > {root}/here; read line < {root}/go");
    let start = |cluster: &Cluster, outputs: &[&str]| {
        write_workflow(&cluster.sandbox, &[("step", &command, &[], outputs)]);
        let mut submit = cluster.sailfish(&["submit", "--wait"]);
        submit.args(["--kind", "workflow", "--spec"]).arg(cluster.sandbox.path("steps.json"));
        Running::start(&mut submit)
    };
    let first = start(&cluster, &["out"]);
    assert_eq!(here.read_line(), "here");
    let refusal = ["job 1 runs and writes", "out too: wait for its end, or cancel it"];
    start(&cluster, &["other", "out"]).wait().expect_failure(2, &refusal);
    cluster.restart_server();
    start(&cluster, &["out"]).wait().expect_failure(2, &refusal);
    go.write_line("go on");
    first.wait().expect_success();
    let again = start(&cluster, &["out"]);
    assert_eq!(here.read_line(), "here");
    go.write_line("go on");
    again.wait().expect_success();
    assert_eq!(read(&cluster.sandbox, "out"), "done\n");
}

#[test]
fn outputs_keep_their_permissions() {
    let sandbox = Sandbox::new();
    write_workflow(&sandbox, &[("step", "echo 'echo hi' > run; chmod 755 run", &[], &["run"])]);
    run_here(&sandbox).expect_success();
    let mode = fs::metadata(sandbox.path("run")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

/// A program that is killed in the middle of its output leaves nothing at the path, and a later run replaces it whole.
#[test]
fn killed_program_leaves_no_torn_output() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let mut here = cluster.sandbox.fifo("here");
    let _never = cluster.sandbox.fifo("never");
    let root = cluster.sandbox.path("").display().to_string();
    let waits = format!(
        "if [ ! -e {root}/again ]; then touch {root}/again; echo here > {root}/here; read line < {root}/never; fi"
    );
    let command = format!("echo first > out; {waits}; echo second >> out");
    write_workflow(&cluster.sandbox, &[("step", command.as_str(), &[], &["out"])]);
    let mut submit = cluster.sailfish(&["submit", "--wait"]);
    submit.args(["--kind", "workflow", "--spec"]).arg(cluster.sandbox.path("steps.json"));
    let submitted = Running::start(&mut submit);
    assert_eq!(here.read_line(), "here");
    cluster.add_node();
    cluster.node(0).signal(Signal::KILL);
    assert!(!cluster.sandbox.path("out").exists());
    submitted.wait().expect_success();
    assert_eq!(read(&cluster.sandbox, "out"), "first\nsecond\n");
}
