//! System calls of the real processes that fail, by `strace`: a sample, which reaches the store as well. What the store failed
//! at is said and ends the process; what was answered before is there afterwards.

use blackbox::{Cluster, Finished, Questions, Running, Sandbox, State};
use std::path::Path;
use std::process::Command;

/// Names that the system and the store give an injected fault.
const CAUSES: [&str; 4] = ["disk I/O error", "is full", "Input/output error", "No space left on device"];
/// Jobs handed in before a server counts as untouched by its faults.
const JOBS_MAX: u32 = 60;

/// The command under `strace`, with one of its system calls failing in each thread, as `inject` says. The tracer is nobody's
/// parent: process number, signals and exit code are those of the command.
fn injected(command: &Command, inject: &str, log: &Path, only: &[&Path]) -> Command {
    let calls = inject.split(':').next().expect("a list of system calls");
    let mut wrapped = Command::new("strace");
    wrapped.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped.current_dir(command.get_current_dir().expect("commands of tests start in a sandbox"));
    wrapped.args(["-D", "-f", "-qqq", "-o"]).arg(log);
    wrapped.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")]);
    for path in only {
        wrapped.arg("-P").arg(path);
    }
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped
}

/// Whether processes can be traced here; says so where they cannot.
fn can_inject() -> bool {
    let probe = Command::new("strace").args(["-D", "-qqq", "-o", "/dev/null", "true"]).output();
    let why = match probe {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => format!("there is no strace: {error}"),
    };
    blackbox::could_not_run("system calls that fail", &why);
    false
}

/// How many calls failed.
fn failed_calls(log: &Path) -> usize {
    let told = std::fs::read_to_string(log).unwrap_or_default();
    told.matches("(INJECTED)").count()
}

struct Job {
    sandbox: Sandbox,
    expected: Vec<u8>,
}

impl Job {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let line = |n: u32| format!("{:07}\tvalue-{n}\n", n.wrapping_mul(2_654_435_761) % 10_000_000);
        let text: Vec<u8> = (0..20_000).flat_map(|n| line(n).into_bytes()).collect();
        sandbox.write("in.txt", &text);
        Self { sandbox, expected: blackbox::sorted_lines(&text) }
    }

    fn command(&self) -> Command {
        self.sandbox.job(&["--input", "in.txt", "--total-order", "--memory", "64M", "--slots", "2"])
    }

    /// A whole output, which goes.
    fn take_output(&self) {
        let out = self.sandbox.out();
        assert!(self.sandbox.concatenated(&out) == self.expected, "the output differs from the reference");
        std::fs::remove_dir_all(out).expect("an output can be removed");
    }

    /// A run under faults, and one without; whether any call failed.
    fn survive(&self, inject: &str) -> bool {
        let log = self.sandbox.path("injected");
        let finished = Running::start(&mut injected(&self.command(), inject, &log, &[])).wait();
        let struck = failed_calls(&log) > 0;
        println!("{inject}: {}", if finished.status.success() { "right" } else { last_line(&finished) });
        if finished.status.success() {
            self.take_output();
        } else {
            assert!(struck, "{}", finished.story());
            assert_named(&finished);
            // Where the store fails behind the rename, what was published is whole.
            if self.sandbox.out().exists() {
                self.take_output();
            }
        }
        if struck {
            // What a process left that could not store its end goes with the next one.
            Running::start(&mut self.command()).wait().expect_success();
            self.take_output();
        }
        self.sandbox.assert_no_leftovers();
        let open = self.sandbox.jobs().not_cleaned().jobs();
        assert!(open.is_empty(), "{open:?}");
        struck
    }
}

fn last_line(finished: &Finished) -> &str {
    finished.stderr.lines().rfind(|line| line.contains("sailfish: ")).unwrap_or_default()
}

#[track_caller]
fn assert_named(finished: &Finished) {
    let story = finished.story();
    assert!(matches!(finished.code(), Some(1 | 2)), "{story}");
    assert!(!story.contains("panicked at"), "{story}");
    let names = |line: &str| line.contains('/') && CAUSES.iter().any(|cause| line.contains(cause));
    assert!(names(last_line(finished)), "the last word names no cause and no path:\n{story}");
}

#[test]
fn a_job_survives_syncs_that_fail() {
    if !can_inject() {
        return;
    }
    let job = Job::new();
    let struck =
        (1..=14).filter(|number| job.survive(&format!("fsync,fdatasync:error=EIO:when={number}"))).count();
    assert!(struck > 4, "only {struck} runs were struck");
    for number in [1, 2, 5, 8] {
        job.survive(&format!("fsync,fdatasync:error=EIO:when={number}+"));
    }
}

#[test]
fn a_job_survives_writes_that_find_no_room() {
    if !can_inject() {
        return;
    }
    let job = Job::new();
    for number in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
        let struck = job.survive(&format!("pwrite64:error=ENOSPC:when={number}"));
        assert!(struck || number > 20, "no thread has {number} calls");
        job.survive(&format!("pwrite64:error=ENOSPC:when={number}+"));
    }
}

/// A server whose store fails answers nobody any more and says why; another one has all that was answered.
fn lose_nothing_that_was_answered(inject: &str) {
    let mut cluster = Cluster::builder().start();
    // The state is there: what follows is no longer about making it.
    cluster.kill_server();
    let log = cluster.sandbox.path("server-state/sailfish.db-wal");
    let server = cluster.another_changed_server(|command| {
        *command = injected(command, inject, &cluster.sandbox.path("injected"), &[&log]);
    });
    server.wait_for_stderr("serving at");
    cluster.led_by(server);
    let mut answered = 0;
    let refused = (0..JOBS_MAX).find_map(|_| {
        let mut submit = cluster.sandbox.sailfish();
        submit.args(["submit", "--server", &cluster.url, "--count", "3", "--", "true"]);
        let finished = Running::start(&mut submit).wait();
        if !finished.status.success() {
            return Some(finished);
        }
        answered += 3;
        None
    });
    let refused = refused.expect("a server that met its fault");
    assert!(!refused.stderr.contains("panicked at"), "{}", refused.story());
    let ended = cluster.wait_for_server();
    assert_eq!(ended.code(), Some(1), "{}", ended.story());
    assert!(ended.stderr.contains("the store failed, the server stops"), "{}", ended.story());
    assert_named(&ended);
    let next = cluster.another_server();
    next.wait_for_stderr("serving at");
    cluster.led_by(next);
    let there = cluster.jobs().count();
    println!("{inject}: {answered} jobs answered, then {:?}; {there} there", last_line(&refused));
    // One that was not answered may be there as well.
    assert!((answered..=answered + 3).contains(&there), "{there}");
    cluster.add_node();
    cluster.jobs().is_not(State::Succeeded).wait_for(0);
}

#[test]
fn server_with_failing_store_stops_and_keeps_answers() {
    if !can_inject() {
        return;
    }
    for number in [12, 30] {
        lose_nothing_that_was_answered(&format!("fsync,fdatasync:error=EIO:when={number}+"));
        lose_nothing_that_was_answered(&format!("fsync,fdatasync:error=EIO:when={number}"));
        lose_nothing_that_was_answered(&format!("pwrite64:error=ENOSPC:when={}+", 5 * number));
    }
}
