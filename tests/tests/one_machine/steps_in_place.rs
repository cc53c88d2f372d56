//! Steps that run in the directory of their workflow.

use blackbox::{Cluster, Running, Sandbox};
use std::fs;

const STEPS: &str = r#"
[[step]]
name = "build"
command = "echo build ran; cat texts/in notes > made; echo more >> notes"
inputs = ["texts/in"]
outputs = ["made"]
in_place = true

[[step]]
name = "sorted"
words = ["sort"]
stdin = "made"
stdout = "out/sorted"
in_place = true

[[step]]
name = "last"
command = "echo last ran; head -n 1 out/sorted > last"
inputs = ["out/sorted"]
outputs = ["last"]
"#;

fn written(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("flow.toml", text);
    sandbox.write("texts/in", "b\n");
    sandbox.write("notes", "a\n");
    sandbox
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).expect("a result")
}

#[test]
fn steps_in_place_see_their_directory() {
    let sandbox = written(STEPS);
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert_eq!(said, "build ran\nlast ran\n");
    assert_eq!((read(&sandbox, "last").as_str(), read(&sandbox, "notes").as_str()), ("a\n", "a\nmore\n"));
    // They always run; their temporary outputs are removed as all others.
    assert!(!sandbox.path("made").exists() && !sandbox.path("out/sorted").exists());
    let said = sandbox.workflow(&["run", "flow.toml"]).expect_success().text();
    assert!(said.contains("build ran\n"), "{said}");
    let script =
        Running::start(sandbox.sailfish().args(["workflow", "export"]).arg(sandbox.path("flow.toml")));
    sandbox.write("flow.sh", script.wait().expect_success().text());
    fs::remove_file(sandbox.path("last")).expect("it is removed");
    let mut shell = std::process::Command::new("sh");
    Running::start(shell.arg(sandbox.path("flow.sh"))).wait().expect_success();
    assert_eq!(read(&sandbox, "last"), "a\n");
}

#[test]
fn missing_outputs_in_place_fail_steps() {
    let sandbox = written(&STEPS.replace("> made", "> other"));
    let failed = sandbox.workflow(&["run", "flow.toml"]);
    failed.expect_failure(1, &["the step \"build\"", "its output made is missing"]);
    assert!(sandbox.path("other").exists());
    let stored = STEPS.replace("[\"texts/in\"]", "[\"files:in\"]");
    sandbox.write("flow.toml", stored);
    sandbox.workflow(&["run", "flow.toml"]).expect_failure(2, &["in_place", "files:in"]);
}

#[test]
fn servers_refuse_steps_in_place() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("flow.toml", STEPS);
    cluster.sandbox.write("texts/in", "b\n");
    let file = cluster.sandbox.path("flow.toml").display().to_string();
    cluster
        .run(&["workflow", "run", &file])
        .expect_failure(2, &["the step \"build\" cannot begin", "in_place"]);
    assert!(!cluster.sandbox.path("made").exists());
}
