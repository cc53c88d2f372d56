//! Short steps on one machine: the next ones wait for a turn beside the slots.

use blackbox::Sandbox;
use std::fs;

/// Writes a workflow of short steps, each of which counts the programs that run. Every tenth takes both slots.
fn write_counting_steps(sandbox: &Sandbox) {
    let (running, log) = (sandbox.path("running"), sandbox.path("log"));
    fs::create_dir(&running).expect("a directory");
    let (running, log) = (running.display(), log.display());
    let step = |number: u32| {
        let cores = if number.is_multiple_of(10) { 2 } else { 1 };
        let command = format!(
            "mkdir {running}/$$; echo {cores} $(ls {running} | wc -l) >> {log}; sleep 0.003; rmdir {running}/$$; touch made-{number}"
        );
        format!(
            "[[step]]\nname = \"{number}\"\ncache = false\ncores = {cores}\ncommand = '{command}'\noutputs = [\"made-{number}\"]\n"
        )
    };
    sandbox.write("short.toml", (1..=60).map(step).collect::<String>());
}

#[test]
fn no_more_programs_run_than_slots() {
    let sandbox = Sandbox::new();
    write_counting_steps(&sandbox);
    sandbox.look(&["workflow", "run", "short.toml", "--slots", "2"]).expect_success();
    let log = fs::read_to_string(sandbox.path("log")).expect("each step wrote a line");
    assert_eq!(log.lines().count(), 60, "{log}");
    for line in log.lines() {
        let (cores, running) = line.split_once(' ').expect("two numbers");
        let running: u32 = running.trim().parse().expect("a number");
        assert!(running <= if cores == "2" { 1 } else { 2 }, "{line}");
    }
    assert!((1..=60).all(|number| sandbox.path(&format!("made-{number}")).exists()));
    // Numbers from 2 on are those of places.
    let question = "select max(slot) as slot from attempts";
    let most = sandbox.look(&["state", "--json", question]).expect_success().json();
    assert!(most[0]["slot"].as_u64().is_some_and(|slot| slot >= 2), "{most}");
}

/// A run that ends with its engine has not succeeded, though no step of it failed.
#[test]
fn failed_store_fails_the_run() {
    let sandbox = Sandbox::new();
    let store = sandbox.state().join("sailfish.db");
    let trigger =
        "create trigger refuse before insert on attempts begin select raise(abort, \"refused\"); end";
    let refuses = format!("import sqlite3; sqlite3.connect(\"{}\").execute({trigger:?})", store.display());
    let step = |name: &str, command: &str, after: &str| {
        format!("[[step]]\nname = \"{name}\"\ncommand = '''{command}'''\ncache = false\nafter = [{after}]\n")
    };
    let steps = [step("first", &format!("python3 -c '{refuses}'"), ""), step("last", "true", "\"first\"")];
    sandbox.write("flow.toml", steps.concat());
    let run = sandbox.workflow(&["run", "flow.toml"]);
    run.expect_failure(1, &["the engine failed: the state database", "refused"]);
}
