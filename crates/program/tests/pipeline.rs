//! Programs that the engine watches and does not feed, alone and in pipelines, as real processes.

use api::{Blame, TaskFailure};
use program::{
    FunctionContext, PipelineProgram, ProgramSpec, Programs, RelayFile, Stdout, Streams, named_to_relay,
    run_pipeline, streams_to_file, streams_to_program, streams_to_relay,
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
        streams.push(Streams::standard(stdin, stdout));
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
        let stdin = File::open("/etc/passwd").unwrap();
        let streams = vec![Streams::standard(Some(stdin.into()), stdout)];
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
    let (stdout, mut relay) = streams_to_relay(file).unwrap();
    let stdins = [relay.add_reader().unwrap(), relay.add_reader().unwrap()];
    let mut programs = vec![script(context, writer), script(context, "wc -c"), script(context, "wc -c")];
    programs[1].reads = [0].into();
    programs[2].reads = [0, 1].into();
    programs[2].after = [1].into();
    let mut streams = vec![Streams::standard(None, stdout)];
    streams.extend(stdins.into_iter().map(|stdin| Streams::standard(Some(stdin), Stdout::Shown)));
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
    let (stdout, mut relay) = streams_to_relay(RelayFile::Spill(directory.path().join("spill"))).unwrap();
    let stdin = relay.add_reader().unwrap();
    let leaves = "setsid sleep 600 <&0 >/dev/null 2>&1 & exit 0";
    let mut programs = vec![script(&context, "head -c 3000000 /dev/zero"), script(&context, leaves)];
    programs[1].reads = [0].into();
    let streams = vec![Streams::standard(None, stdout), Streams::standard(Some(stdin), Stdout::Shown)];
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
    let reader = Streams::standard(Some(stdin), Stdout::Shown);
    let streams = vec![Streams::standard(None, stdout), reader, Streams::shown()];
    run_pipeline(programs, streams, Vec::new(), |_| Ok(None), |_| {}).unwrap();
}

/// A stream from a program to others: its name at each, or `-` for the standard one.
type NamedEdge<'a> = ((usize, &'a str), &'a [(usize, &'a str)]);

/// Runs scripts at the same time, each in a directory of its own. Returns all that they put out.
fn run_named(
    context: &FunctionContext,
    scripts: &[&str],
    edges: &[NamedEdge<'_>],
) -> (String, Result<(), TaskFailure>) {
    let mut streams: Vec<Streams> = scripts.iter().map(|_| Streams::shown()).collect();
    let (mut programs, mut relays) = (Vec::new(), Vec::new());
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = |program: usize| context.work_dir.join(format!("{number}-{program}"));
    for (position, text) in scripts.iter().enumerate() {
        std::fs::create_dir(dir(position)).unwrap();
        let own = FunctionContext { work_dir: dir(position), ..context.clone() };
        let mut program = script(&own, text);
        let names = edges.iter().flat_map(|((_, name), readers)| {
            readers.iter().filter(|(reader, _)| *reader == position).map(|(_, name)| *name).chain([*name])
        });
        program.spec.streams = names.map(Into::into).collect();
        programs.push(program);
    }
    for (edge, ((writer, name), readers)) in edges.iter().enumerate() {
        let file = RelayFile::Spill(context.work_dir.join(format!("spill-{number}-{edge}")));
        let place =
            |(program, name): &(usize, &str)| (dir(*program).join(name), Path::new(*name).to_path_buf());
        let mut relay = match *name {
            "-" => {
                let (stdout, relay) = streams_to_relay(file).unwrap();
                streams[*writer].stdout = stdout;
                relay
            }
            name => {
                let (place, name) = place(&(*writer, name));
                let (named, relay) = named_to_relay(&place, &name, file).unwrap();
                streams[*writer].named.push(named);
                relay
            }
        };
        for reader in *readers {
            programs[reader.0].reads.insert(*writer);
            if reader.1 == "-" {
                streams[reader.0].stdin = Some(relay.add_reader().unwrap());
                continue;
            }
            let (place, name) = place(reader);
            streams[reader.0].named.push(relay.add_named_reader(&place, &name).unwrap());
        }
        relays.push(relay);
    }
    let mut output = Vec::new();
    let outcome =
        run_pipeline(programs, streams, relays, |_| Ok(None), |bytes| output.extend_from_slice(bytes));
    assert_eq!(context.programs.live_count(), 0);
    (String::from_utf8(output).unwrap(), outcome)
}

#[test]
fn programs_pass_streams_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let check = |scripts: &[&str], edges: &[NamedEdge<'_>], expected: &str| {
        let (output, outcome) = run_named(&context, scripts, edges);
        assert_eq!((outcome, output.as_str()), (Ok(()), expected), "{scripts:?}");
    };
    let one: NamedEdge<'_> = ((0, "out"), &[(1, "in")]);
    check(&["echo a > out", "cat in"], &[one], "a\n");
    // A writer may open it as often as it likes, also before it has written anything.
    check(
        &["echo a > out; : >> out; sleep 0.05; echo b >> out; echo c >> out", "cat in"],
        &[one],
        "a\nb\nc\n",
    );
    check(&[": > out", "cat in; echo end"], &[one], "end\n");
    check(&["seq 3", "cat in"], &[((0, "-"), &[(1, "in")])], "1\n2\n3\n");
    check(&["seq 3 > out", "cat"], &[((0, "out"), &[(1, "-")])], "1\n2\n3\n");
    let pasted: [NamedEdge<'_>; 2] = [((0, "out"), &[(2, "a")]), ((1, "-"), &[(2, "b")])];
    check(&["seq 3 > out", "seq 4 6", "paste -d, a b"], &pasted, "1,4\n2,5\n3,6\n");
    // Readers that leave early, or never open it.
    check(&["head -c 3000000 /dev/zero > out", "head -c 1 in | wc -c"], &[one], "1\n");
    check(&["head -c 3000000 /dev/zero > out", "echo done"], &[one], "done\n");
    check(&["seq 2 > out", "exec 3< in; read a <&3; read b <&3; echo $a$b"], &[one], "12\n");
}

/// The readers take streams of the same writers in opposite order, so each waits for bytes behind those of the other.
#[test]
fn opposite_orders_of_streams_block_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    // More than a relay keeps in memory.
    let writer = "head -c 12000000 /dev/zero > a; head -c 12000000 /dev/zero > b";
    let edges: [NamedEdge<'_>; 2] = [((0, "a"), &[(1, "a"), (2, "a")]), ((0, "b"), &[(1, "b"), (2, "b")])];
    let (output, outcome) = run_named(&context, &[writer, "cat a b | wc -c", "cat b a | wc -c"], &edges);
    assert_eq!((outcome, output.as_str()), (Ok(()), "24000000\n24000000\n"));
    // A diamond: both branches pass all on, and the last reads the one that is written last first.
    let edges: [NamedEdge<'_>; 4] =
        [((0, "a"), &[(1, "-")]), ((0, "b"), &[(2, "-")]), ((1, "-"), &[(3, "a")]), ((2, "-"), &[(3, "b")])];
    let (output, outcome) = run_named(&context, &[writer, "cat", "cat", "cat b a | wc -c"], &edges);
    assert_eq!((outcome, output.as_str()), (Ok(()), "24000000\n"));
}

#[test]
fn a_stream_is_opened_once_for_reading() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let one: NamedEdge<'_> = ((0, "out"), &[(1, "in")]);
    let fails = |reader: &str| {
        let (output, outcome) = run_named(&context, &["seq 3 > out", reader], &[one]);
        (output, outcome.expect_err(reader).message)
    };
    let (output, message) = fails("cat in in");
    assert_eq!(output, "1\n2\n3\n");
    assert!(message.contains("a stream can be opened once: leave in out of the streams"), "{message}");
    // The second open follows at once, and finds no pipe or another one.
    for _ in 0..30 {
        let (output, message) = fails("exec 3< in 4< in; cat <&3 <&4");
        assert!(output.is_empty() && message.contains("can be opened once"), "{output:?} {message}");
    }
    let python = "python3 -c 'file = open(\"in\"); file.seek(5)'";
    let (_, message) = fails(python);
    assert!(message.contains("from its begin to its end: leave"), "{message}");
}

#[test]
fn a_stream_that_is_not_written_fails() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let one: NamedEdge<'_> = ((0, "out"), &[(1, "in")]);
    let fails = |writer: &str, said: &str| {
        let failure = run_named(&context, &[writer, "cat in"], &[one]).1.expect_err(writer);
        assert!(failure.message.contains(said), "{writer}: {}", failure.message);
    };
    fails(":", "its output out is missing");
    fails("echo a > b; mv b out", "has removed the stream out or put a file in its place");
    fails("echo a > out; rm out", "has removed the stream out");
    fails("exit 3", "exit code 3");
    fails("echo a > out; exit 4", "exit code 4");
    fails("(sleep 600 > out 2>/dev/null &) ; echo a > out", "still had out open");
    // A failure of the reader ends a writer that would go on for ever.
    let outcome = run_named(&context, &["exec sleep 600 > out", "exit 5"], &[one]).1;
    assert_eq!(outcome.unwrap_err().exit_code, Some(5));
    context.programs.end_attempt();
}

#[test]
fn cancelled_streams_end() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let one: NamedEdge<'_> = ((0, "out"), &[(1, "in")]);
    // The reader waits in its open or read, and the writer in its write.
    for scripts in [["exec sleep 600", "cat in"], ["cat /dev/zero > out", "exec sleep 600"]] {
        let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let context = FunctionContext { cancelled: Arc::clone(&flag), ..context.clone() };
        let programs = Arc::clone(&context.programs);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while programs.live_count() < 2 {
                    std::thread::yield_now();
                }
                flag.store(true, Ordering::Relaxed);
                programs.kill_cancelled();
            });
            let outcome = run_named(&context, &scripts, &[one]).1;
            assert_eq!(outcome.unwrap_err().blame, Blame::Cancelled);
        });
    }
}
