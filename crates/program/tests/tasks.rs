//! Programs that serve one task after the other, as real processes.

use api::{Blame, TaskFailure};
use ids::JobId;
use program::{AfterTask, Feed, FunctionContext, ProgramOutput, ProgramSpec, Programs, run_task};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Answers each line with its process id and the line, says to standard error that it was there, and waits for the next
/// one. The line says what it does else.
const SERVER: &str = r#"
while read -r line; do
    echo "log of $line" >&2
    case "$line" in
        crash) kill -KILL $$ ;;
        leave) sleep 3600 & ;;
        orphan) (sleep 3600 &) ;;
        silent) echo "$$ $line"; continue ;;
        late) echo "$$ $line"; sleep 0.2; echo reporter:end >&2; continue ;;
        twice) echo "$$ $line"; echo reporter:end >&2; echo more; echo said > "$WITNESS"; continue ;;
        count) echo reporter:counter:g,n,2 >&2 ;;
        status) echo reporter:status:here >&2 ;;
    esac
    echo reporter:end >&2
    echo "$$ $line"
done
[ -z "$WITNESS" ] || echo ended >> "$WITNESS"
"#;

fn context(directory: &Path) -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: directory.to_path_buf(),
        start_dir: directory.to_path_buf(),
        env: vec![("WITNESS".to_string(), directory.join("witness").to_string_lossy().into_owned())],
        task_env: Vec::new(),
        kept_for: Some(JobId(1)),
        record_bytes_max: 1 << 20,
        buffer_bytes: 64 << 10,
        cancelled: Arc::default(),
        stderr_log: None,
        limits: Default::default(),
        disk_dirs: Vec::new(),
        reports: Arc::default(),
        declared_reads: None,
        any_exit_code: false,
        sandbox: None,
        named: Vec::new(),
    }
}

/// Returns the context of another attempt on the node.
fn next(context: &FunctionContext) -> FunctionContext {
    FunctionContext { cancelled: Arc::default(), reports: Arc::default(), ..context.clone() }
}

/// Reads a line and no further.
fn read_line(output: &mut impl Read) -> Result<String, TaskFailure> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match output.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(TaskFailure::new(Blame::Environment, error.to_string())),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Gives a line to the program; its process id.
fn task(context: &FunctionContext, line: &str) -> Result<i32, TaskFailure> {
    let words = ["sh", "-c", SERVER].map(str::to_string);
    let spec = ProgramSpec::new(&words, context);
    let (fed, answer) = run_task(context, &spec, |mut feed: Feed, mut output: ProgramOutput| {
        let feeder = move || {
            feed.write(format!("{line}\n").as_bytes())?;
            Ok(feed.unread_bytes())
        };
        let reader = move || {
            let answer = read_line(&mut output)?;
            if !answer.is_empty() {
                output.end(AfterTask::Waits)?;
            }
            Ok(answer)
        };
        (feeder, reader)
    })?;
    assert_eq!(fed, 0);
    let (pid, rest) = answer.split_once(' ').expect("PID LINE");
    assert_eq!(rest, line);
    Ok(pid.parse().unwrap())
}

fn is_there(pid: i32) -> bool {
    rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

#[test]
fn process_serves_the_tasks_of_one_job() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "one").unwrap();
    for line in ["two", "count", "status", "five"] {
        let context = next(&first);
        assert_eq!(task(&context, line).unwrap(), pid);
        let counted = context.reports.counters();
        assert_eq!(counted.get("g,n").copied(), (line == "count").then_some(2), "{line}");
        assert_eq!(context.reports.status().is_some(), line == "status", "{line}");
        assert_eq!(context.reports.taken_bytes(), Some(line.len() as u64 + 1));
    }
    assert_eq!((first.programs.live_count(), first.programs.idle_count()), (1, 1));
    first.programs.end_idle_of(JobId(2));
    first.programs.begin_attempt(JobId(1));
    first.programs.end_attempt();
    assert!(is_there(pid));
    first.programs.end_idle_of(JobId(1));
    assert!(!is_there(pid));
    assert_eq!((first.programs.live_count(), first.programs.idle_count()), (0, 0));
    // It was let end by itself.
    assert_eq!(std::fs::read_to_string(directory.path().join("witness")).unwrap(), "ended\n");
}

#[test]
fn process_serves_only_its_job_and_environment() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "one").unwrap();
    let variable = |name: &str, value: &str| (name.to_string(), value.to_string());
    let mut of_attempt = next(&first);
    of_attempt.env.push(variable("ATTEMPT", "7"));
    of_attempt.task_env.push(variable("ATTEMPT", "7"));
    assert_eq!(task(&of_attempt, "two").unwrap(), pid);
    let mut other_env = next(&first);
    other_env.env.push(variable("LEVEL", "5"));
    let of_other_env = task(&other_env, "three").unwrap();
    assert!(of_other_env != pid && !is_there(pid));
    let other_job = FunctionContext { kept_for: Some(JobId(2)), ..next(&other_env) };
    let of_other_job = task(&other_job, "four").unwrap();
    assert!(of_other_job != of_other_env && !is_there(of_other_env));
    // Another thread has its own.
    let elsewhere = next(&other_job);
    let of_thread = std::thread::spawn(move || {
        let pid = task(&elsewhere, "five").unwrap();
        elsewhere.programs.leave_slot();
        pid
    });
    let of_thread = of_thread.join().unwrap();
    assert!(of_thread != of_other_job && !is_there(of_thread) && is_there(of_other_job));
    let alone = FunctionContext { kept_for: None, ..next(&other_job) };
    let own = task(&alone, "six").unwrap();
    assert!(own != of_other_job && !is_there(own));
    first.programs.leave_slot();
    assert_eq!(first.programs.live_count(), 0);
}

/// Waits until a process has ended. Its init may have reaped it by now.
fn wait_for_end(pid: i32) {
    if let Ok(end) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        poll(&mut [PollFd::new(&end, PollFlags::IN)], None).unwrap();
    }
}

#[test]
fn process_that_died_while_idle_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "one").unwrap();
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_for_end(pid);
    let second = task(&next(&first), "two").unwrap();
    assert!(second != pid && !is_there(pid));
    // Ctrl-C reaches those that wait.
    first.programs.kill_all();
    wait_for_end(second);
    let third = task(&next(&first), "three").unwrap();
    assert!(third != second && !is_there(second));
    first.programs.end_all();
    assert_eq!(task(&next(&first), "four").unwrap_err().blame, Blame::Cancelled);
    first.programs.leave_slot();
    assert!(!is_there(third));
}

#[test]
fn process_that_dies_at_work_fails_its_task() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "one").unwrap();
    let words = ["sh", "-c", SERVER].map(str::to_string);
    let spec = ProgramSpec::new(&words, &first);
    let failing = next(&first);
    let failure = run_task(&failing, &spec, |mut feed: Feed, mut output: ProgramOutput| {
        (move || feed.write(b"crash\n"), move || read_line(&mut output))
    });
    let failure = failure.unwrap_err();
    assert_eq!((failure.blame, failure.signal), (Blame::UserProgram, Some(9)));
    // Nothing that the process said about the first task.
    assert_eq!(failure.stderr_tail, ["log of crash"]);
    assert!(!is_there(pid));
    assert!(task(&next(&first), "two").unwrap() != pid);
    first.programs.leave_slot();
    assert_eq!(first.programs.live_count(), 0);
}

#[test]
fn cancelled_attempt_ends_only_its_program() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "one").unwrap();
    // That of an attempt that is over says nothing about the program.
    first.cancelled.store(true, Ordering::Relaxed);
    first.programs.kill_cancelled();
    let cancelled = next(&first);
    cancelled.cancelled.store(true, Ordering::Relaxed);
    let failure = task(&cancelled, "two").unwrap_err();
    assert_eq!(failure.blame, Blame::Cancelled);
    assert!(!is_there(pid));
    assert_eq!(first.programs.live_count(), 0);
}

/// A program that leaves a process behind is not kept, and neither is the process that it left.
#[test]
fn process_that_leaves_children_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    for line in ["leave", "orphan"] {
        let pid = task(&next(&first), line).unwrap();
        assert!(!is_there(pid), "{line}");
        assert_eq!((first.programs.live_count(), first.programs.idle_count()), (0, 0));
    }
}

#[test]
fn wait_for_the_end_of_task_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    let pid = task(&first, "late").unwrap();
    assert_eq!(task(&next(&first), "one").unwrap(), pid);
    let began = Instant::now();
    assert_eq!(task(&next(&first), "silent").unwrap(), pid);
    assert!(!is_there(pid) && began.elapsed() > Duration::from_secs(4));
    assert_eq!((first.programs.live_count(), first.programs.idle_count()), (0, 0));
}

#[test]
fn extra_output_is_refused_or_ends_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let first = context(directory.path());
    match task(&first, "twice") {
        Ok(pid) => {
            while !directory.path().join("witness").exists() {
                std::thread::yield_now();
            }
            assert!(task(&next(&first), "one").unwrap() != pid);
        }
        Err(failure) => assert!(failure.message.contains("wrote more output after"), "{failure:?}"),
    }
    first.programs.leave_slot();
}
