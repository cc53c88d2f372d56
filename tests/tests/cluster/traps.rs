//! The traps of the field report that need a cluster.

use blackbox::{Cluster, Questions, Running, State};
use rustix::process::Signal;

/// Field report, trap 2.
#[test]
fn hints_name_the_server_and_its_variable() {
    let cluster = Cluster::builder().nodes(1).start();
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
fn program_of_job_sees_server_for_files_only() {
    let cluster = Cluster::builder().nodes(1).start();
    let program = blackbox::sailfish_binary();
    let script = format!(
        "echo $SAILFISH_SERVER; '{}' jobs --limit 1 2>&1; '{}' intermediate list > list && echo listed",
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
/// Field report, trap 3.
#[test]
fn job_goes_on_without_its_client() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in", "a\n");
    let mut go = cluster.sandbox.fifo("go");
    let mapper = format!("sh -c 'echo begun >&2; read line < {}; cat'", go.text());
    let mut job = cluster.job(&["--input", "in", "--mapper", &mapper]);
    let waiting = Running::start(job.arg("--output").arg(cluster.sandbox.out()));
    cluster.attempts().is(State::Running).wait_for_some();
    cluster.kill_server();
    waiting.signal(Signal::INT);
    waiting.wait_for_stderr("stopping the job");
    waiting.signal(Signal::INT);
    let hint = format!("job 1 continues; `sailfish wait 1 --server {}`", cluster.url);
    waiting.wait().expect_failure(75, &[&hint]);
    let server = cluster.another_server();
    server.wait_for_stderr("serving at");
    cluster.led_by(server);
    let waits = Running::start(&mut cluster.sailfish(&["wait", "1"]));
    go.write_line("go on");
    waits.wait().expect_success();
    assert_eq!(cluster.sandbox.concatenated(&cluster.sandbox.out()), b"a\n");
}

/// Numbers are in the order in which jobs came, and a list says what it leaves out.
/// Field report, 6.
#[test]
fn jobs_are_listed_in_order_of_submission() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in", "a\n");
    let ran = |command: &mut std::process::Command| Running::start(command).wait();
    let one_task = |name: &str| {
        let mut submit = cluster.sailfish(&["submit", "--wait", "--name", name]);
        submit.args(["--", "true"]);
        submit
    };
    ran(&mut one_task("first")).expect_success();
    let mut job = cluster.job(&["--input", "in", "--mapper", "false", "--name", "second"]);
    ran(job.arg("--output").arg(cluster.sandbox.out())).expect_failure(1, &[]);
    ran(&mut one_task("third")).expect_success();
    let told = |args: &[&str]| ran(&mut cluster.sailfish(&[&["jobs"], args].concat())).expect_success();
    let list = |args: &[&str]| told(args).text();
    let all = told(&[]);
    let places = ["third", "second", "first"].map(|name| all.text().find(name));
    assert!(places.is_sorted() && places[0].is_some(), "{}", all.story());
    assert_eq!(all.stderr, "");
    let newest = told(&["--limit", "1"]);
    assert!(newest.text().contains("third") && !newest.text().contains("second"), "{}", newest.story());
    assert_eq!(newest.stderr, "sailfish: 2 older jobs are not shown (--limit N)\n");
    let failed = list(&["--job-state", "failed"]);
    assert!(failed.contains("second") && !failed.contains("first"), "{failed}");
    let named = list(&["--name", "THIRD", "--limit", "1"]);
    assert!(named.contains("third") && !named.contains("second"), "{named}");
    let none = list(&["--name", "t_ird"]);
    assert!(none.starts_with("no matching job has run"), "{none}");
    ran(&mut cluster.sailfish(&["jobs", "--job-state", "lost"])).expect_failure(2, &["give running"]);
}

/// The node named node-1 has the number 2 here.
#[test]
fn node_is_found_by_name_before_number() {
    let cluster = Cluster::builder().nodes(2).start();
    let other = ["node", "--name", "#1", "--disk", "other-disk", "--slots", "1", "--memory", "64M"];
    let other = Running::start(&mut cluster.sailfish(&other));
    other.wait_for_stderr("joined");
    let drain = |word: &str| cluster.run(&["nodes", "drain", word]);
    let nodes = cluster.run(&["nodes"]).expect_success().text();
    assert!(nodes.lines().any(|line| line.contains("#2") && line.contains("node-1")), "{nodes}");
    assert!(drain("node-1").expect_success().text().starts_with("#2 node-1 "));
    drain("#1").expect_failure(2, &["#1 may mean two nodes: #3 named \"#1\", and #1 named \"node-0\""]);
    drain("node-9").expect_failure(2, &["no node of the name node-9"]);
    assert!(drain("#3").expect_success().text().starts_with("#3 #1 "));
}

#[test]
fn dead_nodes_stay_listed() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.kill_node();
    let dead = |text: &str| text.lines().any(|line| line.contains("node-0") && line.contains("dead"));
    cluster.ask_until(&["nodes"], dead);
    cluster.restart_server();
    cluster.ask_until(&["nodes"], dead);
    cluster.restart_node(0);
    cluster.ask_until(&["nodes"], |text| text.contains("node-0") && !dead(text));
}

/// The server is away while a job is handed in, and comes back within some seconds.
#[test]
fn client_retries_while_server_restarts() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in", "a\n");
    cluster.kill_server();
    let mut job = cluster.job(&["--input", "in"]);
    let running = Running::start(job.arg("--output").arg(cluster.sandbox.out()));
    let server = cluster.another_server();
    server.wait_for_stderr("serving at");
    cluster.led_by(server);
    running.wait().expect_success();
    // A wrong address is told after some seconds.
    let mut wrong = cluster.sandbox.sailfish();
    wrong.args(["submit", "--server", "http://127.0.0.1:1", "--", "true"]);
    Running::start(&mut wrong).wait().expect_failure(2, &["127.0.0.1:1"]);
}

/// Field report, 11.
#[test]
fn second_server_on_a_state_is_refused() {
    let cluster = Cluster::builder().start();
    let mut second = cluster.sandbox.sailfish();
    second.args(["server", "--listen", "127.0.0.1:0", "--state"]).arg(cluster.sandbox.path("server-state"));
    Running::start(&mut second).wait().expect_failure(2, &["another server uses the state in"]);
}

/// Field report, 11.
#[test]
fn missing_parent_of_node_disk_is_refused() {
    let cluster = Cluster::builder().start();
    let mut node = cluster.sailfish(&["node", "--disk", "no/where"]);
    Running::start(&mut node).wait().expect_failure(2, &["--disk no/where", "mount the disk"]);
    assert!(!cluster.sandbox.path("no").exists());
}
