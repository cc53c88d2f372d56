//! Each call by which the engine changes its files fails once, and from some call on all do: a small job ends right, or fails
//! and names the cause; nothing half-written is published, nothing is left, and the next job is none the worse.

use blackbox::{Finished, Running, Sandbox};
use faults::IoCall;
use std::process::Command;

const FAILED: i32 = 1;
const REFUSED: i32 = 2;
/// Calls of one kind in a small job, at most: a walk that goes on longer does not end.
const CALLS_MAX: u64 = 400;

/// Of each file of the input.
const LINES: u32 = 22_000;

/// What the system says of a fault.
fn words(fault: &str) -> &'static str {
    match fault {
        "eio" => "Input/output error",
        _ => "No space left on device",
    }
}

/// Lines with keys in no order, in three files of which no task reads all.
fn write_input(sandbox: &Sandbox) -> Vec<u8> {
    let line = |n: u32| format!("{:07}\tvalue-{n}\n", n.wrapping_mul(2_654_435_761) % 10_000_000);
    let mut text = Vec::new();
    for number in 0..3 {
        let piece: Vec<u8> = (0..LINES).flat_map(|n| line(number * LINES + n).into_bytes()).collect();
        sandbox.write(&format!("in/{number}.txt"), &piece);
        text.extend(piece);
    }
    text
}

/// A job of one process that has all there is to be written: runs, work directories with files, parts.
struct Embedded {
    sandbox: Sandbox,
    options: &'static [&'static str],
    expected: Vec<u8>,
}

/// Every run goes to the disk, parts are synced.
const KEEPING: &[&str] = &["--keep-for", "0s"];
/// Parts go through the page cache, compressed.
const COMPRESSING: &[&str] = &["--compress", "gzip", "--no-sync"];

impl Embedded {
    fn new(options: &'static [&'static str]) -> Self {
        let sandbox = Sandbox::new();
        let text = write_input(&sandbox);
        sandbox.script("map.sh", "#!/bin/sh\nexec cat - beside.txt\n");
        sandbox.write("beside.txt", "");
        Self { sandbox, options, expected: blackbox::sorted_lines(&text) }
    }

    fn command(&self) -> Command {
        let args = ["--input", "in", "--partitions", "3", "--memory", "64M", "--slots", "2"];
        let functions = ["--mapper", "./map.sh", "--file", "map.sh", "--file", "beside.txt"];
        self.sandbox.job(&[&args, &functions[..], self.options].concat())
    }

    fn run(&self, fault: &str) -> Finished {
        let mut command = self.command();
        command.env("SAILFISH_IO_FAULT", fault);
        Running::start(&mut command).wait()
    }
}

/// How the jobs of a walk ended that a fault struck.
#[derive(Debug, Default)]
struct Ends {
    right: u32,
    failed: u32,
}

/// The run was struck by the fault it was to be struck by: there are as many calls.
fn was_struck(finished: &Finished) -> bool {
    finished.stderr.contains("gets the planted fault")
}

/// A failure of a kind that it may be, with its cause and what it happened to.
#[track_caller]
fn assert_named(finished: &Finished, cause: &str) {
    let story = finished.story();
    assert!(matches!(finished.code(), Some(FAILED | REFUSED)), "{story}");
    assert!(!story.contains("panicked at"), "{story}");
    let names = |line: &str| line.contains(cause) && line.contains('/');
    assert!(finished.stderr.lines().any(names), "no line names the cause ({cause}) and a path:\n{story}");
}

impl Embedded {
    /// The output is the right one, and nothing else is there once what was to be kept has been collected.
    #[track_caller]
    fn assert_right(&self) {
        let out = self.sandbox.out();
        let mut found = Vec::new();
        for name in self.sandbox.part_names(&out) {
            let bytes = std::fs::read(out.join(name)).expect("a part can be read");
            let is_packed = self.options.contains(&"--compress");
            found.extend(if is_packed { blackbox::unpacked("gz", &bytes) } else { bytes });
        }
        assert!(blackbox::sorted_lines(&found) == self.expected, "the output differs from the reference");
        let shown = out.to_str().expect("a sandbox has a plain path");
        self.sandbox.sailfish_with(&["verify", shown]).expect_success();
        self.collect();
        self.sandbox.assert_no_leftovers();
        std::fs::remove_dir_all(out).expect("an output can be removed");
    }

    /// Removes what was kept, of jobs that failed as well. Before the first job there is no state to look at.
    fn collect(&self) {
        if self.options == KEEPING && self.sandbox.state().join("sailfish.db").exists() {
            self.sandbox.look(&["gc", "--all"]).expect_success();
        }
    }

    /// One run under a fault, and one without where that has failed; false where the job has fewer calls.
    fn survives(&self, fault: &str, cause: &str, ends: &mut Ends) -> bool {
        println!("SAILFISH_IO_FAULT={fault} {:?}", self.options);
        let finished = self.run(fault);
        if finished.status.success() {
            self.assert_right();
            let struck = was_struck(&finished);
            ends.right += u32::from(struck);
            return struck;
        }
        assert!(was_struck(&finished), "{}", finished.story());
        assert_named(&finished, cause);
        self.collect();
        self.sandbox.assert_nothing_left();
        ends.failed += 1;
        Running::start(&mut self.command()).wait().expect_success();
        self.assert_right();
        true
    }

    /// Every so many-th call of each kind, until the job has no more; `ending` stands behind their numbers.
    fn walk(&self, fault: &str, ending: &str, step: u64) {
        let mut total = 0;
        let mut all = Ends::default();
        for call in IoCall::ALL {
            let mut number = 1;
            while self.survives(&format!("{}:{fault}:{number}{ending}", call.name()), words(fault), &mut all)
            {
                number += step;
                total += 1;
                assert!(number < CALLS_MAX, "{} calls have no end", call.name());
            }
        }
        println!("{fault}{ending} at {total} calls of {:?}: {all:?}", self.options);
        assert!(total >= 8);
    }
}

#[test]
fn a_job_survives_each_call_that_fails_once() {
    Embedded::new(KEEPING).walk("eio", "", 1);
}

#[test]
fn a_job_survives_a_disk_that_is_full_from_some_call_on() {
    Embedded::new(KEEPING).walk("enospc", "+", 1);
}

#[test]
fn other_ways_to_write_survive_too() {
    let job = Embedded::new(COMPRESSING);
    job.walk("enospc", "", 3);
    job.walk("eio", "+", 4);
}

#[test]
fn slow_calls_change_nothing() {
    let job = Embedded::new(KEEPING);
    for call in IoCall::ALL {
        for number in ["1", "3", "8", "1+"] {
            let finished = job.run(&format!("{}:slow:{number}", call.name()));
            assert!(was_struck(&finished) || number == "8", "{}", finished.story());
            finished.expect_success();
            job.assert_right();
        }
    }
}
