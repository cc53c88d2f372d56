//! Real processes: how they are found, fed, read, judged and ended.

use api::{Blame, TaskFailure};
use program::{Feed, FunctionContext, ProgramOutput, ProgramSpec, Programs, check_program};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn context(directory: &Path) -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: directory.to_path_buf(),
        start_dir: directory.to_path_buf(),
        env: Vec::new(),
        record_bytes_max: 1 << 20,
        buffer_bytes: 64 << 10,
        cancelled: Arc::default(),
        stderr_log: None,
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn read_all(mut stdout: ProgramOutput) -> Result<Vec<u8>, TaskFailure> {
    let mut output = Vec::new();
    stdout
        .read_to_end(&mut output)
        .map_err(|error| TaskFailure::new(Blame::Environment, error.to_string()))?;
    Ok(output)
}

/// Feeds the input and reads everything; returns the bytes left unread and the output.
fn pipe(context: &FunctionContext, command: &[&str], input: &[u8]) -> Result<(u64, Vec<u8>), TaskFailure> {
    let spec = ProgramSpec::new(&words(command), context);
    let outcome = program::run(context, &spec, |mut feed: Feed, stdout| {
        let feeder = move || {
            for piece in input.chunks(100_000) {
                feed.write(piece)?;
            }
            Ok(feed.unread_bytes())
        };
        (feeder, move || read_all(stdout))
    });
    assert_eq!(context.programs.live_count(), 0);
    outcome
}

fn feed_until_abandoned(mut feed: Feed) -> Result<(), TaskFailure> {
    while !feed.abandoned() {
        feed.write(&[b'x'; 1000])?;
    }
    Ok(())
}

#[test]
fn bytes_go_through_unchanged_whatever_their_size() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let large: Vec<u8> = (0..20_000_000u32).map(|number| (number.wrapping_mul(31) >> 3) as u8).collect();
    for input in [&b""[..], b"no line end", &large] {
        let (unread_bytes, output) = pipe(&context, &["cat"], input).unwrap();
        assert!(unread_bytes == 0 && output == input);
    }
    let spec = ["sh", "-c", "cat >/dev/null; printf 'done\\n'"];
    assert_eq!(pipe(&context, &spec, &large).unwrap(), (0, b"done\n".to_vec()));
}

#[test]
fn a_program_that_stops_reading_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let input = vec![b'x'; 10_000_000];
    let (unread_bytes, output) = pipe(&context, &["head", "-c", "5"], &input).unwrap();
    assert_eq!(output, b"xxxxx");
    assert!(unread_bytes > 8_000_000 && unread_bytes < 10_000_000, "{unread_bytes}");
    // It goes on printing after it closed its input.
    let (unread_bytes, output) = pipe(&context, &["sh", "-c", "exec 0<&-; seq 1 3"], &input).unwrap();
    assert_eq!(output, b"1\n2\n3\n");
    assert!(unread_bytes > 8_000_000, "{unread_bytes}");
}

#[test]
fn exit_codes_and_signals_are_the_programs_fault() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let failure = |script: &str| pipe(&context, &["sh", "-c", script], b"input\n").unwrap_err();
    let code = failure("cat >/dev/null; echo first >&2; printf 'no end' >&2; exit 3");
    assert_eq!((code.blame, code.exit_code, code.signal), (Blame::UserProgram, Some(3), None));
    assert_eq!(code.stderr_tail, ["first", "no end"]);
    assert!(code.message.contains("exit code 3"), "{}", code.message);
    let signal = failure("kill -SEGV $$");
    assert_eq!((signal.blame, signal.exit_code, signal.signal), (Blame::UserProgram, None, Some(11)));
    let many = failure("seq 1 100000 >&2; exit 1");
    assert_eq!((many.stderr_tail.len(), many.stderr_tail[0].as_str()), (20, "99981"));
}

#[test]
fn the_other_side_stops_when_one_has_failed() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let bad = || Err::<(), _>(TaskFailure::new(Blame::UserData, "bad record"));
    // The program ends badly while there is more input than it could ever read.
    let spec = ProgramSpec::new(&words(&["sh", "-c", "exit 4"]), &context);
    let failure = program::run(&context, &spec, |feed, stdout| {
        (move || feed_until_abandoned(feed), move || read_all(stdout))
    });
    assert_eq!(failure.unwrap_err().exit_code, Some(4));
    // The reader gives up on a program that prints without end.
    let spec = ProgramSpec::new(&words(&["yes"]), &context);
    let failure = program::run(&context, &spec, |feed, stdout| {
        let reader = move || {
            let _open = stdout;
            bad()
        };
        (move || feed_until_abandoned(feed), reader)
    });
    assert_eq!(failure.unwrap_err().message, "bad record");
    // The feeder fails while the program waits for more, on the thread and on the caller.
    let spec = ProgramSpec::new(&words(&["cat"]), &context);
    let failing = |mut feed: Feed| {
        feed.write(b"first\n")?;
        let outcome = bad();
        assert!(outcome.is_err());
        outcome
    };
    let failure =
        program::run(&context, &spec, |feed, stdout| (move || failing(feed), move || read_all(stdout)));
    assert_eq!(failure.unwrap_err().message, "bad record");
    let failure =
        program::run(&context, &spec, |feed, stdout| (move || read_all(stdout), move || failing(feed)));
    assert_eq!(failure.unwrap_err().message, "bad record");
    assert_eq!(context.programs.live_count(), 0);
}

/// Runs a program that hangs once it has printed a byte, and acts when that byte arrives.
fn hang_and(context: &FunctionContext, act: impl FnOnce() + Send) -> TaskFailure {
    let spec = ProgramSpec::new(&words(&["sh", "-c", "trap '' TERM INT; echo; sleep 600"]), context);
    let outcome = program::run(context, &spec, |feed, mut stdout| {
        let reader = move || {
            let mut first = [0];
            stdout.read_exact(&mut first).unwrap();
            act();
            read_all(stdout)
        };
        let keep_open = move || {
            let _feed = feed;
            Ok(())
        };
        (keep_open, reader)
    });
    outcome.unwrap_err()
}

#[test]
fn hanging_programs_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let failure = hang_and(&context, || context.programs.kill_all());
    assert_eq!((failure.blame, failure.signal), (Blame::UserProgram, Some(9)));
    context.programs.kill_cancelled();
    let failure = hang_and(&context, || {
        context.cancelled.store(true, Ordering::Relaxed);
        context.programs.kill_cancelled();
    });
    assert_eq!(failure.blame, Blame::Cancelled);
    // The flag is set already: the program does not outlive its start.
    let failure = pipe(&context, &["sleep", "600"], b"").unwrap_err();
    assert_eq!(failure.blame, Blame::Cancelled);
}

#[test]
fn child_that_holds_the_output_fails_the_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    // In the group of the program, in a session of its own, and with the input open too.
    for leave in ["sleep 600 &", "setsid sleep 600 &", "(setsid sleep 600 <&0 &)"] {
        let script = format!("{leave}\necho parent");
        let failure = pipe(&context, &["sh", "-c", &script], &vec![b'x'; 10_000_000]).unwrap_err();
        assert_eq!(failure.blame, Blame::UserProgram);
        assert!(failure.message.contains("ended, but sleep (process "), "{}", failure.message);
    }
    // A crash is the first reason.
    let failure = pipe(&context, &["sh", "-c", "setsid sleep 600 & exit 3"], b"").unwrap_err();
    assert_eq!(failure.exit_code, Some(3));
}

/// A process that is no descendant gets the output through a socket, and nobody may end it.
#[test]
fn output_held_by_stranger_fails_the_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let keep = "import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('ready', flush=True)
c = s.accept()[0]; kept = socket.recv_fds(c, 1, 1); c.send(b'x'); time.sleep(3600)";
    let mut stranger = Command::new("python3");
    stranger.args(["-c", keep]).arg(&socket).stdout(std::process::Stdio::piped());
    let mut stranger = stranger.spawn().unwrap();
    let mut ready = [0; 6];
    stranger.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let give = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); socket.send_fds(s, [b'x'], [1]); s.recv(1); print('out')";
    let command = ["python3", "-c", give, socket.to_str().unwrap()];
    let failure = pipe(&context(directory.path()), &command, b"input").unwrap_err();
    assert!(failure.message.contains("a process outside its attempt still had"), "{}", failure.message);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn output_of_a_child_that_ends_soon_counts() {
    let directory = tempfile::tempdir().unwrap();
    let script = "(setsid sh -c 'sleep 0.1; seq 1 100000; echo last' &); echo first";
    let (_, output) = pipe(&context(directory.path()), &["sh", "-c", script], b"").unwrap();
    assert!(output.starts_with(b"first\n") && output.ends_with(b"100000\nlast\n"));
}

#[test]
fn child_with_standard_error_is_ended_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut context = context(directory.path());
    context.stderr_log = Some(directory.path().join("stderr.log"));
    for leave in ["sleep 600 >/dev/null &", "setsid sleep 600 >/dev/null </dev/null &"] {
        // Until the child is no copy of the shell any more.
        let script = format!("{leave}\nwhile ! grep -q sleep /proc/$!/comm; do :; done; echo parent");
        let (_, output) = pipe(&context, &["sh", "-c", &script], b"").unwrap();
        assert_eq!(output, b"parent\n");
    }
    let log = std::fs::read_to_string(directory.path().join("stderr.log")).unwrap();
    assert_eq!(log.matches("sailfish: ended sleep (process ").count(), 2, "{log}");
    context.programs.end_attempt();
}

#[test]
fn a_side_that_panics_does_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let context = context(directory.path());
    let spec = ProgramSpec::new(&words(&["sleep", "600"]), &context);
    for on_thread in [true, false] {
        let side = |this: bool| move || if this { panic!("planned") } else { Ok(()) };
        let run = || program::run(&context, &spec, |_feed, _stdout| (side(on_thread), side(!on_thread)));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(context.programs.live_count(), 0);
    }
}

/// Run again by itself as the engine that is killed: its program holds a named pipe open, and the end of
/// that pipe tells that the program is gone.
#[test]
fn a_killed_engine_takes_its_program_along() {
    const PIPE_VARIABLE: &str = "SAILFISH_TEST_PIPE";
    let directory = tempfile::tempdir().unwrap();
    if let Ok(pipe_path) = std::env::var(PIPE_VARIABLE) {
        let script = "exec 3>\"$0\"; echo ready >&3; exec sleep 600";
        let _ = pipe(&context(directory.path()), &["sh", "-c", script, &pipe_path], b"");
        return;
    }
    let pipe_path = directory.path().join("alive");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe_path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let mut engine = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_engine_takes_its_program_along"])
        .env(PIPE_VARIABLE, &pipe_path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut alive = std::fs::File::open(&pipe_path).unwrap();
    let mut ready = [0; 6];
    alive.read_exact(&mut ready).unwrap();
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(alive.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn the_environment_is_clean() {
    let directory = tempfile::tempdir().unwrap();
    let mut context = context(directory.path());
    context.env = vec![("SAILFISH_JOB".into(), "7".into()), ("LANG".into(), "C".into())];
    let (_, output) = pipe(&context, &["env"], b"").unwrap();
    let output = String::from_utf8(output).unwrap();
    let names: BTreeSet<&str> =
        output.lines().filter_map(|line| line.split_once('=')).map(|pair| pair.0).collect();
    let allowed =
        |name: &&str| ["PATH", "HOME", "LANG", "SAILFISH_JOB"].contains(name) || name.starts_with("LC_");
    assert!(names.iter().all(allowed), "{names:?}");
    assert!(output.contains("SAILFISH_JOB=7\n") && output.contains("LANG=C\n"), "{output}");
    let (_, output) = pipe(&context, &["pwd"], b"").unwrap();
    let output = String::from_utf8(output).unwrap();
    assert_eq!(Path::new(output.trim_end()), directory.path().canonicalize().unwrap());
}

#[test]
fn the_log_has_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let mut context = context(directory.path());
    let log = directory.path().join("stderr.log");
    context.stderr_log = Some(log.clone());
    pipe(&context, &["sh", "-c", "echo hello >&2"], b"").unwrap();
    assert_eq!(std::fs::read(&log).unwrap(), b"hello\n");
    std::fs::remove_file(&log).unwrap();
    pipe(&context, &["sh", "-c", "head -c 3000000 /dev/zero >&2"], b"").unwrap();
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 1 << 20);
    context.stderr_log = Some("/no/such/directory/log".into());
    pipe(&context, &["sh", "-c", "echo hello >&2"], b"").unwrap();
}

/// A program does not inherit the engine's own ignored and blocked signals: only the signals that the engine was told
/// to ignore stay ignored.
#[test]
fn signals_are_as_a_program_expects_them() {
    let directory = tempfile::tempdir().unwrap();
    let (_, output) = pipe(&context(directory.path()), &["cat", "/proc/self/status"], b"").unwrap();
    let output = String::from_utf8(output).unwrap();
    let mask = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let broken_pipe = 1 << (13 - 1);
    assert_eq!((mask("SigBlk:"), mask("SigCgt:"), mask("SigIgn:") & broken_pipe), (0, 0, 0), "{output}");
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(own.lines().any(|line| line == "SigBlk:\t0000000000000000"), "{own}");
}

#[test]
fn program_inherits_no_file_of_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let _open_here = std::fs::File::create(directory.path().join("of-the-engine")).unwrap();
    let script = ["sh", "-c", "readlink /proc/$$/fd/*; true"];
    let (_, output) = pipe(&context(directory.path()), &script, b"").unwrap();
    let output = String::from_utf8(output).unwrap();
    assert!(output.contains("pipe:") && !output.contains("of-the-engine"), "{output}");
}

#[test]
fn program_open_for_writing_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    write_scripts(directory.path());
    let mut context = context(directory.path());
    context.work_dir = directory.path().join("work");
    let written = std::fs::File::options().append(true).open(directory.path().join("work/both.sh")).unwrap();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| pipe(&context, &["./both.sh"], b""));
        std::thread::yield_now();
        drop(written);
        run.join().unwrap()
    });
    assert_eq!(output.unwrap().1, b"from work\n");
}

#[test]
fn a_zero_byte_in_a_word_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let failure = pipe(&context(directory.path()), &["echo", "a\0b"], b"").unwrap_err();
    assert!(failure.blame == Blame::UserData && failure.message.contains("zero byte"), "{failure:?}");
}

/// Writes scripts from another process: a file that this one has open for writing could not be executed.
fn write_scripts(directory: &Path) {
    let script = r#"
        mkdir work start
        printf '#!/bin/sh\necho from work\n' > work/both.sh; cp work/both.sh work/only_work.sh
        printf '#!/bin/sh\necho from start\n' > start/both.sh; cp start/both.sh start/only_start.sh
        printf '#!/no/such/interpreter\n' > work/no_interpreter; printf 'echo "$0 $1"\n' > work/no_first_line
        chmod +x work/* start/*; echo text > work/plain; echo text > start/plain_start"#;
    assert!(Command::new("sh").args(["-c", script]).current_dir(directory).status().unwrap().success());
}

#[test]
fn programs_are_found_in_order_or_named() {
    let directory = tempfile::tempdir().unwrap();
    write_scripts(directory.path());
    let mut context = context(directory.path());
    context.work_dir = directory.path().join("work");
    context.start_dir = directory.path().join("start");
    let check = |program: &str, expected: &str| {
        let (_, output) = pipe(&context, &[program], b"").unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), expected, "{program}");
    };
    check("./both.sh", "from work\n");
    check("both.sh", "from work\n");
    check("only_start.sh", "from start\n");
    check("./only_start.sh", "from start\n");
    check("../start/both.sh", "from start\n");
    check("true", "");
    // A program knows where it lies, whatever it was called by: interpreters look for their libraries from there.
    let (_, output) = pipe(&context, &["cat", "/proc/self/cmdline"], b"").unwrap();
    let output = String::from_utf8(output).unwrap();
    let called: Vec<&str> = output.split_terminator('\0').collect();
    assert!(called.len() == 2 && called[0].starts_with('/') && called[0].ends_with("/cat"), "{called:?}");
    let (_, output) = pipe(&context, &["./no_first_line", "argument"], b"").unwrap();
    assert!(String::from_utf8(output).unwrap().ends_with("no_first_line argument\n"));
    let failure = |program: &str| pipe(&context, &[program], b"").unwrap_err();
    for (program, expected) in [
        ("no-such-program", "\"no-such-program\" not found"),
        ("./no-such-program", "\"./no-such-program\" not found"),
        ("/no/such/program", "\"/no/such/program\" not found"),
        ("./plain", "\"./plain\" is not executable"),
        ("./no_interpreter", "its interpreter"),
        ("", "has no program"),
    ] {
        let failure = failure(program);
        assert_eq!(failure.blame, Blame::UserData, "{failure:?}");
        assert!(failure.message.contains(expected), "{failure:?}");
    }
}

#[test]
fn programs_are_checked_before_they_run() {
    let directory = tempfile::tempdir().unwrap();
    write_scripts(directory.path());
    let start_dir = directory.path().join("start");
    let files = [directory.path().join("work/only_work.sh"), directory.path().join("work/plain")];
    let check = |program: &str, env: &[(&str, &str)]| {
        let env: Vec<(String, String)> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        check_program(&words(&[program, "-x"]), &files, &start_dir, &env).map_err(|error| error.to_string())
    };
    for program in ["cat", "/bin/sh", "only_work.sh", "./only_work.sh", "./only_start.sh", "both.sh"] {
        check(program, &[]).unwrap();
    }
    assert!(check("cat", &[("PATH", "/no/such/directory")]).unwrap_err().contains("\"cat\" not found"));
    assert!(check("./plain", &[]).unwrap_err().contains("not executable"));
    assert!(check("plain_start", &[]).unwrap_err().contains("not executable"));
    assert!(check_program(&[], &[], &start_dir, &[]).is_err());
}
