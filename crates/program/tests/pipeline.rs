//! Programs that the engine watches and does not feed, alone and in pipelines, as real processes.

use api::{Blame, TaskFailure};
use program::{
    FunctionContext, PipelineProgram, ProgramSpec, Programs, RelayFile, Stdout, Streams, run_pipeline,
    streams_to_file, streams_to_program, streams_to_relay,
};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
        declared_reads: None,
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        sandbox: None,
        named: Vec::new(),
    }
}

fn run(context: &FunctionContext, script: &str) -> (Vec<u8>, Result<(), TaskFailure>) {
    let mut output = Vec::new();
    let outcome = run_alone(context, &["sh", "-c", script], |bytes| output.extend_from_slice(bytes));
    assert_eq!(context.programs.live_count(), 0);
    (output, outcome)
}

fn run_alone(
    context: &FunctionContext,
    words: &[&str],
    on_output: impl FnMut(&[u8]),
) -> Result<(), TaskFailure> {
    let programs = vec![program(context, words)];
    run_pipeline(programs, vec![Streams::shown()], Vec::new(), |_| Ok(None), on_output)
}

fn program(context: &FunctionContext, words: &[&str]) -> PipelineProgram {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    PipelineProgram::alone(context.clone(), ProgramSpec::new(&words, context))
}

fn script(context: &FunctionContext, script: &str) -> PipelineProgram {
    program(context, &["sh", "-c", script])
}

/// Runs scripts, each of which reads the standard output of the one before it. Returns that of the last.
fn run_chain(context: &FunctionContext, scripts: &[&str]) -> (String, Result<(), TaskFailure>) {
    let mut programs: Vec<PipelineProgram> = scripts.iter().map(|each| script(context, each)).collect();
    let mut streams = Vec::new();
    let mut stdin = None;
    for position in 0..programs.len() {
        let (stdout, next) = match position + 1 < programs.len() {
            true => streams_to_program(position + 1).map(|(stdout, next)| (stdout, Some(next))).unwrap(),
            false => (Stdout::Shown, None),
        };
        programs[position].reads = position.checked_sub(1).into_iter().collect();
        streams.push(Streams { stdin, stdout });
        stdin = next;
    }
    let mut output = Vec::new();
    let outcome =
        run_pipeline(programs, streams, Vec::new(), |_| Ok(None), |bytes| output.extend_from_slice(bytes));
    assert_eq!(context.programs.live_count(), 0);
    (String::from_utf8(output).unwrap(), outcome)
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
    let failure = run_alone(&context, &["no-such-program"], |_| {}).unwrap_err();
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
    let outcome = run_alone(&context, &["sh", "-c", "echo here; exec sleep 600"], |_| {
        context.cancelled.store(true, Ordering::Relaxed);
        context.programs.kill_cancelled();
    });
    assert_eq!(outcome.unwrap_err().blame, Blame::Cancelled);
    assert_eq!(context.programs.live_count(), 0);
}

#[test]
fn writers_end_well_when_readers_leave_early() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let (output, outcome) = run_chain(&context, &["seq 10", "sort -rn", "head -3"]);
    outcome.unwrap();
    assert_eq!(output, "10\n9\n8\n");
    // A plain pipe of a shell would end the writer with a signal; a file would not.
    let writer = "head -c 5000000 /dev/zero && touch done";
    let (output, outcome) = run_chain(&context, &[writer, "head -c 1 | wc -c"]);
    outcome.unwrap();
    assert_eq!(output.trim(), "1");
    assert!(directory.path().join("done").exists());
}

#[test]
fn failure_of_a_writer_is_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    for _ in 0..20 {
        let (_, outcome) = run_chain(&context, &["echo x; echo why >&2; exit 3", "cat", "read a; read b"]);
        let failure = outcome.unwrap_err();
        assert_eq!((failure.exit_code, &*failure.stderr_tail), (Some(3), &["why".to_string()][..]));
    }
    // The failure of a reader ends the writer, which would go on for ever.
    let (_, outcome) = run_chain(&context, &["exec sleep 600", "exit 4"]);
    assert_eq!(outcome.unwrap_err().exit_code, Some(4));
    let (_, outcome) = run_chain(&context, &["(sleep 600 &) ; echo x", "cat"]);
    let message = outcome.unwrap_err().message;
    assert!(
        message.contains("sleep (process") && message.contains("still had its standard output open"),
        "{message}"
    );
    assert!(!message.contains("cat"), "{message}");
    context.programs.end_attempt();
}

#[test]
fn standard_output_goes_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let path = directory.path().join("out");
    let to_file = |text: &str| {
        let stdout = streams_to_file(File::create(&path).unwrap());
        let streams = vec![Streams { stdin: Some(File::open("/etc/passwd").unwrap().into()), stdout }];
        run_pipeline(
            vec![script(&context, text)],
            streams,
            Vec::new(),
            |_| Ok(None),
            |_| panic!("it is shown"),
        )
    };
    to_file("cat; (sleep 0.2; echo late) &").unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, std::fs::read_to_string("/etc/passwd").unwrap() + "late\n");
    let failure = to_file("echo x; sleep 600 & :").unwrap_err();
    assert!(failure.message.contains("sleep (process"), "{}", failure.message);
    assert_eq!(to_file("exit 9").unwrap_err().exit_code, Some(9));
    context.programs.end_attempt();
}

/// Runs a writer, a reader that reads at once, and one that starts when the first reader has succeeded. Returns the
/// sizes that both read.
fn run_relay(context: &FunctionContext, writer: &str, file: RelayFile) -> Result<Vec<u64>, TaskFailure> {
    let (stdout, stdins, relay) = streams_to_relay(2, file).unwrap();
    let mut programs = vec![script(context, writer), script(context, "wc -c"), script(context, "wc -c")];
    programs[1].reads = [0].into();
    programs[2].reads = [0, 1].into();
    programs[2].after = [1].into();
    let mut streams = vec![Streams { stdin: None, stdout }];
    streams.extend(stdins.into_iter().map(|stdin| Streams { stdin: Some(stdin), stdout: Stdout::Shown }));
    let (mut output, mut started) = (Vec::new(), Vec::new());
    let before = |position| {
        started.push(position);
        Ok(None)
    };
    run_pipeline(programs, streams, vec![relay], before, |bytes| output.extend_from_slice(bytes))?;
    assert_eq!(started, [0, 1, 2]);
    let sizes = String::from_utf8(output).unwrap();
    Ok(sizes.lines().map(|line| line.trim().parse().unwrap()).collect())
}

static COUNT: AtomicU32 = AtomicU32::new(0);

#[test]
fn readers_that_come_late_block_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    // More than a relay keeps in memory.
    let writer = "head -c 30000000 /dev/urandom";
    let spill = || {
        RelayFile::Spill(directory.path().join(format!("spill-{}", COUNT.fetch_add(1, Ordering::Relaxed))))
    };
    assert_eq!(run_relay(&context, writer, spill()).unwrap(), [30_000_000; 2]);
    let path = directory.path().join("kept");
    let open = || File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let output = || RelayFile::Output(open(), path.clone());
    let writer = "head -c 20000000 /dev/zero | tr '\\0' 'x'";
    assert_eq!(run_relay(&context, writer, output()).unwrap(), [20_000_000; 2]);
    let kept = std::fs::read(&path).unwrap();
    assert!(kept.len() == 20_000_000 && kept.iter().all(|byte| *byte == b'x'));
    let failure = run_relay(&context, "seq 100; (setsid sleep 600 >/dev/null 2>&1 &) ; exit 5", spill());
    assert_eq!(failure.unwrap_err().exit_code, Some(5));
    let gone = RelayFile::Spill(directory.path().join("none/spill"));
    let failure = run_relay(&context, "head -c 30000000 /dev/zero", gone).unwrap_err();
    assert_eq!(failure.blame, Blame::Environment, "{}", failure.message);
    assert!(failure.message.contains("none"), "{}", failure.message);
    assert_eq!(run_relay(&context, ":", output()).unwrap(), [0; 2]);
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

/// A process that a reader leaves behind holds the stream, and reads nothing.
#[test]
fn what_readers_leave_behind_blocks_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let (stdout, stdins, relay) =
        streams_to_relay(1, RelayFile::Spill(directory.path().join("spill"))).unwrap();
    let leaves = "setsid sleep 600 <&0 >/dev/null 2>&1 & exit 0";
    let mut programs = vec![script(&context, "head -c 3000000 /dev/zero"), script(&context, leaves)];
    programs[1].reads = [0].into();
    let mut streams = vec![Streams { stdin: None, stdout }];
    streams.extend(stdins.into_iter().map(|stdin| Streams { stdin: Some(stdin), stdout: Stdout::Shown }));
    run_pipeline(programs, streams, vec![relay], |_| Ok(None), |_| {}).unwrap();
    let (_, outcome) = run_chain(&context, &["head -c 3000000 /dev/zero", leaves]);
    outcome.unwrap();
    context.programs.end_attempt();
}

/// The reader has ended before its writer starts, which waits for another program.
#[test]
fn writer_starts_after_its_reader_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let (stdout, stdin) = streams_to_program(1).unwrap();
    let mut programs = vec![
        script(&context, "head -c 1000000 /dev/zero"),
        script(&context, "exit 0"),
        script(&context, "sleep 0.3"),
    ];
    programs[1].reads = [0].into();
    (programs[0].reads, programs[0].after) = ([2].into(), [2].into());
    let reader = Streams { stdin: Some(stdin), stdout: Stdout::Shown };
    let streams = vec![Streams { stdin: None, stdout }, reader, Streams::shown()];
    run_pipeline(programs, streams, Vec::new(), |_| Ok(None), |_| {}).unwrap();
}
