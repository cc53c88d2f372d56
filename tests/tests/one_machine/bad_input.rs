//! Inputs, options, programs and states that are wrong: the message, the exit code, and nothing left behind.

use blackbox::{Finished, Questions, Running, Sandbox, State, could_not_run, gzip, zstd};
use std::fs;
use std::process::Command;

/// Exit codes of `sailfish run`.
const FAILED: i32 = 1;
const REFUSED: i32 = 2;

/// A sandbox with an input of a few lines.
fn with_input() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("in/a.txt", "one\t1\ntwo\t2\nthree\t3\n");
    sandbox
}

/// Runs a job that is refused or fails: exit code, texts, no output, no leftovers.
#[track_caller]
fn check(sandbox: &Sandbox, args: &[&str], code: i32, texts: &[&str]) -> Finished {
    let finished = sandbox.run_job(args).expect_failure(code, texts);
    sandbox.assert_nothing_left();
    finished
}

/// Refused before anything ran: there is not even a state.
#[track_caller]
fn check_refused(sandbox: &Sandbox, args: &[&str], texts: &[&str]) {
    check(sandbox, args, REFUSED, texts);
    assert!(!sandbox.state().exists(), "a refused request left a state: {args:?}");
}

#[test]
fn options_that_are_wrong_are_named() {
    let sandbox = with_input();
    let job = |options: &[&str], texts: &[&str]| {
        check_refused(&sandbox, &[&["--input", "in"], options].concat(), texts);
    };
    job(&["--inptu", "in"], &["--inptu", "--input"]);
    job(&["--mapper", "builtin:wrods"], &["--mapper", "\"wrods\"", "builtin:words"]);
    job(&["--mapper", "builtin:grep:a("], &["--mapper", "unclosed group"]);
    job(&["--mapper", "builtin:grep"], &["--mapper", "needs a regular expression"]);
    job(&["--reducer", "builtin:sums"], &["--reducer", "\"sums\"", "builtin:sum"]);
    job(&["--reducer", "builtin:words"], &["--reducer", "\"words\""]);
    job(&["--combiner", "builtin:mean", "--reducer", "cat"], &["--combiner", "\"mean\""]);
    job(&["--combiner", "builtin:sum"], &["--combiner", "--reducer"]);
    job(&["--mapper", "cat 'x"], &["--mapper", "cannot be split into words"]);
    job(&["--mapper", ""], &["--mapper", "empty"]);
    job(&["--map-only", "--reducer", "cat"], &["--reducer", "--map-only"]);
    job(&["--map-only", "--total-order"], &["--total-order", "--map-only"]);
    job(&["--slots", "0"], &["--slots 0", "1 to 1024"]);
    job(&["--slots", "1025"], &["--slots 1025", "1 to 1024"]);
    job(&["--memory", "lots"], &["--memory \"lots\"", "1.5G"]);
    job(&["--memory", "63M"], &["--memory", "minimum of 64M"]);
    job(&["--memory", "67108863"], &["67108863", "minimum of 64M"]);
    job(&["--codec", "gzip"], &["--codec", "lz4"]);
    job(&["--env", "LIMIT"], &["--env", "NAME=VALUE"]);
    job(&["--file", "nowhere.py"], &["--file nowhere.py", "No such file"]);
    job(&["--disk", "no/where"], &["--disk no/where", "mount the disk, or create the directory first"]);
    job(&["--disk", "in/a.txt"], &["--disk in/a.txt", "not a directory"]);
    check_refused(&sandbox, &[], &["--input"]);
}

#[test]
fn errors_of_job_files_name_their_line() {
    let sandbox = with_input();
    sandbox.write("unknown.toml", "input = \"in\"\nmapper = \"cat\"\nreducr = \"cat\"\n");
    check_refused(&sandbox, &["--job", "unknown.toml"], &["unknown.toml", "line 3", "reducr"]);
    sandbox.write("syntax.toml", "input = \"in\"\n\nslots = = 3\n");
    check_refused(&sandbox, &["--job", "syntax.toml"], &["syntax.toml", "line 3"]);
    sandbox.write("kind.toml", "input = \"in\"\nslots = \"many\"\n");
    check_refused(&sandbox, &["--job", "kind.toml"], &["kind.toml", "line 2"]);
    check_refused(&sandbox, &["--job", "nowhere.toml"], &["nowhere.toml", "--job"]);
    check_refused(&sandbox, &["--job", "/dev/zero"], &["/dev/zero", "larger than 16 MiB"]);
}

#[test]
fn outputs_in_the_way_are_refused() {
    let sandbox = with_input();
    sandbox.write("taken/precious", "keep me");
    sandbox.write("file", "keep me");
    let job = |options: &[&str], texts: &[&str]| {
        check_refused(&sandbox, &[&["--input", "in"], options].concat(), texts);
    };
    job(&["--output", "taken"], &["--output taken exists already", "--overwrite"]);
    job(&["--output", "file"], &["--output file exists and is not a directory"]);
    job(&["--output", "file", "--overwrite"], &["--output file exists and is not a directory"]);
    job(&["--output", "file/dir/out"], &["--output file/dir/out", "Not a directory"]);
    job(&["--output", "no/../such/dir"], &["--output no/../such/dir", "cannot be used"]);
    job(&["--output", "in/out"], &["lies inside --input in"]);
    job(&["--output", "in", "--overwrite"], &["lies inside --input in"]);
    check_refused(
        &sandbox,
        &["--input", "taken/precious", "--output", "taken", "--overwrite"],
        &["--input", "lies inside --output", "--overwrite would replace"],
    );
    // Of a directory only what a job wrote there is replaced.
    sandbox.write("home/.ssh/id", "keep me");
    job(&["--output", "home/.ssh", "--overwrite"], &["home/.ssh", "\"id\"", "which no job wrote there"]);
    job(&["--output", "home", "--overwrite"], &["\".ssh\"", "which no job wrote there"]);
    job(&["--output", "taken", "--overwrite"], &["\"precious\"", "which no job wrote there"]);
    assert_eq!(fs::read(sandbox.path("home/.ssh/id")).unwrap(), b"keep me");
    let write =
        |options: &[&str]| sandbox.run_job(&[&["--input", "in", "--output", "made"], options].concat());
    write(&[]).expect_success();
    write(&["--overwrite"]).expect_success();
    sandbox.write("made/notes", "keep me");
    write(&["--overwrite"]).expect_failure(REFUSED, &["\"notes\""]);
    assert_eq!(fs::read(sandbox.path("made/notes")).unwrap(), b"keep me");
    assert_eq!(fs::read(sandbox.path("taken/precious")).unwrap(), b"keep me");
    assert_eq!(fs::read(sandbox.path("file")).unwrap(), b"keep me");
    assert!(sandbox.path("in/a.txt").exists());
}

#[test]
fn missing_inputs_are_named() {
    let sandbox = with_input();
    let path = sandbox.path("absent.txt").display().to_string();
    check_refused(&sandbox, &["--input", "in", "absent.txt"], &["--input", &path, "does not exist"]);
    check_refused(&sandbox, &["--input", "in/*.csv"], &["no input matches \"in/*.csv\""]);
    let _pipe = sandbox.fifo("pipe");
    check_refused(&sandbox, &["--input", "pipe"], &["pipe is neither a regular file nor a directory"]);
}

#[test]
fn unreadable_inputs_are_named() {
    let sandbox = with_input();
    sandbox.write("in/secret.txt", "for your eyes only\n");
    sandbox.set_mode("in/secret.txt", 0o000);
    let Some(mut command) = sandbox.job_of_plain_user(&["--input", "in"]) else { return };
    let finished = Running::start(&mut command).wait();
    finished.expect_failure(REFUSED, &["--input", "in/secret.txt cannot be read", "Permission denied"]);
    sandbox.assert_nothing_left();
}

#[test]
fn unwritable_places_are_named() {
    let sandbox = with_input();
    for dir in ["locked", "locked/state"] {
        fs::create_dir(sandbox.path(dir)).unwrap();
        sandbox.set_mode(dir, 0o555);
    }
    for (option, place) in
        [("--state", "locked/state"), ("--state", "locked/new"), ("--output", "locked/out")]
    {
        let Some(mut command) = sandbox.job_of_plain_user(&["--input", "in", option, place]) else { return };
        let finished = Running::start(&mut command).wait();
        finished.expect_failure(REFUSED, &["locked"]);
        sandbox.assert_nothing_left();
    }
    let Some(mut command) = sandbox.job_of_plain_user(&["--input", "in", "--disk", "locked"]) else { return };
    let finished = Running::start(&mut command).wait();
    finished.expect_failure(REFUSED, &["--disk locked", "Permission denied"]);
    sandbox.assert_nothing_left();
}

#[test]
fn programs_that_cannot_start_are_named() {
    let sandbox = with_input();
    sandbox.write("plain.sh", "#!/bin/sh\ncat\n");
    sandbox.script("orphan.sh", "#!/no/such/interpreter\n");
    let job = |options: &[&str], texts: &[&str]| {
        check_refused(&sandbox, &[&["--input", "in"], options].concat(), texts);
    };
    job(&["--mapper", "no-such-program -x"], &["--mapper", "\"no-such-program\" not found"]);
    job(&["--reducer", "./absent.sh"], &["--reducer", "absent.sh\" not found"]);
    job(&["--mapper", "./plain.sh"], &["--mapper", "is not executable", "plain.sh"]);
    job(&["--combiner", "./plain.sh", "--reducer", "cat"], &["--combiner", "is not executable"]);
    // Only the kernel can tell that the interpreter is not there.
    check(&sandbox, &["--input", "in", "--mapper", "./orphan.sh"], REFUSED, &["orphan.sh", "interpreter"]);
}

#[track_caller]
fn check_dies(function: &str, program: &str, code: i32, texts: &[&str]) {
    let sandbox = with_input();
    let args = ["--input", "in", function, program];
    let finished = check(&sandbox, &args, code, texts);
    assert!(finished.stderr.contains("job 1 failed"), "{}", finished.story());
    let shown = sandbox.look(&["show", "1"]).expect_success().text();
    let failures = shown.split("\nFailures\n").nth(1).expect("show lists the failures");
    let failures = failures.split("\nLatest events\n").next().unwrap_or_default();
    for attempt in 0..3 {
        assert!(failures.contains(&format!("task 0, attempt {attempt}: ")), "{shown}");
    }
    assert!(!failures.contains("attempt 3"), "{shown}");
    assert_eq!(sandbox.attempts().of_task(0).is(State::Failed).count(), 3);
    assert!(sandbox.attempts().attempts().iter().all(|attempt| *attempt <= 2));
    assert_eq!(sandbox.jobs().states(), ["failed"]);
    assert_eq!(sandbox.jobs().exit_codes(), [i64::from(code)]);
}

#[test]
fn failing_programs_give_exit_code_and_last_lines() {
    let words = "sh -c 'cat > /dev/null; echo first >&2; echo \"cannot parse line 3\" >&2; exit 7'";
    let texts = ["exit code 7", "| first", "| cannot parse line 3", "sailfish show 1"];
    check_dies("--mapper", words, 7, &texts);
    check_dies("--reducer", words, 7, &texts);
    check_dies("--mapper", "sh -c 'exit 255'", 255, &["exit code 255"]);
    check_dies("--reducer", "sh -c 'kill -9 $$'", 128 + 9, &["signal 9"]);
}

#[test]
fn combiners_that_die_fail_the_map() {
    let sandbox = with_input();
    let combiner = "sh -c 'echo no >&2; exit 9'";
    check(
        &sandbox,
        &["--input", "in", "--combiner", combiner, "--reducer", "cat"],
        9,
        &["exit code 9", "| no", "in map task 0"],
    );
}

#[test]
fn a_line_of_one_gibibyte_is_refused() {
    let sandbox = with_input();
    let over = "more than 1073741824 bytes, the limit of any record";
    for (bytes, texts) in
        [(1 << 30, ["1073741824 bytes", "--memory 4096M"]), ((1 << 30) + 100, [over, "line 1"])]
    {
        let mapper = format!("sh -c 'head -c {bytes} /dev/zero | tr \"\\\\0\" x'");
        let args = ["--input", "in", "--memory", "64M", "--mapper", &mapper];
        let finished = check(&sandbox, &args, REFUSED, &texts);
        assert!(finished.stderr.contains("output line 1 of the user program"), "{}", finished.story());
    }
}

#[test]
fn reducer_may_write_lines_of_any_length() {
    let sandbox = with_input();
    let reducer = "sh -c 'head -c 100000000 /dev/zero | tr \"\\\\0\" x'";
    let args = ["--input", "in", "--memory", "64M", "--no-sync", "--reducer", reducer];
    sandbox.run_job(&args).expect_success();
    let part = sandbox.concatenated(&sandbox.out());
    assert!(part.len() == 100_000_000 && part.iter().all(|byte| *byte == b'x'));
    sandbox.sailfish_with(&["verify", "out"]).expect_success();
}

#[test]
fn unread_input_of_program_is_drained_and_counted() {
    let sandbox = Sandbox::new();
    let line = format!("key\t{}\n", "v".repeat(995));
    let text = line.repeat(4000);
    sandbox.write("in.txt", &text);
    let args = ["--input", "in.txt", "--no-sync", "--overwrite", "--slots", "2"];
    // Both close their input after the first line, long before its end.
    let mapper = "sh -c 'exec head -n 1'";
    sandbox.run_job(&[&args[..], &["--mapper", mapper]].concat()).expect_success();
    let report = sandbox.report(&sandbox.out());
    assert_eq!(report["input"]["bytes"], text.len());
    assert_eq!(report["input"]["records"], 4000);
    let unread = report["map"]["unread_bytes"].as_u64().expect("a count");
    assert!(unread > 1_000_000 && unread < text.len() as u64, "{report}");
    sandbox.run_job(&[&args[..], &["--reducer", mapper]].concat()).expect_success();
    let report = sandbox.report(&sandbox.out());
    let unread = report["reduce"]["unread_bytes"].as_u64().expect("a count");
    assert!(unread > 1_000_000 && unread < text.len() as u64, "{report}");
    assert_eq!((&report["proof"]["agrees"], &report["proof"]["records"]), (&true.into(), &4000.into()));
    assert_eq!(sandbox.concatenated(&sandbox.out()), line.as_bytes());
    // A program that reads nothing at all.
    sandbox.run_job(&[&args[..], &["--mapper", "true", "--reducer", "true"]].concat()).expect_success();
    assert!(sandbox.concatenated(&sandbox.out()).is_empty());
    sandbox.assert_no_leftovers();
}

/// Runs a job whose mapper waits until `change` has been made to the input.
#[track_caller]
fn check_changed_input(change: impl Fn(&Sandbox)) {
    let sandbox = Sandbox::new();
    sandbox.write("in.txt", "line\n".repeat(1_000_000));
    let mut started = sandbox.fifo("started");
    let mut go_on = sandbox.fifo("go_on");
    let mapper = format!("sh -c 'echo here > {}; read line < {}; exec cat'", started.text(), go_on.text());
    let running = sandbox.start_job(&["--input", "in.txt", "--slots", "1", "--mapper", &mapper]);
    started.read_line();
    change(&sandbox);
    // One line for each attempt that may come.
    (0..16).for_each(|_| go_on.write_line("go"));
    let finished = running.wait();
    finished.expect_failure(REFUSED, &["in.txt: file changed during the run"]);
    sandbox.assert_nothing_left();
}

#[test]
fn input_that_changes_during_run_fails_job() {
    check_changed_input(|sandbox| {
        let mut file = fs::File::options().append(true).open(sandbox.path("in.txt")).unwrap();
        std::io::Write::write_all(&mut file, b"one more\n").unwrap();
    });
    check_changed_input(|sandbox| {
        let file = fs::File::options().write(true).open(sandbox.path("in.txt")).unwrap();
        file.set_len(2_000_000).unwrap();
    });
    check_changed_input(|sandbox| {
        sandbox.write("new.txt", "line\n".repeat(1_000_000));
        fs::rename(sandbox.path("new.txt"), sandbox.path("in.txt")).unwrap();
    });
}

#[test]
fn damaged_compressed_inputs_are_named_with_their_offset() {
    let text = blackbox::corpus(300_000);
    for (kind, whole) in [("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let cut = whole.len() / 2;
        let mut flipped = whole.clone();
        flipped[cut] ^= 0x40;
        for (bytes, word, nearly) in [(&whole[..cut], "is truncated", cut), (&flipped[..], "is corrupt", cut)]
        {
            let sandbox = Sandbox::new();
            sandbox.write("in/good.txt", "good\n");
            sandbox.write("in/packed.bin", bytes);
            let finished =
                check(&sandbox, &["--input", "in"], REFUSED, &["in/packed.bin", word, kind, "at byte "]);
            let after = finished.stderr.split("at byte ").nth(1).expect("just checked");
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            let offset: usize = digits.parse().expect("an offset is a number");
            // A flipped bit is noticed at once, or at the checksum at the end.
            let last = if word == "is truncated" { nearly } else { whole.len() };
            assert!((1..=last).contains(&offset), "{}", finished.story());
            if word == "is truncated" {
                assert_eq!(offset, nearly, "{}", finished.story());
            }
        }
    }
}

#[test]
fn oversized_record_names_its_place_and_size() {
    let sandbox = Sandbox::new();
    let long = 17 << 20;
    sandbox.write("in.txt", ["short\n".repeat(10), "x".repeat(long), "\nafter\n".to_string()].concat());
    let texts = ["in.txt at byte 60", "17825792 bytes", "--memory 68M"];
    check(&sandbox, &["--input", "in.txt", "--memory", "64M"], REFUSED, &texts);
    // What the message asks for is enough.
    let args = ["--input", "in.txt", "--memory", "68M", "--no-sync", "--mapper", "cat"];
    sandbox.run_job(&args).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.out()).len(), 10 * 6 + long + 1 + 6);
}

#[test]
fn values_that_are_no_numbers_are_named() {
    let sandbox = Sandbox::new();
    sandbox.write("in.txt", "a\t1\nb\tmany\n");
    for function in ["builtin:sum", "builtin:min", "builtin:max"] {
        check(&sandbox, &["--input", "in.txt", "--reducer", function], REFUSED, &["many", "number"]);
    }
}

#[test]
fn corrupt_states_are_named() {
    let sandbox = with_input();
    sandbox.write("state/sailfish.db", "this is not a database, however long one looks at it".repeat(100));
    let texts = ["state/sailfish.db is damaged", "move it away"];
    check(&sandbox, &["--input", "in"], REFUSED, &texts);
    sandbox.look(&["jobs"]).expect_failure(REFUSED, &texts[..1]);
    sandbox.look(&["state", "select 1"]).expect_failure(REFUSED, &["sailfish.db"]);
    // A directory in its place, and a file in place of the state directory.
    let sandbox = with_input();
    sandbox.write("state/sailfish.db/file", "");
    check(&sandbox, &["--input", "in"], REFUSED, &["sailfish.db"]);
    let sandbox = with_input();
    sandbox.write("state", "");
    let finished = sandbox.run_job(&["--input", "in"]).expect_failure(REFUSED, &["state"]);
    assert!(!sandbox.out().exists(), "{}", finished.story());
}

#[test]
fn state_of_newer_version_is_refused_and_kept() {
    let sandbox = with_input();
    sandbox.run_job(&["--input", "in", "--output", "first"]).expect_success();
    let newer = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        db.execute(\"insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
        values (9999, 'from the future', 1, x'00', 0)\")\n\
        db.commit()\n";
    let mut command = Command::new("python3");
    sandbox.clean(&mut command);
    let finished = Running::start(command.args(["-c", newer, "state/sailfish.db"])).wait();
    if !finished.status.success() {
        could_not_run("a state from a newer version", &finished.stderr);
        return;
    }
    let texts = ["was written by a newer version of sailfish", "9999", "--state"];
    check(&sandbox, &["--input", "in"], REFUSED, &texts);
    sandbox.look(&["jobs"]).expect_failure(REFUSED, &texts[..1]);
    assert!(sandbox.path("first/_SUCCESS").exists());
}

#[test]
fn commands_without_a_job_say_so() {
    let sandbox = with_input();
    sandbox.look(&["show", "1"]).expect_failure(REFUSED, &["no job has run in"]);
    sandbox.look(&["jobs"]).expect_success();
    assert!(!sandbox.state().exists(), "looking made a state");
    sandbox.run_job(&["--input", "in", "--no-sync"]).expect_success();
    sandbox.look(&["show", "99"]).expect_failure(REFUSED, &["there is no job 99", "sailfish jobs"]);
    sandbox.look(&["report", "99"]).expect_failure(REFUSED, &["there is no job 99", "sailfish jobs"]);
    sandbox.sailfish_with(&["verify", "nowhere"]).expect_failure(REFUSED, &["nowhere is not a directory"]);
    sandbox.sailfish_with(&["verify", "in"]).expect_failure(FAILED, &["_report.json"]);
}

#[test]
fn input_without_data_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("in/_hidden", "x\n");
    sandbox.write("more", "y\n");
    let inputs = ["--input", "more", "in", "--overwrite"];
    let said = sandbox.run_job(&inputs).expect_success();
    assert!(said.stderr.contains("warning: --input in has no file that is data"), "{}", said.story());
    assert_eq!(said.stderr.matches("no file that is data").count(), 1, "{}", said.story());
    let failing = [&inputs[..], &["--empty-input", "fail"]].concat();
    sandbox.run_job(&failing).expect_failure(2, &["--input in has no file that is data"]);
}

#[test]
fn memory_beyond_the_machine_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "x\n");
    sandbox
        .run_job(&["--input", "in", "--memory", "100000G"])
        .expect_failure(2, &["--memory", "this machine"]);
    let node = ["node", "--server", "http://127.0.0.1:1", "--memory", "100000G"];
    sandbox.sailfish_with(&node).expect_failure(2, &["--memory", "this machine"]);
}
