//! Disks that are full or cannot be written: a clear error, no output that looks whole, or another disk.
//! The disks are small file systems mounted in a namespace of the test; where that cannot be, it is said.

use blackbox::{
    Finished, Questions, Running, Sandbox, SmallDisk, State, left_on_small_disks, with_small_disks,
};
use std::path::{Path, PathBuf};

const FAILED: i32 = 1;
const REFUSED: i32 = 2;

/// Larger than a disk, within the least memory.
const SMALL_BYTES: usize = 6 << 20;
/// Larger than the memory for chunks with `--memory 64M`.
const LARGE_BYTES: usize = 72 << 20;

/// A sandbox with an input that hardly shrinks.
fn set_up(bytes: usize) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    let mut random = blackbox::Random::new(7);
    let mut text = Vec::new();
    while text.len() < bytes {
        let line: String = (0..6).map(|_| format!("{:016x}", random.next_bits())).collect();
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    sandbox.write("in.txt", &text);
    (sandbox, text)
}

fn directory(sandbox: &Sandbox, name: &str) -> PathBuf {
    let path = sandbox.path(name);
    std::fs::create_dir(&path).expect("our own directory takes another");
    path
}

fn full(dir: &Path) -> SmallDisk<'_> {
    SmallDisk { dir, options: "size=1m", read_only: false }
}

fn read_only(dir: &Path) -> SmallDisk<'_> {
    SmallDisk { dir, options: "size=1m", read_only: true }
}

/// Runs the input as it is with these options; None where nothing can be mounted here.
fn run(sandbox: &Sandbox, disks: &[SmallDisk<'_>], options: &[&str]) -> Option<Finished> {
    let args = ["--input", "in.txt", "--memory", "64M", "--slots", "2"];
    let job = sandbox.job(&[&args, options].concat());
    Some(Running::start(&mut with_small_disks(sandbox, disks, &job)?).wait())
}

#[test]
fn output_that_does_not_fit_is_unpublished() {
    for options in [&[][..], &["--map-only"], &["--no-sync"]] {
        let (sandbox, _) = set_up(SMALL_BYTES);
        let small = directory(&sandbox, "small");
        let options = [options, &["--output", "small/out"]].concat();
        let Some(finished) = run(&sandbox, &[full(&small)], &options) else { return };
        let finished = finished.expect_failure(FAILED, &["No space left on device", "part-", "small/"]);
        let text = finished.text();
        assert_eq!(left_on_small_disks(&text), [""; 0], "{}", finished.story());
        sandbox.assert_nothing_left();
        assert_eq!(sandbox.jobs().states(), ["failed"]);
        assert!(sandbox.attempts().is(State::Failed).count() >= 3);
    }
}

/// Two commands in one shell, so that both see the same mounts; the code is that of the second.
const BOTH: &str = r#"
first=$1; shift
while [ "$1" != -- ]; do first="$first $1"; shift; done; shift
$first && { "$@"; code=$?; cat small/out/part-00000; exit $code; }
"#;

#[test]
fn older_output_stays_when_new_does_not_fit() {
    let (sandbox, _) = set_up(SMALL_BYTES);
    let small = directory(&sandbox, "small");
    sandbox.write("few.txt", "few\n");
    // Both runs under one mount: the first output must be there for the second.
    let (first, second) = (
        sandbox.job(&["--input", "few.txt", "--output", "small/out"]),
        sandbox.job(&["--input", "in.txt", "--output", "small/out", "--overwrite"]),
    );
    let mut both = std::process::Command::new("sh");
    both.args(["-c", BOTH, "sh"]);
    both.arg(first.get_program()).args(first.get_args()).arg("--");
    both.arg(second.get_program()).args(second.get_args());
    let Some(mut command) = with_small_disks(&sandbox, &[full(&small)], &both) else { return };
    let finished = Running::start(&mut command).wait().expect_failure(FAILED, &["No space left on device"]);
    assert!(finished.text().starts_with("few\n"), "{}", finished.story());
    let text = finished.text();
    let left = left_on_small_disks(&text);
    assert!(left.iter().any(|path| path.ends_with("/out/_SUCCESS")), "{left:?}");
    assert!(left.iter().all(|path| !path.contains(".sailfish-")), "{left:?}");
}

#[test]
fn intermediate_data_that_does_not_fit_fails_job() {
    let (sandbox, _) = set_up(LARGE_BYTES);
    let small = directory(&sandbox, "small");
    let options = ["--codec", "none", "--disk", "small"];
    let Some(finished) = run(&sandbox, &[full(&small)], &options) else { return };
    let finished = finished.expect_failure(FAILED, &["No space left on device", "small/sailfish-"]);
    let said = finished.stderr.matches("No space left on device").count();
    assert_eq!(said, 1, "field report 11: once, {}", finished.story());
    let text = finished.text();
    assert_eq!(left_on_small_disks(&text), [""; 0], "{}", finished.story());
    sandbox.assert_nothing_left();
}

/// Half a run is no run: of one that did not fit nothing is kept.
#[test]
fn kept_data_of_failed_job_is_whole() {
    let (sandbox, _) = set_up(SMALL_BYTES);
    let small = directory(&sandbox, "small");
    let options = ["--keep-ifiles", "--codec", "none", "--disk", "small"];
    let Some(finished) = run(&sandbox, &[full(&small)], &options) else { return };
    let finished = finished.expect_failure(FAILED, &["No space left on device", "small/sailfish-"]);
    let text = finished.text();
    let files = left_on_small_disks(&text).into_iter().filter(|path| path.ends_with(".ifile")).count();
    assert_eq!(files, 0, "{}", finished.story());
    sandbox.assert_nothing_left();
}

#[test]
fn with_another_disk_the_job_goes_on() {
    for disks in [["small", "disk"], ["disk", "small"]] {
        let (sandbox, text) = set_up(LARGE_BYTES);
        let small = directory(&sandbox, "small");
        let options = ["--total-order", "--codec", "none", "--disk", disks[0], "--disk", disks[1]];
        let Some(finished) = run(&sandbox, &[full(&small)], &options) else { return };
        let finished = finished.expect_success();
        let text_of_run = finished.text();
        assert_eq!(left_on_small_disks(&text_of_run), [""; 0], "{}", finished.story());
        assert!(sandbox.concatenated(&sandbox.out()) == blackbox::sorted_lines(&text));
        sandbox.assert_no_leftovers();
    }
}

#[test]
fn a_disk_that_is_read_only_is_refused() {
    let (sandbox, _) = set_up(SMALL_BYTES);
    let small = directory(&sandbox, "small");
    let Some(finished) = run(&sandbox, &[read_only(&small)], &["--disk", "small"]) else { return };
    finished.expect_failure(REFUSED, &["--disk small", "Read-only file system"]);
    sandbox.assert_nothing_left();
    let finished = run(&sandbox, &[read_only(&small)], &["--output", "small/out"]);
    finished.expect("it was mounted before").expect_failure(REFUSED, &["--output", "Read-only file system"]);
    sandbox.assert_nothing_left();
}

#[test]
fn unwritable_state_directory_is_refused() {
    let (sandbox, text) = set_up(SMALL_BYTES);
    let small = directory(&sandbox, "small");
    let Some(finished) = run(&sandbox, &[read_only(&small)], &["--state", "small/state"]) else { return };
    finished.expect_failure(REFUSED, &["small/state", "Read-only file system"]);
    sandbox.assert_nothing_left();
    // A state that was there before, on a disk that has since become read-only.
    let state = directory(&sandbox, "state");
    let finished = run(&sandbox, &[read_only(&state)], &[]).expect("it was mounted before");
    finished.expect_failure(REFUSED, &["state", "Read-only file system"]);
    sandbox.assert_nothing_left();
    sandbox.run_job(&["--input", "in.txt", "--total-order"]).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()) == blackbox::sorted_lines(&text));
}

#[test]
fn a_state_directory_that_is_full_is_named() {
    let (sandbox, _) = set_up(SMALL_BYTES);
    let small = directory(&sandbox, "small");
    let tiny = SmallDisk { dir: &small, options: "size=64k", read_only: false };
    let Some(finished) = run(&sandbox, &[tiny], &["--state", "small"]) else { return };
    assert!(matches!(finished.code(), Some(FAILED | REFUSED)), "{}", finished.story());
    assert!(finished.stderr.contains("small") && finished.stderr.contains("full"), "{}", finished.story());
    assert!(!finished.stderr.contains("panicked"), "{}", finished.story());
    assert!(!sandbox.out().exists());
}
