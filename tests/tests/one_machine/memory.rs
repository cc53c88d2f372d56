//! Nodes have so much memory for jobs, and no more is promised: who does not fit waits, and is told why.

use blackbox::{Cluster, Fifo, Finished, Running};
use std::process::Command;

/// Runs the command with a program that says that it is there and waits for a line.
fn start_hanging(
    cluster: &Cluster,
    name: &str,
    command: impl FnOnce(&str) -> Command,
) -> (Running, Fifo, Fifo) {
    let (here, go_on) =
        (cluster.sandbox.fifo(&format!("{name}-here")), cluster.sandbox.fifo(&format!("{name}-go")));
    let text = format!("#!/bin/sh\necho here > '{}'; read line < '{}'\n", here.text(), go_on.text());
    let script = cluster.sandbox.script(&format!("{name}.sh"), &text);
    let started = Running::start(&mut command(script.to_str().expect("a sandbox has a plain path")));
    (started, here, go_on)
}

fn submit(cluster: &Cluster, options: &[&str], program: &str) -> Command {
    let mut command = cluster.sailfish(&[&["submit", "--wait"], options].concat());
    command.args(["--", program]);
    command
}

fn run(cluster: &Cluster, memory: &str, program: &str, output: &str) -> Command {
    let args = ["run", "--slots", "2", "--memory", memory, "--input", "in.txt", "--output", output];
    cluster.sailfish(&[&args[..], &["--mapper", program]].concat())
}

fn await_job(cluster: &Cluster, job: u32) {
    cluster.ask_until(&["jobs", "--json"], |jobs| jobs.contains(&format!("\"job\": {job},")));
}

fn ask(cluster: &Cluster, args: &[&str]) -> Finished {
    cluster.run(args)
}

#[test]
fn programs_wait_for_memory_and_for_an_architecture() {
    // Of 1 GiB.
    let cluster = Cluster::builder().nodes(1).start();
    let large = |program: &str| submit(&cluster, &["--memory", "600M"], program);
    let (first, mut first_here, mut first_go) = start_hanging(&cluster, "first", large);
    first_here.read_line();
    let (second, mut second_here, mut second_go) = start_hanging(&cluster, "second", large);
    await_job(&cluster, 2);
    cluster.ask_until(&["explain", "2"], |told| told.contains("600 MiB of memory on a node"));
    // One that needs nothing, or little, does not wait.
    Running::start(&mut submit(&cluster, &[], "true")).wait().expect_success();
    Running::start(&mut submit(&cluster, &["--memory", "100M"], "true")).wait().expect_success();
    first_go.write_line("go on");
    first.wait().expect_success();
    second_here.read_line();
    second_go.write_line("go on");
    second.wait().expect_success();
    let too_much = submit(&cluster, &["--memory", "2G"], "true");
    Running::start(&mut { too_much }).wait().expect_failure(2, &["2048 MiB", "1024 MiB", "--memory"]);
    let elsewhere = submit(&cluster, &["--arch", "pdp11"], "true");
    Running::start(&mut { elsewhere }).wait().expect_failure(2, &["pdp11", std::env::consts::ARCH]);
    let here = submit(&cluster, &["--arch", std::env::consts::ARCH], "true");
    Running::start(&mut { here }).wait().expect_success();
}

#[test]
fn job_waits_until_its_memory_is_free() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.sandbox.write("in.txt", "a\t1\n");
    let large = |program: &str| run(&cluster, "600M", program, "out-1");
    let (first, mut here, mut go_on) = start_hanging(&cluster, "first", large);
    here.read_line();
    let second = Running::start(&mut run(&cluster, "600M", "cat", "out-2"));
    await_job(&cluster, 2);
    cluster.ask_until(&["explain", "2"], |told| told.contains("1 jobs hold 600 MiB of each node"));
    let too_large = run(&cluster, "3G", "cat", "out-3");
    Running::start(&mut { too_large }).wait().expect_failure(2, &["3072 MiB", "1024 MiB"]);
    // What has begun keeps its memory, what waits still does, whichever server there is.
    cluster.restart_server();
    cluster.ask_until(&["explain", "2"], |told| told.contains("1 jobs hold 600 MiB of each node"));
    go_on.write_line("go on");
    first.wait().expect_success();
    second.wait().expect_success();
    ask(&cluster, &["explain", "2"]).expect_success();
}
