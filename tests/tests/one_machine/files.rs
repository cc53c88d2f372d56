//! Stored files: put and get, names and sources that cannot be put, kills, crash points, failing calls, damage.

use blackbox::{Finished, Mounts, Random, Running, Sandbox, could_not_run, gzip, wait_until};
use faults::{CrashPoint, IoCall};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FAILED: i32 = 1;
const REFUSED: i32 = 2;
const INTERRUPTED: i32 = 130;
/// The signal of `abort`.
const SIGABRT: i32 = 6;
/// Kills of one put, each at a random moment.
const KILLS: usize = 10;
/// Calls of one kind in a small put, at most.
const CALLS_MAX: u64 = 200;

/// `sailfish files` on the state of the sandbox.
fn files_command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.sailfish();
    command.arg("files").args(args).arg("--state").arg(sandbox.state());
    command
}

fn files(sandbox: &Sandbox, args: &[&str]) -> Finished {
    Running::start(&mut files_command(sandbox, args)).wait()
}

#[track_caller]
fn done(sandbox: &Sandbox, args: &[&str]) -> String {
    files(sandbox, args).expect_success().text()
}

/// Names below a directory of the store, in order.
#[track_caller]
fn names(sandbox: &Sandbox, dir: &str) -> Vec<String> {
    let listed = done(sandbox, &["ls", "--json", "--recursive", dir]);
    let name = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        value["name"].as_str().expect("a name").to_string()
    };
    let mut names: Vec<String> = listed.lines().map(name).collect();
    names.sort_unstable();
    names
}

/// Everything below a directory: names, and bytes of files.
fn contents(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(&next).expect("a directory is listed") {
            let path = entry.expect("an entry").path();
            let below = path.strip_prefix(dir).expect("it lies below").to_path_buf();
            match path.is_dir() {
                true => {
                    all.push((below, None));
                    pending.push(path);
                }
                false => all.push((below, Some(fs::read(&path).expect("a file is read")))),
            }
        }
    }
    all.sort();
    all
}

/// Concrete files on the disk of the store, with their checksums; not the locks of puts. Puts may be running.
fn stored(sandbox: &Sandbox) -> Vec<PathBuf> {
    let data = sandbox.state().join("files/data");
    let (mut pending, mut found) = (vec![data.clone()], Vec::new());
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            match path.is_dir() {
                true => pending.push(path),
                false if path.ends_with("lock") => {}
                false => found.push(path.strip_prefix(&data).expect("it lies below").to_path_buf()),
            }
        }
    }
    found
}

/// The store has this directory under a name, as `get` and `fsck` show.
#[track_caller]
fn assert_stored(sandbox: &Sandbox, source: &Path, name: &str) {
    let copy = sandbox.path("copy");
    done(sandbox, &["get", name, "copy"]);
    assert!(contents(&copy) == contents(source), "the copy differs from {}", source.display());
    fs::remove_dir_all(copy).expect("the copy is removed");
    let checked = done(sandbox, &["fsck"]);
    assert!(checked.contains("; 0 problems"), "{checked}");
}

/// A directory with small files, a large one of several parts, an empty one, and an empty directory.
fn write_source(sandbox: &Sandbox, name: &str, files: u32) -> PathBuf {
    for number in 0..files {
        sandbox.write(&format!("{name}/small/{number}.txt"), format!("{name} {number}\n").repeat(50));
    }
    sandbox.write(&format!("{name}/large"), vec![b'x'; 300_000]);
    sandbox.write(&format!("{name}/deep/er/empty"), "");
    fs::create_dir_all(sandbox.path(name).join("no files")).expect("a directory is made");
    sandbox.path(name)
}

#[test]
fn directory_is_put_listed_and_got() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 3);
    let put = files(&sandbox, &["put", "in", "data/in", "--parts", "3"]).expect_success();
    assert!(put.stderr.contains("put data/in version 1: 5 files"), "{}", put.stderr);
    assert_stored(&sandbox, &source, "data/in");
    assert_eq!(names(&sandbox, "data/in/small"), ["0.txt", "1.txt", "2.txt"]);
    assert_eq!(done(&sandbox, &["cat", "data/in/small/1.txt"]), "in 1\n".repeat(50));
    assert!(done(&sandbox, &["stat", "data/in/large"]).contains("parts          3"));
    // Into a directory, under its own name.
    done(&sandbox, &["put", "in/small", "files:data/"]);
    assert_eq!(names(&sandbox, "/data/small").len(), 3);
    done(&sandbox, &["cp", "data/small", "twin"]);
    done(&sandbox, &["mv", "twin/0.txt", "/"]);
    done(&sandbox, &["cp", "0.txt", "twin/"]);
    done(&sandbox, &["mv", "twin/0.txt", "first"]);
    done(&sandbox, &["rm", "0.txt"]);
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(names(&sandbox, "/"), ["first", "twin", "twin/1.txt", "twin/2.txt"]);
    assert_eq!(done(&sandbox, &["cat", "first", "twin/1.txt"]), "in 0\n".repeat(50) + &"in 1\n".repeat(50));
    assert_eq!(stored(&sandbox).len(), 3);
    files(&sandbox, &["rm", "twin"]).expect_failure(REFUSED, &["twin is a directory", "--recursive"]);
    files(&sandbox, &["mkdir", "a/b"]).expect_failure(REFUSED, &["no file or directory a"]);
    files(&sandbox, &["get", "twin", "in"]).expect_failure(REFUSED, &["cannot create in", "exists already"]);
    files(&sandbox, &["cat", "twin"]).expect_failure(REFUSED, &["twin is a directory"]);
    let versions = done(&sandbox, &["versions"]);
    assert_eq!(versions.lines().count(), 2 + 8, "{versions}");
}

#[test]
fn standard_input_is_put() {
    let sandbox = Sandbox::new();
    let mut command = files_command(&sandbox, &["put", "-", "lines"]);
    let mut input = Command::new("seq").arg("100000").stdout(Stdio::piped()).spawn().expect("seq starts");
    let numbers = input.stdout.take().expect("it is piped");
    Running::start_with_stdin(&mut command, numbers).wait().expect_success();
    input.wait().expect("seq ends");
    let out = done(&sandbox, &["cat", "lines"]);
    assert_eq!((out.lines().count(), out.lines().last()), (100_000, Some("100000")));
    let mut empty = files_command(&sandbox, &["put", "-", "nothing"]);
    Running::start_with_stdin(&mut empty, Stdio::null()).wait().expect_success();
    assert_eq!(done(&sandbox, &["cat", "nothing"]), "");
    files(&sandbox, &["put", "-", "x", "--records", "lines"]).expect_failure(REFUSED, &["--records"]);
}

#[test]
fn parts_end_with_records() {
    let sandbox = Sandbox::new();
    let text: String = (0..10_000).map(|number| format!("{number:07}\n")).collect();
    sandbox.write("lines", &text);
    done(&sandbox, &["put", "lines", "lines", "--parts", "7", "--records", "lines"]);
    done(&sandbox, &["put", "lines", "fixed", "--parts", "7", "--records", "fixed:16"]);
    for (name, record_bytes) in [("lines", 8), ("fixed", 16)] {
        let value: serde_json::Value =
            serde_json::from_str(&done(&sandbox, &["stat", "--json", name])).expect("JSON");
        let parts = value["concrete_files"].as_array().expect("a list");
        assert_eq!(parts.len(), 7);
        let whole =
            |part: &serde_json::Value| part["bytes"].as_u64().expect("a number").is_multiple_of(record_bytes);
        assert!(parts.iter().all(whole), "{value}");
        assert_eq!(done(&sandbox, &["cat", name]), text);
    }
    files(&sandbox, &["put", "lines", "x", "--records", "fixed:7"])
        .expect_failure(REFUSED, &["lines", "80000 bytes", "records of 7"]);
}

#[test]
fn bad_names_are_listed_before_any_byte() {
    let sandbox = Sandbox::new();
    sandbox.write("in/good", "good");
    sandbox.write("in/with space", "1");
    sandbox.write("in/with\nnewline", "2");
    fs::write(sandbox.path("in").join(OsStr::from_bytes(b"not\xfftext")), "3").expect("Linux takes it");
    symlink("good", sandbox.path("in/link")).expect("a link is made");
    symlink("..", sandbox.path("in/up")).expect("a link is made");
    drop(sandbox.fifo("in/pipe"));
    drop(std::os::unix::net::UnixListener::bind(sandbox.path("in/socket")).expect("a socket is bound"));
    sandbox.write("in/version@12", "4");
    let refused = files(&sandbox, &["put", "in", "data"]);
    refused.expect_failure(
        REFUSED,
        &[
            "not UTF-8",
            "in/link: it is a symbolic link",
            "a named pipe",
            "a socket",
            "version@12",
            "6 entries",
        ],
    );
    assert!(stored(&sandbox).is_empty());
    let put = files(&sandbox, &["put", "in", "data", "--skip"]).expect_success();
    assert_eq!(put.stderr.matches("left out:").count(), 6, "{}", put.stderr);
    assert_eq!(names(&sandbox, "data"), ["good", "with\nnewline", "with space"]);
    // A list stays one line for each entry.
    assert!(done(&sandbox, &["ls", "data"]).contains("with\\nnewline"));
    assert_eq!(done(&sandbox, &["cat", "data/with\nnewline"]), "2");
    // A link that leads back would have no end.
    files(&sandbox, &["put", "in", "data", "--follow-links"])
        .expect_failure(REFUSED, &["in/up", "a directory above it"]);
    let long = "x".repeat(256);
    for (name, text) in
        [("../x", "`..`"), ("a//b", "empty part"), (long.as_str(), "at most 255"), ("x@3", "@")]
    {
        files(&sandbox, &["put", "in/good", name]).expect_failure(REFUSED, &[text]);
    }
    files(&sandbox, &["put", "in/good", &"x/".repeat(2048)]).expect_failure(REFUSED, &["4096 bytes", "4095"]);
    files(&sandbox, &["put", "nowhere", "x"]).expect_failure(REFUSED, &["nowhere", "No such file"]);
}

#[test]
fn source_that_changes_is_refused() {
    let sandbox = Sandbox::new();
    for number in 0..20 {
        sandbox.write(&format!("in/{number:02}"), "before");
    }
    let mut command = files_command(&sandbox, &["put", "in", "data"]);
    command.env("SAILFISH_IO_FAULT", "write:slow:1+");
    let putting = Running::start(&mut command);
    wait_until("parts are being written", || !stored(&sandbox).is_empty());
    sandbox.write("in/19", "after!");
    fs::remove_file(sandbox.path("in/18")).expect("it is removed");
    let failed = putting.wait();
    assert!(matches!(failed.code(), Some(FAILED | REFUSED)), "{}", failed.story());
    let named = failed.stderr.contains("in/19 changed while") || failed.stderr.contains("in/18");
    assert!(named, "{}", failed.story());
    files(&sandbox, &["ls", "data"]).expect_failure(REFUSED, &["no file or directory data"]);
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &sandbox.path("in"), "data");
}

/// Starts a put whose writes take their time.
fn slow_put(sandbox: &Sandbox) -> Running {
    let mut command = files_command(sandbox, &["put", "in", "data"]);
    command.env("SAILFISH_IO_FAULT", "write:slow:1+");
    Running::start(&mut command)
}

#[test]
fn interrupted_put_goes_on() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 40);
    let putting = slow_put(&sandbox);
    wait_until("some files are there", || stored(&sandbox).len() > 8);
    putting.signal(Signal::INT);
    putting.wait().expect_failure(INTERRUPTED, &["the same command goes on"]);
    let kept = stored(&sandbox).len();
    assert!((6..40).contains(&kept), "{kept}");
    files(&sandbox, &["ls", "data"]).expect_failure(REFUSED, &["data"]);
    assert!(files(&sandbox, &["fsck"]).expect_success().stderr.contains("unfinished put of data"));
    // A file that changed in between is put anew.
    sandbox.write("in/small/0.txt", "changed");
    let log = sandbox.path("calls");
    let mut again = files_command(&sandbox, &["put", "in", "data"]);
    again.env("SAILFISH_IO_LOG", &log);
    Running::start(&mut again).wait().expect_success();
    let calls = fs::read_to_string(log).expect("the log is there");
    let writes = calls.lines().filter(|line| line.starts_with("write ") && line.contains("/data/")).count();
    assert!(writes <= 43 - kept + 3, "{writes} files were written though {kept} were there");
    assert_stored(&sandbox, &source, "data");
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(stored(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn killed_puts_show_nothing() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 40);
    let mut random = Random::new(7);
    for kill in 0..KILLS {
        let putting = slow_put(&sandbox);
        let before = stored(&sandbox).len();
        let more = 1 + random.below(6) as usize;
        wait_until("more files are there", || stored(&sandbox).len() >= before.min(30) + more);
        putting.signal(Signal::KILL);
        putting.wait();
        let listed = files(&sandbox, &["ls", "data"]);
        assert_eq!(listed.code(), Some(REFUSED), "kill {kill}: {}", listed.story());
    }
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &source, "data");
    // The last put reused or replaced all files of the killed ones.
    assert_eq!(stored(&sandbox).len(), 40 + 2, "the small files, the large one and its checksums");
}

/// Puts, gets and removes run at once: each get has one version, whole.
#[test]
fn readers_and_writers_meet() {
    let sandbox = Sandbox::new();
    write_source(&sandbox, "one", 30);
    write_source(&sandbox, "two", 30);
    done(&sandbox, &["put", "one", "data"]);
    let versions = [contents(&sandbox.path("one")), contents(&sandbox.path("two"))];
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for round in 0..6 {
                done(&sandbox, &["put", if round % 2 == 0 { "two" } else { "one" }, "data"]);
            }
        });
        for reader in 0..2 {
            let (sandbox, versions) = (&sandbox, &versions);
            scope.spawn(move || {
                for round in 0..6 {
                    let target = format!("out-{reader}-{round}");
                    done(sandbox, &["get", "data", &target]);
                    let got = contents(&sandbox.path(&target));
                    assert!(versions.contains(&got), "{target} is no version");
                }
            });
        }
        writing.join().expect("the writer says its error itself");
    });
    assert_stored(&sandbox, &sandbox.path("one"), "data");
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(stored(&sandbox), [] as [PathBuf; 0]);
}

#[test]
fn same_put_runs_several_times_at_once() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 5);
    for _ in 0..5 {
        let puts: Vec<Running> =
            (0..4).map(|_| Running::start(&mut files_command(&sandbox, &["put", "in", "data"]))).collect();
        puts.into_iter().for_each(|put| drop(put.wait().expect_success()));
        assert_stored(&sandbox, &source, "data");
        assert_eq!(stored(&sandbox).len(), 5 + 2);
    }
}

#[test]
fn puts_survive_crashes_at_each_point() {
    use CrashPoint::{FilesBegun, FilesCommitted, FilesRemoved, FilesRetired, FilesSynced, FilesWritten};
    for point in [FilesBegun, FilesWritten, FilesSynced, FilesCommitted, FilesRetired, FilesRemoved] {
        let sandbox = Sandbox::new();
        let source = write_source(&sandbox, "in", 3);
        write_source(&sandbox, "older", 2);
        done(&sandbox, &["put", "older", "data"]);
        let mut command = files_command(&sandbox, &["put", "in", "data"]);
        command.env("SAILFISH_CRASH_AT", point.name());
        let crashed = Running::start(&mut command).wait();
        assert_eq!(crashed.signal(), Some(SIGABRT), "{}: {}", point.name(), crashed.story());
        let is_committed = !matches!(point, FilesBegun | FilesWritten | FilesSynced);
        let expected = if is_committed { &source } else { &sandbox.path("older") };
        assert_stored(&sandbox, expected, "data");
        done(&sandbox, &["put", "in", "data"]);
        assert_stored(&sandbox, &source, "data");
        assert_eq!(stored(&sandbox).len(), 3 + 2, "{}", point.name());
    }
}

/// Each call that changes files fails once, and from some call on all do.
#[test]
fn failing_calls_leave_a_whole_version() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 2);
    let older = write_source(&sandbox, "older", 1);
    for call in [IoCall::Create, IoCall::Write, IoCall::Sync] {
        for fault in ["enospc", "eio"] {
            let mut number = 1;
            loop {
                let _ = fs::remove_dir_all(sandbox.state());
                done(&sandbox, &["put", "older", "data"]);
                let mut command = files_command(&sandbox, &["put", "in", "data"]);
                command.env("SAILFISH_IO_FAULT", format!("{}:{fault}:{number}", call.name()));
                let finished = Running::start(&mut command).wait();
                if !finished.stderr.contains("gets the planted fault") {
                    assert!(number > 1 && finished.status.success(), "{}", finished.story());
                    break;
                }
                let is_new = finished.status.success();
                if !is_new {
                    assert!(matches!(finished.code(), Some(FAILED | REFUSED)), "{}", finished.story());
                    let cause = if fault == "eio" { "Input/output error" } else { "No space left" };
                    assert!(finished.stderr.contains(cause), "{}", finished.story());
                }
                assert_stored(&sandbox, if is_new { &source } else { &older }, "data");
                done(&sandbox, &["put", "in", "data"]);
                assert_stored(&sandbox, &source, "data");
                number += 1;
                assert!(number < CALLS_MAX, "it does not end");
            }
        }
    }
}

#[test]
fn full_disk_refuses_a_put() {
    let Some(mounts) = Mounts::start("a full disk under stored files") else { return };
    let sandbox = Sandbox::new();
    mounts.small_disk(&sandbox.state(), "size=4m");
    sandbox.write("small", "small");
    sandbox.write("large", vec![b'x'; 8 << 20]);
    let run = |args: &[&str]| {
        let mut command = mounts.inside(&sandbox, &files_command(&sandbox, args));
        Running::start(&mut command).wait()
    };
    run(&["put", "small", "small"]).expect_success();
    run(&["put", "large", "large"]).expect_failure(FAILED, &["No space left on device"]);
    // Its bytes are gone: the disk has room again.
    run(&["put", "small", "second"]).expect_success();
    assert_eq!(run(&["cat", "small", "second"]).expect_success().text(), "smallsmall");
    assert!(run(&["fsck"]).expect_success().text().contains("2 files, 2 parts"));
}

#[test]
fn damage_is_found_and_never_read() {
    let sandbox = Sandbox::new();
    write_source(&sandbox, "in", 1);
    done(&sandbox, &["put", "in", "data"]);
    let data = sandbox.state().join("files/data");
    let flip = |path: &Path, place: usize| {
        let mut bytes = fs::read(path).expect("it is read");
        bytes[place] ^= 1;
        fs::write(path, bytes).expect("it is written");
    };
    let large = stored(&sandbox).into_iter().map(|path| data.join(path));
    let large = large.max_by_key(|path| fs::metadata(path).expect("it exists").len()).expect("a file");
    flip(&large, 200_000);
    files(&sandbox, &["cat", "data/large"]).expect_failure(FAILED, &["is damaged", "block 3"]);
    files(&sandbox, &["get", "data", "out"]).expect_failure(FAILED, &["is damaged", "block 3"]);
    assert!(!sandbox.path("out").exists());
    files(&sandbox, &["fsck"]).expect_failure(FAILED, &["large: part 0", "block 3", "1 problem"]);
    flip(&large, 200_000);
    let cut = File::options().write(true).open(&large).expect("it is opened");
    cut.set_len(100).expect("it is cut");
    files(&sandbox, &["fsck", "data"]).expect_failure(FAILED, &["100 bytes instead of 300000"]);
    fs::remove_file(&large).expect("it is removed");
    files(&sandbox, &["cat", "data/large"]).expect_failure(FAILED, &["it does not exist"]);
    // A new version needs nothing of the damaged one.
    done(&sandbox, &["put", "in", "data"]);
    assert_stored(&sandbox, &sandbox.path("in"), "data");
    // A file that nobody made here.
    fs::create_dir_all(data.join("77/0")).expect("directories are made");
    fs::write(data.join("77/0/1"), "foreign").expect("it is written");
    files(&sandbox, &["fsck"]).expect_failure(FAILED, &["has no row in the store"]);
}

#[test]
fn interrupted_get_goes_on() {
    let sandbox = Sandbox::new();
    let source = write_source(&sandbox, "in", 5);
    done(&sandbox, &["put", "in", "data"]);
    // As a killed get leaves it: complete files, and a torn one.
    fs::create_dir_all(sandbox.path(".out.sailfish-get-1/tree/small")).expect("directories are made");
    fs::create_dir_all(sandbox.path(".out.sailfish-get-1/incomplete")).expect("directories are made");
    let torn = File::create(sandbox.path(".out.sailfish-get-1/incomplete/2")).expect("it is made");
    (&torn).write_all(&vec![b'y'; 400_000]).expect("it is written");
    done(&sandbox, &["get", "data", "out"]);
    assert!(contents(&sandbox.path("out")) == contents(&source));
    assert!(!sandbox.path(".out.sailfish-get-1").exists());
    sandbox.write("file", "old");
    files(&sandbox, &["get", "data/small/0.txt", "file"]).expect_failure(REFUSED, &["--overwrite"]);
    done(&sandbox, &["get", "data/small/0.txt", "file", "--overwrite"]);
    assert_eq!(fs::read(sandbox.path("file")).expect("it is read"), "in 0\n".repeat(50).as_bytes());
}

#[test]
fn get_uses_no_directory_of_others() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "stored\n");
    done(&sandbox, &["put", "in", "data"]);
    let place = sandbox.path(".out.sailfish-get-1");
    fs::create_dir(sandbox.path("elsewhere")).expect("a directory is made");
    symlink("elsewhere", &place).expect("a link is made");
    files(&sandbox, &["get", "data", "out"]).expect_failure(REFUSED, &["get-1", "not the directory of"]);
    assert_eq!(fs::read_dir(sandbox.path("elsewhere")).expect("it is listed").count(), 0);
    fs::remove_file(&place).expect("the link is removed");
    fs::create_dir(&place).expect("a directory is made");
    sandbox.write(".out.sailfish-get-1/tree", "foreig\n");
    match std::os::unix::fs::chown(&place, Some(65_534), None) {
        Ok(()) => {
            files(&sandbox, &["get", "data", "out"]).expect_failure(REFUSED, &["not the directory of"]);
        }
        Err(_) => could_not_run("a get into a directory of another user", "only root can give files away"),
    }
    assert!(!sandbox.path("out").exists());
    fs::remove_dir_all(&place).expect("it is removed");
    done(&sandbox, &["get", "data", "out"]);
    assert_eq!(fs::read(sandbox.path("out")).expect("it is read"), b"stored\n");
}

#[test]
fn stored_files_are_private() {
    let sandbox = Sandbox::new();
    sandbox.write("secret", "secret");
    done(&sandbox, &["put", "secret", "secret"]);
    for dir in ["", "files", "files/data"] {
        let mode = fs::metadata(sandbox.state().join(dir)).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{dir}: {mode:o}");
    }
}

#[test]
fn nothing_is_made_by_reading() {
    let sandbox = Sandbox::new();
    files(&sandbox, &["ls"]).expect_failure(REFUSED, &["no files are stored in", "--state"]);
    assert!(!sandbox.state().exists());
    files(&sandbox, &["put"]).expect_failure(REFUSED, &["Usage"]);
}

/// The lines of a job over an input, sorted.
#[track_caller]
fn sorted_by_a_job(sandbox: &Sandbox, inputs: &[&str]) -> Vec<String> {
    let _ = fs::remove_dir_all(sandbox.out());
    let named = inputs.iter().flat_map(|input| ["--input", input]);
    sandbox.run_job(&named.chain(["--total-order"]).collect::<Vec<_>>()).expect_success();
    sandbox.output_lines(&sandbox.out())
}

#[test]
fn jobs_read_stored_files() {
    let sandbox = Sandbox::new();
    let mut expected = Vec::new();
    for file in 0..4 {
        let lines: Vec<String> =
            (0..5000).map(|line| format!("{:08}", (line * 7919 + file) % 100_003)).collect();
        sandbox.write(&format!("in/{file}.txt"), lines.join("\n") + "\n");
        expected.extend(lines);
    }
    sandbox.write("in/_hidden", "no data\n");
    sandbox.write("in/packed", gzip(b"packed\n"));
    expected.push("packed".to_string());
    expected.sort_unstable();
    // Parts end anywhere within lines.
    done(&sandbox, &["put", "in", "data", "--parts", "7", "--keep-versions", "2"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data"]), expected);
    sandbox.write("plain", "plain\n");
    let both = sorted_by_a_job(&sandbox, &["plain", "files:data/3.txt", "files:data/packed"]);
    assert_eq!(both.len(), 5002);
    done(&sandbox, &["rm", "--recursive", "data"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data@1"]), expected);
    sandbox
        .run_job(&["--input", "files:data"])
        .expect_failure(REFUSED, &["files:data", "no file or directory data"]);
    sandbox.run_job(&["--input", "files:../x"]).expect_failure(REFUSED, &["files:../x", "`..`"]);
}

/// Prints the bytes of stretches, and treats their files as the variable SPOIL says.
const STRETCH_READER: &str = r#"#!/usr/bin/env python3
import json, os, sys
for line in sys.stdin:
    stretch = json.loads(line)
    path = stretch["path"]
    assert os.path.getsize(path) == stretch["size"] and os.stat(path).st_mode & 0o777 == 0o444, stretch
    with open(path, "rb") as file:
        file.seek(stretch["offset"])
        data = file.read(stretch["length"])
    sys.stdout.write(f"{os.path.basename(path)} {stretch['offset']:09}\t{data.hex()}\n")
    spoil = os.environ.get("SPOIL")
    if spoil in ("write", "cut"):
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.write(b"spoiled") if spoil == "write" else file.truncate(1)
    if spoil == "remove":
        os.unlink(path)
"#;

/// Returns the bytes of a file that [`STRETCH_READER`] has printed.
fn printed_bytes(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    let mut lines = sandbox.output_lines(&sandbox.out());
    lines.retain(|line| line.starts_with(&format!("{name} ")));
    lines.sort();
    let digits: String = lines.iter().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn programs_cannot_change_stored_files() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
    sandbox.write("in/whole", &bytes);
    sandbox.write("in/small", "small");
    done(&sandbox, &["put", "in", "data", "--parts", "3"]);
    let mapper = sandbox.script("read.py", STRETCH_READER);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let job = |more: &[&str]| {
        let job = ["--input", "files:data", "--input-format", "stretches", "--mapper", mapper, "--map-only"];
        sandbox.run_job(&[&job[..], &["--overwrite"], more].concat())
    };
    for (spoil, is_noticed) in [("write", true), ("cut", true), ("remove", false)] {
        for contained in [&[][..], &["--contain"]] {
            let ran = job(&[&["--slots", "1", "--env", &format!("SPOIL={spoil}")][..], contained].concat());
            match is_noticed {
                true => drop(ran.expect_failure(1, &["changed its copy of files:data/", "must not write"])),
                false => drop(ran.expect_success()),
            }
        }
        job(&[]).expect_success();
        assert_eq!(printed_bytes(&sandbox, "whole"), bytes, "{spoil}");
        assert_eq!(printed_bytes(&sandbox, "small"), b"small");
    }
    done(&sandbox, &["fsck"]);
}

/// Prints its input behind a file beside it, a file that it is told, and its mode.
const TELLS: &str = r#"#!/bin/sh
[ -z "$SPOIL" ] || { chmod 600 "$1"; echo spoiled > "$1"; }
exec sed "s/^/$(cat words) $(cat "$1") $(stat -L -c %a "$0" words | tr '\n' ' ')/"
"#;

#[test]
fn stored_programs_run() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "line\n");
    sandbox.write("tell.sh", TELLS);
    sandbox.write("words", "old");
    done(&sandbox, &["put", "tell.sh", "bin/tell.sh"]);
    done(&sandbox, &["put", "words", "words", "--keep-versions", "2"]);
    let mapper = ["--mapper", "files:bin/tell.sh files:words"];
    let told = |more: &[&str]| {
        let job = [&["--input", "in", "--map-only", "--overwrite"][..], &mapper, more].concat();
        sandbox.run_job(&job)
    };
    let lines = |more: &[&str]| {
        told(&[&["--file", "files:words"], more].concat()).expect_success();
        sandbox.output_lines(&sandbox.out())
    };
    for contained in [&[][..], &["--contain"]] {
        assert_eq!(lines(contained), ["old old 555 555 line"]);
    }
    sandbox.write("words", "new");
    done(&sandbox, &["put", "words", "words", "--keep-versions", "2"]);
    assert_eq!(lines(&[]), ["new new 555 555 line"]);
    told(&["--file", "files:words@2"]).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.out()), ["old new 555 555 line"]);
    // What a program does to its copy concerns nobody else.
    told(&["--file", "files:words", "--env", "SPOIL=1"])
        .expect_failure(1, &["changed its copy of files:words@3", "must not write"]);
    assert_eq!(lines(&[]), ["new new 555 555 line"]);
    let state = sandbox.state().display().to_string();
    let streaming =
        ["streaming", "-input", "in", "-output", "hadoop", "-numReduceTasks", "0", "--state", &state];
    let programs =
        ["-mapper", "tell.sh files:words", "-file", "files:bin/tell.sh", "-files", "files:words@2#words"];
    Running::start(sandbox.sailfish().args(streaming).args(programs)).wait().expect_success();
    // A key alone has the separator, as in Hadoop.
    assert_eq!(sandbox.output_lines(&sandbox.path("hadoop")), ["old new 555 555 line\t"]);
    let submit = |words: &[&str]| {
        let mut submit = sandbox.sailfish();
        submit.args(["submit", "--state", &state, "--file", "files:words", "--"]).args(words);
        Running::start(&mut submit).wait()
    };
    let told = submit(&["sh", "-c", "echo line | \"$0\" \"$1\"", "files:bin/tell.sh", "files:words@2"]);
    assert_eq!(told.expect_success().text(), "new old 555 555 line\n");
    for (name, problem) in [("files:none", "no file or directory none"), ("files:bin", "bin is a directory")]
    {
        let job = |option| sandbox.run_job(&["--input", "in", option, name]);
        job("--mapper").expect_failure(REFUSED, &[&format!("--mapper {name}"), problem]);
        job("--file").expect_failure(REFUSED, &[&format!("--file {name}"), problem]);
        submit(&["cat", name]).expect_failure(REFUSED, &[name, problem]);
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn job_keeps_the_version_it_reads() {
    let sandbox = Sandbox::new();
    // More than pipes hold, so that the second file is opened when the program goes on.
    sandbox.write("in/a", "old\n".repeat(1 << 20));
    sandbox.write("in/b", "old\n");
    done(&sandbox, &["put", "in", "data"]);
    let (mut started, mut gate) = (sandbox.fifo("started"), sandbox.fifo("gate"));
    let text =
        format!("#!/bin/sh\necho here > {}\nread line < {}\nexec sort -u\n", started.text(), gate.text());
    let mapper = sandbox.script("wait.sh", &text);
    let mapper = mapper.to_str().expect("a sandbox has a plain path");
    let job = sandbox.start_job(&["--input", "files:data", "--mapper", mapper, "--map-only", "--slots", "1"]);
    started.read_line();
    sandbox.write("in/a", "new\n");
    fs::remove_file(sandbox.path("in/b")).expect("it is removed");
    done(&sandbox, &["put", "in", "data"]);
    assert_eq!(stored(&sandbox).len(), 2 + 1 + 1, "the job needs the old files and checksums");
    // A line for each task.
    (0..8).for_each(|_| gate.write_line("go"));
    job.wait().expect_success();
    let mut lines = sandbox.output_lines(&sandbox.out());
    lines.dedup();
    assert_eq!(lines, ["old"]);
    assert_eq!(sorted_by_a_job(&sandbox, &["files:data"]), ["new"]);
    done(&sandbox, &["mkdir", "other"]);
    assert_eq!(stored(&sandbox).len(), 1);
}

#[test]
fn damaged_stored_file_fails_its_job() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "line\n".repeat(100_000));
    done(&sandbox, &["put", "in", "data"]);
    let file = stored(&sandbox).into_iter().find(|path| !path.to_string_lossy().ends_with(".sums"));
    let path = sandbox.state().join("files/data").join(file.expect("a file"));
    let mut bytes = fs::read(&path).expect("it is read");
    bytes[300_000] ^= 4;
    fs::write(&path, bytes).expect("it is written");
    sandbox
        .run_job(&["--input", "files:data"])
        .expect_failure(FAILED, &["files:data@1", "damaged", "block 4"]);
    sandbox.assert_no_leftovers();
}

/// A job whose output is stored.
fn stored_job(sandbox: &Sandbox, output: &str, options: &[&str]) -> Command {
    let mut command = sandbox.sailfish();
    command.args(["run", "--input", "in", "--output", output, "--state"]).arg(sandbox.state());
    command.arg("--disk").arg(sandbox.disk()).args(["--memory", "64M", "--slots", "2"]).args(options);
    command
}

/// Private outputs of jobs that are left.
fn private_outputs(sandbox: &Sandbox) -> usize {
    fs::read_dir(sandbox.state().join("files/outputs")).map_or(0, Iterator::count)
}

#[test]
fn output_of_a_job_is_stored() {
    let sandbox = Sandbox::new();
    let expected = sandbox.write_numbers(3, 4000, 20);
    let parted = ["--partitions", "3"];
    let sorted_lines = |text: String| blackbox::sorted_lines(text.as_bytes());
    let all_lines = blackbox::sorted_lines(expected.as_bytes());
    let run =
        |output: &str, options: &[&str]| Running::start(&mut stored_job(&sandbox, output, options)).wait();
    let first = run("files:sorted/all", &["--partitions", "3", "--name", "counts"]).expect_success();
    assert!(first.stderr.contains("files:sorted/all (3 parts"), "{}", first.stderr);
    assert_eq!(sorted_lines(done(&sandbox, &["cat", "sorted/all"])), all_lines);
    assert!(done(&sandbox, &["stat", "sorted/all"]).contains("parts          3"));
    assert!(done(&sandbox, &["fsck"]).contains("1 file, 3 parts"));
    let made_by = "job 1 (counts)";
    for shown in [done(&sandbox, &["versions", "sorted"]), done(&sandbox, &["stat", "sorted/all"])] {
        assert!(shown.contains(made_by), "{shown}");
    }
    let stat = files(&sandbox, &["stat", "--json", "sorted/all"]).expect_success().json();
    assert_eq!((&stat["job"], &stat["job_name"]), (&1.into(), &"counts".into()));
    assert_eq!(private_outputs(&sandbox), 0);
    // Again: a new version; the old one goes.
    run("files:sorted/all", &["--total-order"]).expect_success();
    assert_eq!(done(&sandbox, &["cat", "sorted/all"]), expected);
    assert!(done(&sandbox, &["fsck"]).contains("1 file, 1 part,"));
    // Its input may be a stored file, also the one that it replaces.
    let mut onto_itself = sandbox.sailfish();
    onto_itself.args(["run", "--input", "files:sorted/all", "--output", "files:sorted/all", "--reverse"]);
    onto_itself.args(["--total-order", "--state"]).arg(sandbox.state()).arg("--disk").arg(sandbox.disk());
    Running::start(&mut onto_itself).wait().expect_success();
    let reversed: String = expected.lines().rev().map(|line| format!("{line}\n")).collect();
    assert_eq!(done(&sandbox, &["cat", "sorted/all"]), reversed);
    // Files that cannot be joined stay apart.
    let apart = ["--partitions", "2", "--part-extension", ".txt", "--name", "apart"];
    run("files:apart", &apart).expect_success();
    assert_eq!(names(&sandbox, "apart"), ["part-00000.txt", "part-00001.txt"]);
    let apart = done(&sandbox, &["cat", "apart/part-00000.txt", "apart/part-00001.txt"]);
    assert_eq!(sorted_lines(apart), all_lines);
    // A file that is lost names the job that can make it again, also under another name.
    done(&sandbox, &["mv", "apart/part-00000.txt", "lost.txt"]);
    let text = done(&sandbox, &["cat", "lost.txt"]).into_bytes();
    let data = sandbox.state().join("files/data");
    let mut parts = stored(&sandbox).into_iter().map(|path| data.join(path));
    let lost = parts.find(|path| fs::read(path).is_ok_and(|bytes| bytes == text));
    fs::remove_file(lost.expect("the part is there")).expect("it is removed");
    fs::create_dir(sandbox.path("got")).expect("a directory is made");
    for verb in [&["cat", "lost.txt"][..], &["get", "lost.txt", "got/lost.txt"], &["fsck", "lost.txt"]] {
        files(&sandbox, verb).expect_failure(FAILED, &["made", "job 4 (apart)", "run that job again"]);
    }
    // The get could go on.
    fs::remove_dir_all(sandbox.path("got")).expect("it is removed");
    run("files:apart", &parted).expect_failure(REFUSED, &["files:apart", "is a directory"]);
    run("files:a/../b", &parted).expect_failure(REFUSED, &["--output", "`..`"]);
    run("files:sorted/all@1", &parted).expect_failure(REFUSED, &["--output", "a version cannot be written"]);
    let failed = run("files:failed", &["--mapper", "false"]);
    assert!(!failed.status.success(), "{}", failed.story());
    files(&sandbox, &["ls", "failed"]).expect_failure(REFUSED, &["no file or directory failed"]);
    assert_eq!(private_outputs(&sandbox), 0);
    sandbox.assert_no_leftovers();
}

#[test]
fn names_go_when_their_time_is_over() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a", "a");
    sandbox.write("in/b", "b");
    files(&sandbox, &["put", "in", "x", "--ttl", "0s"])
        .expect_failure(REFUSED, &["--ttl", "at least a second"]);
    files(&sandbox, &["put", "in", "x", "--ttl", "6000w"])
        .expect_failure(REFUSED, &["--ttl", "a hundred years"]);
    done(&sandbox, &["put", "in", "goes", "--ttl", "1s"]);
    done(&sandbox, &["put", "in/a", "stays", "--ttl", "1s"]);
    done(&sandbox, &["put", "in/a", "stays"]);
    done(&sandbox, &["put", "in/a", "later", "--ttl", "7d"]);
    // The first command after that time removes it.
    wait_until("it is gone", || names(&sandbox, "/") == ["later", "stays"]);
    assert!(done(&sandbox, &["versions", "goes"]).contains("expire"));
    assert_eq!(stored(&sandbox).len(), 2);
    let stat = files(&sandbox, &["stat", "--json", "later"]).expect_success().json();
    let time = |field: &str| stat[field].as_u64().expect("a time");
    assert_eq!(time("expires_ns"), time("created_ns") + 7 * 86_400_000_000_000);
    assert!(done(&sandbox, &["stat", "later"]).contains("expires"));
}

#[test]
fn stage_outputs_are_stored() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a b\nb\n");
    let text = "memory = \"64M\"\n[[stage]]\nname = \"words\"\ninput = \"in\"\nmapper = \"builtin:words\"\n\
                reducer = \"builtin:sum\"\n[[stage]]\nname = \"again\"\nfrom = \"words\"\noutput = \"files:counts\"\n";
    sandbox.write("flow.toml", text);
    let mut command = sandbox.sailfish();
    command.args(["run", "--job", "flow.toml", "--state"]).arg(sandbox.state());
    let finished = Running::start(&mut command).wait().expect_success();
    assert!(finished.stderr.contains("files:counts"), "{}", finished.stderr);
    assert_eq!(done(&sandbox, &["cat", "counts"]), "a\t1\nb\t2\n");
}

#[test]
fn crash_before_an_output_is_stored() {
    use CrashPoint::{CleanupAfterRemove, CommitAfterRename, FilesBegun, FilesCommitted, FilesSynced};
    for point in [CommitAfterRename, CleanupAfterRemove, FilesBegun, FilesSynced, FilesCommitted] {
        let sandbox = Sandbox::new();
        let expected = sandbox.write_numbers(1, 500, 10);
        let mut command = stored_job(&sandbox, "files:sorted", &["--total-order"]);
        command.env("SAILFISH_CRASH_AT", point.name());
        let crashed = Running::start(&mut command).wait();
        assert_eq!(crashed.signal(), Some(SIGABRT), "{}: {}", point.name(), crashed.story());
        match point {
            FilesCommitted => assert_eq!(done(&sandbox, &["cat", "sorted"]), expected),
            _ => drop(files(&sandbox, &["cat", "sorted"]).expect_failure(REFUSED, &["sorted"])),
        }
        Running::start(&mut stored_job(&sandbox, "files:sorted", &["--total-order"])).wait().expect_success();
        assert_eq!(done(&sandbox, &["cat", "sorted"]), expected);
        assert!(done(&sandbox, &["fsck"]).contains("1 file, 1 part,"), "{}", point.name());
        assert_eq!((private_outputs(&sandbox), stored(&sandbox).len()), (0, 1), "{}", point.name());
    }
}
