//! Jobs of one task: any executable, here and on a cluster.

use blackbox::{Cluster, Questions, Running, Sandbox, State};
use private_postgres::PrivatePostgres;
use std::time::Duration;

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
    let mut cluster = Cluster::builder().nodes(1).start();
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
    cluster.run(&["logs", "1000000"]).expect_failure(2, &["no job 1000000"]);
    let bench = ["bench", "jobs", "--jobs", "500", "--batch", "100", "--clients", "2"];
    // The node would take some of them.
    cluster.stop_node();
    let said = cluster.run(&bench).expect_success();
    assert!(said.text().contains("finished: 500 jobs"), "{}", said.text());
}

/// A program that failed has perhaps done half of its work: it is run again where that was asked for, and not else.
#[test]
fn failing_program_runs_as_often_as_asked() {
    let cluster = Cluster::builder().nodes(1).start();
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
        let logs = cluster.run(&["logs", &job]).expect_success();
        assert_eq!((logs.text(), logs.stderr.trim()), (format!("{last}\n"), "why"));
        let followed = cluster.run(&["logs", "-f", &job]).expect_success();
        assert_eq!(followed.text(), logs.text());
    };
    check(&[], 1);
    check(&["--retries", "2"], 3);
}

#[test]
fn program_output_is_shown_while_it_runs() {
    let cluster = Cluster::builder().nodes(1).start();
    let mut go = cluster.sandbox.fifo("go");
    let program = format!("echo begun >&2; echo first; read line < '{}'; echo last", go.text());
    let mut submit = cluster.sailfish(&["submit"]);
    submit.args(["--", "sh", "-c", &program]);
    let job = Running::start(&mut submit).wait().expect_success().text();
    let follow = Running::start(&mut cluster.sailfish(&["logs", "--follow", job.trim()]));
    follow.wait_for_stderr("begun");
    let so_far = cluster.run(&["logs", job.trim()]).expect_success();
    assert_eq!((so_far.text(), so_far.stderr.trim()), ("first\n".to_string(), "begun"));
    go.write_line("go on");
    let followed = follow.wait().expect_success();
    assert_eq!((followed.text(), followed.stderr.trim()), ("first\nlast\n".to_string(), "begun"));
}

#[test]
fn jobs_that_wait_outlive_the_server() {
    let mut cluster = Cluster::builder().start();
    let submit = ["bench", "jobs", "--only-submit", "--jobs", "2000"];
    cluster.run(&submit).expect_success();
    cluster.restart_server();
    cluster.add_node();
    for job in ["1", "2000"] {
        cluster.run(&["wait", job]).expect_success();
    }
}

/// A task of a dead node goes to another one within 15 seconds of the node's last message, by the server's own rows.
#[test]
fn task_of_dead_node_runs_elsewhere() {
    let mut cluster = Cluster::builder().nodes(1).start();
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
    assert_eq!(cluster.attempts().of_job(1).count(), 2);
    let waited = cluster.time_to_another_node(0, 1);
    assert!(waited < Duration::from_secs(15), "{waited:?}");
}

const SERVER_MEMORY_KIB_MAX: u64 = 300 << 10;

/// Submits jobs with 1.7 MB of arguments each; their numbers.
fn submit_large(cluster: &Cluster, jobs: i64, more: &[&str]) -> Vec<i64> {
    let word = "x".repeat(120_000);
    let mut command = cluster.sailfish(&["submit", "--count", &jobs.to_string()]);
    command.args(more).args(["--", "true"]).args([&word; 14]);
    let told = Running::start(&mut command).wait().expect_success().text();
    told.lines().map(|line| line.parse().expect("a number")).collect()
}

/// F16: jobs with megabytes of arguments, of which the server keeps only as many in memory as may run soon.
fn a_long_queue(mut cluster: Cluster) {
    const JOBS: i64 = 40;
    let mut jobs: Vec<i64> = Vec::new();
    while (jobs.len() as i64) < JOBS {
        // Not all in one message, which the server would have in memory as well.
        jobs.extend(submit_large(&cluster, 10, &[]));
    }
    let first = cluster.jobs().waiting_outside().count();
    assert!((10..JOBS).contains(&first), "{first} of {JOBS} wait");
    let most = cluster.server().most_memory_kib();
    assert!(most < SERVER_MEMORY_KIB_MAX, "the server had {most} KiB");
    cluster.restart_server();
    assert_eq!(cluster.jobs().waiting_outside().count(), first, "the next server has them wait as well");
    let most = cluster.server().most_memory_kib();
    assert!(most < SERVER_MEMORY_KIB_MAX, "the next server had {most} KiB");
    // One that waits is stopped, and somebody who waits for the end of another is not told that there is none.
    let (last, before) = (jobs[jobs.len() - 1].to_string(), jobs[jobs.len() - 2].to_string());
    let waits = Running::start(&mut cluster.sailfish(&["wait", &before]));
    cluster.run(&["cancel", &last]).expect_success();
    cluster.run(&["wait", &last]).expect_failure(130, &[]);
    // A more urgent job does not wait behind them.
    let urgent = submit_large(&cluster, 1, &["--priority", "1"])[0];
    assert_eq!(cluster.jobs().of_job(urgent).waiting_outside().count(), 0);
    cluster.add_node();
    waits.wait().expect_success();
    cluster.jobs().not_ended().wait_for(0);
    assert_eq!(cluster.jobs().is(State::Succeeded).count(), JOBS);
    assert_eq!(cluster.attempts().is(State::Succeeded).count(), JOBS);
    assert_eq!(cluster.jobs().is(State::Cancelled).count(), 1);
    // The oldest came first.
    assert_eq!(cluster.overtaken_jobs(urgent), 0);
}

#[test]
fn many_large_jobs_wait_outside_of_memory() {
    a_long_queue(Cluster::builder().start());
}

#[test]
fn large_jobs_wait_outside_of_memory_with_postgres() {
    let Some(postgres) = PrivatePostgres::start_or_say("a long queue with PostgreSQL", &["fsync = off"])
    else {
        return;
    };
    a_long_queue(Cluster::builder().database(postgres.url("postgres")).start());
}

/// A user who gives each job a priority of its own, or another memory, gets no more of the server by that.
#[test]
fn large_jobs_of_all_priorities_wait_outside_memory() {
    const JOBS: i64 = 44;
    let mut cluster = Cluster::builder().start();
    for number in 1..=JOBS {
        submit_large(&cluster, 1, &[&format!("--priority=-{number}")]);
    }
    let waiting = cluster.jobs().waiting_outside().count();
    assert!((5..JOBS).contains(&waiting), "{waiting} of {JOBS} wait");
    let most = cluster.server().most_memory_kib();
    assert!(most < SERVER_MEMORY_KIB_MAX, "the server had {most} KiB");
    cluster.restart_server();
    cluster.add_node();
    cluster.jobs().not_ended().wait_for(0);
    assert_eq!(cluster.jobs().is(State::Succeeded).count(), JOBS);
    assert_eq!(cluster.attempts().is(State::Succeeded).count(), JOBS);
}

/// On one machine, too: more jobs than are admitted at once, to their end.
#[test]
fn many_large_jobs_run_on_this_machine() {
    let sandbox = Sandbox::new();
    let word = "x".repeat(120_000);
    let mut command = sandbox.sailfish();
    command.args(["submit", "--count", "30", "--state"]).arg(sandbox.state());
    command.args(["--", "true"]).args([&word; 14]);
    Running::start(&mut command).wait().expect_success();
    assert_eq!(sandbox.jobs().is(State::Succeeded).not_waiting_outside().count(), 30);
}
