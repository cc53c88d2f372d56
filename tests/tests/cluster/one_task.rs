//! Jobs of one task: any executable, here and on a cluster.

use blackbox::{Cluster, Running, Sandbox};

#[test]
fn a_program_is_run_on_this_machine() {
    let sandbox = Sandbox::new();
    let submit = |args: &[&str]| {
        let mut command = sandbox.sailfish();
        command.args(["submit", "--state"]).arg(sandbox.state()).args(args);
        Running::start(&mut command).wait()
    };
    let said = submit(&["--env", "NAME=fish", "--", "sh", "-c", "echo hello $NAME; echo oh >&2"]);
    let said = said.expect_success();
    assert_eq!(said.text(), "hello fish\n");
    assert!(said.stderr.contains("oh"), "{}", said.story());
    submit(&["--", "sh", "-c", "echo no >&2; exit 7"]).expect_failure(7, &["no", "exit code 7"]);
    submit(&["--", "no-such-program"]).expect_failure(2, &["no-such-program"]);
}

#[test]
fn programs_are_run_on_a_cluster() {
    let mut cluster = Cluster::start(1);
    let submit = |args: &[&str]| {
        let args = [&["submit", "--wait", "--count", "3"], args].concat();
        let mut command = cluster.sandbox.sailfish();
        command.args([&args[..1], &["--server", &cluster.url], &args[1..]].concat());
        Running::start(&mut command).wait()
    };
    let said = submit(&["--", "sh", "-c", "echo hello $SAILFISH_INDEX"]).expect_success();
    let hello = |line: &&str| line.starts_with("hello");
    let text = said.text();
    let said: Vec<&str> = text.lines().filter(hello).collect();
    assert_eq!(said, ["hello 0", "hello 1", "hello 2"]);
    submit(&["--", "sh", "-c", "echo no >&2; exit 7"]).expect_failure(7, &["no", "exit code 7"]);
    Running::start(&mut cluster.sailfish(&["logs", "1000000"])).wait().expect_failure(2, &["no job 1000000"]);
    let bench = ["bench", "jobs", "--jobs", "500", "--batch", "100", "--clients", "2"];
    // The node would take some of them.
    cluster.stop_node();
    let said = Running::start(&mut cluster.sailfish(&bench)).wait().expect_success();
    assert!(said.text().contains("finished: 500 jobs"), "{}", said.text());
}

/// A program that failed has perhaps done half of its work: it is run again where that was asked for, and not else.
#[test]
fn a_program_that_fails_runs_as_often_as_its_user_says() {
    let cluster = Cluster::start(1);
    let check = |options: &[&str], runs: usize| {
        let trace = cluster.sandbox.path(&format!("trace-{runs}"));
        let program =
            format!("echo x >> '{}'; echo out $SAILFISH_ATTEMPT; echo why >&2; exit 7", trace.display());
        let last = format!("out {}", runs - 1);
        let mut command = cluster.sailfish(&["submit", "--wait"]);
        command.args(options).args(["--", "sh", "-c", &program]);
        let said = Running::start(&mut command).wait().expect_failure(7, &["why", "exit code 7"]);
        assert!(said.text().contains(&last), "{}", said.story());
        assert_eq!(std::fs::read_to_string(&trace).expect("it ran").len(), 2 * runs);
        let job = said.text().lines().next().expect("the number of the job").to_string();
        let logs = Running::start(&mut cluster.sailfish(&["logs", &job])).wait().expect_success();
        assert_eq!((logs.text(), logs.stderr.trim()), (format!("{last}\n"), "why"));
        let followed = Running::start(&mut cluster.sailfish(&["logs", "-f", &job])).wait().expect_success();
        assert_eq!(followed.text(), logs.text());
    };
    check(&[], 1);
    check(&["--retries", "2"], 3);
}

#[test]
fn what_a_program_writes_is_seen_while_it_runs() {
    let cluster = Cluster::start(1);
    let mut go = cluster.sandbox.fifo("go");
    let program = format!("echo begun >&2; echo first; read line < '{}'; echo last", go.text());
    let mut submit = cluster.sailfish(&["submit"]);
    submit.args(["--", "sh", "-c", &program]);
    let job = Running::start(&mut submit).wait().expect_success().text();
    let follow = Running::start(&mut cluster.sailfish(&["logs", "--follow", job.trim()]));
    follow.wait_for_stderr("begun");
    let so_far = Running::start(&mut cluster.sailfish(&["logs", job.trim()])).wait().expect_success();
    assert_eq!((so_far.text(), so_far.stderr.trim()), ("first\n".to_string(), "begun"));
    go.write_line("go on");
    let followed = follow.wait().expect_success();
    assert_eq!((followed.text(), followed.stderr.trim()), ("first\nlast\n".to_string(), "begun"));
}

#[test]
fn jobs_that_wait_outlive_the_server() {
    let mut cluster = Cluster::start(0);
    let submit = ["bench", "jobs", "--only-submit", "--jobs", "2000"];
    Running::start(&mut cluster.sailfish(&submit)).wait().expect_success();
    cluster.restart_server();
    cluster.add_node();
    for job in ["1", "2000"] {
        Running::start(&mut cluster.sailfish(&["wait", job])).wait().expect_success();
    }
}

/// What a dead node ran goes to another one within 15 seconds of the last word heard from it, by the server's own rows.
#[test]
fn what_a_dead_node_ran_is_given_to_another() {
    let mut cluster = Cluster::start(1);
    let (mut here, silent) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("silent"));
    let go = cluster.sandbox.path("go");
    let wait = format!("echo here > '{}'; read line < '{}'", here.text(), silent.text());
    let program = format!("[ -e '{}' ] || {{ {wait}; }}; echo done", go.display());
    let mut submit = cluster.sailfish(&["submit", "--retries", "1", "--wait"]);
    let submitted = Running::start(submit.args(["--", "sh", "-c", &program]));
    assert_eq!(here.read_line(), "here");
    cluster.add_node();
    cluster.sandbox.write("go", "");
    cluster.kill_node();
    assert!(submitted.wait().expect_success().text().contains("done"));
    let question = "select count(*) as attempts, max(assigned_ns) - (select last_seen_ns from nodes where name = \
                    'node-0') as waited_ns from attempts where job = 1";
    let rows = Running::start(&mut cluster.sailfish(&["state", "--json", question])).wait().expect_success();
    let rows: serde_json::Value = serde_json::from_str(rows.text().trim()).expect("rows in JSON");
    let row = if rows.is_array() { &rows[0] } else { &rows };
    assert_eq!(row["attempts"], 2, "{rows}");
    let waited_ns = row["waited_ns"].as_i64().expect("a number");
    assert!((0..15_000_000_000).contains(&waited_ns), "{rows}");
}
