//! Programs without records, as real processes.

use api::{Blame, TaskFailure};
use program::{FunctionContext, ProgramSpec, Programs, run_without_input};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn context(directory: &Path) -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: directory.to_path_buf(),
        start_dir: directory.to_path_buf(),
        env: Vec::new(),
        record_bytes_max: 0,
        buffer_bytes: 0,
        cancelled: Arc::default(),
        stderr_log: Some(directory.join("log")),
        limits: Default::default(),
        disk_dirs: Vec::new(),
        reports: Default::default(),
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        sandbox: None,
        named: Vec::new(),
    }
}

fn run(context: &FunctionContext, script: &str) -> (Vec<u8>, Result<(), TaskFailure>) {
    let words = ["sh", "-c", script].map(str::to_string);
    let spec = ProgramSpec::new(&words, context);
    let mut output = Vec::new();
    let outcome = run_without_input(context, &spec, |bytes| output.extend_from_slice(bytes));
    assert_eq!(context.programs.live_count(), 0);
    (output, outcome)
}

#[test]
fn outputs_of_any_size_are_read_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let (output, outcome) = run(&context, "cat; echo out; echo err >&2; echo last");
    outcome.unwrap();
    assert_eq!(output, b"out\nlast\n");
    assert_eq!(std::fs::read(directory.path().join("log")).unwrap(), b"err\n");
    // More than pipes hold, on both at once, by two processes and by one.
    let zeros = "head -c 3000000 /dev/zero";
    for script in [format!("{zeros} & {zeros} >&2; wait"), format!("{zeros} >&2; {zeros}")] {
        let (output, outcome) = run(&context, &script);
        outcome.unwrap();
        assert_eq!(output.len(), 3_000_000);
    }
}

#[test]
fn a_program_that_says_nothing_leaves_no_log() {
    let directory = tempfile::tempdir().unwrap();
    let (output, outcome) = run(&context(directory.path()), "exec >&-; exec 2>&-; true");
    outcome.unwrap();
    assert_eq!((output.len(), directory.path().join("log").exists()), (0, false));
}

#[test]
fn failure_has_code_or_signal_and_last_lines() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let (output, outcome) = run(&context, "echo so far; echo reason >&2; exit 7");
    let failure = outcome.unwrap_err();
    assert_eq!((failure.blame, failure.exit_code), (Blame::UserProgram, Some(7)));
    assert_eq!((&*output, &*failure.stderr_tail), (&b"so far\n"[..], &["reason".to_string()][..]));
    let failure = run(&context, "kill -9 $$").1.unwrap_err();
    assert_eq!((failure.blame, failure.signal), (Blame::UserProgram, Some(9)));
    let words = ["no-such-program".to_string()];
    let failure = run_without_input(&context, &ProgramSpec::new(&words, &context), |_| {}).unwrap_err();
    assert_eq!(failure.blame, Blame::UserData);
}

#[test]
fn children_of_program_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    for leave in ["sleep 600 >/dev/null 2>&1 &", "setsid sleep 600 >/dev/null &"] {
        let (output, outcome) = run(&context, &format!("{leave} echo done"));
        outcome.unwrap();
        assert_eq!(output, b"done\n");
    }
    for leave in ["sleep 600 &", "setsid sleep 600 &"] {
        let failure = run(&context, &format!("{leave} echo done")).1.unwrap_err();
        assert!(failure.message.contains("still had its standard output open"), "{}", failure.message);
    }
    context.programs.end_attempt();
}

#[test]
fn a_cancelled_run_is_killed_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let words = ["sh", "-c", "echo here; exec sleep 600"].map(str::to_string);
    let spec = ProgramSpec::new(&words, &context);
    let outcome = run_without_input(&context, &spec, |_| {
        context.cancelled.store(true, Ordering::Relaxed);
        context.programs.kill_cancelled();
    });
    assert_eq!(outcome.unwrap_err().blame, Blame::Cancelled);
    assert_eq!(context.programs.live_count(), 0);
}
