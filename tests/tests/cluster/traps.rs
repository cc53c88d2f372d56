//! The traps of the field report that need a cluster.

use blackbox::{Cluster, Running};
use rustix::process::Signal;

#[test]
fn field_report_trap_2_hints_name_the_server_and_so_may_the_environment() {
    let cluster = Cluster::start(1);
    cluster.sandbox.write("in", "a b\n");
    let hint = |command: &str| format!("`sailfish {command} --server {}`", cluster.url);
    let mut job = cluster.job(&["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"]);
    let said = Running::start(job.arg("--output").arg(cluster.sandbox.out())).wait().expect_success();
    assert!(said.stderr.contains(&hint("report 1")), "{}", said.story());
    let mut failing = cluster.job(&["--input", "in", "--mapper", "false"]);
    let said = Running::start(failing.arg("--output").arg(cluster.sandbox.path("none"))).wait();
    said.expect_failure(1, &[&hint("show 2")]);

    let by_environment = |args: &[&str]| {
        let mut command = cluster.sandbox.sailfish();
        command.env("SAILFISH_SERVER", &cluster.url).args(args);
        Running::start(&mut command).wait()
    };
    assert!(by_environment(&["report", "1", "--json"]).expect_success().text().contains("proof"));
    assert!(by_environment(&["jobs"]).expect_success().text().contains("succeeded"));
    by_environment(&["wait", "1"]).expect_success();
    let told = by_environment(&["submit", "--wait", "--", "echo", "here"]).expect_success();
    assert!(told.text().contains("here"), "{}", told.story());
    // What is said wins.
    let state = cluster.sandbox.state();
    let state = state.to_str().expect("a sandbox has a plain path");
    assert!(
        by_environment(&["jobs", "--state", state]).expect_success().text().contains("no job has run in")
    );
    by_environment(&["jobs", "--server", "http://127.0.0.1:1"]).expect_failure(2, &["127.0.0.1:1"]);
}

/// Programs of jobs find the variable for their intermediate files, and a job that they run is theirs.
#[test]
fn in_a_program_of_a_job_the_environment_names_the_server_for_intermediate_files_alone() {
    let cluster = Cluster::start(1);
    let program = blackbox::sailfish_binary();
    let script = format!(
        "echo $SAILFISH_SERVER; '{}' jobs --limit 1 2>&1; '{}' ifile list > list && echo listed",
        program.display(),
        program.display()
    );
    let mut submit = cluster.sailfish(&["submit", "--wait"]);
    let said = Running::start(submit.args(["--", "sh", "-c", &script])).wait().expect_success();
    let text = said.text();
    for expected in [cluster.url.as_str(), "no job has run in", "listed"] {
        assert!(text.contains(expected), "{}", said.story());
    }
}

/// The server goes while somebody waits, and comes back: the job ends as if nothing had been. Who stops to wait is told that it goes on.
#[test]
fn field_report_trap_3_a_job_goes_on_without_the_client() {
    let mut cluster = Cluster::start(1);
    cluster.sandbox.write("in", "a\n");
    let mut go = cluster.sandbox.fifo("go");
    let mapper = format!("sh -c 'echo begun >&2; read line < {}; cat'", go.text());
    let mut job = cluster.job(&["--input", "in", "--mapper", &mapper]);
    let waiting = Running::start(job.arg("--output").arg(cluster.sandbox.out()));
    cluster.wait_for("select count(*) > 0 as n from attempts where state = 'running'");
    cluster.kill_server();
    waiting.signal(Signal::INT);
    waiting.wait_for_stderr("stopping the job");
    waiting.signal(Signal::INT);
    let hint = format!("job 1 goes on; `sailfish wait 1 --server {}`", cluster.url);
    waiting.wait().expect_failure(75, &[&hint]);
    let server = cluster.another_server();
    server.wait_for_stderr("serving at");
    cluster.led_by(server);
    let waits = Running::start(&mut cluster.sailfish(&["wait", "1"]));
    go.write_line("go on");
    waits.wait().expect_success();
    assert_eq!(cluster.sandbox.concatenated(&cluster.sandbox.out()), b"a\n");
}
