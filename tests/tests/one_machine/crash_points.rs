//! The list of crash points: the process is aborted at each, then the same job runs again. The output is right,
//! nothing is left, and between the two there is no output that looks whole unless it is.

use blackbox::{Fifo, Finished, Questions, Running, Sandbox, any_process_names, wait_until};
use faults::CrashPoint;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// The signal of `abort`.
const SIGABRT: i32 = 6;
/// Passings of a point tried one after another in a small job, at most; such a job has far fewer.
const PASSINGS_MAX: u32 = 40;

/// Required state of the output after the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Nothing, or the older output where there was one.
    Unchanged,
    /// The whole new output.
    Whole,
    /// One or the other: the point is passed before and after the rename.
    Either,
}

/// A job that passes a point, and the state of the output after a crash there.
#[derive(Clone, Copy, Debug)]
struct Reach {
    job: Job,
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// A few lines in total order, under an attempt that fails once.
    Small,
    /// More than the memory for chunks, so that chunks close and runs are written.
    Large,
    /// So many appenders, each holding memory, that open chunks go to disk raw.
    Crowded,
    /// A small job that keeps its I-files for no time, and `sailfish gc` after it.
    Collector,
}

/// Each point has its row: a new point does not compile until it is given one. None: no job passes it.
fn reach(point: CrashPoint) -> Option<Reach> {
    use CrashPoint::*;
    let (job, output) = match point {
        OwnerLockTaken | SubmitBeforeTransaction | SubmitAfterTransaction | StagingCreated => {
            (Job::Small, Output::Unchanged)
        }
        BoundariesBeforeTransaction | BoundariesAfterTransaction => (Job::Small, Output::Unchanged),
        FrameBeforeHandOver | FrameAfterHandOver => (Job::Small, Output::Unchanged),
        ChunkClosed | RunBeforeWrite | RunAfterWrite => (Job::Large, Output::Unchanged),
        RawSpillBeforeWrite | RawSpillAfterWrite => (Job::Crowded, Output::Unchanged),
        // The result of the commit task is one of them.
        ResultBeforeTransaction | ResultAfterTransaction => (Job::Small, Output::Either),
        PartBeforeSync | PartAfterSync => (Job::Small, Output::Unchanged),
        CommitBeforePartRename | CommitAfterPartRename | CommitReportWritten => {
            (Job::Small, Output::Unchanged)
        }
        CommitBeforeSync | CommitAfterSync => (Job::Small, Output::Unchanged),
        CommitAfterRename | CommitAfterParentSync => (Job::Small, Output::Whole),
        CleanupBeforeRemove | CleanupAfterRemove => (Job::Small, Output::Whole),
        GcBeforeMark | GcAfterMark | GcAfterRemove => (Job::Collector, Output::Whole),
        // No job passes them; `files.rs` walks them.
        FilesBegun | FilesWritten | FilesSynced | FilesCommitted | FilesRetired | FilesRemoved => {
            return None;
        }
    };
    Some(Reach { job, output })
}

/// The input of a job and the lines that must come out, in bytewise order.
struct Setup {
    sandbox: Sandbox,
    args: Vec<String>,
    expected: Vec<u8>,
    /// Pipe at which the mappers of [`Job::Crowded`] wait.
    gate: Option<Fifo>,
}

impl Setup {
    fn command(&self) -> Command {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.sandbox.job(&args)
    }

    /// The output is the right one and agrees with its report.
    #[track_caller]
    fn check_output(&self) {
        let out = self.sandbox.out();
        let found = self.sandbox.concatenated(&out);
        assert!(found == self.expected, "the output differs from the reference");
        let out = out.to_str().expect("a sandbox has a plain path");
        self.sandbox.sailfish_with(&["verify", out]).expect_success();
    }

    /// Runs the job with an abort at the given passing of a point; None when it is not passed so often.
    #[track_caller]
    fn crash(&self, point: CrashPoint, passing: u32) -> Option<Finished> {
        let mut command = self.command();
        command.env("SAILFISH_CRASH_AT", format!("{}:{passing}", point.name()));
        let crashed = Running::start(&mut command).wait();
        if crashed.status.success() {
            return None;
        }
        assert_eq!(crashed.signal(), Some(SIGABRT), "should have been aborted:\n{}", crashed.story());
        let said = format!("aborting at crash point {}\n", point.name());
        assert!(crashed.stderr.contains(&said), "{}", crashed.story());
        Some(crashed)
    }

    /// The same job again, which cleans up what the crash left.
    #[track_caller]
    fn run_again(&mut self) {
        if let Some(gate) = &mut self.gate {
            // A program of the crashed run would take a line for itself.
            wait_until("the crashed run has no program", || {
                !any_process_names(&self.sandbox.path("waits.sh"))
            });
            (0..CROWD).for_each(|_| gate.write_line("go"));
        }
        let mut command = self.command();
        if self.sandbox.out().exists() {
            command.arg("--overwrite");
        }
        Running::start(&mut command).wait().expect_success();
        self.check_output();
        self.sandbox.assert_no_leftovers();
    }

    /// No job is remembered as running, and all are cleaned; the states in order of submission.
    #[track_caller]
    fn states(&self) -> Vec<String> {
        let left = self.sandbox.jobs().not_cleaned().jobs();
        assert!(left.is_empty(), "{left:?}");
        self.sandbox.jobs().states()
    }
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}

/// Lines `key TAB value` with keys in no order.
fn lines(count: u32, value_bytes: usize) -> Vec<u8> {
    let value = "v".repeat(value_bytes);
    (0..count)
        .flat_map(|n| format!("{:010}\t{value}\n", n.wrapping_mul(2_654_435_761)).into_bytes())
        .collect()
}

fn small() -> Setup {
    let sandbox = Sandbox::new();
    let text = lines(2_000, 20);
    sandbox.write("in/a.txt", &text[..text.len() / 2]);
    sandbox.write("in/b.txt", &text[text.len() / 2..]);
    let mapper = "#!/bin/sh\nif [ $SAILFISH_ATTEMPT = 0 ]; then head -c 5000; exit 3; fi\nexec cat\n";
    let mapper = sandbox.script("fails-once.sh", mapper);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let args =
        words(&["--input", "in", "--mapper", mapper, "--total-order", "--slots", "2", "--memory", "64M"]);
    Setup { sandbox, args, expected: blackbox::sorted_lines(&text), gate: None }
}

fn large() -> Setup {
    let sandbox = Sandbox::new();
    let text = lines(700_000, 90);
    sandbox.write("in/a.txt", &text);
    let args = words(&["--input", "in", "--total-order", "--slots", "2", "--memory", "64M", "--no-sync"]);
    Setup { sandbox, args, expected: blackbox::sorted_lines(&text), gate: None }
}

/// Map tasks at once. With `--memory 64M` an open chunk has 16 MiB and takes 128 appenders, so these have three open
/// ones, and 40 MiB of memory for them: together they put out more than that and fill none.
const CROWD: u32 = 360;
const CROWD_BYTES: usize = 120 << 10;
const CROWD_LINE_BYTES: usize = 32;

/// Mappers that put out their share and then wait for a line from the gate.
fn crowded() -> Setup {
    let sandbox = Sandbox::new();
    let mut text = Vec::new();
    // A split is 1 MiB: the lines that count, and one line of zeros, mostly a hole, that no mapper reads.
    let input = fs::File::create(sandbox.write("in/a.txt", b"")).expect("our own file is written");
    for task in 0..CROWD {
        let start = text.len();
        for line in 0..(CROWD_BYTES / CROWD_LINE_BYTES) as u32 {
            let key = (task * 10_000 + line).wrapping_mul(2_654_435_761);
            text.extend_from_slice(format!("{key:010}\tvvvvvvvvvvvvvvvvvvvv\n").as_bytes());
        }
        assert_eq!(text.len() - start, CROWD_BYTES);
        let split = u64::from(task) << 20;
        input.write_all_at(&text[start..], split).expect("our own file is written");
        input.write_all_at(b"\n", split + (1 << 20) - 1).expect("our own file is written");
    }
    let gate = sandbox.fifo("gate");
    let mapper = format!("#!/bin/sh\nhead -c {CROWD_BYTES}\nread line < '{}'\n", gate.text());
    let mapper = sandbox.script("waits.sh", &mapper);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let slots = CROWD.to_string();
    let args =
        words(&["--input", "in", "--mapper", mapper, "--slots", &slots, "--memory", "64M", "--no-sync"]);
    Setup { sandbox, args, expected: blackbox::sorted_lines(&text), gate: Some(gate) }
}

fn set_up(job: Job) -> Setup {
    match job {
        Job::Small | Job::Collector => small(),
        Job::Large => large(),
        Job::Crowded => crowded(),
    }
}

/// A crash, a look at what it left, and the same job again. False when the point is not passed so often.
#[track_caller]
fn check(setup: &mut Setup, point: CrashPoint, passing: u32) -> bool {
    let output = reach(point).expect("a job passes it").output;
    println!("SAILFISH_CRASH_AT={}:{passing}", point.name());
    let whole = setup.sandbox.out();
    if setup.crash(point, passing).is_none() {
        assert!(passing > 1, "{} is not reached", point.name());
        setup.check_output();
        return false;
    }
    match output {
        Output::Unchanged => assert!(!whole.exists(), "an output after {}:{passing}", point.name()),
        Output::Whole => setup.check_output(),
        Output::Either if whole.exists() => setup.check_output(),
        Output::Either => {}
    }
    let published = whole.exists();
    setup.run_again();
    let states = setup.states();
    let (last, before) = states.split_last().expect("the second run is remembered");
    assert_eq!(last, "succeeded");
    let crashed = if published { "succeeded" } else { "interrupted" };
    // A crash before the row stood left none.
    assert!(before.last().is_none_or(|state| state == crashed || state == "succeeded"), "{states:?}");
    assert!(states.iter().all(|state| state == "succeeded" || state == "interrupted"), "{states:?}");
    fs::remove_dir_all(whole).expect("the output can be removed");
    true
}

fn points_of(job: Job) -> impl Iterator<Item = CrashPoint> {
    CrashPoint::ALL.iter().copied().filter(move |point| reach(*point).is_some_and(|reach| reach.job == job))
}

/// Every passing of every point that a small job has.
#[test]
fn small_job_survives_crashes_at_each_point() {
    for point in points_of(Job::Small) {
        let mut setup = set_up(Job::Small);
        let passed = (1..PASSINGS_MAX).take_while(|passing| check(&mut setup, point, *passing)).count();
        assert!(passed < PASSINGS_MAX as usize - 1, "{} is passed without end", point.name());
    }
}

#[test]
fn large_job_survives_crashes_around_its_runs() {
    for point in points_of(Job::Large) {
        let mut setup = set_up(Job::Large);
        assert!(check(&mut setup, point, 1));
        assert!(check(&mut setup, point, 2), "{} is passed only once", point.name());
    }
}

#[test]
fn a_crowded_job_survives_crashes_around_raw_spills() {
    let mut setup = set_up(Job::Crowded);
    for point in points_of(Job::Crowded) {
        assert!(check(&mut setup, point, 1));
    }
}

/// `sailfish gc` dies; the next one, or the next run, completes what it began, and no run begins on half of the files.
#[test]
fn collecting_kept_files_survives_each_crash_point() {
    for point in points_of(Job::Collector) {
        for by_run in [false, true] {
            println!("SAILFISH_CRASH_AT={} then a run: {by_run}", point.name());
            let mut setup = set_up(Job::Collector);
            setup.args.extend(words(&["--keep-for", if by_run { "0s" } else { "1h" }]));
            Running::start(&mut setup.command()).wait().expect_success();
            let state = setup.sandbox.state();
            let mut command = setup.sandbox.sailfish();
            command.args(["gc", "1", "--state"]).arg(&state).env("SAILFISH_CRASH_AT", point.name());
            let crashed = Running::start(&mut command).wait();
            assert_eq!(crashed.signal(), Some(SIGABRT), "{}", crashed.story());
            let files = || setup.sandbox.jobs().of_job(1).ifile_states();
            if files() == ["removing"] {
                let again = ["rerun-reduce", "1", "--output", "again"];
                setup.sandbox.look(&again).expect_failure(2, &["have been removed"]);
            }
            match by_run {
                true => setup.sandbox.run_job(&["--input", "in", "--output", "next"]).expect_success(),
                false => setup.sandbox.look(&["gc", "1"]).expect_success(),
            };
            assert_eq!(files(), ["removed"]);
            setup.sandbox.assert_no_leftovers();
            setup.check_output();
        }
    }
}

/// With an older output in place there is always one whole output: the older one until the exchange, then the new.
#[test]
fn overwriting_leaves_the_old_or_new_output() {
    use CrashPoint::*;
    let points = [
        StagingCreated,
        PartAfterSync,
        CommitBeforePartRename,
        CommitAfterPartRename,
        CommitReportWritten,
        CommitBeforeSync,
        CommitAfterSync,
        CommitAfterRename,
        CommitAfterParentSync,
        CleanupBeforeRemove,
        CleanupAfterRemove,
    ];
    for point in points {
        println!("SAILFISH_CRASH_AT={}", point.name());
        let mut setup = small();
        setup.sandbox.write("older.txt", "older\n");
        setup.sandbox.run_job(&["--input", "older.txt"]).expect_success();
        setup.args.push("--overwrite".to_string());
        assert!(setup.crash(point, 1).is_some(), "{} is not reached", point.name());
        let out = setup.sandbox.out();
        match reach(point).expect("a job passes it").output {
            Output::Unchanged => {
                assert_eq!(setup.sandbox.output_lines(&out), ["older"]);
                let out = out.to_str().expect("a sandbox has a plain path");
                setup.sandbox.sailfish_with(&["verify", out]).expect_success();
            }
            Output::Whole | Output::Either => setup.check_output(),
        }
        setup.args.pop();
        setup.run_again();
        assert!(setup.states().iter().all(|state| state == "succeeded" || state == "interrupted"));
    }
}

#[test]
fn a_point_that_does_not_exist_is_refused() {
    let setup = small();
    for (variable, value) in [("SAILFISH_CRASH_AT", "run-befor-write"), ("SAILFISH_PLANT", "frame-dropped:0")]
    {
        let mut command = setup.command();
        command.env(variable, value);
        Running::start(&mut command).wait().expect_failure(2, &[variable, value]);
        setup.sandbox.assert_nothing_left();
    }
}
