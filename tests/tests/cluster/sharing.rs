//! Several runs at once in one state directory: each works, and none removes what another one needs.

use blackbox::{Fifo, Questions, Running, Sandbox, State, WaitingProgram};
use rustix::process::Signal;

/// Runs whose mappers say on a pipe that they are there and wait for a line on another.
struct Gated {
    sandbox: Sandbox,
    here: Fifo,
    gate: Fifo,
    mapper: String,
}

impl Gated {
    fn new() -> Gated {
        let sandbox = Sandbox::new();
        let WaitingProgram { here, go, path } = sandbox.waiting_program("mapper");
        Gated { sandbox, here, gate: go, mapper: path }
    }

    /// The text of job `n`, different for each.
    fn input(&self, n: usize) -> Vec<u8> {
        let text: Vec<u8> =
            (0..500 + n).flat_map(|line| format!("{line:05}\tjob-{n}\n").into_bytes()).collect();
        self.sandbox.write(&format!("in-{n}.txt"), &text);
        text
    }

    /// Starts job `n`, which waits at the gate.
    fn start(&self, n: usize, output: &str) -> Running {
        let input = format!("in-{n}.txt");
        let args = ["--input", &input, "--mapper", &self.mapper, "--output", output, "--total-order"];
        self.sandbox.start_job(&[&args[..], &["--slots", "2", "--memory", "64M"]].concat())
    }

    fn check_output(&self, output: &str, expected: &[u8]) {
        assert!(self.sandbox.concatenated(&self.sandbox.path(output)) == expected, "{output} is wrong");
        self.sandbox.sailfish_with(&["verify", output]).expect_success();
    }
}

/// All are in the middle of their maps at the same moment, and none of them finds a state when it starts.
fn check_at_once(count: usize) {
    let mut gated = Gated::new();
    let texts: Vec<Vec<u8>> = (0..count).map(|n| gated.input(n)).collect();
    let running: Vec<Running> = (0..count).map(|n| gated.start(n, &format!("out-{n}"))).collect();
    (0..count).for_each(|_| assert_eq!(gated.here.read_line(), "here"));
    (0..count).for_each(|_| gated.gate.write_line("go"));
    for each in running {
        each.wait().expect_success();
    }
    for (n, text) in texts.iter().enumerate() {
        gated.check_output(&format!("out-{n}"), text);
    }
    assert_eq!(gated.sandbox.jobs().is(State::Succeeded).count(), count as i64);
    gated.sandbox.assert_no_leftovers();
}

#[test]
fn two_runs_at_once_both_work() {
    check_at_once(2);
}

#[test]
fn four_runs_at_once_all_work() {
    check_at_once(4);
}

#[test]
fn running_job_keeps_its_files_while_others_sweep() {
    let mut gated = Gated::new();
    let (first, second, dead) = (gated.input(1), gated.input(2), gated.input(3));
    assert!(dead.len() > first.len());
    // One that died, for the others to clean up after.
    let killed = gated.start(3, "out-3");
    gated.here.read_line();
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(!gated.sandbox.leftovers().is_empty());

    let running = gated.start(1, "out-1");
    gated.here.read_line();
    let files = gated.sandbox.leftovers();
    assert!(!files.is_empty(), "a running job has files");
    assert!(files.iter().all(|file| !file.to_string_lossy().contains("out-3")), "{files:?}");
    // Each of these sweeps when it starts.
    for _ in 0..2 {
        let args = ["--input", "in-2.txt", "--output", "out-2", "--total-order", "--overwrite"];
        gated.sandbox.run_job(&args).expect_success();
        gated.check_output("out-2", &second);
        assert_eq!(gated.sandbox.leftovers(), files);
    }
    gated.gate.write_line("go");
    running.wait().expect_success();
    gated.check_output("out-1", &first);
    gated.sandbox.assert_no_leftovers();
    assert_eq!(gated.sandbox.jobs().states(), ["interrupted", "succeeded", "succeeded", "succeeded"]);
}

#[test]
fn two_jobs_with_one_output_publish_one() {
    let mut gated = Gated::new();
    let texts = [gated.input(1), gated.input(2)];
    let running = [gated.start(1, "out"), gated.start(2, "out")];
    (0..2).for_each(|_| assert_eq!(gated.here.read_line(), "here"));
    (0..2).for_each(|_| gated.gate.write_line("go"));
    let finished = running.map(Running::wait);
    let won: Vec<usize> = (0..2).filter(|n| finished[*n].status.success()).collect();
    assert_eq!(won.len(), 1, "{}\n{}", finished[0].story(), finished[1].story());
    let [first, second] = finished;
    let loser = if won[0] == 0 { second } else { first };
    loser.expect_failure(2, &["appeared while the job ran"]);
    gated.check_output("out", &texts[won[0]]);
    gated.sandbox.assert_no_leftovers();
}
