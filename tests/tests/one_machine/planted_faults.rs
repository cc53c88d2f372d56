//! Faults of the kind the proof exists to find: what each spoils is made again. One that strikes every time makes the job fail loudly,
//! and nothing is published.

use blackbox::{Questions, Running, Sandbox};
use faults::PlantedFault;
use std::process::Command;

/// Exit code of a job that fails by a fault of the engine.
const FAILED: i32 = 1;

/// Under range partitioning a mapper's first MiB is held until boundaries are fixed; more than that, so that frames of
/// the first attempt are in chunks before it fails.
const FAILS_ONCE: &str = "#!/bin/sh
if [ $SAILFISH_ATTEMPT = 0 ]; then
  head -c 2500000
  exit 3
fi
exec cat
";

fn set_up() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    let line = |n: u32| format!("{:07}\tvalue-{n}\n", n.wrapping_mul(2_654_435_761) % 10_000_000);
    let text: Vec<u8> = (0..160_000).flat_map(|n| line(n).into_bytes()).collect();
    sandbox.write("in.txt", &text);
    sandbox.script("fails-once.sh", FAILS_ONCE);
    (sandbox, text)
}

fn job(sandbox: &Sandbox, fault: PlantedFault, options: &[&str]) -> Command {
    let args = ["--input", "in.txt", "--slots", "2", "--memory", "64M"];
    let mut job = sandbox.job(&[&args, options].concat());
    // A fault in a frame of an attempt that lost would harm nobody; only a mixture needs such an attempt.
    if fault == PlantedFault::AttemptMixed {
        job.arg("--mapper").arg(sandbox.path("fails-once.sh"));
    }
    job
}

/// Returns the text that the message must contain besides the proof.
fn culprit(fault: PlantedFault) -> &'static str {
    match fault {
        PlantedFault::FrameDropped => "does not hold what",
        PlantedFault::FrameDuplicated | PlantedFault::FrameAltered | PlantedFault::AttemptMixed => {
            "the maps committed"
        }
        PlantedFault::ChunkForgotten => "is in no run",
    }
}

/// Checks that data with a failed proof is made again, and that the output is right.
fn check(fault: PlantedFault, options: &[&str]) {
    println!("SAILFISH_PLANT={} {options:?}", fault.name());
    let (sandbox, text) = set_up();
    let mut command = job(&sandbox, fault, options);
    command.env("SAILFISH_PLANT", fault.name());
    Running::start(&mut command).wait().expect_success();
    let told = sandbox.look(&["explain", "1"]).expect_success().text();
    assert!(told.contains("proof") && told.contains(culprit(fault)), "{told}");
    if !options.contains(&"true") {
        let output = sandbox.concatenated(&sandbox.out());
        assert!(blackbox::sorted_lines(&output) == blackbox::sorted_lines(&text), "{}", fault.name());
    }
    assert_eq!(sandbox.report(&sandbox.out())["proof"]["agrees"], true);
    assert_eq!(sandbox.failed_proofs().count(), 0);
    sandbox.assert_no_leftovers();
}

#[test]
fn spoiled_data_is_made_again() {
    for fault in PlantedFault::ALL {
        check(*fault, &[]);
    }
}

#[test]
fn spoiled_data_is_made_again_in_total_order() {
    for fault in PlantedFault::ALL {
        check(*fault, &["--total-order", "--reducer", "cat"]);
    }
}

/// A reducer that reads nothing sees no fault, and the proof does all the same.
#[test]
fn spoiled_data_is_found_without_the_reducer() {
    for fault in PlantedFault::ALL {
        check(*fault, &["--reducer", "true"]);
    }
}

#[test]
fn repeated_fault_makes_the_job_fail() {
    for fault in PlantedFault::ALL {
        println!("SAILFISH_PLANT={}:*", fault.name());
        let (sandbox, _) = set_up();
        let mut command = job(&sandbox, *fault, &["--max-regenerations", "2"]);
        command.env("SAILFISH_PLANT", format!("{}:*", fault.name()));
        let failed = Running::start(&mut command).wait().expect_failure(FAILED, &["proof", "ifile-"]);
        sandbox.assert_nothing_left();
        assert!(!failed.stderr.contains("job 1 done"), "{}", failed.story());
        assert_eq!(sandbox.jobs().states(), ["failed"]);
        let errors = sandbox.jobs().errors();
        assert!(errors[0].contains("proof"), "{errors:?}");
        sandbox.look(&["show", "1"]).expect_success().text().find("proof").expect("show names the proof");
    }
}

/// Faults in an attempt that lost are dropped with it.
#[test]
fn fault_in_losing_attempt_harms_nobody() {
    for fault in [PlantedFault::FrameDropped, PlantedFault::FrameDuplicated, PlantedFault::FrameAltered] {
        let (sandbox, text) = set_up();
        let mut command = job(&sandbox, PlantedFault::AttemptMixed, &[]);
        command.env("SAILFISH_PLANT", fault.name());
        Running::start(&mut command).wait().expect_success();
        let output = sandbox.concatenated(&sandbox.out());
        assert!(blackbox::sorted_lines(&output) == blackbox::sorted_lines(&text), "{}", fault.name());
        sandbox.assert_no_leftovers();
    }
}
