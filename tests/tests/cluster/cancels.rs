//! A cancel that was answered holds, whatever happens to the server after that.

use blackbox::{Cluster, Questions, Running};
use rustix::process::Signal;
use std::process::Command;

/// Cancels a job whose program hangs on a node that cannot answer, kills the server at once, and lets the node go on when
/// the next one is there.
#[track_caller]
fn check_killed_after_a_cancel(command: impl FnOnce(&Cluster) -> Command) {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "a\t1\n");
    let (mut here, silent) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("silent"));
    let wait = format!("echo here > '{}'; read line < '{}'", here.text(), silent.text());
    cluster.sandbox.script("hangs.sh", &format!("#!/bin/sh\n{wait}\n"));
    let job = Running::start(&mut command(&cluster));
    here.read_line();
    cluster.node(0).signal(Signal::STOP);
    cluster.run(&["cancel", "1"]).expect_success();
    cluster.restart_server();
    cluster.node(0).signal(Signal::CONT);
    cluster.run(&["wait", "1"]).expect_failure(130, &["was cancelled"]);
    job.wait().expect_failure(130, &["cancelled"]);
    assert!(!cluster.sandbox.path("out").exists());
    assert_eq!(cluster.attempts().count(), 1, "it was started again");
}

#[test]
fn cancelled_job_stays_cancelled_under_next_server() {
    let args = ["--input", "in.txt", "--mapper", "./hangs.sh", "--output", "out"];
    check_killed_after_a_cancel(|cluster| cluster.job(&args));
}

#[test]
fn cancelled_program_stays_cancelled_under_next_server() {
    check_killed_after_a_cancel(|cluster| {
        let mut command = cluster.sailfish(&["submit", "--wait"]);
        command.args(["--", "./hangs.sh"]);
        command
    });
}
