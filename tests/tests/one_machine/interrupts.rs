//! Ctrl-C, requests to terminate and `kill -9`, while user programs run that do not want to end.

use blackbox::{Fifo, Questions, Running, Sandbox, State, Watched};
use rustix::process::Signal;

/// Exit code of `sailfish run` after an interrupt.
const INTERRUPTED: i32 = 130;

/// Which program hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Map,
    Reduce,
}

/// How it hangs.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// Waits for a child of its own.
    Waits,
    /// The same, deaf to polite signals, it and its child.
    IgnoresSignals,
    /// Is one process that waits for a line nobody writes.
    Alone,
}

/// A job whose program says on a pipe who it is, and hangs.
struct Hanging {
    sandbox: Sandbox,
    pids: Fifo,
    _silent: Fifo,
    phase: Phase,
    children: usize,
}

impl Hanging {
    fn new(phase: Phase, program: Program) -> Hanging {
        let sandbox = Sandbox::new();
        sandbox.write("in.txt", "one\t1\ntwo\t2\n");
        let (pids, silent) = (sandbox.fifo("pids"), sandbox.fifo("silent"));
        let say = format!("echo $$ > '{}'", pids.text());
        let child = format!("sleep 3600 &\necho $! > '{}'\nwait\n", pids.text());
        let (body, children) = match program {
            Program::Waits => (child, 1),
            Program::IgnoresSignals => (format!("trap '' INT TERM HUP\n{child}wait\n"), 1),
            Program::Alone => (format!("read line < '{}'\n", silent.text()), 0),
        };
        sandbox.script("hangs.sh", &format!("#!/bin/sh\n{say}\n{body}"));
        Hanging { sandbox, pids, _silent: silent, phase, children }
    }

    /// Starts the job and waits until its program hangs; the program and its child are watched.
    fn start(&mut self) -> (Running, Vec<Watched>) {
        self.start_with(&[])
    }

    fn start_with(&mut self, options: &[&str]) -> (Running, Vec<Watched>) {
        let program = self.sandbox.path("hangs.sh");
        let program = program.to_str().expect("a sandbox has a plain path");
        let option = if self.phase == Phase::Map { "--mapper" } else { "--reducer" };
        let args = [&["--input", "in.txt", option, program, "--slots", "2"], options].concat();
        let running = self.sandbox.start_job(&args);
        let watched: Vec<Watched> =
            (0..=self.children).map(|_| Watched::new(&self.pids.read_line())).collect();
        assert!(watched.iter().all(Watched::lives), "the program ended before it was asked to");
        (running, watched)
    }

    fn state_of_job(&self, job: i64) -> String {
        self.sandbox.jobs().of_job(job).states().remove(0)
    }
}

fn check_stopped(phase: Phase, program: Program, signal: Signal) {
    println!("{phase:?} {program:?} {signal:?}");
    let mut hanging = Hanging::new(phase, program);
    let (running, watched) = hanging.start();
    running.signal(signal);
    let stopped = running
        .wait()
        .expect_failure(INTERRUPTED, &["stopping the job", "it left no output and no intermediate data"]);
    watched.iter().for_each(Watched::wait_gone);
    hanging.sandbox.assert_nothing_left();
    assert_eq!(hanging.state_of_job(1), "cancelled", "{}", stopped.story());
    assert_eq!(hanging.sandbox.attempts().is(State::Running).count(), 0);
}

#[test]
fn ctrl_c_ends_the_job_and_its_programs() {
    for phase in [Phase::Map, Phase::Reduce] {
        for program in [Program::Waits, Program::IgnoresSignals, Program::Alone] {
            check_stopped(phase, program, Signal::INT);
        }
    }
}

#[test]
fn sigterm_ends_the_job_and_its_programs() {
    check_stopped(Phase::Map, Program::IgnoresSignals, Signal::TERM);
    check_stopped(Phase::Reduce, Program::Waits, Signal::TERM);
}

#[test]
fn a_second_ctrl_c_never_makes_it_worse() {
    let mut hanging = Hanging::new(Phase::Map, Program::IgnoresSignals);
    let (running, watched) = hanging.start();
    running.signal(Signal::INT);
    running.wait_for_stderr("stopping the job");
    running.signal(Signal::INT);
    running.wait().expect_failure(INTERRUPTED, &["stopping the job"]);
    watched.iter().for_each(Watched::wait_gone);
    assert!(!hanging.sandbox.out().exists());
    hanging.sandbox.run_job(&["--input", "in.txt"]).expect_success();
    hanging.sandbox.assert_no_leftovers();
}

/// Kept are the I-files of a job that ran to its end, not of one that was stopped.
#[test]
fn ctrl_c_removes_data_that_would_be_kept() {
    let mut hanging = Hanging::new(Phase::Reduce, Program::Alone);
    let (running, _) = hanging.start_with(&["--keep-ifiles"]);
    assert!(hanging.sandbox.disk().read_dir().expect("the disk is there").next().is_some());
    running.signal(Signal::INT);
    running.wait().expect_failure(INTERRUPTED, &["it left no output and no intermediate data"]);
    hanging.sandbox.assert_nothing_left();
}

/// Kills the engine, then runs another job on the same state: that one cleans up and works.
fn check_killed(phase: Phase) {
    println!("kill -9 while {phase:?}");
    let mut hanging = Hanging::new(phase, Program::Alone);
    let (running, watched) = hanging.start();
    running.signal(Signal::KILL);
    let killed = running.wait();
    assert_eq!(killed.signal(), Some(Signal::KILL.as_raw()), "{}", killed.story());
    watched.iter().for_each(Watched::wait_gone);
    assert!(!hanging.sandbox.out().exists());
    assert!(!hanging.sandbox.leftovers().is_empty(), "a killed process cannot have cleaned up");

    hanging.sandbox.run_job(&["--input", "in.txt", "--total-order"]).expect_success();
    assert_eq!(hanging.sandbox.output_lines(&hanging.sandbox.out()), ["one\t1", "two\t2"]);
    hanging.sandbox.assert_no_leftovers();
    assert_eq!(
        (hanging.state_of_job(1), hanging.state_of_job(2)),
        ("interrupted".into(), "succeeded".into())
    );
    let list = hanging.sandbox.look(&["jobs"]).expect_success().text();
    assert!(list.contains("interrupted"), "{list}");
}

#[test]
fn next_run_sweeps_everything_after_kill_9() {
    check_killed(Phase::Map);
    check_killed(Phase::Reduce);
}

#[test]
fn next_run_sweeps_disk_data_after_kill_9() {
    let sandbox = Sandbox::new();
    let line = |n: u32| format!("{:010}\t{}\n", n.wrapping_mul(2_654_435_761), "v".repeat(80));
    let text: Vec<u8> = (0..40_000u32).flat_map(|n| line(n).into_bytes()).collect();
    sandbox.write("in.txt", &text);
    let (mut here, _silent) = (sandbox.fifo("here"), sandbox.fifo("silent"));
    let reducer = format!("#!/bin/sh\necho $$ > here\nread line < '{}'\n", sandbox.path("silent").display());
    let reducer = reducer.replace("> here", &format!("> '{}'", here.text()));
    let reducer = sandbox.script("hangs.sh", &reducer);
    let reducer = reducer.to_str().expect("a sandbox has a plain path");
    // Kept I-files are on disk from the start, whatever memory there is.
    let args = ["--input", "in.txt", "--reducer", reducer, "--keep-ifiles"];
    let running = sandbox.start_job(&args);
    running.wait_for_stderr("map done");
    let program = Watched::new(&here.read_line());
    running.signal(Signal::KILL);
    running.wait();
    program.wait_gone();
    sandbox.run_job(&["--input", "in.txt", "--total-order"]).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()) == blackbox::sorted_lines(&text));
    sandbox.assert_no_leftovers();
}

/// The process dies again and again, each time in another job; one run cleans up after all of them.
#[test]
fn one_run_cleans_up_after_many_dead_ones() {
    let mut hanging = Hanging::new(Phase::Map, Program::Alone);
    for _ in 0..4 {
        let (running, _) = hanging.start();
        running.signal(Signal::KILL);
        running.wait();
    }
    hanging.sandbox.run_job(&["--input", "in.txt"]).expect_success();
    hanging.sandbox.assert_no_leftovers();
    for job in 1..=4 {
        assert_eq!(hanging.state_of_job(job), "interrupted");
    }
}
